package engine

import (
	"context"
	"slices"

	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Health asks the database and the queue at the same time, so that a silent queue takes none of the database's time. The
// database has until ctx ends, the queue its QueueShare. It works without Run, too.
func (e *Engine) Health(ctx context.Context) observe.Health {
	ctx = e.reporting(ctx)
	e.refusals.forgetOld()
	h := observe.Health{
		Handlers: len(e.types.names()), Running: e.types.accepts.Load(),
		Stuck: e.holdings.stuck(), Problems: e.Problems.list(),
	}
	if loss := e.rollbackDetector.stopped(); loss != nil {
		h.History = &loss.LossError
	}
	queue := e.enqueuer.health.problem // a queue in this process is not asked
	if !e.Local {
		queue = e.enqueuer.health.question(ctx)
	}
	e.askDatabase(ctx, &h)
	h.Queue = queue()
	return h
}

// askDatabase fills in what the database tells.
func (e *Engine) askDatabase(ctx context.Context, h *observe.Health) {
	heads, err := e.Store.Heads(ctx)
	for _, head := range heads {
		if err != nil || head.DueIn > 0 || ctx.Err() != nil {
			continue // to look at many takes longer than a probe may have, and says nothing of the database
		}
		err = e.addOverdue(ctx, h, head)
		if ctx.Err() != nil {
			err = nil
		}
	}
	h.Database = err
	slices.Sort(h.UnknownTypes)
	h.UnknownTypes = slices.Compact(h.UnknownTypes)
}

func (e *Engine) addOverdue(ctx context.Context, h *observe.Health, head processlog.Head) error {
	oldest, err := e.oldestUnblocked(ctx, head)
	if err != nil || len(oldest) == 0 {
		return err
	}
	overdue := -oldest[0].DueIn
	if overdue > h.Overdue[head.BusinessType] {
		setIn(&h.Overdue, head.BusinessType, overdue)
	}
	if overdue > h.OldestOverdue {
		h.OldestOverdue, h.OldestOverdueType = overdue, head.BusinessType
	}
	if e.types.named(head.BusinessType) == nil && overdue > e.Grace {
		h.UnknownTypes = append(h.UnknownTypes, head.BusinessType)
	}
	return nil
}

// oldestUnblocked reads the entry of a head that is due for longest, and that no other entry of its key blocks. Of a long
// backlog it looks at the beginning only. Whether the type is serial this process need not know.
func (e *Engine) oldestUnblocked(ctx context.Context, head processlog.Head) ([]processlog.Scheduled, error) {
	for _, limit := range []int{1, processlog.MaxRows} {
		due, err := e.Store.Scan(ctx, processlog.Window{BusinessType: head.BusinessType, State: head.State, From: -processlog.MaxDelay, To: 0, Free: true, Limit: limit})
		if err != nil || len(due) == 0 {
			return nil, err
		}
		ids := make([]processlog.ID, len(due))
		for i := range due {
			ids[i] = due[i].ID
		}
		blocked, err := e.Store.Blocked(ctx, head.BusinessType, ids, true)
		if err != nil {
			return due[:1], nil // its reader may have no right to the table
		}
		due = slices.DeleteFunc(due, func(d processlog.Scheduled) bool { return slices.Contains(blocked, d.ID) })
		if len(due) > 0 {
			return due[:1], nil
		}
	}
	return nil, nil
}
