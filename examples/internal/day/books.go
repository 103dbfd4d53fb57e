package day

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/crowd"
	"github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

// Books holds the state after a day and the answers that the crowd received.
type Books struct {
	shop.Settings
	Manual bool
	crowd.Answers
	Moments Moments

	Left     int // stock that is left in the database
	Counted  shop.Counted
	Living   map[string]string // tickets that have not ended, by buyer
	Known    map[string]bool   // tickets that the database has or had
	Orders   map[string]int    // number of orders by state
	Held     map[string]int    // number of orders that are not closed, by buyer
	Overlaps int
	Early    int
	Ended    int // tickets that have ended
	Unknown  int // accepted tickets that the database does not know
	Entries  map[string]map[compensator.State]int
	Stuck    int // entries, or messages of the hand-written version, that will never run
}

// Moments counts checks of the database during the day.
type Moments struct{ Looks, Wrong int }

// Compare stock and tickets in one statement, so that all numbers belong to one moment.
func (d *Day) lookAtMoments(ctx context.Context) (m Moments) {
	query := d.SQL(`SELECT g.initial, g.stock, (SELECT COUNT(*) FROM shop_tickets t WHERE t.goods = g.goods AND t.living = 1),
		(SELECT COUNT(*) FROM shop_orders o WHERE o.goods = g.goods AND o.state <> 'closed') FROM shop_goods g WHERE g.goods = ?`)
	for faults.Pause(ctx, 50*time.Millisecond) {
		var initial, stock, living, orders int
		if d.DB.QueryRowContext(ctx, query, d.Goods).Scan(&initial, &stock, &living, &orders) != nil {
			continue // A fault hits the database, or the day is over.
		}
		m.Looks++
		sold := living
		if d.Manual {
			sold = orders
		}
		if sold > initial || stock < 0 || !d.Manual && (initial-stock != living || orders > living) {
			m.Wrong++
		}
	}
	return m
}

func (d *Day) read(ctx context.Context, b *Books) error {
	for _, step := range []func(context.Context, *Books) error{d.readStock, d.readTickets, d.readOrders, d.readLog, d.readCounter} {
		if err := step(ctx, b); err != nil {
			return fmt.Errorf("read the books: %w", err)
		}
	}
	return nil
}

func (d *Day) readStock(ctx context.Context, b *Books) error {
	return d.DB.QueryRowContext(ctx, d.SQL(`SELECT stock FROM shop_goods WHERE goods = ?`), d.Goods).Scan(&b.Left)
}

func (d *Day) readTickets(ctx context.Context, b *Books) error {
	b.Living, b.Known = make(map[string]string), make(map[string]bool)
	query := `SELECT ticket, buyer, COALESCE(living, 0) FROM shop_tickets`
	if d.Manual {
		query = d.HandTickets
	}
	err := shop.EachRow(ctx, d.DB, d.SQL(query), func(scan func(...any) error) error {
		var id, buyer string
		var living bool
		err := scan(&id, &buyer, &living)
		b.Known[id] = true
		if living {
			b.Living[buyer] = id
		} else {
			b.Ended++
		}
		return err
	})
	for _, id := range b.Tickets {
		if !b.Known[id] {
			b.Unknown++
		}
	}
	return err
}

const countOverlaps = `SELECT COUNT(*) FROM shop_orders a JOIN shop_orders b ON b.goods = a.goods AND b.buyer = a.buyer AND b.id > a.id
	WHERE a.closed_at IS NULL OR a.closed_at > b.created_at`

func (d *Day) readOrders(ctx context.Context, b *Books) error {
	b.Orders, b.Held = make(map[string]int), make(map[string]int)
	err := shop.EachRow(ctx, d.DB, d.SQL(`SELECT buyer, state FROM shop_orders`), func(scan func(...any) error) error {
		var buyer, state string
		err := scan(&buyer, &state)
		b.Orders[state]++
		if state != shop.StateClosed {
			b.Held[buyer]++
		}
		return err
	})
	if err != nil {
		return err
	}
	if b.Overlaps, err = d.Count(ctx, countOverlaps); err != nil {
		return err
	}
	b.Early, err = d.Count(ctx, `SELECT COUNT(*) FROM shop_orders WHERE closed_at < due_at`)
	return err
}

// Count returns the number that a query selects.
func (d *Day) Count(ctx context.Context, query string) (n int, err error) {
	err = d.DB.QueryRowContext(ctx, d.SQL(query)).Scan(&n)
	return n, err
}

func (d *Day) readLog(ctx context.Context, b *Books) error {
	b.Entries = make(map[string]map[compensator.State]int)
	return shop.EachRow(ctx, d.DB, d.SQL(`SELECT business_type, state, COUNT(*) FROM shop_log GROUP BY business_type, state`), func(scan func(...any) error) error {
		var businessType string
		var state compensator.State
		var n int
		if err := scan(&businessType, &state, &n); err != nil {
			return err
		}
		if b.Entries[businessType] == nil {
			b.Entries[businessType] = make(map[compensator.State]int)
		}
		b.Entries[businessType][state] = n
		switch state {
		case compensator.Pending, compensator.Retrying, compensator.Compensating:
			b.Stuck += n
		}
		return nil
	})
}

func (d *Day) readCounter(ctx context.Context, b *Books) (err error) {
	if !d.Manual {
		b.Counted, err = d.Counter.Read(ctx, d.Goods)
		return err
	}
	h := &shop.Manual{Redis: d.Counter.Redis, Name: d.Name}
	b.Counted.Stock, _ = h.Redis.Get(ctx, h.Key("stock", d.Goods)).Int() // A missing key counts as 0.
	buyers, err := h.Redis.SMembers(ctx, h.Key("buyers", d.Goods)).Result()
	b.Counted.Buyers = make(map[string]string, len(buyers))
	for _, buyer := range buyers {
		b.Counted.Buyers[buyer] = b.Living[buyer]
	}
	return err
}

