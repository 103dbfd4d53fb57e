package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/relay/rabbitmq"
)

const (
	syncType = "sync_user"

	// The log passes redelivered messages to a consumer, and dead-letters a message after repeated crashes.
	redeliveredType = "redelivered_user"

	sendingHeader = "sending" // header that numbers the messages about one user: 0 for the first message, 1 for the second
	traceHeader   = "trace"
)

var (
	errTooSlow   = errors.New("the consumer reached its time limit")
	errForgotten = errors.New("the consumer has acknowledged the message and done nothing")
)

// Without rdb the library uses a timing wheel in this process.
func newSyncer(ctx context.Context, on servers, cfg settings, db *sql.DB, rdb *redis.Client) (s *syncer, err error) {
	s = &syncer{servers: on, settings: cfg, db: db}
	// A process may die before it has enqueued its entries. The reconciler then finds them. They start at most Grace
	// plus 1.2 × ReconcileInterval after they are due, which is 3.4 s.
	config := compensator.Config{DB: db, Table: logTable, Prefix: on.Name, Lease: cfg.lease, Grace: time.Second, ReconcileInterval: 2 * time.Second, Propagator: traces{}}
	if rdb != nil {
		config.Redis = rdb
	}
	if s.log, err = compensator.New(ctx, config); err != nil {
		return nil, err
	}
	if s.messages, err = rabbitmq.Open(rabbitmq.Config{URL: on.AMQP}); err != nil {
		return nil, errors.Join(err, s.log.Close())
	}
	s.publishFirst = s.messages.BatchHandler(s.toQueue(func(*compensator.Entry) int { return 0 }))
	s.publishAgain = s.messages.Handler(s.toQueue((*compensator.Entry).Attempt))
	if err = s.register(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *syncer) register() (err error) {
	s.entries, err = compensator.Handle(context.Background(), s.log, syncType, s.sendAgain, &compensator.HandlerConfig[message]{
		MaxAttempts: s.most + 1, // The last attempt sends nothing.
		Retry:       compensator.Fixed(s.again),
	})
	if err != nil {
		return err
	}
	s.consumer, err = rabbitmq.Consume(context.Background(), s.log, redeliveredType, s.consume, rabbitmq.ConsumerConfig{
		URL: s.AMQP, Queue: s.queue(), Prefetch: s.workers, Propagator: traces{},
		Declare: s.declare,
		Type:    compensator.HandlerConfig[rabbitmq.Delivery]{Concurrency: s.workers, Retry: compensator.Fixed(time.Second)},
	})
	return err
}

// toQueue returns a Route to the queue. The Route puts a number into the header of each message. It gets this number
// from the parameter sending, a function of the entry.
func (s *syncer) toQueue(sending func(*compensator.Entry) int) rabbitmq.Route {
	return func(e *compensator.Entry) (rabbitmq.Destination, error) {
		return rabbitmq.Destination{Key: s.queue(), Headers: amqp091.Table{sendingHeader: int32(sending(e))}}, nil
	}
}

// firstMessage returns an entry with the same message that the recorded entry would send.
func (s *syncer) firstMessage(m message, trace string) *compensator.Entry {
	content, err := json.Marshal(m)
	if err != nil {
		panic(err) // Two strings always encode.
	}
	return &compensator.Entry{IdempotencyKey: m.key(), BusinessType: syncType, Content: content, CreatedAt: time.Now(), Headers: traces{}.Inject(withTrace(context.Background(), trace))}
}

func (s *syncer) meet(ctx context.Context, u user, sending int) error {
	f := fateOf(u, s.seed)
	if f.slips(sending) {
		return errForgotten
	}
	return f.work(ctx, sending)
}

// run stops the consumers before the log, so that the log sees everything that they complete.
func (s *syncer) run(ctx context.Context) error {
	logging, stopLog := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLog()
	logged := make(chan error, 1)
	go func() { logged <- s.log.Run(logging) }()
	err := s.consumer.Run(ctx)
	stopLog()
	return errors.Join(err, <-logged)
}

func (s *syncer) close() { _ = errors.Join(s.messages.Close(), s.log.Close()) }

// traces is a Propagator that carries the operator's trace id from the upload through the entry and the message to the
// directory.
type traces struct{}

type traceContext struct{}

func withTrace(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, traceContext{}, id)
}

func traceOf(ctx context.Context) string {
	id, _ := ctx.Value(traceContext{}).(string)
	return id
}

func (traces) Inject(ctx context.Context) map[string]string {
	if id := traceOf(ctx); id != "" {
		return map[string]string{traceHeader: id}
	}
	return nil
}

func (traces) Extract(ctx context.Context, headers map[string]string) context.Context {
	return withTrace(ctx, headers[traceHeader])
}
