package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

const keepStream = 68

// Only a few seeds purge, because such a seed takes long.
func (w *world) drawKeep() {
	rng := rand.New(rand.NewPCG(w.seed, keepStream))
	if !w.plan.calm && rng.IntN(40) == 0 {
		w.apart.keep = time.Hour
		// This seed lasts for an hour of simulated time. With short reconcile intervals it would take as long as a
		// hundred other seeds.
		w.plan.config.ReconcileInterval *= roundsRarer
		w.plan.config.PollInterval *= roundsRarer
		w.apart.absent = rng.IntN(16) > 0
	}
}

const roundsRarer = 8

// launchWorker stops all instances except one that handles every type. An instance of an older version could take over
// the maintenance rounds, and such an instance does not purge the types that it lacks.
func (w *world) launchWorker() {
	started := make(chan struct{})
	w.asWorld(func() {
		w.ensureWorker()
		close(started)
	})
	<-started
	w.endAllBut(w.worker())
}

// keptStates repeats the library's own list, so that the oracle finds a mistake in that list.
var keptStates = states(compensator.Succeeded, compensator.Compensated, compensator.Cancelled)

func (o *oracle) checkKeptLocked(row processlog.Row) {
	if !o.keeping {
		return
	}
	o.sights[sawKeptLongEnough]++
	if age := -row.DueIn; !keptStates[row.State] || age < o.w.apart.keep {
		o.failLocked("G24: entry %s was purged too early: it has been %s for %v", row.ID, row.State, age)
	}
}

const lastMinutes = 5 * time.Minute

func (w *world) outlive() {
	if w.apart.keep == 0 || w.oracle.failed.Load() || len(w.oracle.losses) > 0 {
		return
	}
	var ahead time.Duration
	for _, row := range w.purgeable() {
		ahead = max(ahead, row.DueIn)
	}
	if w.apart.absent {
		w.endAllBut(nil)
		time.Sleep(w.apart.keep - lastMinutes)
		w.launchWorker()
		time.Sleep(lastMinutes + ahead)
	} else {
		time.Sleep(w.apart.keep + ahead)
	}
	overdue := func() int {
		rows := slices.DeleteFunc(w.purgeable(), func(row processlog.Row) bool { return -row.DueIn < w.apart.keep }) // Leave out entries that are still too young.
		return len(rows)
	}
	if !w.await(3*time.Minute, func() bool { return overdue() == 0 }) {
		w.oracle.fail("G24: %d entries are due for a purge and still exist", overdue())
	}
}

// purgeable leaves out types without a handler, because no instance purges them.
func (w *world) purgeable() []processlog.Row {
	return slices.DeleteFunc(w.store.Rows(), func(row processlog.Row) bool { return !keptStates[row.State] || row.BusinessType == strayType })
}
