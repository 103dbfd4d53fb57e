package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/compensator-go/compensator"
)

type books struct {
	orders, pieces map[string]int // by the orders' state
	stock          int            // pieces left
	entries        map[compensator.State]int
	late           lateness
}

// The argument of each query is a LIKE pattern for the run's keys or SKUs.
const (
	sumOrders = `SELECT state, COUNT(*), SUM(quantity) FROM orders WHERE order_key LIKE ? GROUP BY state`
	sumStock  = `SELECT SUM(n) FROM stock WHERE sku LIKE ?`

	sumEntries = `SELECT e.state, COUNT(*) FROM orders o
		JOIN ` + compensator.DefaultTable + ` e ON e.idempotent_id = CONCAT('close-', o.id)
		WHERE o.order_key LIKE ? GROUP BY e.state`

	sumLateness = `SELECT ROUND(TIMESTAMPDIFF(MICROSECOND, due_at, closed_at) / 1000) AS late, COUNT(*) FROM orders
		WHERE order_key LIKE ? AND state = 'closed' GROUP BY late ORDER BY late`
)

func readBooks(ctx context.Context, db *sql.DB, run string) (*books, error) {
	b := &books{orders: make(map[string]int), pieces: make(map[string]int), entries: make(map[compensator.State]int)}
	pattern := run + "-%"
	err := errors.Join(
		db.QueryRowContext(ctx, sumStock, pattern).Scan(&b.stock),
		eachRow(ctx, db, sumOrders, pattern, func(scan func(...any) error) error {
			var state string
			var orders, pieces int
			err := scan(&state, &orders, &pieces)
			b.orders[state], b.pieces[state] = orders, pieces
			return err
		}),
		eachRow(ctx, db, sumEntries, pattern, func(scan func(...any) error) error {
			var state compensator.State
			var n int
			err := scan(&state, &n)
			b.entries[state] = n
			return err
		}),
		eachRow(ctx, db, sumLateness, pattern, func(scan func(...any) error) error {
			var late bin
			err := scan(&late.ms, &late.n)
			b.late = append(b.late, late)
			return err
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("read the books: %w", err)
	}
	return b, nil
}

func eachRow(ctx context.Context, db *sql.DB, query, pattern string, read func(scan func(...any) error) error) error {
	rows, err := db.QueryContext(ctx, query, pattern)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
