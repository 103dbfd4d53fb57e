package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/day"
	"github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/examples/internal/shop"
)

type scene struct {
	day.Day
	wholeRedis bool            // whether Redis belongs to the scene alone, so that all of it may be emptied
	inStream   map[string]bool // tickets whose messages were in the stream when Redis was emptied
	poison     int             // number of malformed messages
}

type books struct {
	*day.Books
	lost      int // accepted tickets that Redis lost before the database had them
	poison    int
	length    int // length of the stream
	pending   int // messages that were read and not acknowledged
	unread    int // messages that no consumer has read
	consumers int // consumers in the group
	doubled   int // tickets with more than one order
	orderless int // tickets without an order
}

func (s *scene) run(ctx context.Context) (b *books, err error) {
	s.Tables = tables
	s.Rest = s.Lease + 2*time.Second
	s.Sale = day.Sale{HandTickets: `SELECT ticket, buyer, 1 FROM shop_orders`, Left: s.left}
	s.inStream, s.poison = make(map[string]bool), 0
	b = new(books)
	b.Books, err = s.Run(ctx, func(ctx context.Context, common *day.Books) error {
		b.Books = common
		return s.read(ctx, b)
	})
	return b, err
}

func (s *scene) streamAndGroup() (string, string) {
	if s.Manual {
		return (&manual{shop.Manual{Name: s.Name}}).stream(s.Goods), handGroup
	}
	return streamKey(s.Counter, s.Goods), group
}

// left returns the number of messages in the stream. It counts acknowledged messages, too, because the intake soon
// deletes them. For the hand-written version, which deletes no messages, left returns 0.
func (s *scene) left(ctx context.Context) (int, error) {
	if s.Manual {
		return 0, nil
	}
	stream, _ := s.streamAndGroup()
	n, err := s.Counter.Redis.XLen(ctx, stream).Result()
	return int(n), err
}

// emptied empties Redis while the database is slow. A lock on the row of the goods makes the database slow, so that
// some messages are still unread and are lost.
func (s *scene) emptied(ctx context.Context) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, s.SQL(`SELECT stock FROM shop_goods WHERE goods = ? FOR UPDATE`), s.Goods); err != nil {
		return err
	}
	for deadline := time.Now().Add(s.Span / 10); time.Now().Before(deadline) && faults.Pause(ctx, 5*time.Millisecond); {
		if unread, err := s.unread(ctx); err != nil || unread > 0 {
			break
		}
	}
	return s.empty(ctx)
}

func (s *scene) unread(ctx context.Context) (int, error) {
	stream, name := s.streamAndGroup()
	groups, err := s.Counter.Redis.XInfoGroups(ctx, stream).Result()
	for _, g := range groups {
		if g.Name == name {
			return int(g.Lag), nil
		}
	}
	return 0, err
}

func (s *scene) empty(ctx context.Context) error {
	stream, _ := s.streamAndGroup()
	keys, err := s.Keys(ctx)
	if err != nil {
		return err
	}
	var there *redis.XMessageSliceCmd
	_, err = s.Counter.Redis.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		there = pipe.XRange(ctx, stream, "-", "+")
		if s.wholeRedis {
			return pipe.FlushAll(ctx).Err()
		}
		return pipe.Unlink(ctx, keys...).Err()
	})
	if err != nil {
		return err
	}
	for _, m := range there.Val() {
		s.inStream[fmt.Sprint(m.Values["ticket"])] = true
	}
	return s.noteLoss(ctx)
}

func (s *scene) noteLoss(ctx context.Context) error {
	known := make(map[string]bool)
	err := shop.EachRow(ctx, s.DB, s.SQL(`SELECT ticket FROM shop_tickets UNION SELECT ticket FROM shop_orders`), func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		known[id] = true
		return err
	})
	if err != nil {
		return err
	}
	lost := 0
	for id := range s.inStream {
		if !known[id] {
			lost++
		}
	}
	return s.Note(ctx, fmt.Sprintf("Redis lost %d orders that the database did not have", lost))
}

