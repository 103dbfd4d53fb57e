// Package health gathers the condition of this process and of the log.
package health

import (
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Of asks the database and the queue at the same time. It waits for the database until ctx ends, and for the queue only
// for engine.QueueShare of this time.
func Of(ctx context.Context, e *engine.Engine, pingQueue func(ctx context.Context) (answer func() error)) observe.Health {
	ctx = e.Reporting(ctx)
	types := e.Types()
	h := observe.Health{Handlers: len(types), Running: e.Accepts(), Stuck: e.Stuck(), Problems: e.OpenProblems()}
	queue := pingQueue(ctx)
	r := reading{e: e, h: &h, known: make(map[string]bool, len(types))}
	for _, t := range types {
		r.known[t.Name] = true
	}
	h.Database = r.overdue(ctx)
	slices.Sort(h.UnknownTypes)
	h.UnknownTypes = slices.Compact(h.UnknownTypes)
	h.Queue = queue()
	return h
}

type reading struct {
	e     *engine.Engine
	h     *observe.Health
	known map[string]bool
}

func (r *reading) overdue(ctx context.Context) error {
	heads, err := r.e.Store.Heads(ctx)
	for _, head := range heads {
		if err != nil || head.DueIn > 0 || ctx.Err() != nil {
			continue
		}
		err = r.add(ctx, head)
		if ctx.Err() != nil {
			err = nil
		}
	}
	return err
}

func (r *reading) add(ctx context.Context, head processlog.Head) error {
	oldest, err := r.oldestUnblocked(ctx, head)
	if err != nil || len(oldest) == 0 {
		return err
	}
	h, overdue := r.h, -oldest[0].DueIn
	if overdue > h.Overdue[head.BusinessType] {
		if h.Overdue == nil {
			h.Overdue = make(map[string]time.Duration)
		}
		h.Overdue[head.BusinessType] = overdue
	}
	if overdue > h.OldestOverdue {
		h.OldestOverdue, h.OldestOverdueType = overdue, head.BusinessType
	}
	if !r.known[head.BusinessType] && overdue > r.e.Grace {
		h.UnknownTypes = append(h.UnknownTypes, head.BusinessType)
	}
	return nil
}

// oldestUnblocked returns the oldest due entry that waits for no earlier entry of its ordering key, or no entry. It
// asks the database which entries are blocked, because this process may not know that the type has ordering keys.
func (r *reading) oldestUnblocked(ctx context.Context, head processlog.Head) ([]processlog.Scheduled, error) {
	for _, limit := range []int{1, processlog.MaxRows} {
		due, err := r.e.Store.Scan(ctx, processlog.Window{BusinessType: head.BusinessType, State: head.State, From: -processlog.MaxDelay, To: 0, Free: true, Limit: limit})
		if err != nil || len(due) == 0 {
			return nil, err
		}
		ids := make([]processlog.ID, len(due))
		for i := range due {
			ids[i] = due[i].ID
		}
		blocked, err := r.e.Store.Blocked(ctx, head.BusinessType, ids, true)
		// Perhaps the database user of this process may not read the table of ordering keys. Then report the oldest due
		// entry, although the entry may be blocked.
		if err != nil {
			return due[:1], nil
		}
		due = slices.DeleteFunc(due, func(d processlog.Scheduled) bool { return slices.Contains(blocked, d.ID) })
		if len(due) > 0 {
			return due[:1], nil
		}
	}
	return nil, nil
}
