package main

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
)

// Order is a row of shop_orders, and the content of the entries about it.
type Order struct {
	ID       int
	Item     string
	Quantity int
	PayIn    time.Duration // time to pay
	Drone    bool          // sent by drone instead of by post
}

func newOrder(id int) Order {
	return Order{ID: id, Item: items[id%len(items)], Quantity: 1 + id%3, PayIn: time.Duration(1+id%3) * time.Second, Drone: id%10 == 3}
}

func (o Order) number() string { return strconv.Itoa(o.ID) }

// A payment can compute the key without a query.
func (o Order) closing() compensator.IdempotencyKey {
	return compensator.IdempotencyKey("close-" + o.number())
}

var errBlocked = errors.New("the customer is blocked")

// place stores an order, takes its pieces from the stock, and records the entry that closes the order if it is not paid
// in time. One transaction does all three, or none.
func (s *shop) place(ctx context.Context, o Order, blocked bool) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // Rollback does nothing after Commit.
	if err := s.reserve(ctx, tx, o); err != nil {
		return err
	}
	_, err = s.closeUnpaid.Record(ctx, tx, o, compensator.Options{
		IdempotencyKey: o.closing(),
		BusinessID:     o.number(),
		Delay:          o.PayIn,
	})
	if err != nil {
		return err
	}
	if blocked {
		return errBlocked // The rollback undoes everything above, including the entry.
	}
	return tx.Commit()
}

func (s *shop) reserve(ctx context.Context, tx *sql.Tx, o Order) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO shop_orders (id, item, quantity, drone, status, pay_by) VALUES (?, ?, ?, ?, 'open', "+s.db.now+" + ?)",
		o.ID, o.Item, o.Quantity, o.Drone, o.PayIn.Milliseconds())
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE shop_stock SET n = n - ? WHERE item = ?", o.Quantity, o.Item)
	return err
}

// pay pays an order. The same transaction cancels the entry that closes an unpaid order, and records the entry that
// ships the order. If the order is already closed, pay returns a *compensator.StateError and the order stays unpaid.
//
// A repeated payment does not ship the order again. pay recognizes a repeated payment by the status of the order. A
// cancelled entry does not prove an earlier payment, because an operator can cancel the entry too.
func (s *shop) pay(ctx context.Context, o Order) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	paid, err := tx.ExecContext(ctx, "UPDATE shop_orders SET status = 'paid' WHERE id = ? AND status = 'open'", o.ID)
	if err != nil {
		return err
	}
	if _, err := s.closeUnpaid.CancelTx(ctx, tx, o.closing()); err != nil {
		return err
	}
	if n, err := paid.RowsAffected(); err != nil || n == 0 {
		return err // If err is nil, the order was already paid, so there is nothing left to do.
	}
	shipping := s.packParcel
	if o.Drone {
		shipping = s.sendByDrone
	}
	if _, err := shipping.Record(ctx, tx, o, compensator.Options{BusinessID: o.number()}); err != nil {
		return err
	}
	return tx.Commit()
}
