package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// Fault is a fault with its end.
type Fault struct {
	history.Fault
	End   int64 // wall µs; the run's end when it has none
	Fired bool
}

// Stall is a time in which the machine was too busy for one app, or for all.
type Stall struct {
	history.Stall
	app string // "driver": all
}

// recovery is how long a fault is felt after its end.
const recovery = 3_000_000

// hit reports whether a fault of one of these kinds may have been felt by an app between two moments.
func (l *Ledger) hit(from, to int64, app string, touches ...string) bool {
	for i := range l.Faults {
		f := &l.Faults[i]
		if f.At > to {
			return false
		}
		if f.End+recovery < from {
			continue
		}
		for _, t := range f.Touches {
			if slices.Contains(touches, t) && (app == "" || !aimed(t) || f.Target == app) {
				return true
			}
		}
	}
	return false
}

// aimed reports whether a fault that touches this touches its target alone.
func aimed(touches string) bool {
	return touches == history.TouchesApp || touches == history.TouchesAppToDB
}

// driver is the name of the driver's process.
const driver = "driver"

// stalled reports whether the machine was too busy for an app between two moments; "": for any. It excuses only what
// comes of being late: a lost lease, an outcome not stored in time, a late start.
func (l *Ledger) stalled(from, to int64, app string) bool {
	return slices.ContainsFunc(l.Stalls, func(s Stall) bool {
		return s.At <= to && s.Until+l.felt >= from && (app == "" || s.app == app || s.app == driver)
	})
}

// How long a stall is felt after its end, µs: what has waited comes all at once. On a machine that was too busy for much
// of the run that takes longer.
const (
	stallFelt     = 1_000_000
	stallFeltLong = 10_000_000
)

// overloaded reports whether the machine was too busy for more than a twentieth of the run, by the driver's count:
// then everything is slow, between the stalls as well.
func (l *Ledger) overloaded() bool {
	var total int64
	for _, s := range l.Stalls {
		if s.app == driver && !l.hit(s.At, s.Until, "", history.TouchesDatabase, history.TouchesLocks) {
			total += s.Until - s.At
		}
	}
	return total*20 > l.endOfRun()-l.Run.At
}

// compares reports whether a step's moment can be held against one that a process has read off its own clock: not when
// the database's was moved about either.
func (l *Ledger) compares(s *step, at int64) bool {
	return !l.clock.moved(s.seq) && !l.hit(at, at, "", history.TouchesDBClock)
}

// Calm reports whether no fault at all was felt between two moments.
func (l *Ledger) Calm(from, to int64) bool {
	for i := range l.Faults {
		if f := &l.Faults[i]; f.At <= to && f.End+recovery >= from {
			return false
		}
	}
	return !l.stalled(from, to, "")
}
