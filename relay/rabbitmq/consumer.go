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
	"github.com/compensator-go/compensator/intake"
	"github.com/compensator-go/compensator/processlog"
)

// Work processes a message. A nil result, or compensator.ErrAlreadySucceeded, says that the message is done. After any
// other error, a panic or runtime.Goexit, the Consumer records the message as an entry of the log. The log calls the
// same function again by the type's schedule. In these calls, an error means the same as a handler's error.
//
// Work may run more than once for a message, and it is called concurrently. Its context ends with ErrDeliveryLost when
// the connection breaks. It ends with compensator.ErrStopping when StopTimeout has passed after the end of Run's
// context.
type Work func(ctx context.Context, d *Delivery) error

// ConsumerConfig configures a Consumer. URL and Queue are required.
type ConsumerConfig struct {
	URL  string         // address of the broker, as Config.URL. Required
	AMQP amqp091.Config // settings that the URL cannot express, like those of Config.AMQP

	// Queue is the name of the queue to consume. The Consumer does not declare this queue. Run waits until the queue
	// exists.
	Queue string

	// RefusedQueue is the name of the queue for refused messages, which wait there for a person. A message is refused
	// if your function has failed for the message, and the log then refuses to record it. The log refuses a message
	// that is too large or that the codec cannot encode. The log also refuses a message whose row a trigger or a
	// constraint of yours has refused three times, while other rows were accepted. The Consumer publishes a copy of a
	// refused message to RefusedQueue, waits for the confirm, and then acknowledges the original. The copy has the same
	// body, properties and headers. RefusedHeader and the headers declared next to it say why the message was refused
	// and where it comes from.
	//
	// If the RefusedQueue does not exist when the Consumer needs it, the Consumer declares a durable queue without
	// arguments. If the declaration fails, the message stays unacknowledged, and the Consumer logs an error every 30 s.
	// Set neither a length limit nor a time to live on the RefusedQueue. The default is Queue followed by ".refused".
	RefusedQueue string

	// Declare is optional, and may declare queues, exchanges and bindings. The Consumer calls Declare after each
	// connect and before it consumes. The Consumer opens the channel ch for this call and closes ch afterwards.
	Declare func(ch *amqp091.Channel) error

	// Prefetch is the maximum number of calls of your function that run at the same time, and of unacknowledged
	// messages. Default 32, at most 65,535.
	Prefetch int

	// Type configures the entries of failed messages. A failed message comes due after the delay Type.Retry(1).
	Type compensator.HandlerConfig[Delivery]

	// Propagator is optional. Propagator extracts values such as a trace from the string headers of a message, and adds
	// these values to the context of the call of Work. Use the same Propagator as in compensator.Config.
	Propagator compensator.Propagator

	// RecordTimeout limits one attempt to record a failed message. The next attempt uses another database connection.
	// Default 10 s.
	RecordTimeout time.Duration

	// StopTimeout is how long Run waits for running calls of your function after Run's context has ended. When
	// StopTimeout has passed, Run ends the contexts of the calls and waits once more for the same time. Default 30 s.
	StopTimeout time.Duration

	// Logger means the same as in Config.
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
	refuse := func(isInvalid bool, field, reason string) {
		problems = append(problems, fieldProblem(isInvalid, field, reason))
	}
	refuse(cfg.Queue == "", "Queue", "is missing")
	refuse(len(cfg.Queue) > maxShort, "Queue", fmt.Sprintf("%d bytes, at most %d", len(cfg.Queue), maxShort))
	refuse(len(cfg.RefusedQueue) > maxShort, "RefusedQueue", fmt.Sprintf("%d bytes, at most %d", len(cfg.RefusedQueue), maxShort))
	refuse(cfg.RefusedQueue == cfg.Queue, "RefusedQueue", "is the queue itself")
	refuse(cfg.Prefetch < 1 || cfg.Prefetch > 65_535, "Prefetch", fmt.Sprintf("%d: want 1 to 65,535", cfg.Prefetch))
	refuse(cfg.Type.RefuseOtherContent, "Type.RefuseOtherContent", "is not supported: a redelivered message may have other headers")
	refuse(cfg.RecordTimeout < time.Millisecond, "RecordTimeout", fmt.Sprintf("%v is less than 1 ms", cfg.RecordTimeout))
	refuse(cfg.StopTimeout < time.Millisecond, "StopTimeout", fmt.Sprintf("%v is less than 1 ms", cfg.StopTimeout))
	return errors.Join(problems...)
}

// Consumer processes the messages of one queue. Call Run to start it. Its methods may be called concurrently. If the
// process dies, the broker delivers the unacknowledged messages again.
type Consumer struct {
	businessType string
	recorder     *intake.Recorder[Delivery]
	work         Work
	cfg          ConsumerConfig
	slots        chan struct{} // holds one value for each running function, including functions of earlier connections
	moving       chan struct{} // holds one value as long as a refused message is being moved
	running      atomic.Bool

	mu   sync.Mutex // guards the fields below
	err  error
	held map[*Delivery]error // messages that wait until the log takes them, each with the error of its last attempt
}