func (s *scene) poisoned(ctx context.Context) error {
	stream, _ := s.streamAndGroup()
	s.poison++
	return s.Counter.Redis.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []string{"ticket", "", "order", "{{no order}"}}).Err()
}

func (s *scene) read(ctx context.Context, b *books) (err error) {
	b.poison = s.poison
	for _, id := range b.Tickets {
		if !b.Known[id] && s.inStream[id] {
			b.lost++
		}
	}
	if b.doubled, err = s.Count(ctx, `SELECT COUNT(*) - COUNT(DISTINCT ticket) FROM shop_orders`); err != nil {
		return err
	}
	if b.orderless, err = s.Count(ctx, `SELECT COUNT(*) FROM shop_tickets t LEFT JOIN shop_orders o ON o.ticket = t.ticket WHERE o.id IS NULL`); err != nil {
		return err
	}
	return s.readStream(ctx, b)
}

func (s *scene) readStream(ctx context.Context, b *books) error {
	stream, name := s.streamAndGroup()
	messages, err := s.Counter.Redis.XRange(ctx, stream, "-", "+").Result()
	if err != nil {
		return err
	}
	b.length = len(messages)
	groups, err := s.Counter.Redis.XInfoGroups(ctx, stream).Result()
	if err != nil {
		return err
	}
	for _, g := range groups {
		if g.Name == name {
			b.pending, b.unread, b.consumers = int(g.Pending), int(g.Lag), int(g.Consumers)
		}
	}
	for _, m := range messages {
		if s.Manual && !b.Known[fmt.Sprint(m.Values["ticket"])] {
			b.Stuck++
		}
	}
	return nil
}

func (b *books) report(out io.Writer) (wrong int) {
	closing, aside, back := b.Entries[shop.CloseType], b.Entries[asideType], b.Entries[shop.ReturnType]
	undone := aside[compensator.Compensated]
	void := closing[compensator.Succeeded] - b.Made()
	fmt.Fprintf(out, "%d checks of the stock during the sale; %d pieces of %d sold, %d tickets given back, %d of them undone, %d void because Redis was filled again in between\n",
		b.Moments.Looks, b.Taken(), b.Stock, b.Ended, undone, void)
	fmt.Fprintf(out, "%d accepted tickets were lost with Redis before the database had them; %d orders were made at a later try; %d consumers in the group were killed\n",
		b.lost, aside[compensator.Succeeded], b.consumers)
	s := &day.Sheet{Out: out}
	b.Check(s, 0)
	s.Expect("accepted answers that neither the database knows nor Redis has lost", b.Unknown-b.lost, 0)
	s.Expect("tickets with more than one order", b.doubled, 0)
	s.Expect("tickets without an order = void + undone", b.orderless, void+undone)
	s.Expect("tickets = close_order entries succeeded + order_aside entries compensated", len(b.Known), closing[compensator.Succeeded]+undone)
	s.Expect("tickets given back = orders closed + void + undone", b.Ended, b.Orders[shop.StateClosed]+void+undone)
	s.Expect("return_stock entries succeeded = orders closed + undone", back[compensator.Succeeded], b.Orders[shop.StateClosed]+undone)
	s.Expect("malformed messages = entries that wait for a person", aside[compensator.Dead], b.poison)
	s.Expect("other entries that wait for a person", closing[compensator.Dead]+back[compensator.Dead], 0)
	s.Expect("messages in the stream", b.length, 0)
	s.Expect("messages on the pending list", b.pending, 0)
	s.Expect("messages that no consumer has read", b.unread, 0)
	return s.Wrong
}

func compare(out io.Writer, ours, manual *books) {
	day.Compare(out, ours.Books, manual.Books,
		day.Row{What: "accepted, and lost with Redis", Ours: ours.lost, Manual: manual.lost},
		day.Row{What: "accepted, not lost, and never an order", Ours: ours.Unknown - ours.lost, Manual: manual.Unknown - manual.lost},
		day.Row{What: "on the pending list at the end", Ours: ours.pending, Manual: manual.pending})
}