// Made returns the number of all orders.
func (b *Books) Made() int {
	return b.Orders[shop.StateOpen] + b.Orders[shop.StatePaid] + b.Orders[shop.StateClosed]
}
func (b *Books) Still() int { return b.Orders[shop.StateOpen] + b.Orders[shop.StatePaid] }

// Taken returns how many pieces are missing from the stock in the database.
func (b *Books) Taken() int { return b.Stock - b.Left }

func (b *Books) ordersWithoutStock() int { return max(0, b.Still()-b.Taken()) }
func (b *Books) stockWithoutOrders() int { return max(0, b.Taken()-b.Still()) }

func (b *Books) shutOut() (n int) {
	for buyer := range b.Counted.Buyers {
		if b.Held[buyer] == 0 {
			n++
		}
	}
	return n
}

func (b *Books) twice() (n int) {
	for _, orders := range b.Held {
		if orders > 1 {
			n++
		}
	}
	return n
}

func (b *Books) otherTickets() (n int) {
	for buyer, id := range b.Living {
		if b.Counted.Buyers[buyer] != id {
			n++
		}
	}
	for buyer := range b.Counted.Buyers {
		if b.Living[buyer] == "" {
			n++
		}
	}
	return n
}

// Sheet prints checks and counts those that are WRONG.
type Sheet struct {
	Out   io.Writer
	Wrong int
}

// Expect prints one check.
func (s *Sheet) Expect(subject string, got, wanted int) {
	verdict := "ok   "
	if got != wanted {
		verdict = "WRONG"
		s.Wrong++
	}
	fmt.Fprintf(s.Out, "  %s  %s: %d, want %d\n", verdict, subject, got, wanted)
}

// Check makes the checks that both sales share. withPerson is the number of pieces whose entries wait for a person.
func (b *Books) Check(s *Sheet, withPerson int) {
	s.Expect("checks of the stock that found more sold than there is, or a wrong number of tickets", b.Moments.Wrong, 0)
	s.Expect("orders not closed = pieces missing from the stock", b.Still()+withPerson, b.Taken())
	s.Expect("tickets not ended = pieces missing from the stock", len(b.Living), b.Taken())
	s.Expect("buyers with more than one order that is not closed", b.twice()+b.Overlaps, 0)
	s.Expect("stock in Redis = stock in the database", b.Counted.Stock, b.Left)
	s.Expect("buyers whose ticket differs between Redis and the database", b.otherTickets(), 0)
	s.Expect("buyers without an order who can never buy", b.shutOut()-withPerson, 0)
	s.Expect("orders closed before their deadline", b.Early, 0)
	s.Expect("orders open", b.Orders[shop.StateOpen], 0)
	s.Expect("acknowledged payments without a paid order", max(0, b.Paid-b.Orders[shop.StatePaid]), 0)
	s.Expect("entries that have not ended", b.Stuck, 0)
	s.Expect("unexpected answers", b.RefusedOtherwise, 0)
}

// Row is an extra row of the table that Compare prints.
type Row struct {
	What         string
	Ours, Manual any
}

// Compare prints the results of the library and of the hand-written version in one table.
func Compare(out io.Writer, ours, manual *Books, besides ...Row) {
	fmt.Fprint(out, "| | library | hand-written |\n|---|---|---|\n")
	row := func(subject string, valueOf func(*Books) any) {
		fmt.Fprintf(out, "| %s | %v | %v |\n", subject, valueOf(ours), valueOf(manual))
	}
	row("pieces", func(b *Books) any { return b.Stock })
	row("requests to buy", func(b *Books) any { return b.Asked })
	row("of these accepted", func(b *Books) any { return b.Accepted })
	row("refused: sold out", func(b *Books) any { return b.SoldOut })
	row("refused: bought already", func(b *Books) any { return b.Again })
	row("refused: busy, try again", func(b *Books) any { return b.Busy })
	row("refused otherwise", func(b *Books) any { return b.RefusedOtherwise })
	row("no answer: the instance was down", func(b *Books) any { return b.Unanswered })
	row("buyers who got only busy answers", func(b *Books) any { return b.LeftBusy })
	row("time to an answer: median / 99 %", func(b *Books) any {
		return fmt.Sprintf("%v / %v", crowd.Percentile(b.Took, 0.5), crowd.Percentile(b.Took, 0.99))
	})
	row("orders made", func(b *Books) any { return b.Made() })
	row("sold and paid", func(b *Books) any { return b.Orders[shop.StatePaid] })
	row("orders without stock", func(b *Books) any { return b.ordersWithoutStock() })
	row("stock without orders", func(b *Books) any { return b.stockWithoutOrders() })
	row("buyers with two orders at once", func(b *Books) any { return b.twice() + b.Overlaps })
	row("stock in Redis / in the database at the end", func(b *Books) any { return fmt.Sprintf("%d / %d", b.Counted.Stock, b.Left) })
	row("buyers without an order who can never buy", func(b *Books) any { return b.shutOut() })
	row("messages stuck", func(b *Books) any { return b.Stuck })
	row("checks of the stock / checks that were wrong", func(b *Books) any { return fmt.Sprintf("%d / %d", b.Moments.Looks, b.Moments.Wrong) })
	for _, r := range besides {
		row(r.What, func(b *Books) any {
			if b == ours {
				return r.Ours
			}
			return r.Manual
		})
	}
}
