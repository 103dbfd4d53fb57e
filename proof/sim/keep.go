package sim

import (
	"math/rand/v2"
	"slices"
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
		w.apart.absent = rng.IntN(16) > 0
	}
}

// roundsRarer is how much longer the intervals are where ended entries are kept for an hour.
const roundsRarer = 8

// launchWorker starts a lone instance that handles every type. An older version beside it would win rounds, and purge nothing of the
// types that it lacks.
func (w *world) launchWorker() {
	started := make(chan struct{})
	w.asWorld(func() {
		w.someoneWorks()
		close(started)
	})
	<-started
	w.endAllBut(w.worker())
}

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

// lastMinutes is how long before the first entry has been kept for long enough a new instance starts, where nobody runs until then.
const lastMinutes = 5 * time.Minute

// outlive lets time pass, and asserts the rest of G24: all is purged that is to be, and nothing else. In one of sixteen such seeds the
// lone instance that is left lives on. In the others it ends, and a new one starts for the last minutes. An hour of rounds costs
// as much as ten other seeds.
func (w *world) outlive() {
	if w.apart.keep == 0 || w.oracle.failed.Load() || len(w.oracle.losses) > 0 {
		return
	}
	var ahead time.Duration // of a database whose clock has gone back since an entry ended
	for _, row := range w.kept() {
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
		rows := slices.DeleteFunc(w.kept(), func(row processlog.Row) bool { return -row.DueIn < w.apart.keep }) // a slot may have come due late
		return len(rows)
	}
	if !w.await(3*time.Minute, func() bool { return overdue() == 0 }) {
		w.oracle.fail("G24: %d entries are there after their time", overdue())
	}
}

// kept lists the entries that are to be purged by themselves. A type that nobody handles is purged by nobody.
func (w *world) kept() []processlog.Row {
	return slices.DeleteFunc(w.store.Rows(), func(row processlog.Row) bool { return !keptStates[row.State] || row.BusinessType == strayType })
}
