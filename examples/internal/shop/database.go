package shop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator"
)

// Goods is an item on sale.
type Goods struct {
	Goods   string
	Initial int
	Stock   int
	Edition string // edition of the counter whose tickets are accepted
}

// Order is an order as stored.
type Order struct {
	ID uint64 `json:"order"`
	Ticket
	State string     `json:"state,omitempty"`
	DueAt *time.Time `json:"due_at,omitempty"`
}

// These are the states of an order. Only an open order changes.
const (
	StateOpen   = "open"
	StatePaid   = "paid"
	StateClosed = "closed"
)

const duplicateKey = 1062

// InsertTicket stores a ticket. It returns ErrStale if the buyer already has a living ticket.
func (n Tables) InsertTicket(ctx context.Context, tx compensator.Tx, t Ticket) error {
	_, err := tx.ExecContext(ctx, n.SQL(`INSERT INTO shop_tickets (ticket, goods, buyer, taken_at) VALUES (?, ?, ?, UTC_TIMESTAMP(3))`), t.ID, t.Goods, t.Buyer)
	var refused *mysql.MySQLError
	if errors.As(err, &refused) && refused.Number == duplicateKey {
		return ErrStale
	}
	return err
}

// TakeStock takes one piece from the stock. Call it last in the transaction, because all buyers wait for the lock on
// this row. It returns ErrStale in two cases: no piece is left although the counter in Redis had one, or the counter
// was filled again since the ticket was taken.
func (n Tables) TakeStock(ctx context.Context, tx compensator.Tx, t Ticket) error {
	taken, err := Changed(tx.ExecContext(ctx, n.SQL(`UPDATE shop_goods SET stock = stock - 1 WHERE goods = ? AND edition = ? AND stock > 0`), t.Goods, t.Edition))
	if err == nil && !taken {
		return ErrStale
	}
	return err
}

// ReturnStock marks a living ticket as ended and adds its piece to the stock.
func (n Tables) ReturnStock(ctx context.Context, tx compensator.Tx, t Ticket) error {
	ended, err := Changed(tx.ExecContext(ctx, n.SQL(`UPDATE shop_tickets SET living = NULL, ended_at = UTC_TIMESTAMP(3) WHERE ticket = ? AND living = 1`), t.ID))
	if err != nil || !ended {
		return err
	}
	_, err = tx.ExecContext(ctx, n.SQL(`UPDATE shop_goods SET stock = stock + 1 WHERE goods = ?`), t.Goods)
	return err
}

// InsertOpenOrder takes the ticket, the goods, the buyer and the time to pay in µs.
const InsertOpenOrder = `INSERT INTO shop_orders (ticket, goods, buyer, created_at, due_at)
	VALUES (?, ?, ?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) + INTERVAL ? MICROSECOND)`

// InsertOrder creates an open order.
func (n Tables) InsertOrder(ctx context.Context, tx compensator.Tx, t Ticket, window time.Duration) error {
	if _, err := tx.ExecContext(ctx, n.SQL(InsertOpenOrder), t.ID, t.Goods, t.Buyer, window.Microseconds()); err != nil {
		return fmt.Errorf("insert order of ticket %s: %w", t.ID, err)
	}
	return nil
}

// SetPaid returns the ticket of the order. It returns no ticket and no error for an order that is already paid.
func (n Tables) SetPaid(ctx context.Context, tx *compensator.ScopedTx, id uint64) (t Ticket, err error) {
	paid, err := Changed(tx.ExecContext(ctx, n.SQL(`UPDATE shop_orders SET state = 'paid', paid_at = UTC_TIMESTAMP(3) WHERE id = ? AND state = 'open'`), id))
	if err != nil {
		return t, err
	}
	var state string
	err = tx.QueryRowContext(ctx, n.SQL(`SELECT ticket, goods, buyer, state FROM shop_orders WHERE id = ?`), id).Scan(&t.ID, &t.Goods, &t.Buyer, &state)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return t, ErrNotFound
	case err != nil:
		return t, err
	case state == StateClosed:
		return t, ErrClosed
	case !paid:
		return Ticket{}, nil
	}
	return t, nil
}

