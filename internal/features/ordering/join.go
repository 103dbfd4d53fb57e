package ordering

import (
	"context"
	"slices"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/processlog"
)

// recordPositions returns a *FieldError if the user's function panics.
func (o *Ordering) recordPositions(drafts []processlog.Draft) (write engine.RecorderWrite, err error) {
	if !o.hasSerial.Load() {
		return nil, nil
	}
	var positions []processlog.Position // one for each draft; Key is empty if the draft has no ordering key
	for i := range drafts {
		d := &drafts[i]
		s, ok := o.serialOf(d.BusinessType)
		if !ok || d.Done {
			continue
		}
		row := d.Row()
		p, err := position(s, &row)
		if err != nil {
			return nil, err
		}
		if positions == nil {
			positions = make([]processlog.Position, len(drafts))
		}
		positions[i] = p
	}
	if positions == nil {
		return nil, nil
	}
	return func(ctx context.Context, tx processlog.Tx, inserted []processlog.Inserted) error {
		return o.writePositions(ctx, tx, drafts, positions, inserted)
	}, nil
}

func (o *Ordering) writePositions(ctx context.Context, tx processlog.Tx, drafts []processlog.Draft, positions []processlog.Position, inserted []processlog.Inserted) error {
	if err := o.learnIDs(ctx, tx, drafts, positions, inserted); err != nil {
		return err
	}
	recorded := positions[:0]
	for i, p := range positions {
		if p.Key != "" && !inserted[i].Duplicate {
			p.ID = inserted[i].ID
			recorded = append(recorded, p)
		}
	}
	orderAsGiven(recorded)
	if len(recorded) == 0 {
		return nil
	}
	err := o.e.Store.Join(ctx, tx, recorded)
	failpoint.Reach(failpoint.OrderingJoined)
	return err
}

// orderAsGiven is needed because Insert sorts rows by idempotency key, so that two transactions with the same keys do
// not deadlock.
func orderAsGiven(positions []processlog.Position) {
	lists := make(map[orderingKey][]int, len(positions))
	for i, p := range positions {
		key := orderingKey{p.BusinessType, p.Key}
		lists[key] = append(lists[key], i)
	}
	for _, list := range lists {
		orderIDs := make([]processlog.ID, len(list))
		for n, i := range list {
			orderIDs[n] = positions[i].ID
		}
		slices.SortFunc(orderIDs, processlog.ID.Compare)
		for n, i := range list {
			positions[i].OrderID = orderIDs[n]
		}
	}
}

func (o *Ordering) learnIDs(ctx context.Context, tx processlog.Tx, drafts []processlog.Draft, positions []processlog.Position, inserted []processlog.Inserted) error {
	var keys []processlog.IdempotencyKey
	for i, p := range positions {
		if p.Key != "" && inserted[i].ID.IsZero() {
			keys = append(keys, drafts[i].IdempotencyKey)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	ids, err := o.e.Store.IDs(ctx, tx, keys)
	for i := range inserted {
		if id := ids[drafts[i].IdempotencyKey]; inserted[i].ID.IsZero() {
			inserted[i].ID = id
		}
	}
	return err
}
