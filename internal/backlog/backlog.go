// Package backlog counts the entries of a log that have not ended, and its dead entries.
package backlog

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/sleep"
	"github.com/compensator-go/compensator/processlog"
)

// Slice is how many entries of the due index one statement counts at most. IdleSlice applies to a process without work,
// which counts rarely.
const (
	Slice     = 5000
	IdleSlice = 40 * Slice
)

// Store is the part of a store that Round needs.
type Store interface {
	Count(ctx context.Context, tx processlog.Tx, filter processlog.CountFilter) ([]processlog.Count, error)
	CountBacklog(ctx context.Context, ranges []processlog.BacklogRange, limit int) ([]processlog.BacklogSlice, error)
	WriteBacklog(ctx context.Context, slot time.Time, backlog []processlog.Backlog) error
}

// Round counts the backlog of each type, and stores the counts under the time slot.
//
// An entry that nobody changes during the round is counted exactly once. An entry that changes during the round may be
// counted twice, or not at all.
func Round(ctx context.Context, store Store, slot time.Time, slice int) error {
	ranges, err := rangesWithEntries(ctx, store)
	if err != nil {
		return err
	}
	types := make(map[string]*processlog.Backlog)
	for len(ranges) > 0 {
		n := min(len(ranges), processlog.MaxBacklogRanges)
		limit := slice / n
		began := time.Now()
		counted, err := store.CountBacklog(ctx, ranges[:n], limit)
		if err != nil {
			return err
		}
		rest := ranges[n:]
		for i, r := range ranges[:n] {
			if types[r.BusinessType] == nil {
				types[r.BusinessType] = &processlog.Backlog{BusinessType: r.BusinessType}
			}
			types[r.BusinessType].Add(r.State, counted[i])
			if r.After = counted[i].Last; !r.After.ID.IsZero() {
				rest = append(rest, r)
			}
		}
		ranges = rest
		if len(ranges) > 0 && !sleep.For(ctx, time.Since(began)) {
			return ctx.Err()
		}
	}
	backlog := make([]processlog.Backlog, 0, len(types))
	for _, name := range slices.Sorted(maps.Keys(types)) {
		backlog = append(backlog, *types[name])
	}
	failpoint.Reach(failpoint.BacklogCounted)
	return store.WriteBacklog(ctx, slot, backlog)
}

func rangesWithEntries(ctx context.Context, store Store) (ranges []processlog.BacklogRange, err error) {
	counts, err := store.Count(ctx, nil, processlog.CountFilter{States: processlog.BacklogStates[:], AtMost: 1})
	for _, c := range counts {
		ranges = append(ranges, processlog.BacklogRange{BusinessType: c.BusinessType, State: c.State})
	}
	return ranges, err
}
