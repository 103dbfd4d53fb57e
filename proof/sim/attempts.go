package sim

import (
	"context"
	"slices"

	"github.com/compensator-go/compensator/processlog"
)

func (w *world) checkAttempts() {
	if !w.apart.admin || w.oracle.failed.Load() || len(w.oracle.losses) > 0 {
		return
	}
	for _, row := range w.store.Rows() {
		listed, err := w.store.AttemptsOf(context.Background(), row.ID)
		if err != nil {
			w.oracle.fail("G42: the attempts of entry %s cannot be read: %v", row.ID, err)
			return
		}
		w.oracle.readCounts(func(o *oracle) { o.checkAttemptsLocked(o.histories[row.ID], row, listed) })
	}
}

func (o *oracle) checkAttemptsLocked(l *rowHistory, now processlog.Row, listed []processlog.FailedAttempt) {
	if l == nil {
		return
	}
	byVersion := make(map[uint64]processlog.FailedAttempt)
	for _, a := range listed {
		byVersion[a.Version] = a
	}
	if len(listed) > processlog.MaxAttemptsKept || len(byVersion) != len(listed) {
		o.failLocked("G42: entry %s has %d failed attempts with %d versions", now.ID, len(listed), len(byVersion))
	}
	for i, t := range l.steps {
		if t.op.kind != opSettle || i == 0 {
			continue
		}
		before := l.steps[i-1].row
		a, is := byVersion[before.Version]
		delete(byVersion, before.Version)
		won := t.row.State == processlog.Succeeded || t.row.State == processlog.Compensated
		counted := t.row.ProcessCount > before.ProcessCount || t.row.CompensateCount > before.CompensateCount || t.row.EndedBy == processlog.EndedByCrash
		overwritten := slices.ContainsFunc(listed, func(later processlog.FailedAttempt) bool {
			return later.Version >= before.Version+2*processlog.MaxAttemptsKept-1
		})
		switch {
		case is && won:
			o.failLocked("G42: entry %s has a failed attempt in version %d, which succeeded", now.ID, before.Version)
		case !is && counted && !overwritten:
			o.failLocked("G42: entry %s has no failed attempt in version %d, whose failure counted", now.ID, before.Version)
		case is && (a.Epoch != before.Epoch || !t.row.State.Terminal() && !a.NextAt.Equal(t.row.NextAt) || t.row.State.Terminal() && !a.NextAt.IsZero()):
			o.failLocked("G42: the failed attempt of entry %s in version %d is %+v, but its outcome is %+v", now.ID, before.Version, a, t.row)
		case is && now.Erased && a.Error != "":
			o.failLocked("G42: entry %s is erased, but its attempt in version %d has an error", now.ID, before.Version)
		case is:
			o.sights[sawFailedAttempts]++
		}
	}
	for version := range byVersion {
		o.failLocked("G42: entry %s has a failed attempt in version %d, in which no outcome was stored", now.ID, version)
	}
}
