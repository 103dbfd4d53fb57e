package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/relay/rabbitmq"
)

// sale sells one piece of each goods to a buyer. What happens to a ticket stands in sale.go, and how the counter is kept
// right in rebuild.go.
type sale struct {
	settings
	db      *sql.DB
	counter *counter
	log     *compensator.Compensator
	logger  *slog.Logger

	creating  *compensator.Type[ticket]
	closing   *compensator.Type[order]
	returning *compensator.Type[ticket]

	messages   *rabbitmq.Publisher
	relay      compensator.BatchFunc
	consumer   *rabbitmq.Consumer
	luck       luck
	rebuilding sync.Mutex // one filling of the counter at a time is enough for a process
}

const (
	createType = "create_order"
	closeType  = "close_order"
	returnType = "return_stock"

	// redeliveredType is of messages that the broker delivers again, because their first consumer died.
	redeliveredType = "redelivered_order"

	orderQueue  = "orders"
	longestTold = 2 * time.Second
)

var errUnconfirmed = errors.New("sent, and not confirmed by a consumer yet")

// newSale puts the parts together.
func newSale(ctx context.Context, cfg settings, on servers.Servers, db *sql.DB, c *counter) (s *sale, err error) {
	s = &sale{settings: cfg, db: db, counter: c, logger: slog.Default(), luck: luck{seed: cfg.seed, fail: cfg.fail, hopeless: cfg.hopeless}}
	// What a process that dies has recorded and not announced is found by the reconciler: at most grace and one interval
	// late, so both are shorter here than the defaults.
	s.log, err = compensator.New(ctx, compensator.Config{
		DB: db, Redis: c.redis, Table: logTable, Prefix: on.Name, Lease: cfg.lease, Grace: time.Second, ReconcileInterval: 2 * time.Second})
	if err != nil {
		return nil, err
	}
	if s.messages, err = rabbitmq.Open(rabbitmq.Config{URL: on.AMQP}); err != nil {
		return nil, errors.Join(err, s.log.Close())
	}
	s.relay = s.messages.BatchHandler(rabbitmq.To("", on.Queue(orderQueue)))
	if err = s.register(on); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

func (s *sale) register(on servers.Servers) (err error) {
	soon := compensator.Exponential(50*time.Millisecond, 5*time.Second)
	s.creating, err = compensator.HandleBatch(s.log, createType, s.send, compensator.TypeConfig{
		MaxProcessCount: s.most + 1, // the last one sends nothing
		Retry:           compensator.Fixed(s.resend),
		CompensateTx:    compensator.TypedTx(s.undo), CompensateCrashed: true,
	})
	if err != nil {
		return err
	}
	if s.closing, err = compensator.HandleTx(s.log, closeType, s.close, compensator.TypeConfig{Retry: soon, Concurrency: 10}); err != nil {
		return err
	}
	if s.returning, err = compensator.Handle(s.log, returnType, s.giveBack, compensator.TypeConfig{Retry: soon}); err != nil {
		return err
	}
	queue := on.Queue(orderQueue)
	s.consumer, err = rabbitmq.Consume(s.log, redeliveredType, s.consume, rabbitmq.ConsumerConfig{
		URL: on.AMQP, Queue: queue, Prefetch: s.workers, Declare: servers.Declare(queue),
		Type: compensator.TypeConfig{Concurrency: s.workers, Retry: compensator.Fixed(time.Second)},
	})
	return err
}

// together has a ticket wait for others, to be sent with them, and refuses one that somebody has given up: see decide.
func (s *sale) together(t ticket) compensator.Options {
	o := t.options(t.createKey())
	o.Delay, o.FailOnDuplicate = s.gather, true
	return o
}

// inTime has an order closed when its time is up.
func (s *sale) inTime(t ticket) compensator.Options {
	o := t.options(t.closeKey())
	o.Delay = s.window
	return o
}

// certain finds out what a COMMIT came to whose answer is lost. What it cannot find out stays ErrCommitUnknown.
func (s *sale) certain(ctx context.Context, t ticket, err error) error {
	if !errors.Is(err, compensator.ErrCommitUnknown) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestTold)
	defer cancel()
	switch _, asked := s.log.Resolve(ctx, t.createKey()); {
	case asked == nil:
		return nil
	case errors.Is(asked, compensator.ErrNotFound):
		return fmt.Errorf("rolled back: %v", err)
	}
	return err
}

// withSendingsLeft marks those that have been sent as often as allowed: nil.
func (s *sale) withSendingsLeft(items []compensator.Item[ticket]) []*compensator.Entry {
	entries := make([]*compensator.Entry, len(items))
	for i, item := range items {
		if item.Entry.Attempt() <= s.most {
			entries[i] = item.Entry
		}
	}
	return entries
}

// publish relays entries, and returns each one's outcome; nil entries have none left but failure.
func (s *sale) publish(ctx context.Context, entries []*compensator.Entry) []error {
	outcomes := make([]error, len(entries))
	var left []*compensator.Entry
	var places []int
	for i, e := range entries {
		if e == nil {
			outcomes[i] = fmt.Errorf("sent %d times, and no consumer has made an order of it", s.most)
			continue
		}
		left, places = append(left, e), append(places, i)
	}
	for i, err := range s.relay(ctx, left) {
		outcomes[places[i]] = err
	}
	return outcomes
}

// consume reads a message and makes the order. Its own failure is no reason to deliver it again: the entry is not
// completed, so it will be sent again.
func (s *sale) consume(ctx context.Context, d *rabbitmq.Delivery) error {
	var t ticket
	if err := json.Unmarshal(d.Body, &t); err != nil {
		return compensator.Permanent(err) // parked: a person sees it
	}
	err := s.luck.of(t)
	if err == nil {
		err = s.create(ctx, t)
	}
	var over *compensator.StateError
	if err != nil && !errors.As(err, &over) {
		s.logger.Debug("no order made", "ticket", t.ID, "err", err)
	}
	return nil
}

// run consumes, relays, closes and watches until ctx ends, and finishes what it has begun: the consumer first, for what
// it records is then known to the log.
func (s *sale) run(ctx context.Context) error {
	logging, stopLog := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLog()
	logged := make(chan error, 1)
	go func() { logged <- s.log.Run(logging) }()
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(ctx) })
	err := s.consumer.Run(ctx)
	watching.Wait()
	stopLog()
	return errors.Join(err, <-logged)
}

func (s *sale) end() { _ = errors.Join(s.messages.Close(), s.log.Close()) }

func pause(ctx context.Context, d time.Duration) bool { return faults.Pause(ctx, d) }
