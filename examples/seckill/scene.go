package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/day"
	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

type scene struct {
	day.Day
	sending
}

type books struct {
	*day.Books
	open    int // open tickets in Redis
	alone   int // tickets and orders without their entry
	waiting int // messages in the queue
}

func (s *scene) prepare() {
	s.Tables = tables
	s.Rest = s.abandon + 2*time.Second
	s.Sale = day.Sale{
		Arguments: s.arguments(), Besides: []string{createHandLog},
		HandTickets: `SELECT ticket, buyer, 1 FROM shop_hand_log`,
		Clear:       func(context.Context) error { return s.OnBroker(servers.Delete(s.Queue(orderQueue))) },
		Left:        s.left,
	}
}

func (s *scene) run(ctx context.Context) (b *books, err error) {
	s.prepare()
	b = new(books)
	b.Books, err = s.Run(ctx, func(ctx context.Context, common *day.Books) error {
		b.Books = common
		return s.read(ctx, b)
	})
	return b, err
}

// The method left counts the messages in the queue. For the hand-written version it also counts the tickets whose
// message has not been sent.
func (s *scene) left(ctx context.Context) (int, error) {
	waiting, err := s.Waiting(s.Queue(orderQueue))
	if err != nil || !s.Manual {
		return waiting, err
	}
	unsent, err := s.Count(ctx, `SELECT COUNT(*) FROM shop_hand_log WHERE status = 0`)
	return waiting + unsent, err
}

// countAlone counts lost work: a ticket without create_order, an order without close_order, or an ended ticket without
// return_stock.
const countAlone = `SELECT
	(SELECT COUNT(*) FROM shop_tickets t LEFT JOIN shop_log l ON l.idempotent_id = CONCAT('create/', t.goods, '/', t.buyer, '/', t.ticket) WHERE l.id IS NULL) +
	(SELECT COUNT(*) FROM shop_orders o LEFT JOIN shop_log l ON l.idempotent_id = CONCAT('close/', o.ticket) WHERE l.id IS NULL) +
	(SELECT COUNT(*) FROM shop_tickets t LEFT JOIN shop_log l ON l.idempotent_id = CONCAT('return/', t.ticket) WHERE t.living IS NULL AND l.id IS NULL)`

func (s *scene) read(ctx context.Context, b *books) (err error) {
	if b.waiting, err = s.Waiting(s.Queue(orderQueue)); err != nil {
		return err
	}
	if s.Manual {
		b.Stuck, err = s.Count(ctx, `SELECT COUNT(*) FROM shop_hand_log l LEFT JOIN shop_orders o ON o.ticket = l.ticket WHERE o.id IS NULL`)
		b.Stuck += b.waiting
		return err
	}
	if b.open, err = (counter{s.Counter}).open(ctx, s.Goods); err != nil {
		return err
	}
	b.alone, err = s.Count(ctx, countAlone)
	return err
}

func (b *books) report(out io.Writer) (wrong int) {
	create, closing, back := b.Entries[createType], b.Entries[shop.CloseType], b.Entries[shop.ReturnType]
	withPerson := create[compensator.Dead]
	fmt.Fprintf(out, "%d checks of the stock during the sale; %d pieces of %d sold, %d tickets given back, %d undone, %d given up before they were sold, %d waiting for a person\n",
		b.Moments.Looks, b.Taken(), b.Stock, b.Ended, create[compensator.Compensated], create[compensator.Cancelled], withPerson)
	s := &day.Sheet{Out: out}
	b.Check(s, withPerson)
	s.Expect("open tickets in Redis", b.open, 0)
	s.Expect("accepted answers without a ticket", b.Unknown, 0)
	s.Expect("orders made = create_order entries succeeded", b.Made(), create[compensator.Succeeded])
	s.Expect("tickets = create_order entries succeeded, compensated or waiting for a person", len(b.Known), create[compensator.Succeeded]+create[compensator.Compensated]+withPerson)
	s.Expect("orders closed = close_order entries succeeded", b.Orders[shop.StateClosed], closing[compensator.Succeeded])
	s.Expect("orders paid = close_order entries cancelled", b.Orders[shop.StatePaid], closing[compensator.Cancelled])
	s.Expect("tickets given back = orders closed + tickets undone", b.Ended, b.Orders[shop.StateClosed]+create[compensator.Compensated])
	s.Expect("tickets given back = return_stock entries succeeded", b.Ended, back[compensator.Succeeded])
	s.Expect("tickets and orders without their entry", b.alone, 0)
	s.Expect("messages in the queue", b.waiting, 0)
	return s.Wrong
}
