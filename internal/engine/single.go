package engine

import (
	"context"
	"fmt"

	"github.com/compensator-go/compensator/processlog"
)

// Attempt claims one entry, runs it, and stores its outcome. It is for tests. No loop claims other entries, and entries
// that the handler records wait for a Run.
//
// Attempt returns ErrRunning during a Run, and ErrNotFound if the entry does not exist. Another error says why the
// entry could not be claimed.
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

// startOne claims an entry and starts its handler, unless an earlier entry blocks it.
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
	if t.Blocks() {
		if err := t.order.Reason(ctx, row); err != nil {
			return err // Check before the claim, so that a blocked entry stays unchanged.
		}
	}
	for range 2 { // An entry that is not yet noted under its ordering key is put off once, which notes it. So try twice.
		if putOff, err := e.startUnblocked(t, row); err != nil || !putOff {
			return err
		}
	}
	return fmt.Errorf("entry %v is blocked: another entry of its Serial key is running", id)
}

// startUnblocked claims and starts an entry that no known entry blocks. It returns putOff if the claimed entry turns
// out to be blocked.
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
	first, blocked, giveUp := t.separate(e.dispatcher.attempts(t, found.Mine, found.asked, 0))
	e.dispatcher.startAttempts(t, first)
	if len(first) > 0 {
		return false, nil
	}
	return len(blocked) > 0, e.dispatcher.giveUp(t, 1, blocked, giveUp)
}
