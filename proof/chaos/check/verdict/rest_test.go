package verdict

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

func (s *story) notDue() *subject {
	e := s.entry("ship")
	e.delay = 30_000
	e.record(false, history.CommitOK)
	return e
}

func (s *story) removeRecords(file string, match func(history.Record) bool) {
	var rest []history.Record
	for _, r := range s.records[file] {
		if !match(r) {
			rest = append(rest, r)
		}
	}
	s.records[file] = rest
}

func member(r history.Record) bool { _, ok := r.(*history.Member); return ok }

var wrongAtRest = []struct {
	name  string
	check string
	tell  func(s *story)
}{
	{"the queue has forgotten an entry", "queue", func(s *story) {
		s.notDue()
		s.rest()
		s.removeRecords("driver", member)
	}},
	{"the queue has an entry much too late", "queue", func(s *story) {
		s.notDue()
		s.rest()
		for i := range s.members {
			s.members[i].Score += 20_000
		}
	}},
	{"the queue has an entry under another type", "queue", func(s *story) {
		s.notDue()
		s.rest()
		for i := range s.members {
			s.members[i].Type = "pay"
		}
	}},
	{"the queue offers what is long done, and nobody takes it away", "queue", func(s *story) {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeOK).succeed()
		s.members = append(s.members, history.Member{Type: "ship", ID: e.id, Score: float64(s.now/1000 - 60_000), Now: s.now})
		s.rest()
	}},
	{"the queue has forgotten an entry that nobody serves", "queue", func(s *story) {
		s.committed("nobody")
		s.rest()
		s.removeRecords("driver", member)
	}},
	{"the run never came to rest", "lost", func(s *story) {
		s.committed("ship").claim().run("app1").end(history.OutcomeOK).succeed()
		s.rest()
		s.removeRecords("driver", func(r history.Record) bool { _, ok := r.(*history.Mark); return ok })
	}},
}

func TestEveryWrongEndIsCaughtByItsCheck(t *testing.T) {
	for _, w := range wrongAtRest {
		t.Run(w.name, func(t *testing.T) {
			s := newStory(t)
			w.tell(s)
			s.violates(w.check)
		})
	}
}

func fullRun(t *testing.T) *story {
	s := newStory(t)
	for _, name := range slices.Sorted(maps.Keys(legalHistories)) {
		if !slices.Contains(separateHistories, name) {
			legalHistories[name](s)
		}
	}
	s.run.FaultKinds = []string{"kill", "pause", "flush"}
	s.fault("flush", "redis", 10, history.TouchesQueueData)
	s.write("app1", &history.Event{At: s.now, Event: history.EventReconciled, Enqueued: 3})
	s.write("app1", &history.Event{At: s.now, Event: history.EventReconciled, Polled: 1})
	s.run.MinEntries = 20
	s.rest()
	return s
}

func TestRunThatShowsEverythingHoldsAndIsNotVacuous(t *testing.T) {
	require.Empty(t, fullRun(t).holds().Vacuous)
}

func TestWhatARunDidNotShowIsNamed(t *testing.T) {
	event := func(match func(*history.Event) bool) func(*story) {
		return func(s *story) {
			for _, app := range []string{"app1", "app2"} {
				s.removeRecords(app, func(r history.Record) bool { e, ok := r.(*history.Event); return ok && match(e) })
			}
		}
	}
	for name, hide := range map[string]func(s *story){
		"fault: never":    func(s *story) { s.run.FaultKinds = append(s.run.FaultKinds, "never") },
		ShowsEntries:      func(s *story) { s.run.MinEntries = 1000 },
		ShowsDropped:      event(func(e *history.Event) bool { return e.Event == history.EventOutcomeDropped }),
		ShowsPolled:       event(func(e *history.Event) bool { return e.Polled > 0 }),
		ShowsEnqueued:     event(func(e *history.Event) bool { return e.Enqueued > 0 }),
		"fault: flush":    func(s *story) { s.failFaults("flush") },
		"check: attempts": func(s *story) { *s = *emptyRun(t) },
		"check: early":    func(s *story) { *s = *emptyRun(t) },
	} {
		t.Run(name, func(t *testing.T) {
			s := fullRun(t)
			hide(s)
			vacuous := s.judge().Vacuous
			require.True(t, hasPrefix(vacuous, name+": "), "got %q, want %q among them", vacuous, name)
		})
	}
}

