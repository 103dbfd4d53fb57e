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
	PayIn    time.Duration // its time to pay
	Drone    bool          // sent by drone instead of by post
}

func newOrder(id int) Order {
	return Order{ID: id, Item: items[id%len(items)], Quantity: 1 + id%3, PayIn: time.Duration(1+id%3) * time.Second, Drone: id%10 == 3}
}

func (o Order) number() string { return strconv.Itoa(o.ID) }

// closing is the idempotency key of the entry that closes the order: who pays knows it without having asked.
func (o Order) closing() compensator.IdempotencyKey {
	return compensator.IdempotencyKey("close-" + o.number())
}

var errBlocked = errors.New("the customer is blocked")

// place is one transaction: the order, its share of the stock, and the entry that closes it if it is not paid in
// time. None of them exists without the others.
func (s *shop) place(ctx context.Context, o Order, blocked bool) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // finds nothing to do after Commit
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
		return errBlocked // noticed late; all of the above is undone, the entry too
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

// pay is one transaction, too: the order is paid, so it is to be shipped, and not to be closed any more. When it
// has been closed, the error is a *compensator.StateError, and it stays unpaid. Paid once more, it is not shipped once more:
// the order says so, and not its closing, which an operator may have cancelled while nobody had paid.
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
		return err // paid before
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