// Consume registers the business type for the failed messages of a queue and returns the Consumer. Call Consume before
// c.Run, which processes the entries. Other processes that register the same type process the entries, too. An invalid
// field is a *compensator.FieldError. While c.Run runs, the error is compensator.ErrRunning.
//
// An entry has space for a body of about three quarters of Config.MaxContent of package compensator, minus the headers.
// If a larger message fails, the Consumer moves it to RefusedQueue and logs an error.
func Consume(ctx context.Context, c *compensator.Compensator, businessType string, work Work, cfg ConsumerConfig) (*Consumer, error) {
	cfg = cfg.withDefaults()
	if work == nil {
		return nil, &compensator.FieldError{Field: "work", Reason: "is nil"}
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	k := &Consumer{businessType: businessType, work: work, cfg: cfg, slots: make(chan struct{}, cfg.Prefetch),
		moving: make(chan struct{}, 1), err: errConnecting, held: make(map[*Delivery]error)}
	entries, err := compensator.Handle(ctx, c, businessType, k.recordAgain, &cfg.Type)
	if err != nil {
		return nil, err
	}
	k.recorder, err = intake.NewRecorder(c, entries, intake.RecorderConfig[Delivery]{Codec: cfg.Type.Codec, Timeout: cfg.RecordTimeout, Empty: Delivery{Queue: cfg.Queue}})
	return k, err
}

// Err returns nil while the Consumer consumes the queue and can record the messages that fail. Otherwise Err returns
// the reason.
func (k *Consumer) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	for _, err := range k.held {
		return fmt.Errorf("rabbitmq: %d messages of queue %s are held until they can be recorded: %w", len(k.held), k.cfg.Queue, err)
	}
	return nil
}

func (k *Consumer) hold(d *Delivery, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[d] = err
}

func (k *Consumer) release(d *Delivery) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, d)
}

func (k *Consumer) setState(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

// IdempotencyKey returns the key under which a message is recorded. It consists of the business type, the queue and the
// message id. It is empty for a message without an id.
func (k *Consumer) IdempotencyKey(d *Delivery) compensator.IdempotencyKey {
	return idempotencyKey(k.businessType, d)
}

func (k *Consumer) recordAgain(ctx context.Context, e *compensator.Entry, d Delivery) error {
	d.Entry = e
	// A message that was set aside waits for a person. Epoch 0 means that nobody has requeued the entry yet.
	if d.SetAside != "" && e.Epoch == 0 {
		return compensator.Permanent(errors.New(d.SetAside))
	}
	return k.call(ctx, &d)
}

// call runs Work in a goroutine of its own, so that a panic does not end the process, and a message is recorded after a
// runtime.Goexit.
func (k *Consumer) call(ctx context.Context, d *Delivery) error {
	result := make(chan error, 1)
	go func() {
		err := error(new(compensator.PanicError)) // If Work calls runtime.Goexit, call returns this error.
		defer func() {
			if p := recover(); p != nil {
				err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
			}
			result <- err
		}()
		if err = processlog.SafeError(k.work(ctx, d)); errors.Is(err, compensator.ErrAlreadySucceeded) {
			err = nil
		}
	}()
	return <-result
}

// SetAside records a message for a person, and returns nil after the entry has been committed. Acknowledge the message
// after that. If the message was recorded before, SetAside changes nothing.
//
// Compensator.Run makes the entry dead without calling Work. If Type has a compensation, Compensator.Run compensates
// the entry instead. The entry keeps the unchanged message, and reason becomes its LastError. If a person requeues the
// entry, Work runs.
//
// Work also gets messages from entries of the log, whose field d.Entry is set. For these messages SetAside records
// nothing, and returns compensator.Permanent(reason). Work should return this error.
//
// Work can also return compensator.Permanent for a message from the queue, and does not call SetAside then. The
// Consumer records this message as SetAside does, and acknowledges it.
func (k *Consumer) SetAside(ctx context.Context, d *Delivery, reason error) error {
	if d.Entry != nil {
		return compensator.Permanent(reason)
	}
	aside := *d
	aside.SetAside = setAsideFor(reason)
	return k.recorder.Record(ctx, aside, k.options(&aside, 0))
}

// setAsideFor returns a text that fits LastError and is never empty.
func setAsideFor(reason error) string {
	if reason == nil {
		reason = errors.New("")
	}
	return cmp.Or(processlog.FitError(processlog.ErrorText(reason)), "set aside: no reason given")
}

func (k *Consumer) options(d *Delivery, delay time.Duration) compensator.Options {
	return compensator.Options{IdempotencyKey: k.IdempotencyKey(d), Delay: delay}
}
