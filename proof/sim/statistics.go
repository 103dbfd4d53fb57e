package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

const statisticStream = 7014

func (w *world) drawStatistics() {
	rng := rand.New(rand.NewPCG(w.seed, statisticStream))
	w.apart.counted = w.apart.admin && rng.IntN(2) == 0
}

type countedMinute struct {
	stats  []processlog.Stat
	stored bool
}

func (s *gatedStore) WriteStats(ctx context.Context, instance string, at time.Time, stats []processlog.Stat) error {
	key := fmt.Sprint(instance, at.UnixMilli())
	s.from.w.oracle.readCounts(func(o *oracle) {
		if before := o.counts[key]; before != nil && !slices.Equal(before.stats, stats) {
			o.failLocked("G43: instance %d has counted %v in the minute %v, and now %v", s.from.number, before.stats, at, stats)
		}
		if o.counts == nil {
			o.counts = make(map[string]*countedMinute)
		}
		if o.counts[key] == nil {
			o.counts[key] = &countedMinute{stats: stats}
		}
	})
	err := s.from.step(ctx, classWrite, "write statistics", "", func() error { return s.store.WriteStats(ctx, instance, at, stats) })
	if err == nil {
		s.from.w.oracle.readCounts(func(o *oracle) {
			o.counts[key].stored = true
			o.sights[sawCountedMinutes]++
		})
	}
	return err
}

// checkCounts asserts G43 (each count is stored once):
//   - The table of statistics has every count that an instance knows to be stored. This holds even after old rows were
//     added up into fewer rows.
//   - The table has only counts that an instance wanted to store.
//   - For each type, the table counts at most as many successes, deaths and failures as the histories of the entries
//     show.
func (w *world) checkCounts() {
	if !w.apart.counted || w.oracle.failed.Load() || len(w.oracle.losses) > 0 {
		return
	}
	stats, err := w.store.Stats(context.Background(), processlog.StatFilter{From: time.Unix(0, 0), To: time.Now().Add(1000 * time.Hour), Period: time.Hour})
	if err != nil {
		w.oracle.fail("G43: the statistics cannot be read: %v", err)
		return
	}
	w.oracle.readCounts(func(o *oracle) { o.countsLocked(stats) })
}

func (o *oracle) countsLocked(stats []processlog.Stat) {
	type counts = map[string]processlog.StatCounts
	add := func(to counts, s processlog.Stat) {
		sum := to[s.BusinessType]
		sum.Add(s.StatCounts)
		to[s.BusinessType] = sum
	}
	found, stored, wanted := make(counts), make(counts), make(counts)
	for _, s := range stats {
		add(found, s)
	}
	for _, m := range o.counts {
		for _, s := range m.stats {
			if add(wanted, s); m.stored {
				add(stored, s)
			}
		}
	}
	truth := o.endsLocked()
	for name, sum := range found {
		most, least := wanted[name], stored[name]
		for i, value := range sum.Values() {
			if *value > *most.Values()[i] || *value < *least.Values()[i] {
				o.failLocked("G43: count %d of type %q is %d, but instances have stored %d and perhaps %d", i, name, *value, *least.Values()[i], *most.Values()[i])
			}
		}
		if real := truth[name]; sum.Succeeded > real.Succeeded || sum.Compensated > real.Compensated || sum.Dead > real.Dead || sum.Failed > real.Failed {
			o.failLocked("G43: the statistics of type %q are %+v, but its entries have had %+v", name, sum, real)
		}
	}
	for name := range stored {
		if _, is := found[name]; !is {
			o.failLocked("G43: no count of type %q is left", name)
		}
	}
}

func (o *oracle) endsLocked() map[string]processlog.StatCounts {
	truth := make(map[string]processlog.StatCounts)
	for _, l := range o.histories {
		sum := truth[l.kind]
		for i, t := range l.steps {
			if i == 0 || t.op.kind != opSettle && t.op.kind != opChange {
				continue
			}
			before := l.steps[i-1].row
			if t.op.kind == opSettle && (t.row.ProcessCount > before.ProcessCount || t.row.CompensateCount > before.CompensateCount) {
				sum.Failed++
			}
			switch {
			case t.row.State == before.State:
			case t.row.State == compensator.Succeeded:
				sum.Succeeded++
			case t.row.State == compensator.Compensated:
				sum.Compensated++
			case t.row.State == compensator.Dead:
				sum.Dead++
			}
		}
		truth[l.kind] = sum
	}
	return truth
}
