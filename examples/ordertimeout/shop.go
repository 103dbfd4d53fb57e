package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator"
)

// Each method of shop is one transaction over the business tables and the process log.
type shop struct {
	db      *sql.DB
	log     *compensator.Compensator
	closing *compensator.Type[closing]
}

type closing struct {
	Order    uint64 `json:"order"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

func newShop(db *sql.DB, log *compensator.Compensator) (*shop, error) {
	s := &shop{db: db, log: log}
	var err error
	s.closing, err = compensator.HandleTx(context.Background(), log, "close_order", s.close, &compensator.HandlerConfig[closing]{
		Retry: compensator.Exponential(50*time.Millisecond, 10*time.Second),
	})
	return s, err
}

func closeKey(id uint64) compensator.IdempotencyKey {
	return compensator.IdempotencyKey("close-" + strconv.FormatUint(id, 10))
}

// place creates an order, or returns the order that the client has already created with this key.
func (s *shop) place(ctx context.Context, wanted newOrder) (order, error) {
	id, err := s.insert(ctx, wanted)
	var refused *mysql.MySQLError
	switch {
	case errors.As(err, &refused) && refused.Number == duplicateKey:
		return s.find(ctx, findByKey, wanted.Key)
	case err != nil:
		return order{}, err
	}
	return s.find(ctx, findByID, id)
}

const duplicateKey = 1062

const insertOrder = `INSERT INTO orders (order_key, sku, quantity, due_at)
	VALUES (?, ?, ?, UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND)`

// insert updates the stock last, because other orders wait for the lock on that row.
func (s *shop) insert(ctx context.Context, wanted newOrder) (uint64, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() // Rollback does nothing after Commit.
	res, err := tx.ExecContext(ctx, insertOrder, wanted.Key, wanted.SKU, wanted.Quantity, wanted.deadline().Microseconds())
	if err != nil {
		return 0, fmt.Errorf("insert order: %w", err)
	}
	row, err := res.LastInsertId()
	if err != nil {
		return 0, err
	}
	id := uint64(row)
	_, err = s.closing.Record(ctx, tx, closing{Order: id, SKU: wanted.SKU, Quantity: wanted.Quantity},
		compensator.Options{IdempotencyKey: closeKey(id), BusinessID: strconv.FormatUint(id, 10), Delay: wanted.deadline()})
	if err != nil {
		return 0, err
	}
	if err := takeStock(ctx, tx, wanted.SKU, wanted.Quantity); err != nil {
		return 0, err // The order and its entry are rolled back, too.
	}
	return id, tx.Commit()
}

func takeStock(ctx context.Context, tx *sql.Tx, sku string, quantity int) error {
	taken, err := changed(tx.ExecContext(ctx, `UPDATE stock SET n = n - ? WHERE sku = ? AND n >= ?`, quantity, sku, quantity))
	if err == nil && !taken {
		return errSoldOut
	}
	return err
}

// pay marks an open order as paid and cancels its close entry in one transaction. It can also cancel a dead close
// entry. Paying a paid order is no error, because the client may not have received the first answer.
func (s *shop) pay(ctx context.Context, id uint64) (order, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return order{}, err
	}
	defer tx.Rollback()
	paid, err := changed(tx.ExecContext(ctx, `UPDATE orders SET state = 'paid', paid_at = UTC_TIMESTAMP(3) WHERE id = ? AND state = 'open'`, id))
	if err != nil {
		return order{}, fmt.Errorf("pay order %d: %w", id, err)
	}
	if !paid {
		return s.explainUnpaid(ctx, tx, id)
	}
	_, err = s.closing.CancelTx(ctx, tx, closeKey(id))
	var stateErr *compensator.StateError
	if errors.As(err, &stateErr) { // For example, a person has settled the close entry manually, and now decides about the order.
		err = fmt.Errorf("%w: %w", errClosed, err)
	}
	if err != nil {
		return order{}, err
	}
	if err := tx.Commit(); err != nil {
		return order{}, err
	}
	return s.find(ctx, findByID, id)
}

func (s *shop) explainUnpaid(ctx context.Context, tx *sql.Tx, id uint64) (order, error) {
	if err := tx.Rollback(); err != nil {
		return order{}, err
	}
	o, err := s.find(ctx, findByID, id)
	if err == nil && o.State == stateClosed {
		err = errClosed
	}
	return o, err
}

const closeOrder = `UPDATE orders SET state = 'closed', closed_at = UTC_TIMESTAMP(3) WHERE id = ? AND state = 'open'`

// close returns the stock once, because its transaction also stores the entry's success.
func (s *shop) close(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, c closing) error {
	closed, err := changed(tx.ExecContext(ctx, closeOrder, c.Order))
	if err != nil || !closed {
		return err // If no order was closed, this order was paid at the last moment.
	}
	_, err = tx.ExecContext(ctx, `UPDATE stock SET n = n + ? WHERE sku = ?`, c.Quantity, c.SKU)
	return err
}

func changed(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

const (
	findOrder = `SELECT id, order_key, sku, quantity, state, due_at, paid_at, closed_at FROM orders WHERE `
	findByID  = findOrder + `id = ?`
	findByKey = findOrder + `order_key = ?`
)

func (s *shop) find(ctx context.Context, query string, arg any) (order, error) {
	var o order
	err := s.db.QueryRowContext(ctx, query, arg).Scan(&o.ID, &o.Key, &o.SKU, &o.Quantity, &o.State, &o.DueAt, &o.PaidAt, &o.ClosedAt)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNotFound
	}
	return o, err
}