// failFaults adds an error to the end of each fault of one kind. The checker treats such a fault as not made.
func (s *story) failFaults(kind string) {
	of := make(map[uint64]bool)
	for _, r := range s.records["driver"] {
		switch r := r.(type) {
		case *history.Fault:
			of[r.N] = r.Fault == kind
		case *history.FaultEnd:
			if of[r.N] {
				r.Err = "refused"
			}
		}
	}
}

func emptyRun(t *testing.T) *story {
	s := newStory(t)
	s.rest()
	return s
}

func TestEveryDemandIsMissedByARunInWhichNothingHappened(t *testing.T) {
	vacuous := emptyRun(t).judge().Vacuous
	for _, name := range []string{
		ShowsEntries, ShowsUnknownHappened, ShowsUnknownNever, ShowsRollback, ShowsSavepoint, ShowsDuplicate, ShowsInsertedWithLease, ShowsLostLease,
		ShowsDropped, ShowsEnqueued, ShowsPolled, ShowsQuarantine, ShowsCompensated, ShowsDead, ShowsTimeAsked,
	} {
		require.True(t, hasPrefix(vacuous, name+": "), "got %q, want %q among them", vacuous, name)
	}
}

func TestDemandIsMetByItsStory(t *testing.T) {
	for demand, name := range map[string]string{
		ShowsUnknownHappened:   "unknown commit that happened",
		ShowsUnknownNever:      "unknown commit that did not",
		ShowsRollback:          "rolled back",
		ShowsSavepoint:         "rolled back to a savepoint",
		ShowsDuplicate:         "recorded again in another transaction",
		ShowsInsertedWithLease: "born claimed",
		ShowsLostLease:         "born claimed, and its process was killed",
		ShowsQuarantine:        "quarantined",
		ShowsCompensated:       "compensated at the second try",
		ShowsDead:              "failed, retried and exhausted",
		ShowsTimeAsked:         "retry after, and not before",
	} {
		s := newStory(t)
		legalHistories[name](s)
		s.rest()
		require.False(t, hasPrefix(s.judge().Vacuous, demand+": "), "%q after %q", demand, name)
	}
}

func TestExcusedDemandIsNotMadeButTold(t *testing.T) {
	s := fullRun(t)
	s.run.FaultKinds = append(s.run.FaultKinds, "never")
	s.run.Excused = map[string]string{"fault: never": "the run is short"}
	s.run.Unavailable = map[string]string{"clock skew": "no libfaketime"}
	v := s.judge()
	require.Empty(t, v.Vacuous)
	require.Equal(t, []string{"fault: clock skew: not available: no libfaketime", "fault: never: the run is short"}, v.Excused)
}

func hasPrefix(lines []string, prefix string) bool {
	for _, line := range lines {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// The machine is too busy if all stalls together last longer than a twentieth of the run. In such a run, a stall
// excuses a lost lease until 10 s after the end of the stall. In other runs, a stall excuses a lost lease until 1 s
// after its end.
func TestLostLeaseNearAStallOfAMachineThatIsTooBusy(t *testing.T) {
	for _, test := range []struct {
		busy, later int64 // in ms
		lost        bool
	}{{1000, 5000, true}, {100_000, 5000, false}, {100_000, 15_000, true}} {
		s := newStory(t)
		s.run.At = s.now
		s.stall("driver", test.busy)
		s.wait(test.later)
		e := s.committed("ship").claim()
		r := e.run("app1")
		s.wait(5000)
		e.claim().run("app2").end(history.OutcomeOK).succeed()
		r.end(history.OutcomeOK)
		s.wait(1_000_000 - test.busy)
		s.rest()
		if test.lost {
			s.violates("executions")
		} else {
			s.holds()
		}
	}
}

func TestLateStartIsNotJudgedOnAMachineThatIsTooBusy(t *testing.T) {
	s := newStory(t)
	s.run.At = s.now
	s.stall("driver", 100_000)
	s.wait(20_000)
	e := s.committed("ship")
	s.wait(10_000)
	e.claim().run("app1").end(history.OutcomeOK).succeed()
	s.rest()
	for _, c := range s.holds().Checks {
		if c.Name == "late" {
			require.Len(t, c.Notes, 1)
		}
	}
}
