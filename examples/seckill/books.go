package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/compensator-go/compensator"
)

// books are what a run has left behind, held against what the crowd was told.
type books struct {
	settings
	byHand   bool
	tally    tally
	took     []time.Duration
	accepted []string // tickets
	moments  moments

	left     int // in the database
	counted  counted
	tickets  map[string]string // living ones, by buyer
	known    map[string]bool   // tickets that the database has, or has had
	orders   map[string]int    // by state
	living   map[string]int    // orders that are not closed, by buyer
	overlaps int
	early    int
	ended    int // tickets that gave their piece back
	unsold   int // accepted tickets that the database does not know
	entries  map[string]map[compensator.State]int
	alone    int // tickets and orders without the entry they should have
	stuck    int // entries, or rows by hand, that nobody will do anything about
	waiting  int // messages
}

// moments are looks at the database while everything happens.
type moments struct{ looks, wrong int }

// lookAtMoments compares stock and tickets, each time in one statement and so in one moment, until ctx ends.
func (s *scene) lookAtMoments(ctx context.Context) (m moments) {
	query := `SELECT g.initial, g.stock, (SELECT COUNT(*) FROM seckill_tickets t WHERE t.goods = g.goods AND t.living = 1),
		(SELECT COUNT(*) FROM seckill_orders o WHERE o.goods = g.goods AND o.state <> 'closed') FROM seckill_goods g WHERE g.goods = ?`
	for pause(ctx, 50*time.Millisecond) {
		var initial, stock, living, orders int
		if s.db.QueryRowContext(ctx, query, s.goods).Scan(&initial, &stock, &living, &orders) != nil {
			continue // it is being struck, or we are done
		}
		m.looks++
		sold := living
		if s.byHand {
			sold = orders
		}
		if sold > initial || stock < 0 || !s.byHand && (initial-stock != living || orders > living) {
			m.wrong++
		}
	}
	return m
}

// read fills in what the database, Redis and the broker hold.
func (s *scene) read(ctx context.Context, b *books) (err error) {
	for _, step := range []func(context.Context, *books) error{s.readStock, s.readTickets, s.readOrders, s.readLog, s.readCounter} {
		if err := step(ctx, b); err != nil {
			return fmt.Errorf("read the books: %w", err)
		}
	}
	b.waiting, err = s.Waiting(s.Queue(orderQueue))
	return err
}

func (s *scene) readStock(ctx context.Context, b *books) error {
	return s.db.QueryRowContext(ctx, `SELECT stock FROM seckill_goods WHERE goods = ?`, s.goods).Scan(&b.left)
}

func (s *scene) readTickets(ctx context.Context, b *books) error {
	b.tickets, b.known = make(map[string]string), make(map[string]bool)
	query := `SELECT ticket, buyer, COALESCE(living, 0) FROM seckill_tickets`
	if s.byHand {
		query = `SELECT ticket, buyer, 1 FROM seckill_hand_log`
	}
	err := eachRow(ctx, s.db, query, func(scan func(...any) error) error {
		var id, buyer string
		var living bool
		err := scan(&id, &buyer, &living)
		b.known[id] = true
		if living {
			b.tickets[buyer] = id
		} else {
			b.ended++
		}
		return err
	})
	for _, id := range b.accepted {
		if !b.known[id] {
			b.unsold++
		}
	}
	return err
}

// Two orders of a buyer overlap when one was made before the other had ended.
const countOverlaps = `SELECT COUNT(*) FROM seckill_orders a JOIN seckill_orders b ON b.goods = a.goods AND b.buyer = a.buyer AND b.id > a.id
	WHERE a.closed_at IS NULL OR a.closed_at > b.created_at`

