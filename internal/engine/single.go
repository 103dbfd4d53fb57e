package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

// Attempt claims one entry, runs it, and stores what comes of it. It is for tests: no loop claims anything else, and what
// the handler records waits for a Run. ErrRunning, ErrNotFound; another error says why it could not be claimed.
func (e *Engine) Attempt(ctx context.Context, id processlog.ID) error {
	if err := e.Start(ctx); err != nil {
		return err
	}
	defer e.End()
	e.Refuse()
	renewing, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		e.Renew(renewing)
	}()
	defer func() { stopRenewing(); <-renewed }()
	if err := e.startOne(ctx, id); err != nil {
		return err
	}
	return e.Drain()
}

// AdvanceKeys moves the lines on in which entries stand, and reports whether somebody's turn has come. It is for tests: the next
// of a line is told soon after its first has ended, and a test that asks in between would find nothing due.
func (e *Engine) AdvanceKeys(ctx context.Context, ids []processlog.ID) (bool, error) {
	lines := make(map[string][]processlog.Position) // by type
	for chunk := range slices.Chunk(ids, processlog.MaxRows) {
		if !e.ordering.some.Load() {
			return false, nil
		}
		rows, err := e.Store.Load(ctx, chunk)
		if err != nil {
			return false, err
		}
		for i := range rows {
			if position := e.ordering.positionOf(&rows[i]); position.Key != "" {
				lines[position.BusinessType] = append(lines[position.BusinessType], processlog.Position{Key: position.Key})
			}
		}
	}
	moved := false
	for businessType, ordering := range lines {
		s, _ := e.ordering.of(businessType)
		next, err := e.Store.Advance(ctx, businessType, ordering, !s.PassDead)
		e.ordering.enqueue(businessType, next)
		if moved = moved || len(next) > 0; err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// Blocked returns those of ids that wait for another entry of their key. It is for tests, as AdvanceKeys.
func (e *Engine) Blocked(ctx context.Context, ids []processlog.ID) (blocked []processlog.ID, err error) {
	for chunk := range slices.Chunk(ids, processlog.MaxRows) {
		if !e.ordering.some.Load() {
			return nil, nil
		}
		rows, err := e.Store.Load(ctx, chunk)
		if err != nil {
			return nil, err
		}
		byType := grouped.By(rows, func(row processlog.Row) string { return row.BusinessType })
		for _, businessType := range byType.Order {
			ids := make([]processlog.ID, len(byType.Groups[businessType]))
			for i := range ids {
				ids[i] = byType.Groups[businessType][i].ID
			}
			some, err := e.ordering.blocked(ctx, businessType, ids)
			if err != nil {
				return nil, err
			}
			blocked = append(blocked, some...)
		}
	}
	return blocked, nil
}

// startOne claims an entry and starts its handler, if its turn has come.
func (e *Engine) startOne(ctx context.Context, id processlog.ID) error {
	rows, err := e.Store.Load(ctx, []processlog.ID{id})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("%v: %w", id, processlog.ErrNotFound)
	}
	row := &rows[0]
	t := e.types.named(row.BusinessType)
	if t == nil {
		return fmt.Errorf("type %q has no handler here", row.BusinessType)
	}
	if err := e.behind(ctx, row); err != nil {
		return err // before it is claimed, so that it stays as it is
	}
	for range 2 { // who is not noted in its line is by being put off, once
		if putOff, err := e.startUnblocked(t, row); err != nil || !putOff {
			return err
		}
	}
	return fmt.Errorf("entry %v is blocked: another entry of its Serial key is running", id)
}

// startUnblocked is startOne for an entry that nobody is known to stand in front of; it may be put off all the same.
func (e *Engine) startUnblocked(t *Type, row *processlog.Row) (putOff bool, err error) {
	t.slots.Overdraw(1)
	found, err := e.claims.claim(t, unleased([]processlog.ID{row.ID}), 1)
	if err != nil || len(found.Mine) == 0 {
		e.claimSchedule.free(t, 1)
	}
	switch {
	case err == nil && len(found.Rejected) > 0:
		err = &processlog.RefusedError{Refusals: found.Rejected}
	case err == nil && len(found.Mine) == 0:
		err = fmt.Errorf("the entry is %v, due in %v and leased for %v", row.State, row.DueIn, max(0, row.LeaseLeft))
	}
	if err != nil {
		return false, err
	}
	first, others := e.dispatcher.splitBlocked(t, e.dispatcher.attempts(t, found.Mine, found.asked, 0))
	e.dispatcher.startAttempts(t, first)
	if len(others) == 0 {
		return false, nil
	}
	stands := others[0].list[0].position.Key != "" // otherwise its Serial has panicked, and that is its outcome
	return stands, e.dispatcher.putOff(t, 1, others)
}

// behind returns an error that names who stands in front of an entry, and nil if nobody does.
func (e *Engine) behind(ctx context.Context, row *processlog.Row) error {
	position := e.ordering.positionOf(row)
	if position.Key == "" || row.State.Terminal() {
		return nil
	}
	s, _ := e.ordering.of(position.BusinessType)
	lines, err := e.Store.Firsts(ctx, position.BusinessType, []processlog.Position{position}, !s.PassDead)
	line := lines[position.Key]
	first := line.First
	// The position of an entry that is not noted yet is its id.
	if err != nil || first.IsZero() || first == row.ID || line.Known == 0 && first.Compare(row.ID) > 0 {
		return err
	}
	front, err := e.Store.Load(ctx, []processlog.ID{first})
	if err != nil || len(front) == 0 {
		return err
	}
	return fmt.Errorf("entry %v is blocked: entry %v (%q, %v) is in front of it, because Serial makes %q of both, and entries of one key run one at a time, in the order in which they were recorded",
		row.ID, first, front[0].IdempotencyKey, front[0].State, position.Key)
}
