package sim

import (
	"math/rand/v2"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// maxWaitStream is the stream of waits that are bounded. It leaves all seeds kept until then the lives they were.
const maxWaitStream = 7780

// drawMaxWait draws whether what asks to wait may do so for nothing only for a while.
func (w *world) drawMaxWait() {
	rng := rand.New(rand.NewPCG(w.seed, maxWaitStream))
	if rng.IntN(4) == 0 {
		w.plan.types.MaxWait = time.Second + time.Duration(rng.Int64N(int64(15*time.Second)))
	}
}

// askedToWait reports whether an attempt came to nothing but a wait.
func (a *attempt) askedToWait() bool { return a.manner == snoozed || a.manner == unavailable }

// age is how long ago an entry was recorded when a row was left so, by the store's clock.
func age(row processlog.Row) time.Duration { return row.NextAt.Sub(row.CreatedAt) - row.DueIn }

// waitCountedLocked: G7, a wait that counts was asked for when MaxWait was over, and the row says so.
func (o *oracle) waitCountedLocked(before, after processlog.Row, a *attempt) {
	o.sights[sawWaitedOut]++
	most := o.w.plan.types.MaxWait
	if most == 0 || age(before) < most && o.w.storeShift == 0 {
		o.failLocked("G7: a wait counts as a failure of entry %s, %v old, with a MaxWait of %v, attempt %+v", after.ID, age(before), most, *a)
	}
}

// waitFreeLocked: G7, a wait that counts for nothing was asked for before MaxWait was over, as of the claim.
func (o *oracle) waitFreeLocked(l *life, after processlog.Row, a *attempt) {
	most := o.w.plan.types.MaxWait
	if most > 0 && age(l.steps[a.version].row) >= most && o.w.storeShift == 0 {
		o.failLocked("G7: a wait counts for nothing of entry %s, %v old, with a MaxWait of %v, attempt %+v", after.ID, age(l.steps[a.version].row), most, *a)
	}
}
