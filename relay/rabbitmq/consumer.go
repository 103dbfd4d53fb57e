package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// Work does what a message asks for. nil: it is done, and so it is when the error is compensator.ErrAlreadySucceeded.
// Any other error makes the message an entry of the log, which calls the same function again, by the type's schedule;
// there the error says the same as a handler's: see compensator.Permanent and its like. A panic and runtime.Goexit are failures, too.
//
// It may run more than once for a message, and is called concurrently. Its context ends with ErrDeliveryLost when the connection
// breaks, and with compensator.ErrStopping when Run has waited long enough.
type Work func(ctx context.Context, d *Delivery) error

// ConsumerConfig says which queue is consumed, and how. URL and Queue are required.
type ConsumerConfig struct {
	// URL and AMQP: as in Config.
	URL  string
	AMQP amqp091.Config

	// Queue is consumed; it is not declared here, and waited for when it does not exist.
	Queue string

	// RefusedQueue is where messages wait for a person that fail and that the log refuses, for example because they are too large. A
	// Consumer publishes such a message there, awaits the confirm, and then acknowledges it. The message keeps its body, its properties
	// and its headers. RefusedHeader and its like say why it was refused and where it comes from. The queue is declared, durable and without arguments, when a
	// message needs it and it does not exist. While that fails the message is held, and Logger is told every 30 s. Give the queue neither
	// a limit of its length nor a time to live. Default: Queue followed by ".refused".
	RefusedQueue string

	// Declare, if given, is called on a channel of its own after each connect, before the queue is consumed: to declare
	// queues, exchanges and bindings.
	Declare func(ch *amqp091.Channel) error

	// Prefetch is how many messages are worked on at once, and held here unacknowledged at most. Default 32; at most 65,535.
	Prefetch int

	// Type is how the entries of failed messages are run. A failed message comes due after Type.Retry(1).
	Type compensator.TypeConfig

	// Propagator, if given, extracts what travels in a message's string headers, a trace for example, into the context
	// of the function. Give the one of compensator.Config.
	Propagator compensator.Propagator

	// RecordTimeout is how long one try to record a failed message may take; then it is made again, on another connection to the
	// database. Default 10 s.
	RecordTimeout time.Duration

	// StopTimeout is how long Run waits for functions once its context has ended; then their contexts end, and Run waits
	// as long again. Default 30 s.
	StopTimeout time.Duration

	// Logger: as in Config.
	Logger *slog.Logger
}

func (cfg ConsumerConfig) withDefaults() ConsumerConfig {
	setDefault(&cfg.Prefetch, 32)
	setDefault(&cfg.RefusedQueue, cfg.Queue+".refused")
	setDefault(&cfg.RecordTimeout, 10*time.Second)
	setDefault(&cfg.StopTimeout, 30*time.Second)
	setDefault(&cfg.Logger, slog.Default())
	if cfg.Type.Retry == nil {
		cfg.Type.Retry = compensator.Exponential(time.Second, 10*time.Minute)
	}
	if cfg.Type.Codec == nil {
		cfg.Type.Codec = unescaped{}
	}
	return cfg
}

func (cfg ConsumerConfig) validate() error {
	problems := urlProblems(cfg.URL)
	refuse := func(bad bool, field, reason string) { problems = append(problems, fieldProblem(bad, field, reason)) }
	refuse(cfg.Queue == "", "Queue", "is missing")
	refuse(len(cfg.Queue) > maxShort, "Queue", fmt.Sprintf("%d bytes, at most %d", len(cfg.Queue), maxShort))
	refuse(len(cfg.RefusedQueue) > maxShort, "RefusedQueue", fmt.Sprintf("%d bytes, at most %d", len(cfg.RefusedQueue), maxShort))
	refuse(cfg.RefusedQueue == cfg.Queue, "RefusedQueue", "is the queue itself")
	refuse(cfg.Prefetch < 1 || cfg.Prefetch > 65_535, "Prefetch", fmt.Sprintf("%d: want 1 to 65,535", cfg.Prefetch))
	refuse(cfg.Type.RefuseOtherContent, "Type.RefuseOtherContent", "cannot be kept: a message that is delivered again may have other headers")
	refuse(cfg.RecordTimeout < time.Millisecond, "RecordTimeout", fmt.Sprintf("%v is less than 1 ms", cfg.RecordTimeout))
	refuse(cfg.StopTimeout < time.Millisecond, "StopTimeout", fmt.Sprintf("%v is less than 1 ms", cfg.StopTimeout))
	return errors.Join(problems...)
}

