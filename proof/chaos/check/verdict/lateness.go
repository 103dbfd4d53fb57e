package verdict

import (
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// Start is one attempt's, and how long after it could have begun it did.
type Start struct {
	At   int64 // wall µs
	Late int64 // µs
	Calm bool  // no fault was felt between the two
}

// Starts measures every first run of a claim that took a free entry: from its due moment, or the answer to its
// commit when that came later. What waited for the end of a lost lease is not lateness, and left out.
func (l *Ledger) Starts() []Start {
	var starts []Start
	l.each(func(e *Entry) {
		for i := range e.attempts {
			a := &e.attempts[i]
			claim := e.at(a.version)
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

// tooLateAfter is how late an attempt may begin while nothing is in its way, µs: twice what a lost lease, the
// grace of a producer who does not enqueue, and a round of the reconciler take together.
func (l *Ledger) tooLateAfter() int64 {
	return 2 * 1000 * (l.longestLease() + l.Run.GraceMS + l.Run.ReconcileIntervalMS)
}

// lateForNoReason is how many starts of a thousand calm ones may be later than that.
const lateForNoReason = 1

// checkLate: what is due begins in good time while no fault is about and no process stalls. In broken times, lateness is
// told and not judged: what an outage costs is the outage's. On a machine that is too busy for much of the run, what
// looks calm is the tail of what was not.
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
		c.note("%d calm starts came more than %d ms late; not judged: the machine was too busy for much of the run", late, l.tooLateAfter()/1000)
		return
	}
	c.violate(nil, nil, "%d of %d attempts began more than %d ms late, with nothing in their way", late, c.Looked, l.tooLateAfter()/1000)
}

// readyAt is when a claim could have been made, on the wall clock.
func (l *Ledger) readyAt(e *Entry, claim *step) int64 {
	due := claim.wall + claim.new.nextAt*1000 - claim.now
	if claim.move != moveInsert && claim.old.version != 0 {
		return due
	}
	for _, in := range l.source(e) {
		if in.tx.answered != 0 {
			due = max(due, in.tx.answered)
		}
	}
	return due
}

// Percentiles sum up how late attempts began.
type Percentiles struct {
	N                        int
	P50, P90, P99, P999, Max time.Duration
}

// Sum takes those starts that match.
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
	return fmt.Sprintf("%d starts: half within %v, 90 %% %v, 99 %% %v, 99.9 %% %v, all %v late",
		p.N, round(p.P50), round(p.P90), round(p.P99), round(p.P999), round(p.Max))
}

// Second is what happened in one second of the run.
type Second struct {
	Recorded int // entries inserted
	Settled  int // entries that came to a terminal state
	Attempts int // begun
	Late     Percentiles
}

// Timeline cuts the run into seconds; begin is the wall clock's moment of the first.
func (l *Ledger) Timeline() (begin int64, seconds []Second) {
	begin = l.Run.At
	if begin == 0 {
		begin = l.processes[0].started
	}
	seconds = make([]Second, max(1, (l.endOfRun()-begin)/1_000_000+1))
	in := func(at int64) *Second {
		return &seconds[max(0, min(int64(len(seconds)-1), (at-begin)/1_000_000))]
	}
	l.each(func(e *Entry) {
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

// Counts are a run's totals.
type Counts struct {
	Entries, Commits, UnknownCommits, Attempts, Claims, LostLeases, Dropped int
	ByEnd                                                                   map[string]int // rows by what brought them where they are
}

// Count adds a run up.
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
	l.each(func(e *Entry) {
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

// Mark is the last moment of a mark, wall µs; 0: there is none.
func (l *Ledger) Mark(what string) int64 { return l.marks[what] }
