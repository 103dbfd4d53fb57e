package main

import (
	"context"
	"errors"
	"time"

	"github.com/compensator-go/compensator"
)

// Only a process that calls Run runs the handlers.
func (s *shop) register() error {
	var closing, packing, flying error
	s.closeUnpaid, closing = compensator.HandleTx(context.Background(), s.Compensator, "close_unpaid", s.giveBack, &compensator.HandlerConfig[Order]{
		Concurrency: 2,
	})
	s.packParcel, packing = compensator.Handle(context.Background(), s.Compensator, "pack_parcel", s.pack, &compensator.HandlerConfig[Order]{
		Concurrency: 4,
		Retry:       compensator.Fixed(200 * time.Millisecond),
	})
	s.sendByDrone, flying = compensator.Handle(context.Background(), s.Compensator, "send_by_drone", fly, &compensator.HandlerConfig[Order]{
		MaxAttempts:  3,
		Retry:        compensator.Steps(100*time.Millisecond, 400*time.Millisecond),
		CompensateTx: s.refund,
	})
	return errors.Join(closing, packing, flying)
}

// giveBack needs no protection against a second run, because its transaction also stores the entry's success.
//
// An operator may cancel the entry, and requeue it after the order was paid. So giveBack leaves a paid order as it is.
func (s *shop) giveBack(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, o Order) error {
	closed, err := tx.ExecContext(ctx, "UPDATE shop_orders SET status = 'closed', closed_at = "+s.db.now+" WHERE id = ? AND status <> 'paid'", o.ID)
	if err != nil {
		return err
	}
	if n, err := closed.RowsAffected(); err != nil || n == 0 {
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE shop_stock SET n = n + ? WHERE item = ?", o.Quantity, o.Item)
	if err != nil {
		return err
	}
	return takeTime(ctx, 200*time.Millisecond) // Take time, so that the kill happens between the effect and the commit.
}

const refusals = 2

func (o Order) difficult() bool { return o.ID%5 == 0 }

// A call to an external system cannot share a transaction with the entry's success, so a kill can repeat it. The
// idempotency key tells the warehouse that it is the same call.
func (s *shop) pack(ctx context.Context, e *compensator.Entry, o Order) error {
	if o.difficult() && e.Attempt() <= refusals {
		return errors.New("the warehouse answers 503")
	}
	_, err := s.db.ExecContext(ctx, "INSERT INTO shop_parcels (order_id, idempotency_key) VALUES (?, ?)", o.ID, e.CallKey())
	if err != nil {
		return compensator.Unavailable(err) // The warehouse was not reached, so this must not count as a failure.
	}
	return takeTime(ctx, 150*time.Millisecond) // the time until the warehouse answers
}

// After the last attempt of fly, refund undoes the sale.
func fly(context.Context, *compensator.Entry, Order) error {
	return errors.New("there is no drone")
}

func (s *shop) refund(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, o Order) error {
	_, err := tx.ExecContext(ctx, "UPDATE shop_orders SET refunds = refunds + 1 WHERE id = ?", o.ID)
	return err
}

func takeTime(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