// Consumer works off one queue. Run does it.
type Consumer struct {
	c            *compensator.Compensator
	businessType string
	entries      *compensator.Type[Delivery]
	work         Work
	cfg          ConsumerConfig
	slots        chan struct{} // one for each function that runs, whatever became of its connection
	moving       chan struct{} // holds one value while a refused message is moved
	running      atomic.Bool

	mu  sync.Mutex // guards err
	err error
}

// Consume registers the business type under which failed messages of a queue are recorded, and returns the Consumer,
// whose Run works the queue off. It must come before c's Run, which works off the entries: in this process, or in
// another that registers the same type. Errors name the field that is wrong.
//
// An entry takes a body of about three quarters of compensator's Config.MaxContent, since it is stored as base64, less the headers as
// JSON, where a control character has six bytes. A message that needs more and fails cannot be recorded. It goes to RefusedQueue, and
// Logger is told.
func Consume(c *compensator.Compensator, businessType string, work Work, cfg ConsumerConfig) (*Consumer, error) {
	cfg = cfg.withDefaults()
	if work == nil {
		return nil, &compensator.FieldError{Field: "work", Reason: "is nil"}
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	k := &Consumer{c: c, businessType: businessType, work: work, cfg: cfg, slots: make(chan struct{}, cfg.Prefetch),
		moving: make(chan struct{}, 1), err: errConnecting}
	var err error
	k.entries, err = compensator.Handle(c, businessType, k.again, cfg.Type)
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Err is nil while the queue is being consumed, and otherwise why it is not: it does not exist, or wrong credentials.
func (k *Consumer) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

func (k *Consumer) set(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

// IdempotencyKey is the key under which a message is recorded: of its queue, its message id and the business type. Empty
// for a message without an id.
func (k *Consumer) IdempotencyKey(d *Delivery) compensator.IdempotencyKey {
	return idempotencyKey(k.businessType, d)
}

// again is the handler of the entries.
func (k *Consumer) again(ctx context.Context, e *compensator.Entry, d Delivery) error {
	d.Entry = e
	if d.SetAside != "" && e.Epoch == 0 { // once a person has requeued it, it is worked on
		return compensator.Permanent(errors.New(d.SetAside))
	}
	return k.call(ctx, &d)
}

// call runs the function in a goroutine of its own and waits for it. A panic and runtime.Goexit are failures: a broken function must not
// end the process, nor keep its message unacknowledged.
func (k *Consumer) call(ctx context.Context, d *Delivery) error {
	ended := make(chan error, 1)
	go func() {
		err := error(new(compensator.PanicError)) // stays after runtime.Goexit
		defer func() {
			if p := recover(); p != nil {
				err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
			}
			ended <- err
		}()
		if err = usererr.Safe(k.work(ctx, d)); errors.Is(err, compensator.ErrAlreadySucceeded) {
			err = nil
		}
	}()
	return <-ended
}

// SetAside records a message that nobody should work on as an entry that is dead, or compensated if Type says how, as soon
// as Run of the Compensator sees it: with its content as it came and the reason as LastError. It commits before it
// returns nil; then acknowledge the message. Requeued by a person, it goes to the function. A message that was
// recorded before is left as it is. Of one that comes from the log, Set aside changes nothing and returns
// compensator.Permanent(reason), the answer that its function gives.
//
// A Consumer sets aside by itself what its function answers with compensator.Permanent.
func (k *Consumer) SetAside(ctx context.Context, d *Delivery, reason error) error {
	if d.Entry != nil {
		return compensator.Permanent(reason)
	}
	aside := *d
	aside.SetAside = setAsideFor(reason)
	return k.record(ctx, &aside, 0)
}

// setAsideFor is the text of a reason, of the length that LastError has, and never empty.
func setAsideFor(reason error) string {
	if reason == nil {
		reason = errors.New("")
	}
	return cmp.Or(processlog.FitError(usererr.Text(reason)), "parked: no reason given")
}

// record commits an entry of a message. That of one recorded before changes nothing.
func (k *Consumer) record(ctx context.Context, d *Delivery, delay time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.RecordTimeout)
	defer cancel()
	options := compensator.Options{IdempotencyKey: k.IdempotencyKey(d), Delay: delay}
	return k.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := k.entries.Record(ctx, tx, *d, options)
		return err
	})
}

// errProof ends a transaction that only tries whether the log takes an entry.
var errProof = errors.New("rabbitmq: only tried")

// prove returns nil if the log takes entries. It records one and rolls back.
func (k *Consumer) prove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.RecordTimeout)
	defer cancel()
	err := k.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		if _, err := k.c.Record(ctx, tx, compensator.NewEntry{BusinessType: k.businessType}); err != nil {
			return err
		}
		return errProof
	})
	if errors.Is(err, errProof) {
		return nil
	}
	return err
}
