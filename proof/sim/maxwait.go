package sim

import (
	"math/rand/v2"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// maxWaitStream is the random stream for MaxWait. A separate stream leaves the course of older seeds unchanged.
const maxWaitStream = 7780

// drawMaxWait draws whether types have a MaxWait. After that time a handler that asks to wait spends an attempt.
func (w *world) drawMaxWait() {
	rng := rand.New(rand.NewPCG(w.seed, maxWaitStream))
	if rng.IntN(4) == 0 {
		w.plan.types.MaxWait = time.Second + time.Duration(rng.Int64N(int64(15*time.Second)))
	}
}

// askedToWait reports whether the attempt only asked to wait.
func (a *attempt) askedToWait() bool { return a.manner == snoozed || a.manner == unavailable }

// age returns how long before this version of the row the entry was recorded, by the store's clock.
func age(row processlog.Row) time.Duration { return row.NextAt.Sub(row.CreatedAt) - row.DueIn }

// waitCountedLocked checks a wait that spent an attempt, which the error of the row tells. G7: the entry must be older
// than MaxWait.
func (o *oracle) waitCountedLocked(before, after processlog.Row, a *attempt) {
	o.sights[sawWaitedOut]++
	most := o.w.plan.types.MaxWait
	if most == 0 || age(before) < most && o.w.storeShift == 0 {
		o.failLocked("G7: a wait counts as a failure of entry %s, %v old, with a MaxWait of %v, attempt %+v", after.ID, age(before), most, *a)
	}
}

// waitFreeLocked asserts G7: a wait that spends no attempt was asked for before MaxWait was over at the claim.
func (o *oracle) waitFreeLocked(l *life, after processlog.Row, a *attempt) {
	most := o.w.plan.types.MaxWait
	if most > 0 && age(l.steps[a.version].row) >= most && o.w.storeShift == 0 {
		o.failLocked("G7: a wait counts for nothing of entry %s, %v old, with a MaxWait of %v, attempt %+v", after.ID, age(l.steps[a.version].row), most, *a)
	}
}
