package main

import (
	"context"
	"strings"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/shop"
	"github.com/compensator-go/compensator/intake"
)

// buyersWith returns the buyers in a batch who already have a living ticket. A ticket lives until it gives its piece
// back.
func (s *sale) buyersWith(ctx context.Context, tx *compensator.ScopedTx, batch []*intake.Message) (map[string]bool, error) {
	args := []any{s.Goods}
	for _, m := range batch {
		args = append(args, m.Value.(shop.Ticket).Buyer)
	}
	living := make(map[string]bool)
	query := s.SQL(`SELECT buyer FROM shop_tickets WHERE goods = ? AND living = 1 AND buyer IN (?` + strings.Repeat(`, ?`, len(batch)-1) + `)`)
	err := shop.EachRow(ctx, tx, query, func(scan func(...any) error) error {
		var buyer string
		err := scan(&buyer)
		living[buyer] = true
		return err
	}, args...)
	return living, err
}

// write sends one statement per table, not one per order.
func (s *sale) write(ctx context.Context, tx *compensator.ScopedTx, goods shop.Goods, sold, void []shop.Ticket) error {
	if err := s.insertTickets(ctx, tx, sold, `(?, ?, ?, 1, UTC_TIMESTAMP(3), NULL)`); err != nil {
		return err
	}
	if err := s.insertTickets(ctx, tx, void, `(?, ?, ?, NULL, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))`); err != nil {
		return err
	}
	if err := s.insertOrders(ctx, tx, sold); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, s.SQL(`UPDATE shop_goods SET stock = stock - ?, edition = ? WHERE goods = ?`), len(sold), goods.Edition, goods.Goods)
	return err
}

func (s *sale) insertTickets(ctx context.Context, tx compensator.Tx, tickets []shop.Ticket, row string) error {
	if len(tickets) == 0 {
		return nil
	}
	var args []any
	for _, t := range tickets {
		args = append(args, t.ID, t.Goods, t.Buyer)
	}
	statement := s.SQL(`INSERT INTO shop_tickets (ticket, goods, buyer, living, taken_at, ended_at) VALUES `) + row + strings.Repeat(`, `+row, len(tickets)-1)
	_, err := tx.ExecContext(ctx, statement, args...)
	return err
}

func (s *sale) insertOrders(ctx context.Context, tx compensator.Tx, tickets []shop.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	const row = `(?, ?, ?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND)`
	var args []any
	for _, t := range tickets {
		args = append(args, t.ID, t.Goods, t.Buyer, s.Window.Microseconds())
	}
	statement := s.SQL(`INSERT INTO shop_orders (ticket, goods, buyer, created_at, due_at) VALUES `) + row + strings.Repeat(`, `+row, len(tickets)-1)
	_, err := tx.ExecContext(ctx, statement, args...)
	return err
}

// insertEnded reports whether the ticket is new to the database.
func (s *sale) insertEnded(ctx context.Context, tx compensator.Tx, t shop.Ticket) (bool, error) {
	return shop.Changed(tx.ExecContext(ctx, s.SQL(`INSERT IGNORE INTO shop_tickets (ticket, goods, buyer, living, taken_at, ended_at)
		VALUES (?, ?, ?, NULL, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3))`), t.ID, t.Goods, t.Buyer))
}
