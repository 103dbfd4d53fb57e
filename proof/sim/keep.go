package sim

import (
	"math/rand/v2"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// keepStream is the stream of what is kept for a while only. It leaves all seeds kept until then the lives they were.
const keepStream = 68

// drawKeep draws whether ended entries are purged by themselves. Few seeds live that long.
func (w *world) drawKeep() {
	rng := rand.New(rand.NewPCG(w.seed, keepStream))
	if !w.plan.calm && rng.IntN(40) == 0 {
		w.apart.keep = time.Hour
		// An hour of short rounds would take as long to simulate as a hundred other seeds.
		w.plan.config.ReconcileInterval *= roundsRarer
		w.plan.config.PollInterval *= roundsRarer
	}
}

// roundsRarer is how much longer the intervals are where ended entries are kept for an hour.
const roundsRarer = 8

// keptStates are those that Keep is about, written down once more.
var keptStates = states(compensator.Succeeded, compensator.Compensated, compensator.Cancelled)

// keptLocked: G24, what is purged by itself has ended, needs nobody, and is as old as it has to be.
func (o *oracle) keptLocked(row processlog.Row) {
	if !o.keeping {
		return
	}
	o.sights[sawKeptLongEnough]++
	if age := -row.DueIn; !keptStates[row.State] || age < o.w.apart.keep {
		o.failLocked("G24: entry %s was purged, %s since %v", row.ID, row.State, age)
	}
}

// outlive lets the lone instance that is left live on, and asserts the rest of G24: all is purged that is to be, and nothing else.
func (w *world) outlive() {
	if w.apart.keep == 0 || w.oracle.failed.Load() || len(w.oracle.losses) > 0 {
		return
	}
	stay, ahead := 0, time.Duration(0)
	for _, row := range w.store.Rows() {
		if !keptStates[row.State] || row.BusinessType == strayType { // which nobody handles, so that nobody purges it
			stay++
			continue
		}
		ahead = max(ahead, row.DueIn) // of a database whose clock has gone back since it ended
	}
	time.Sleep(w.apart.keep + ahead)
	if !w.await(3*time.Minute, func() bool { return len(w.store.Rows()) <= stay }) {
		w.oracle.fail("G24: %d entries are there after their time, want %d", len(w.store.Rows()), stay)
	}
}