func (s *scene) readOrders(ctx context.Context, b *books) error {
	b.orders, b.living = make(map[string]int), make(map[string]int)
	err := eachRow(ctx, s.db, `SELECT buyer, state FROM seckill_orders`, func(scan func(...any) error) error {
		var buyer, state string
		err := scan(&buyer, &state)
		b.orders[state]++
		if state != stateClosed {
			b.living[buyer]++
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := s.db.QueryRowContext(ctx, countOverlaps).Scan(&b.overlaps); err != nil {
		return err
	}
	return s.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM seckill_orders WHERE closed_at < due_at`).Scan(&b.early)
}

// What has no entry is lost: a ticket's create_order, an order's close_order, an ended ticket's return_stock.
const countAlone = `SELECT
	(SELECT COUNT(*) FROM seckill_tickets t LEFT JOIN seckill_log l ON l.idempotent_id = CONCAT('create/', t.goods, '/', t.buyer, '/', t.ticket) WHERE l.id IS NULL) +
	(SELECT COUNT(*) FROM seckill_orders o LEFT JOIN seckill_log l ON l.idempotent_id = CONCAT('close/', o.ticket) WHERE l.id IS NULL) +
	(SELECT COUNT(*) FROM seckill_tickets t LEFT JOIN seckill_log l ON l.idempotent_id = CONCAT('return/', t.ticket) WHERE t.living IS NULL AND l.id IS NULL)`

func (s *scene) readLog(ctx context.Context, b *books) error {
	if s.byHand {
		return s.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM seckill_hand_log l LEFT JOIN seckill_orders o ON o.ticket = l.ticket WHERE o.id IS NULL`).Scan(&b.stuck)
	}
	b.entries = make(map[string]map[compensator.State]int)
	err := eachRow(ctx, s.db, `SELECT business_type, state, COUNT(*) FROM seckill_log GROUP BY business_type, state`, func(scan func(...any) error) error {
		var businessType string
		var state compensator.State
		var n int
		if err := scan(&businessType, &state, &n); err != nil {
			return err
		}
		if b.entries[businessType] == nil {
			b.entries[businessType] = make(map[compensator.State]int)
		}
		b.entries[businessType][state] = n
		switch state {
		case compensator.Pending, compensator.Retrying, compensator.Compensating:
			b.stuck += n
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.db.QueryRowContext(ctx, countAlone).Scan(&b.alone)
}

func (s *scene) readCounter(ctx context.Context, b *books) (err error) {
	if !s.byHand {
		b.counted, err = s.counter.read(ctx, s.goods)
		return err
	}
	h := &byHand{redis: s.counter.redis, name: s.Name}
	b.counted.Stock, _ = h.redis.Get(ctx, h.key("stock", s.goods)).Int() // none is 0
	buyers, err := h.redis.SMembers(ctx, h.key("buyers", s.goods)).Result()
	b.counted.Buyers = make(map[string]string, len(buyers))
	for _, buyer := range buyers {
		b.counted.Buyers[buyer] = b.tickets[buyer]
	}
	return err
}

// made is how many orders there were, and still how many are not closed.
func (b *books) made() int  { return b.orders[stateOpen] + b.orders[statePaid] + b.orders[stateClosed] }
func (b *books) still() int { return b.orders[stateOpen] + b.orders[statePaid] }

// taken is how many pieces are gone.
func (b *books) taken() int { return b.stock - b.left }

func (b *books) ordersWithoutStock() int { return max(0, b.still()-b.taken()) }
func (b *books) stockWithoutOrders() int { return max(0, b.taken()-b.still()) }

// shutOut are buyers whom Redis takes for such that have an order, and who have none.
func (b *books) shutOut() (n int) {
	for buyer := range b.counted.Buyers {
		if b.living[buyer] == 0 {
			n++
		}
	}
	return n
}

// twice are buyers with more than one order that is not closed.
func (b *books) twice() (n int) {
	for _, orders := range b.living {
		if orders > 1 {
			n++
		}
	}
	return n
}

// otherTickets are buyers of whom Redis and the database do not say the same.
func (b *books) otherTickets() (n int) {
	for buyer, id := range b.tickets {
		if b.counted.Buyers[buyer] != id {
			n++
		}
	}
	for buyer := range b.counted.Buyers {
		if b.tickets[buyer] == "" {
			n++
		}
	}
	return n
}

// report prints every check and returns how many are WRONG.
func (b *books) report(out io.Writer) (wrong int) {
	expect := func(what string, got, want int) {
		verdict := "ok   "
		if got != want {
			verdict = "WRONG"
			wrong++
		}
		fmt.Fprintf(out, "  %s  %s: %d, want %d\n", verdict, what, got, want)
	}
	create, closing, back := b.entries[createType], b.entries[closeType], b.entries[returnType]
	withPerson := create[compensator.Dead]
	fmt.Fprintf(out, "%d looks at the stock while it happened; %d pieces of %d sold, %d tickets given back, %d undone, %d given up before they were sold, %d with a person\n",
		b.moments.looks, b.taken(), b.stock, b.ended, create[compensator.Compensated], create[compensator.Cancelled], withPerson)
	expect("moments in which more was sold than there is, or stock and tickets differed", b.moments.wrong, 0)
	expect("orders that live = stock taken - given back", b.still()+withPerson, b.taken())
	expect("tickets that live = stock taken - given back", len(b.tickets), b.taken())
	expect("buyers with more than one living order", b.twice()+b.overlaps, 0)
	expect("stock in Redis = stock in the database", b.counted.Stock, b.left)
	expect("buyers of whom Redis and the database differ", b.otherTickets(), 0)
	expect("buyers shut out for ever", b.shutOut()-withPerson, 0)
	expect("open tickets in Redis", b.counted.Open, 0)
	expect("accepted answers without a ticket", b.unsold, 0)
	expect("orders made = create_order entries succeeded", b.made(), create[compensator.Succeeded])
	expect("tickets = create_order entries succeeded, compensated or with a person", len(b.known), create[compensator.Succeeded]+create[compensator.Compensated]+withPerson)
	expect("orders closed = close_order entries succeeded", b.orders[stateClosed], closing[compensator.Succeeded])
	expect("orders paid = close_order entries cancelled", b.orders[statePaid], closing[compensator.Cancelled])
	expect("orders closed before their time", b.early, 0)
	expect("orders open", b.orders[stateOpen], 0)
	expect("tickets given back = orders closed + tickets undone", b.ended, b.orders[stateClosed]+create[compensator.Compensated])
	expect("tickets given back = return_stock entries succeeded", b.ended, back[compensator.Succeeded])
	expect("payments acknowledged that are no paid order", max(0, b.tally.paid-b.orders[statePaid]), 0)
	expect("tickets and orders without their entry", b.alone, 0)
	expect("entries that still want something", b.stuck, 0)
	expect("messages in the queue", b.waiting, 0)
	expect("answers that a buyer cannot understand", b.tally.refusedOtherwise, 0)
	return wrong
}

// compare prints both ways in one table.
func compare(out io.Writer, ours, byHand *books) {
	fmt.Fprint(out, "| | this way | by hand |\n|---|---|---|\n")
	row := func(what string, of func(*books) any) {
		fmt.Fprintf(out, "| %s | %v | %v |\n", what, of(ours), of(byHand))
	}
	row("pieces", func(b *books) any { return b.stock })
	row("requests to buy", func(b *books) any { return b.tally.asked })
	row("of these accepted", func(b *books) any { return b.tally.accepted })
	row("refused: sold out", func(b *books) any { return b.tally.soldOut })
	row("refused: bought already", func(b *books) any { return b.tally.again })
	row("refused: busy, try again", func(b *books) any { return b.tally.busy })
	row("refused otherwise", func(b *books) any { return b.tally.refusedOtherwise })
	row("unheard: the instance was down", func(b *books) any { return b.tally.unheard })
	row("buyers who were never told anything but busy", func(b *books) any { return b.tally.leftBusy })
	row("an answer took: half / 99 %", func(b *books) any {
		return fmt.Sprintf("%v / %v", percentile(b.took, 0.5), percentile(b.took, 0.99))
	})
	row("orders made", func(b *books) any { return b.made() })
	row("sold and paid", func(b *books) any { return b.orders[statePaid] })
	row("orders without stock", func(b *books) any { return b.ordersWithoutStock() })
	row("stock without orders", func(b *books) any { return b.stockWithoutOrders() })
	row("buyers with two orders at once", func(b *books) any { return b.twice() + b.overlaps })
	row("stock in Redis / in the database at the end", func(b *books) any { return fmt.Sprintf("%d / %d", b.counted.Stock, b.left) })
	row("buyers shut out for ever", func(b *books) any { return b.shutOut() })
	row("messages stuck", func(b *books) any { return b.stuck + b.waiting })
	row("looks at the stock / of these wrong", func(b *books) any { return fmt.Sprintf("%d / %d", b.moments.looks, b.moments.wrong) })
}
