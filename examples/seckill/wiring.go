package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/examples/internal/shop"
	"github.com/compensator-go/compensator/relay/rabbitmq"
)

// sale sells each buyer one piece of each article. sale.go has the life of a ticket. outcome.go handles tickets whose
// outcome Redis does not know.
type sale struct {
	*shop.Shop
	sending
	counter counter

	creating *compensator.Type[shop.Ticket]
	messages *rabbitmq.Publisher
	relay    compensator.BatchFunc
	consumer *rabbitmq.Consumer
}

const (
	createType = "create_order"

	// redeliveredType is the type of messages that the broker delivers again because their first consumer died.
	redeliveredType = "redelivered_order"

	orderQueue   = "orders"
	redisTimeout = 2 * time.Second
)

var errUnconfirmed = errors.New("sent, and not confirmed by a consumer yet")

var look = shop.Look{
	English: shop.Intro{Title: "Flash sale", Text: "One piece a buyer. Redis answers first, the database decides, and what cannot become an order goes back."},
	Chinese: shop.Intro{Title: "秒杀", Text: "每人限购一件。Redis 先应答，数据库作最终判定，无法生成订单的库存会退回。"},
	Types:   []string{createType, shop.CloseType, shop.ReturnType, redeliveredType},
}

// createKey returns the key of the ticket's entry. The selling process records this entry when it sells the ticket.
// Another process records this entry when it gives the old ticket up. Whichever process commits first decides.
func createKey(t shop.Ticket) compensator.IdempotencyKey {
	return compensator.IdempotencyKey("create/" + t.Goods + "/" + t.Buyer + "/" + t.ID)
}

func newSale(ctx context.Context, cfg settings, on servers.Servers, db *sql.DB, c *shop.Counter) (s *sale, err error) {
	s = &sale{sending: cfg.sending, counter: counter{c}}
	if s.Shop, err = shop.Open(ctx, cfg.Settings, tables, db, c); err != nil {
		return nil, err
	}
	s.Look = look
	if s.messages, err = rabbitmq.Open(rabbitmq.Config{URL: on.AMQP}); err != nil {
		return nil, errors.Join(err, s.Log.Close())
	}
	s.relay = s.messages.BatchHandler(rabbitmq.To("", on.Queue(orderQueue)))
	if err = s.register(on); err != nil {
		s.End()
		return nil, err
	}
	return s, nil
}

func (s *sale) register(on servers.Servers) (err error) {
	s.creating, err = compensator.HandleBatch(context.Background(), s.Log, createType, s.send, &compensator.BatchConfig[shop.Ticket]{
		MaxAttempts:  s.Most + 1, // The last attempt sends nothing.
		BatchWait:    s.gather,
		Retry:        compensator.Fixed(s.Resend),
		CompensateTx: s.undo, CompensateCrashed: true,
	})
	if err != nil {
		return err
	}
	queue := on.Queue(orderQueue)
	s.consumer, err = rabbitmq.Consume(context.Background(), s.Log, redeliveredType, s.consume, rabbitmq.ConsumerConfig{
		URL: on.AMQP, Queue: queue, Prefetch: s.workers, Declare: servers.Declare(queue),
		Type: compensator.HandlerConfig[rabbitmq.Delivery]{Concurrency: s.workers, Retry: compensator.Fixed(time.Second)},
	})
	return err
}

// refused reports whether Redis alone has refused the purchase and has taken nothing.
func refused(err error) bool {
	return errors.Is(err, shop.ErrSoldOut) || errors.Is(err, shop.ErrAgain) || errors.Is(err, shop.ErrStale)
}

// unlessGivenUp returns options with which Record refuses a ticket that another process has given up.
func (s *sale) unlessGivenUp(t shop.Ticket) compensator.Options {
	o := t.Options(createKey(t))
	o.Delay, o.FailOnDuplicate = s.later, true
	return o
}

// certain returns ErrCommitUnknown if the database does not answer.
func (s *sale) certain(ctx context.Context, t shop.Ticket, err error) error {
	if !errors.Is(err, compensator.ErrCommitUnknown) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	switch _, asked := s.Log.Resolve(ctx, createKey(t)); {
	case asked == nil:
		return nil
	case errors.Is(asked, compensator.ErrNotFound):
		return fmt.Errorf("rolled back: %v", err)
	}
	return err
}

// withSendingsLeft returns nil for an entry that has been sent as often as allowed.
func (s *sale) withSendingsLeft(items []compensator.Item[shop.Ticket]) []*compensator.Entry {
	entries := make([]*compensator.Entry, len(items))
	for i, item := range items {
		if item.Entry.Attempt() <= s.Most {
			entries[i] = item.Entry
		}
	}
	return entries
}

// publish relays the entries to the queue, and returns an outcome for each entry. The outcome of a nil entry is an
// error.
func (s *sale) publish(ctx context.Context, entries []*compensator.Entry) []error {
	outcomes := make([]error, len(entries))
	var left []*compensator.Entry
	var places []int
	for i, e := range entries {
		if e == nil {
			outcomes[i] = fmt.Errorf("sent %d times, and no consumer has made an order of it", s.Most)
			continue
		}
		left, places = append(left, e), append(places, i)
	}
	for i, err := range s.relay(ctx, left) {
		outcomes[places[i]] = err
	}
	return outcomes
}

// consume never asks for a redelivery, because an entry that is not completed is sent again.
func (s *sale) consume(ctx context.Context, d *rabbitmq.Delivery) error {
	var t shop.Ticket
	if err := json.Unmarshal(d.Body, &t); err != nil {
		return compensator.Permanent(err) // The message is set aside for a person.
	}
	err := s.Luck().Of(t, rand.Uint64())
	if err == nil {
		err = s.create(ctx, t)
	}
	var over *compensator.StateError
	if err != nil && !errors.As(err, &over) {
		s.Logger.Debug("no order made", "ticket", t.ID, "err", err)
	}
	return nil
}

// Run stops the consumer before the log, so that the log sees everything that the consumer records.
func (s *sale) Run(ctx context.Context) error {
	logging, stopLog := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLog()
	logged := make(chan error, 1)
	go func() { logged <- s.Log.Run(logging) }()
	var watching sync.WaitGroup
	watching.Go(func() { s.Watch(ctx, s.lookAfter) })
	err := s.consumer.Run(ctx)
	watching.Wait()
	stopLog()
	return errors.Join(err, <-logged)
}

// End closes what newSale has opened.
func (s *sale) End() { _ = errors.Join(s.messages.Close(), s.Log.Close()) }