// SetClosed closes the ticket's order if the order is open and its time is up.
func (n Tables) SetClosed(ctx context.Context, tx compensator.Tx, t Ticket) (bool, error) {
	return Changed(tx.ExecContext(ctx, n.SQL(`UPDATE shop_orders SET state = 'closed', closed_at = UTC_TIMESTAMP(3) WHERE ticket = ? AND state = 'open' AND due_at <= UTC_TIMESTAMP(3)`), t.ID))
}

func (n Tables) timeLeft(ctx context.Context, tx *compensator.ScopedTx, t Ticket) (left time.Duration, isOpen bool, err error) {
	var micros int64
	err = tx.QueryRowContext(ctx, n.SQL(`SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), due_at) FROM shop_orders
		WHERE ticket = ? AND state = 'open'`), t.ID).Scan(&micros)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return time.Duration(micros) * time.Microsecond, err == nil, err
}

// Find returns the state of a buyer's latest ticket.
func (s *Shop) Find(ctx context.Context, p Purchase) (Order, error) {
	return FindOrder(ctx, s.DB, p, s.SQL(`SELECT t.ticket, COALESCE(o.id, 0), COALESCE(o.state, IF(t.living, 'accepted', 'given back')), o.due_at
		FROM shop_tickets t LEFT JOIN shop_orders o ON o.ticket = t.ticket
		WHERE t.goods = ? AND t.buyer = ? ORDER BY t.living DESC, t.taken_at DESC LIMIT 1`))
}

// FindOrder reads ticket, order, state and due time with a query for a buyer and goods. It returns ErrNotFound if there
// is no row.
func FindOrder(ctx context.Context, db *sql.DB, p Purchase, query string) (o Order, err error) {
	o.Goods, o.Buyer = p.Goods, p.Buyer
	err = db.QueryRowContext(ctx, query, p.Goods, p.Buyer).Scan(&o.Ticket.ID, &o.ID, &o.State, &o.DueAt)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	return o, err
}

// LockGoods locks the row of the goods. Purchases and returns wait until the transaction ends.
func (n Tables) LockGoods(ctx context.Context, tx *compensator.ScopedTx, name string) (g Goods, err error) {
	g.Goods = name
	err = tx.QueryRowContext(ctx, n.SQL(`SELECT initial, stock, edition FROM shop_goods WHERE goods = ? FOR UPDATE`), name).Scan(&g.Initial, &g.Stock, &g.Edition)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNoGoods
	}
	return g, err
}

// SetEdition sets the edition whose tickets are accepted from now on.
func (n Tables) SetEdition(ctx context.Context, tx compensator.Tx, name, edition string) error {
	_, err := tx.ExecContext(ctx, n.SQL(`UPDATE shop_goods SET edition = ? WHERE goods = ?`), edition, name)
	return err
}

func (n Tables) livingTickets(ctx context.Context, db rows, name string) (living []Ticket, err error) {
	err = EachRow(ctx, db, n.SQL(`SELECT ticket, buyer FROM shop_tickets WHERE goods = ? AND living = 1`), func(scan func(...any) error) error {
		t := Ticket{Goods: name}
		err := scan(&t.ID, &t.Buyer)
		living = append(living, t)
		return err
	}, name)
	return living, err
}

func (n Tables) allGoods(ctx context.Context, db rows) (all []Goods, err error) {
	err = EachRow(ctx, db, n.SQL(`SELECT goods, initial, stock, edition FROM shop_goods ORDER BY goods`), func(scan func(...any) error) error {
		var g Goods
		err := scan(&g.Goods, &g.Initial, &g.Stock, &g.Edition)
		all = append(all, g)
		return err
	})
	return all, err
}

// Changed reports whether a statement has changed a row.
func Changed(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

type rows interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// EachRow calls read for each row of a query.
func EachRow(ctx context.Context, db rows, query string, read func(scan func(...any) error) error, args ...any) error {
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
