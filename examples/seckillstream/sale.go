package main

import (
	"context"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/shop"
	"github.com/compensator-go/compensator/intake"
)

// Sell serves POST /seckill. It fills the counter first if necessary.
func (s *sale) Sell(ctx context.Context, p shop.Purchase) (shop.Ticket, error) {
	return s.SellOne(ctx, p, s.buy)
}

// buy runs one script in Redis, which takes the piece, notes the buyer and adds the message atomically.
func (s *sale) buy(ctx context.Context, p shop.Purchase) (shop.Ticket, error) {
	t := shop.NewTicket(p)
	return t, s.take(ctx, &t)
}

// entry returns the entry that closes the message's order. The returned entry is due when the time to pay is over. For
// a malformed message, the method entry returns an error, so the message waits for a person.
func (s *sale) entry(m *intake.Message) (compensator.NewEntry, error) {
	t, err := s.ticketOf(m)
	if err != nil {
		return compensator.NewEntry{}, err
	}
	m.Value = t
	return s.Closing.Entry(t, s.InTime(t)), nil
}

// create holds the lock on the goods' row, as Rebuild does, so both see a consistent state.
func (s *sale) create(ctx context.Context, tx *compensator.ScopedTx, batch []*intake.Message) error {
	if err := s.injectFailures(batch); err != nil {
		return err
	}
	goods, err := s.LockGoods(ctx, tx, s.Goods)
	if err != nil {
		return err
	}
	living, err := s.buyersWith(ctx, tx, batch)
	if err != nil {
		return err
	}
	sold, void := divide(&goods, living, batch)
	return s.write(ctx, tx, goods, sold, void)
}

// divide divides the tickets of a batch into sold and void tickets. The buyer of a void ticket may buy again. divide
// makes a ticket void in these cases:
//
//   - The ticket is of an older edition.
//   - Its buyer has a living ticket, or no piece is left. Then the counter in Redis is wrong, because it accepted the
//     buyer. divide clears the edition of the goods, so that Watch fills the counter again.
func divide(goods *shop.Goods, living map[string]bool, batch []*intake.Message) (sold, void []shop.Ticket) {
	edition := goods.Edition
	for _, m := range batch {
		t := m.Value.(shop.Ticket)
		switch {
		case t.Edition != edition:
			void = append(void, t)
		case living[t.Buyer] || len(sold) == goods.Stock:
			void, goods.Edition = append(void, t), ""
		default:
			sold, living[t.Buyer] = append(sold, t), true
		}
	}
	return sold, void
}

// undo ends a ticket whose order failed too often.
func (s *sale) undo(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, m intake.Message) error {
	t, err := s.ticketOf(&m)
	if err != nil {
		return compensator.Permanent(err) // The message names no ticket of this sale, so a person must look at it.
	}
	ended, err := s.insertEnded(ctx, tx, t)
	if err != nil || !ended { // Without an error, false means that the ticket was sold.
		return err
	}
	_, err = s.Returning.Record(ctx, tx, t, t.Options(t.ReturnKey()))
	return err
}

// Pay marks an order as paid. Pay and the close handler update the order's row only while the order is open, so only
// the first of them succeeds.
func (s *sale) Pay(ctx context.Context, id uint64) error {
	return s.Log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := s.SetPaid(ctx, tx, id)
		return err
	})
}

// Find returns the state of a buyer's latest ticket. The buyer's ticket in Redis may be newer than the latest ticket in
// the database. Then the order of the newer ticket is not stored yet, and Find returns that ticket as "accepted".
func (s *sale) Find(ctx context.Context, p shop.Purchase) (shop.Order, error) {
	held, err := s.held(ctx, p)
	if err != nil {
		return shop.Order{}, err
	}
	latest, err := s.Shop.Find(ctx, p)
	if held != "" && held != latest.Ticket.ID {
		return shop.Order{Ticket: shop.Ticket{ID: held, Goods: p.Goods, Buyer: p.Buyer}, State: "accepted"}, nil
	}
	return latest, err
}
