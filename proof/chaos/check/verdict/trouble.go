package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

type Fault struct {
	history.Fault
	End   int64 // wall clock in µs; if the fault has no end, the time at which all faults or the run ended
	Fired bool
}

type Stall struct {
	history.Stall
	app string // name of the app; "driver" stands for all apps
}

// recovery is the time in µs for which a fault still has effects after its end.
const recovery = 3_000_000 // in µs

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

func targetOnly(touches string) bool {
	return touches == history.TouchesApp || touches == history.TouchesAppToDB
}

const driver = "driver"

// An empty app means any app. A stall excuses only delays: a lost lease, an outcome not stored in time, or a late
// start.
func (l *Ledger) stalled(from, to int64, app string) bool {
	return slices.ContainsFunc(l.Stalls, func(s Stall) bool {
		return s.At <= to && s.Until+l.felt >= from && (app == "" || s.app == app || s.app == driver)
	})
}

// These are the times in µs for which a stall still has effects after its end, because all delayed work then runs at
// once. The longer time applies if the machine was overloaded for much of the run.
const (
	stallFelt     = 1_000_000
	stallFeltLong = 10_000_000
)

// An overloaded machine is slow between the stalls too.
func (l *Ledger) overloaded() bool {
	var total int64
	for _, s := range l.Stalls {
		if s.app == driver && !l.hit(s.At, s.Until, "", history.TouchesDatabase, history.TouchesLocks) {
			total += s.Until - s.At
		}
	}
	return total*20 > l.endOfRun()-l.Run.At
}

func (l *Ledger) compares(s *step, at int64) bool {
	return !l.clock.moved(s.seq) && !l.hit(at, at, "", history.TouchesDBClock)
}

func (l *Ledger) Calm(from, to int64) bool {
	for i := range l.Faults {
		if f := &l.Faults[i]; f.At <= to && f.End+recovery >= from {
			return false
		}
	}
	return !l.stalled(from, to, "")
}
