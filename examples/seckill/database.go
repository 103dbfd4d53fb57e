package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator"
)

// goods is what is on sale.
type goods struct {
	Goods   string
	Initial int
	Stock   int
	Edition string // of the counter whose tickets are taken
}

// order is an order as stored, and the content of its close_order entry.
type order struct {
	ID uint64 `json:"order"`
	ticket
	State string     `json:"state,omitempty"`
	DueAt *time.Time `json:"due_at,omitempty"`
}

// States of an order. Only an open one changes.
const (
	stateOpen   = "open"
	statePaid   = "paid"
	stateClosed = "closed"
)

const duplicateKey = 1062

// insertTicket: errStale when the buyer has a living one, of which Redis should have known.
func insertTicket(ctx context.Context, tx compensator.Tx, t ticket) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO seckill_tickets (ticket, goods, buyer, taken_at) VALUES (?, ?, ?, UTC_TIMESTAMP(3))`, t.ID, t.Goods, t.Buyer)
	var refused *mysql.MySQLError
	if errors.As(err, &refused) && refused.Number == duplicateKey {
		return errStale
	}
	return err
}

// takeStock comes last in its transaction: its row is the one that all buyers wait for. errStale when there is no piece
// left, of which Redis should have known, or when Redis was filled again since.
func takeStock(ctx context.Context, tx compensator.Tx, t ticket) error {
	taken, err := changed(tx.ExecContext(ctx, `UPDATE seckill_goods SET stock = stock - 1 WHERE goods = ? AND edition = ? AND stock > 0`, t.Goods, t.Edition))
	if err == nil && !taken {
		return errStale
	}
	return err
}

// returnStock ends a living ticket and gives its piece back.
func returnStock(ctx context.Context, tx compensator.Tx, t ticket) error {
	ended, err := changed(tx.ExecContext(ctx, `UPDATE seckill_tickets SET living = NULL, ended_at = UTC_TIMESTAMP(3) WHERE ticket = ? AND living = 1`, t.ID))
	if err != nil || !ended {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE seckill_goods SET stock = stock + 1 WHERE goods = ?`, t.Goods)
	return err
}

const insertOpenOrder = `INSERT INTO seckill_orders (ticket, goods, buyer, created_at, due_at)
	VALUES (?, ?, ?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND)`

func insertOrder(ctx context.Context, tx compensator.Tx, t ticket, window time.Duration) (uint64, error) {
	res, err := tx.ExecContext(ctx, insertOpenOrder, t.ID, t.Goods, t.Buyer, window.Microseconds())
	if err != nil {
		return 0, fmt.Errorf("insert order of ticket %s: %w", t.ID, err)
	}
	id, err := res.LastInsertId()
	return uint64(id), err
}

// setPaid returns the ticket of an order that was open, and none of one that is paid already: who pays twice may not
// have heard the first answer.
func setPaid(ctx context.Context, tx *compensator.ScopedTx, id uint64) (t ticket, err error) {
	paid, err := changed(tx.ExecContext(ctx, `UPDATE seckill_orders SET state = 'paid', paid_at = UTC_TIMESTAMP(3) WHERE id = ? AND state = 'open'`, id))
	if err != nil {
		return t, err
	}
	var state string
	err = tx.QueryRowContext(ctx, `SELECT ticket, goods, buyer, state FROM seckill_orders WHERE id = ?`, id).Scan(&t.ID, &t.Goods, &t.Buyer, &state)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return t, errNotFound
	case err != nil:
		return t, err
	case state == stateClosed:
		return t, errClosed
	case !paid:
		return ticket{}, nil
	}
	return t, nil
}

func setClosed(ctx context.Context, tx compensator.Tx, id uint64) (bool, error) {
	return changed(tx.ExecContext(ctx, `UPDATE seckill_orders SET state = 'closed', closed_at = UTC_TIMESTAMP(3) WHERE id = ? AND state = 'open'`, id))
}

// find is what became of a buyer's latest ticket. A ticket without an order is "accepted" while it lives, and "given back"
// when no order could be made.
func (s *sale) find(ctx context.Context, p purchase) (order, error) {
	return findOrder(ctx, s.db, p, `SELECT t.ticket, COALESCE(o.id, 0), COALESCE(o.state, IF(t.living, 'accepted', 'given back')), o.due_at
		FROM seckill_tickets t LEFT JOIN seckill_orders o ON o.ticket = t.ticket
		WHERE t.goods = ? AND t.buyer = ? ORDER BY t.living DESC, t.taken_at DESC LIMIT 1`)
}

func findOrder(ctx context.Context, db *sql.DB, p purchase, query string) (o order, err error) {
	o.Goods, o.Buyer = p.Goods, p.Buyer
	err = db.QueryRowContext(ctx, query, p.Goods, p.Buyer).Scan(&o.ticket.ID, &o.ID, &o.State, &o.DueAt)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNotFound
	}
	return o, err
}

// lockGoods has purchases and returns wait until the transaction ends.
func lockGoods(ctx context.Context, tx *compensator.ScopedTx, name string) (g goods, err error) {
	g.Goods = name
	err = tx.QueryRowContext(ctx, `SELECT initial, stock, edition FROM seckill_goods WHERE goods = ? FOR UPDATE`, name).Scan(&g.Initial, &g.Stock, &g.Edition)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNoGoods
	}
	return g, err
}

func setEdition(ctx context.Context, tx compensator.Tx, name, edition string) error {
	_, err := tx.ExecContext(ctx, `UPDATE seckill_goods SET edition = ? WHERE goods = ?`, edition, name)
	return err
}

func livingTickets(ctx context.Context, db rows, name string) (living []ticket, err error) {
	err = eachRow(ctx, db, `SELECT ticket, buyer FROM seckill_tickets WHERE goods = ? AND living = 1`, func(scan func(...any) error) error {
		t := ticket{Goods: name}
		err := scan(&t.ID, &t.Buyer)
		living = append(living, t)
		return err
	}, name)
	return living, err
}

func allGoods(ctx context.Context, db rows) (all []goods, err error) {
	err = eachRow(ctx, db, `SELECT goods, initial, stock, edition FROM seckill_goods ORDER BY goods`, func(scan func(...any) error) error {
		var g goods
		err := scan(&g.Goods, &g.Initial, &g.Stock, &g.Edition)
		all = append(all, g)
		return err
	})
	return all, err
}

func changed(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// rows is a database, or a transaction of it.
type rows interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func eachRow(ctx context.Context, db rows, query string, read func(scan func(...any) error) error, args ...any) error {
	found, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		if err := read(found.Scan); err != nil {
			return err
		}
	}
	return found.Err()
}
