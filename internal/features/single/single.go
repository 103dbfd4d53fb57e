// Package single makes one attempt of one entry. It is for tests of users' handlers.
package single

import (
	"context"
	"fmt"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

// Attempt claims one entry, runs it, and stores its outcome. No loop claims other entries, and entries that the
// handler records wait for a Run.
//
// Attempt returns ErrRunning during a Run, and ErrNotFound if the entry does not exist.
func Attempt(ctx context.Context, e *engine.Engine, id processlog.ID) error {
	if err := e.Start(ctx, false); err != nil {
		return err
	}
	defer e.RunEnded()
	renewCtx, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	renewDone := make(chan struct{})
	go func() {
		defer close(renewDone)
		e.Renew(renewCtx)
	}()
	defer func() { stopRenewing(); <-renewDone }()
	if err := startEntry(ctx, e, id); err != nil {
		return err
	}
	return e.Drain()
}

func startEntry(ctx context.Context, e *engine.Engine, id processlog.ID) error {
	rows, err := e.Store.Load(ctx, []processlog.ID{id})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("%v: %w", id, processlog.ErrNotFound)
	}
	row := &rows[0]
	t := e.TypeNamed(row.BusinessType)
	if t == nil {
		return fmt.Errorf("type %q has no handler here", row.BusinessType)
	}
	if t.IsOrdered() {
		if err := t.Order().BlockReason(ctx, row); err != nil {
			return err // A blocked entry must stay unchanged.
		}
	}
	for range 2 { // The first claim of an entry without a stored position only stores the position.
		if blocked, err := claimEntry(e, t, row); err != nil || !blocked {
			return err
		}
	}
	return fmt.Errorf("entry %v is blocked: another entry of its Serial key is running", id)
}

func claimEntry(e *engine.Engine, t *engine.Type, row *processlog.Row) (blocked bool, err error) {
	t.Slots().Overdraw(1)
	claimed, err := e.ClaimWithSlots(t, []processlog.Wanted{{ID: row.ID}}, 1)
	switch {
	case err != nil:
		return false, err
	case len(claimed.Refused) > 0:
		return false, &processlog.RefusedError{Refusals: claimed.Refused}
	case len(claimed.Limited) > 0:
		return false, fmt.Errorf("the limit of type %q allows no start now. To test that entries wait for a limit, use Run", row.BusinessType)
	case len(claimed.Mine) == 0:
		return false, fmt.Errorf("the entry is %v, due in %v and leased for %v", row.State, row.DueIn, max(0, row.LeaseLeft))
	}
	return e.RunClaimed(claimed) > 0, nil
}
