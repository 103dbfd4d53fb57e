package sim

import (
	"context"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

// shortSlice limits how many entries one call of CountBacklog counts in each range. The simulated log has few entries,
// so with a higher limit one call would count a whole range.
const shortSlice = 3

type backlogRound struct {
	versions    map[compensator.EntryID]uint64
	transitions int
}

func (s *gatedStore) Count(ctx context.Context, tx compensator.Tx, filter admin.CountFilter) ([]admin.Count, error) {
	if filter.AtMost == 1 {
		rows := s.store.Rows()
		s.from.w.oracle.readCounts(func(o *oracle) {
			s.from.round = backlogRound{make(map[compensator.EntryID]uint64, len(rows)), o.transitions}
			for _, row := range rows {
				s.from.round.versions[row.ID] = row.Version
			}
		})
	}
	return s.store.Count(ctx, tx, filter)
}

func (s *gatedStore) CountBacklog(ctx context.Context, ranges []processlog.BacklogRange, limit int) (counted []processlog.BacklogSlice, err error) {
	err = s.from.step(ctx, classRead, "count backlog", string(make(args, 0, 16).num(uint64(len(ranges)))), func() (err error) {
		counted, err = s.store.CountBacklog(ctx, ranges, min(limit, shortSlice))
		return err
	})
	return counted, err
}

func (s *gatedStore) WriteBacklog(ctx context.Context, slot time.Time, backlog []processlog.Backlog) error {
	return s.from.step(ctx, classWrite, "write backlog", "", func() error {
		rows := s.store.Rows()
		s.from.w.oracle.readCounts(func(o *oracle) { o.checkBacklogLocked(s.from.round, rows, backlog) })
		return s.store.WriteBacklog(ctx, slot, backlog)
	})
}

func (s *gatedStore) ReadBacklog(ctx context.Context) (processlog.BacklogReading, error) {
	return s.store.ReadBacklog(ctx)
}

// An entry that has not changed during the round must be counted once. A changed entry may be counted in its old and in
// its new state.
func (o *oracle) checkBacklogLocked(round backlogRound, rows []processlog.Row, backlog []processlog.Backlog) {
	if len(o.losses) > 0 || round.versions == nil {
		return
	}
	type group struct {
		businessType string
		state        compensator.State
	}
	unchanged := make(map[group]int)
	for _, row := range rows {
		if version, known := round.versions[row.ID]; known && version == row.Version {
			unchanged[group{row.BusinessType, row.State}]++
		}
	}
	changes := o.transitions - round.transitions
	counted := make(map[string]processlog.Backlog)
	for _, b := range backlog {
		counted[b.BusinessType] = b
		if open := b.Pending + b.Retrying + b.Compensating; b.Due > open || b.Overdue > b.Due {
			o.failLocked("G45: more entries are due than wait: %+v", b)
		}
	}
	for _, row := range rows {
		if _, found := counted[row.BusinessType]; !found {
			counted[row.BusinessType] = processlog.Backlog{}
		}
	}
	for name, b := range counted {
		for _, state := range processlog.BacklogStates {
			if least := unchanged[group{name, state}]; b.Of(state) < least || b.Of(state) > least+2*changes {
				o.failLocked("G45: %d entries of type %q are %v, and %d changes were made meanwhile, but %d were counted", least, name, state, changes, b.Of(state))
			}
		}
	}
	o.sights[sawBacklogs]++
}
