package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/compensator-go/compensator"
)

type promise struct {
	text  string
	want  int
	query string
}

func (p promise) ask(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (n int, err error) {
	err = db.QueryRowContext(ctx, p.query).Scan(&n)
	return n, err
}

var outcomes = []promise{
	{text: "calls of the warehouse; calls that were cut short were repeated with the same key", query: "SELECT COUNT(*) FROM shop_parcels"},
	{text: "ms from the deadline to the latest close; this includes the dead worker's lease and, without Redis, the poll interval", query: "SELECT MAX(closed_at - pay_by) FROM shop_orders"},
}

func promises(b books) []promise {
	return []promise{
		{"committed orders exist", b.committed, "SELECT COUNT(*) FROM shop_orders"},
		{"entries: one per order and one per payment, none lost and none too many", b.committed + b.paid, "SELECT COUNT(*) FROM shop_process_log"},
		{"entries not ended, or left to a person", 0, "SELECT COUNT(*) FROM shop_process_log WHERE state IN (0, -1, -3, -2)"},
		{"entries still leased to a worker", 0, "SELECT COUNT(*) FROM shop_process_log WHERE lease_until > 0"},

		{"close entries cancelled by the payment", b.paid, "SELECT COUNT(*) FROM shop_process_log WHERE business_type = 'close_unpaid' AND state = 3"},
		{"close entries succeeded", b.unpaid, "SELECT COUNT(*) FROM shop_process_log WHERE business_type = 'close_unpaid' AND state = 1"},
		{"unpaid orders closed", b.unpaid, "SELECT COUNT(*) FROM shop_orders WHERE status = 'closed'"},
		{"orders closed before their time to pay was over", 0, "SELECT COUNT(*) FROM shop_orders WHERE closed_at < pay_by"},
		{"items with a wrong stock; each share was returned exactly once", 0, fmt.Sprintf("SELECT COUNT(*) FROM shop_stock s WHERE n <> %d - "+
			"(SELECT COALESCE(SUM(quantity), 0) FROM shop_orders o WHERE o.item = s.item AND status = 'paid')", inStock)},

		{"parcels succeeded", b.parcels, "SELECT COUNT(*) FROM shop_process_log WHERE business_type = 'pack_parcel' AND state = 1"},
		{"parcels at the warehouse, each key counted once", b.parcels, "SELECT COUNT(DISTINCT idempotency_key) FROM shop_parcels"},
		{"parcels for orders that do not exist", 0, "SELECT COUNT(*) FROM shop_parcels WHERE order_id NOT IN (SELECT id FROM shop_orders WHERE status = 'paid' AND NOT drone)"},
		{"failures counted: each of the warehouse's refusals, and no other", b.refusals, "SELECT SUM(process_count) FROM shop_process_log WHERE business_type = 'pack_parcel'"},

		{"drones compensated, after three failures each", b.drones, "SELECT COUNT(*) FROM shop_process_log WHERE business_type = 'send_by_drone' AND state = 2 AND process_count = 3"},
		{"orders refunded, exactly once", b.drones, "SELECT COUNT(*) FROM shop_orders WHERE refunds = 1"},
		{"orders refunded more often, or for no reason", 0, "SELECT COUNT(*) FROM shop_orders WHERE refunds > 1 OR refunds > 0 AND NOT drone"},
	}
}

// summarize prints the content of the database and returns the number of broken promises.
func (s *shop) summarize(ctx context.Context, b books) (broken int, err error) {
	if err := s.printEntries(ctx); err != nil {
		return 0, err
	}
	fmt.Print("\nWhat was promised\n\n")
	for _, p := range promises(b) {
		got, err := p.ask(ctx, s.db)
		if err != nil {
			return broken, err
		}
		if got == p.want {
			printNumber("ok", got, p.text, p.query)
			continue
		}
		broken++
		printNumber("WRONG", got, fmt.Sprintf("%s; want %d", p.text, p.want), p.query)
	}
	fmt.Print("\nOther figures, without a promise\n\n")
	for _, o := range outcomes {
		got, err := o.ask(ctx, s.db)
		if err != nil {
			return broken, err
		}
		printNumber("", got, o.text, o.query)
	}
	fmt.Printf("\nAsk again: %s\n", s.db.shell())
	return broken, nil
}

func printNumber(verdict string, n int, text, query string) {
	fmt.Printf("  %-6s%6d  %s\n%16s%s\n", verdict, n, text, "", query)
}

func (s *shop) printEntries(ctx context.Context) error {
	const query = "SELECT business_type, state, COUNT(*), SUM(process_count > 0), SUM(process_count) FROM shop_process_log GROUP BY business_type, state"
	fmt.Printf("\nStates of the entries\n\n  %-14s%-13s%7s%10s%10s\n", "type", "state", "entries", "retried", "failures")
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var businessType string
		var state compensator.State
		var entries, retried, failures int
		if err := rows.Scan(&businessType, &state, &entries, &retried, &failures); err != nil {
			return err
		}
		fmt.Printf("  %-14s%-13s%7d%10d%10d\n", businessType, state, entries, retried, failures)
	}
	fmt.Printf("%16s%s\n", "", query)
	return rows.Err()
}
