package main

import (
	"context"

	"github.com/compensator-go/compensator"
)

// buy takes a piece in Redis, which alone answers those who get none, and then for good in the database.
func (s *sale) buy(ctx context.Context, p purchase) (ticket, error) {
	t := newTicket(p)
	err := s.counter.take(ctx, &t)
	if refused(err) {
		return ticket{}, err
	}
	if err == nil {
		err = s.sell(ctx, t)
	}
	return t, s.tell(ctx, t, err) // confirmed, given back, or in doubt
}

// sell: the ticket, its entry and the piece, all three or none.
func (s *sale) sell(ctx context.Context, t ticket) error {
	err := s.log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if err := insertTicket(ctx, tx, t); err != nil {
			return err
		}
		if _, err := s.creating.Record(ctx, tx, t, s.together(t)); err != nil {
			return err
		}
		return takeStock(ctx, tx, t)
	})
	return s.certain(ctx, t, err)
}

// send publishes create_order entries. That a queue has the message is no success yet: the consumer completes the entry.
// A message that nobody has confirmed in time is sent again; the last failure is the verdict, and undo follows.
func (s *sale) send(ctx context.Context, items []compensator.Item[ticket]) []error {
	outcomes := s.publish(ctx, s.withSendingsLeft(items))
	for i, err := range outcomes {
		if err == nil {
			outcomes[i] = compensator.RetryAfter(s.resend, errUnconfirmed)
		}
	}
	return outcomes
}

// create is called for each message: the unpaid order, its closing, and the end of the entry. Told twice, or too late, it
// finds the entry ended.
func (s *sale) create(ctx context.Context, t ticket) error {
	return s.log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if _, err := s.creating.CompleteTx(ctx, tx, t.createKey()); err != nil {
			return err
		}
		id, err := insertOrder(ctx, tx, t, s.window)
		if err != nil {
			return err
		}
		_, err = s.closing.Record(ctx, tx, order{ID: id, ticket: t}, s.inTime(t))
		return err
	})
}

// undo is the end of a ticket that no consumer could make an order of. The buyer may buy again.
func (s *sale) undo(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, t ticket) error {
	return s.putBack(ctx, tx, t)
}

// pay and close decide in the order's row which of them is first.
func (s *sale) pay(ctx context.Context, id uint64) error {
	return s.log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		t, err := setPaid(ctx, tx, id)
		if err != nil || t.ID == "" { // it is paid already
			return err
		}
		_, err = s.closing.CancelTx(ctx, tx, t.closeKey())
		return err
	})
}

func (s *sale) close(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, o order) error {
	closed, err := setClosed(ctx, tx, o.ID)
	if err != nil || !closed {
		return err // paid in the last moment
	}
	return s.putBack(ctx, tx, o.ticket)
}

// putBack returns a piece to the database, and records the entry by which Redis follows.
func (s *sale) putBack(ctx context.Context, tx *compensator.ScopedTx, t ticket) error {
	if err := returnStock(ctx, tx, t); err != nil {
		return err
	}
	_, err := s.returning.Record(ctx, tx, t, t.options(t.returnKey()))
	return err
}

// giveBack is the handler of that entry: a ticket goes back to Redis once, however often it is told.
func (s *sale) giveBack(ctx context.Context, _ *compensator.Entry, t ticket) error {
	if err := s.counter.giveBack(ctx, t); err != nil {
		return compensator.Unavailable(err)
	}
	return nil
}
