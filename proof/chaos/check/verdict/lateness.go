package verdict

import (
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

type Start struct {
	At   int64 // wall clock in µs
	Late int64 // delay in µs
	Calm bool
}

// Starts returns a Start for the first attempt of each claim. Start.Late counts from the due time of the entry, or from
// the answer to the COMMIT if this answer came later. A claim is left out if the claim had to wait until the lease of
// an earlier claim ran out.
func (l *Ledger) Starts() []Start {
	var starts []Start
	l.eachEntry(func(e *Entry) {
		for i := range e.attempts {
			a := &e.attempts[i]
			claim := e.stepThatWrote(a.version)
			if claim == nil || e.foundLapsed(claim) || e.firstAttempt(a.version) != a {
				continue
			}
			ready := l.readyAt(e, claim)
			starts = append(starts, Start{At: a.began, Late: max(0, a.began-ready), Calm: l.Calm(min(ready, a.began), a.began)})
		}
	})
	slices.SortFunc(starts, func(a, b Start) int { return int(a.At - b.At) })
	return starts
}

// The result of tooLateAfter is in µs.
func (l *Ledger) tooLateAfter() int64 {
	return 2 * 1000 * (l.longestLease() + l.Run.GraceMS + l.Run.ReconcileIntervalMS)
}

const lateForNoReason = 1 // per thousand

// checkLate judges no start on a machine that was overloaded for much of the run, because work left over from a stall
// still delays entries.
func checkLate(l *Ledger, c *Check) {
	late := 0
	for _, s := range l.Starts() {
		if !s.Calm {
			continue
		}
		if c.Looked++; s.Late > l.tooLateAfter() {
			late++
		}
	}
	if late*1000 <= c.Looked*lateForNoReason {
		return
	}
	if l.overloaded() {
		c.note("%d calm starts were more than %d ms late; not judged, because the machine was overloaded for much of the run", late, l.tooLateAfter()/1000)
		return
	}
	c.violate(nil, nil, "%d of %d attempts began more than %d ms late, without a fault", late, c.Looked, l.tooLateAfter()/1000)
}

func (l *Ledger) readyAt(e *Entry, claim *step) int64 {
	due := claim.wall + claim.new.nextAt*1000 - claim.now
	if claim.move != moveInsert && claim.old.version != 0 {
		return due
	}
	for _, in := range l.possibleInserts(e) {
		if in.tx.answered != 0 {
			due = max(due, in.tx.answered)
		}
	}
	return due
}

type Percentiles struct {
	N                        int
	P50, P90, P99, P999, Max time.Duration
}

func Sum(starts []Start, match func(Start) bool) Percentiles {
	var late []int64
	for _, s := range starts {
		if match(s) {
			late = append(late, s.Late)
		}
	}
	if len(late) == 0 {
		return Percentiles{}
	}
	slices.Sort(late)
	at := func(perMille int) time.Duration {
		return time.Duration(late[min(len(late)-1, len(late)*perMille/1000)]) * time.Microsecond
	}
	return Percentiles{N: len(late), P50: at(500), P90: at(900), P99: at(990), P999: at(999), Max: at(1000)}
}

func (p Percentiles) String() string {
	round := func(d time.Duration) time.Duration {
		if d > time.Second {
			return d.Round(10 * time.Millisecond)
		}
		return d.Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%d starts: 50 %% at most %v late, 90 %% %v, 99 %% %v, 99.9 %% %v, all %v",
		p.N, round(p.P50), round(p.P90), round(p.P99), round(p.P999), round(p.Max))
}

type Second struct {
	Recorded int
	Settled  int
	Attempts int
	Late     Percentiles
}

// Timeline cuts the run into seconds. begin is the wall clock time of the first second.
func (l *Ledger) Timeline() (begin int64, seconds []Second) {
	begin = l.Run.At
	if begin == 0 {
		begin = l.processes[0].started
	}
	seconds = make([]Second, max(1, (l.endOfRun()-begin)/1_000_000+1))
	in := func(at int64) *Second {
		return &seconds[max(0, min(int64(len(seconds)-1), (at-begin)/1_000_000))]
	}
	l.eachEntry(func(e *Entry) {
		for i := range e.steps {
			switch s := &e.steps[i]; {
			case s.move == moveInsert:
				in(s.wall).Recorded++
			case s.move != moveDelete && terminal(s.new.state) && !terminal(s.old.state):
				in(s.wall).Settled++
			}
		}
		for i := range e.attempts {
			in(e.attempts[i].began).Attempts++
		}
	})
	starts := l.Starts()
	for len(starts) > 0 {
		n := 1
		for n < len(starts) && (starts[n].At-begin)/1_000_000 == (starts[0].At-begin)/1_000_000 {
			n++
		}
		in(starts[0].At).Late = Sum(starts[:n], func(Start) bool { return true })
		starts = starts[n:]
	}
	return begin, seconds
}

type Counts struct {
	Entries, Commits, UnknownCommits, Attempts, Claims, LostLeases, Dropped int
	ByEnd                                                                   map[string]int
}

func (l *Ledger) Count() Counts {
	c := Counts{ByEnd: make(map[string]int)}
	for _, tx := range l.txs {
		switch tx.outcome {
		case history.CommitOK:
			c.Commits++
		case history.CommitUnknown:
			c.UnknownCommits++
		}
	}
	l.eachEntry(func(e *Entry) {
		if len(e.steps) == 0 {
			return
		}
		c.Entries++
		c.Attempts += len(e.attempts)
		for i := range e.steps {
			s := &e.steps[i]
			if s.claims() {
				c.Claims++
			}
			if e.foundLapsed(s) {
				c.LostLeases++
			}
			if s.move != moveDelete && terminal(s.new.state) && !terminal(s.old.state) {
				c.ByEnd[s.move]++
			}
		}
	})
	for i := range l.events {
		if l.events[i].Event == history.EventOutcomeDropped {
			c.Dropped++
		}
	}
	return c
}

// Mark returns 0 if the run has no such mark.
func (l *Ledger) Mark(what string) int64 { return l.marks[what] }
