package compensator

import (
	"context"
	"fmt"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// RequeueOptions say how a requeued entry runs.
type RequeueOptions struct {
	ByHand
	Delay      time.Duration
	Compensate bool // run the compensation (again) instead of the handler, of what has succeeded, too. Its Entry.Key is a new one. Where the type has none, the entry stays in compensating until a person settles it
	DryRun     bool // change nothing: only answer what would be answered, but for ErrBusy
}

func (opts RequeueOptions) change() (processlog.Change, error) {
	if err := validateByHand(opts.ByHand); err != nil {
		return processlog.Change{}, err
	}
	_, err := (Options{Delay: opts.Delay}).delay()
	return processlog.Change{Action: ActionRequeue, Delay: opts.Delay, Compensate: opts.Compensate, Actor: opts.Actor, Reason: opts.Reason}, err
}

// Requeue starts an entry afresh, from any state but pending and compensating: with all attempts, in a new epoch, which
// takes no result of the one before.
func (c *Compensator) Requeue(ctx context.Context, ref Ref, opts RequeueOptions) error {
	change, err := opts.change()
	if err != nil {
		return err
	}
	change.Ref = ref
	if opts.DryRun {
		row, err := c.row(ctx, ref)
		if err == nil {
			_, err = change.After(row)
		}
		return err
	}
	_, err = c.change(ctx, change)
	return err
}

// maxRequeued is as many entries as a page of List holds.
const maxRequeued = 1000

// RequeueAll requeues up to 1,000 entries, as of a page of List, in one transaction, and returns for each, in their order,
// nil or why it was left alone: ErrChanged if its version is not the one seen, or what Requeue returns, ErrBusy at once.
// With another error none has been, or all, if the answer to COMMIT was lost: a second call then finds ErrChanged.
func (c *Compensator) RequeueAll(ctx context.Context, seen []Entry, opts RequeueOptions) ([]error, error) {
	change, err := opts.change()
	if err != nil {
		return nil, err
	}
	versions, err := versionsOf(seen)
	switch {
	case err != nil:
		return nil, err
	case c.closed():
		return nil, ErrClosed
	case len(seen) == 0:
		return nil, nil
	case opts.DryRun:
		return c.wouldRequeue(ctx, seen, versions, change)
	}
	change.Token = processlog.NewToken()
	answers, err := c.store.RequeueAll(c.engine.Reporting(ctx), versions, change)
	if err != nil {
		return nil, err
	}
	refusals := make([]error, len(answers))
	for i, answer := range answers {
		if refusals[i] = answer.Err; answer.Err == nil {
			c.engine.Changed(answer.Before, change)
		}
	}
	return refusals, nil
}

// versionsOf names entries as they were seen.
func versionsOf(seen []Entry) ([]processlog.Version, error) {
	if len(seen) > maxRequeued {
		return nil, &FieldError{Field: "entries", Reason: fmt.Sprintf("%d, at most %d", len(seen), maxRequeued)}
	}
	versions := make([]processlog.Version, len(seen))
	known := make(map[EntryID]bool, len(seen))
	for i, e := range seen {
		if known[e.ID] {
			return nil, &FieldError{Field: "entries", Reason: fmt.Sprintf("name entry %s twice", e.ID)}
		}
		known[e.ID] = true
		versions[i] = processlog.Version{ID: e.ID, IdempotentID: e.IdempotentID, State: e.State, Number: e.Version, Epoch: e.Epoch}
	}
	return versions, nil
}

// wouldRequeue judges by the version: an entry that has the one that was seen is as it was seen.
func (c *Compensator) wouldRequeue(ctx context.Context, seen []Entry, versions []processlog.Version, change processlog.Change) ([]error, error) {
	ids := make([]EntryID, len(seen))
	for i, e := range seen {
		ids[i] = e.ID
	}
	found, err := c.store.Versions(ctx, ids)
	if err != nil {
		return nil, err
	}
	now := make(map[EntryID]processlog.Version, len(found))
	for _, v := range found {
		now[v.ID] = v
	}
	refusals := make([]error, len(seen))
	for i, v := range versions {
		is, there := now[v.ID]
		if !there {
			refusals[i] = ErrNotFound
			continue
		}
		_, refusals[i] = change.AfterSeen(processlog.Row{ID: v.ID, IdempotentID: is.IdempotentID, State: is.State, Version: is.Number, Erased: seen[i].Erased}, v)
	}
	return refusals, nil
}
