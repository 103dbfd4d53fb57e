package compensator

import (
	"context"

	"github.com/compensator-go/compensator/processlog"
)

// EraseResult tells what Erase found.
type EraseResult struct {
	WasAlready bool // it was erased before, and nothing has changed
}

// Erase blanks the content, headers, user name and last error of an entry that has ended, a dead one too, and reasons and
// errors in its earlier audit records. The fact stays: ids, which must hold no personal data, state, times, who did what;
// and the idempotent id still guards. It cannot be requeued: a *StateError with Erased, as of an entry that has not
// ended without. ErrNotFound, ErrBusy. What it cannot reach is in docs/operations.md.
func (c *Compensator) Erase(ctx context.Context, ref Ref, by ByHand) (EraseResult, error) {
	if err := validateByHand(by); err != nil {
		return EraseResult{}, err
	}
	before, err := c.change(ctx, processlog.Change{Ref: ref, Action: ActionErase, Actor: by.Actor, Reason: by.Reason})
	return EraseResult{WasAlready: err == nil && before.Erased}, err
}
