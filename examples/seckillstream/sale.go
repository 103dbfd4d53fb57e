package main

import (
	"context"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/shop"
	"github.com/compensator-go/compensator/intake"
)

// Sell is what POST /seckill does, with a counter that may have to be filled.
func (s *sale) Sell(ctx context.Context, p shop.Purchase) (shop.Ticket, error) {
	return s.SellOne(ctx, p, s.buy)
}

// buy is one script in Redis: the piece, the buyer and the message, all three or none. Nothing else answers a buyer.
func (s *sale) buy(ctx context.Context, p shop.Purchase) (shop.Ticket, error) {
	t := shop.NewTicket(p)
	return t, s.take(ctx, &t)
}

// entry is what a message becomes in the log: the closing of its order, due when the time for the payment is up. A message
// that is no ticket waits for a person.
func (s *sale) entry(m *intake.Message) (compensator.NewEntry, error) {
	t, err := s.ticketOf(m)
	if err != nil {
		return compensator.NewEntry{}, err
	}
	m.Value = t
	return s.Closing.Entry(t, s.InTime(t)), nil
}

// create makes the orders of a batch, in the transaction that records their entries. It decides about all of them while it
// holds the goods' row: so does whoever fills Redis again.
func (s *sale) create(ctx context.Context, tx *compensator.ScopedTx, batch []*intake.Message) error {
	if err := s.misfortune(batch); err != nil {
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

// divide says which tickets are sold. Void are those of a counter that has been lost since: their buyers have nothing, and
// may buy again. Where Redis has let somebody through for whom there is no piece, it is wrong, and is to be filled again.
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

// undo is the end of a ticket whose order failed again and again. The buyer may buy again.
func (s *sale) undo(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, m intake.Message) error {
	t, err := s.ticketOf(&m)
	if err != nil {
		return compensator.Permanent(err) // nobody's piece: a person looks at it
	}
	ended, err := s.insertEnded(ctx, tx, t)
	if err != nil || !ended { // it was sold
		return err
	}
	_, err = s.Returning.Record(ctx, tx, t, t.Options(t.ReturnKey()))
	return err
}

// Pay and the closing decide in the order's row which of them is first. The closing of a paid order finds nothing to do.
func (s *sale) Pay(ctx context.Context, id uint64) error {
	return s.Log.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := s.SetPaid(ctx, tx, id)
		return err
	})
}

// Find is what became of a buyer's latest ticket: where Redis knows another one than the database, its order is on the way.
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
