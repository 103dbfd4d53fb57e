package main

import (
	"context"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

// Sell is what POST /seckill does: buy, with a counter that may have to be filled.
func (s *sale) Sell(ctx context.Context, p shop.Purchase) (shop.Ticket, error) {
	return s.SellOne(ctx, p, s.buy)
}

// buy takes a piece in Redis, which alone answers those who get none, and then for good in the database.
func (s *sale) buy(ctx context.Context, p shop.Purchase) (shop.Ticket, error) {
	t := shop.NewTicket(p)
	err := s.counter.take(ctx, &t)
	if refused(err) {
		return shop.Ticket{}, err
	}
	if err == nil {
		err = s.sell(ctx, t)
	}
	return t, s.tell(ctx, t, err) // confirmed, given back, or in doubt
}

// sell: the ticket, its entry and the piece, all three or none.
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

// send publishes create_order entries. That a queue has the message is no success yet: the consumer completes the entry.
// A message that nobody has confirmed in time is sent again; the last failure is the verdict, and undo follows.
func (s *sale) send(ctx context.Context, items []compensator.Item[shop.Ticket]) []error {
	outcomes := s.publish(ctx, s.withSendingsLeft(items))
	for i, err := range outcomes {
		if err == nil {
			outcomes[i] = compensator.RetryAfter(s.Resend, errUnconfirmed)
		}
	}
	return outcomes
}

// create is called for each message: the unpaid order, its closing, and the end of the entry. Told twice, or too late, it
// finds the entry ended.
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

// undo is the end of a ticket that no consumer could make an order of. The buyer may buy again.
func (s *sale) undo(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, t shop.Ticket) error {
	return s.PutBack(ctx, tx, t)
}

// Pay and the closing decide in the order's row which of them is first.
func (s *sale) Pay(ctx context.Context, id uint64) error {
	return s.Log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		t, err := s.SetPaid(ctx, tx, id)
		if err != nil || t.ID == "" { // it is paid already
			return err
		}
		_, err = s.Closing.CancelTx(ctx, tx, t.CloseKey())
		return err
	})
}
