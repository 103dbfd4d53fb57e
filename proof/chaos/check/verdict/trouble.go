package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// Fault is a fault with its end.
type Fault struct {
	history.Fault
	End   int64 // wall clock, µs; the end of the faults or of the run when the fault has no end
	Fired bool
}

// Stall is a time in which the machine was overloaded, for one app or for all.
type Stall struct {
	history.Stall
	app string // "driver" stands for all apps
}

// recovery is how many µs a fault is felt after its end.
const recovery = 3_000_000

// hit reports whether an app may have felt a fault of one of these kinds between two times.
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
			if slices.Contains(touches, t) && (app == "" || !targetOnly(t) || f.Target == app) {
				return true
			}
		}
	}
	return false
}

// targetOnly reports whether a fault that touches this affects only its target.
func targetOnly(touches string) bool {
	return touches == history.TouchesApp || touches == history.TouchesAppToDB
}

// driver is the name of the driver's process.
const driver = "driver"

// stalled reports whether the machine was overloaded for an app between two times. An empty app stands for any. A stall
// excuses only delays: a lost lease, an outcome not stored in time, a late start.
func (l *Ledger) stalled(from, to int64, app string) bool {
	return slices.ContainsFunc(l.Stalls, func(s Stall) bool {
		return s.At <= to && s.Until+l.felt >= from && (app == "" || s.app == app || s.app == driver)
	})
}

// How many µs a stall is felt after its end, because the delayed work comes all at once. On a machine that was
// overloaded for much of the run, it is felt for longer.
const (
	stallFelt     = 1_000_000
	stallFeltLong = 10_000_000
)

// overloaded reports whether the driver's stalls make up more than a twentieth of the run. Then everything is slow,
// between the stalls too.
func (l *Ledger) overloaded() bool {
	var total int64
	for _, s := range l.Stalls {
		if s.app == driver && !l.hit(s.At, s.Until, "", history.TouchesDatabase, history.TouchesLocks) {
			total += s.Until - s.At
		}
	}
	return total*20 > l.endOfRun()-l.Run.At
}

// compares reports whether the time of a step can be compared with the clock of a process. It cannot when the
// database's clock was moved at about either time.
func (l *Ledger) compares(s *step, at int64) bool {
	return !l.clock.moved(s.seq) && !l.hit(at, at, "", history.TouchesDBClock)
}

// Calm reports whether no fault and no stall was felt between two times.
func (l *Ledger) Calm(from, to int64) bool {
	for i := range l.Faults {
		if f := &l.Faults[i]; f.At <= to && f.End+recovery >= from {
			return false
		}
	}
	return !l.stalled(from, to, "")
}
