package main

import (
	"context"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

// Sell serves POST /seckill. It buys a piece, and fills the counter first if necessary.
func (s *sale) Sell(ctx context.Context, p shop.Purchase) (shop.Ticket, error) {
	return s.SellOne(ctx, p, s.buy)
}

// buy does not query the database if Redis has no piece for the buyer.
func (s *sale) buy(ctx context.Context, p shop.Purchase) (shop.Ticket, error) {
	t := shop.NewTicket(p)
	err := s.counter.take(ctx, &t)
	if refused(err) {
		return shop.Ticket{}, err
	}
	if err == nil {
		err = s.sell(ctx, t)
	}
	return t, s.storeOutcome(ctx, t, err) // Redis now has the ticket as confirmed, as given back, or as still open.
}

// sell stores the ticket and the entry of the ticket in one transaction. The same transaction takes a piece from the
// stock in the database.
func (s *sale) sell(ctx context.Context, t shop.Ticket) error {
	err := s.Log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if err := s.InsertTicket(ctx, tx, t); err != nil {
			return err
		}
		if _, err := s.creating.Record(ctx, tx, t, s.unlessGivenUp(t)); err != nil {
			return err
		}
		return s.TakeStock(ctx, tx, t)
	})
	return s.certain(ctx, t, err)
}

// A published message does not complete its entry, because the consumer completes it. If the consumer does not complete
// an entry in time, send publishes it again.
func (s *sale) send(ctx context.Context, items []compensator.Item[shop.Ticket]) []error {
	outcomes := s.publish(ctx, s.withSendingsLeft(items))
	for i, err := range outcomes {
		if err == nil {
			outcomes[i] = compensator.RetryAfter(s.Resend, errUnconfirmed)
		}
	}
	return outcomes
}

// After a repeated or late message, create finds that the entry has ended.
func (s *sale) create(ctx context.Context, t shop.Ticket) error {
	return s.Log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if _, err := s.creating.CompleteTx(ctx, tx, createKey(t)); err != nil {
			return err
		}
		if err := s.InsertOrder(ctx, tx, t, s.Window); err != nil {
			return err
		}
		_, err := s.Closing.Record(ctx, tx, t, s.InTime(t))
		return err
	})
}

// undo returns the piece of a ticket that no consumer could turn into an order.
func (s *sale) undo(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, t shop.Ticket) error {
	return s.PutBack(ctx, tx, t)
}

// Pay marks an order as paid. Pay and the close handler update the order's row only while the order is open, so only
// the first of them succeeds.
func (s *sale) Pay(ctx context.Context, id uint64) error {
	return s.Log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		t, err := s.SetPaid(ctx, tx, id)
		if err != nil || t.ID == "" { // SetPaid returns neither a ticket nor an error if the order is already paid.
			return err
		}
		_, err = s.Closing.CancelTx(ctx, tx, t.CloseKey())
		return err
	})
}
