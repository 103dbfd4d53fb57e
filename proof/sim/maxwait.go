package sim

import (
	"math/rand/v2"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

const maxWaitStream = 7780

// If an entry is older than MaxWait, a handler's request to wait costs an attempt.
func (w *world) drawMaxWait() {
	rng := rand.New(rand.NewPCG(w.seed, maxWaitStream))
	if rng.IntN(4) == 0 {
		w.plan.types.MaxWait = time.Second + time.Duration(rng.Int64N(int64(15*time.Second)))
	}
}

func (a *attempt) askedToWait() bool { return a.manner == snoozed || a.manner == unavailable }

func age(row processlog.Row) time.Duration { return row.NextAt.Sub(row.CreatedAt) - row.DueIn }

func (o *oracle) checkCountedWaitLocked(before, after processlog.Row, a *attempt) {
	o.sights[sawWaitedOut]++
	most := o.w.plan.types.MaxWait
	if most == 0 || age(before) < most && o.w.storeShift == 0 {
		o.failLocked("G7: a wait counts as a failure of entry %s, but its age is %v and MaxWait is %v, attempt %+v", after.ID, age(before), most, *a)
	}
}

func (o *oracle) checkFreeWaitLocked(l *rowHistory, after processlog.Row, a *attempt) {
	most := o.w.plan.types.MaxWait
	if most > 0 && age(l.steps[a.version].row) >= most && o.w.storeShift == 0 {
		o.failLocked("G7: a wait counts as no failure of entry %s, but its age is %v and MaxWait is %v, attempt %+v", after.ID, age(l.steps[a.version].row), most, *a)
	}
}
