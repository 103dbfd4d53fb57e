package compensator

import (
	"context"
	"fmt"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// RequeueOptions say how a requeued entry runs.
type RequeueOptions struct {
	AuditInfo
	Delay      time.Duration
	Compensate bool // Compensate runs the compensation instead of the handler, perhaps again, and also for a succeeded entry. Its Entry.Key is new. An entry of a type without compensation stays compensating until a person settles it
	DryRun     bool // change nothing, and return what Requeue would return, except ErrBusy
}

func (opts RequeueOptions) change() (processlog.Change, error) {
	if err := validateAuditInfo(opts.AuditInfo); err != nil {
		return processlog.Change{}, err
	}
	_, err := (Options{Delay: opts.Delay}).delay()
	return processlog.Change{Action: ActionRequeue, Delay: opts.Delay, Compensate: opts.Compensate, Actor: opts.Actor, Reason: opts.Reason}, err
}

// Requeue starts an entry afresh, with all its attempts. It works from any state except pending and compensating. The
// entry gets a new epoch, and results of the former epoch are dropped.
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

// maxRequeued equals the largest page of List.
const maxRequeued = 1000

// RequeueAll requeues up to 1,000 entries in one transaction, for example a page of List. It returns one error for each
// entry, in their order: nil, ErrChanged if the entry does not have the given version any more, or an error of Requeue.
// ErrBusy comes at once. If the second result is an error, no entry was requeued. There is one exception: if the answer
// to COMMIT was lost, all may have been. A second call then returns ErrChanged for each.
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

// versionsOf returns the ids and versions of entries.
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
		versions[i] = processlog.Version{ID: e.ID, IdempotencyKey: e.IdempotencyKey, State: e.State, Number: e.Version, Epoch: e.Epoch}
	}
	return versions, nil
}

// wouldRequeue answers a dry run. An entry that still has the given version has not changed since it was read.
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
		_, refusals[i] = change.AfterSeen(processlog.Row{ID: v.ID, IdempotencyKey: is.IdempotencyKey, State: is.State, Version: is.Number, Erased: seen[i].Erased}, v)
	}
	return refusals, nil
}
