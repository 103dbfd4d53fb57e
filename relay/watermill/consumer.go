package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// redeliveredMetadata is where watermill-amqp says that a message was delivered before.
const redeliveredMetadata = "_watermill_amqp_redelivered"

// ErrRefused: the log will never take this message, as one that is too large. What is left is watermill's PoisonQueueWithFilter.
var ErrRefused = errors.New("watermill: the log refuses the message")

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 3 * time.Second // below the patience of any subscriber
)

// ConsumerConfig says how a Consumer treats its messages. Its zero value suits a router's handler.
type ConsumerConfig struct {
	// Topic of messages that come from no router. A router's name their own.
	Topic string

	// MessageID tells a message from all others of its topic. Default: its UUID. It is called concurrently. A message whose
	// id is empty has as many entries as deliveries that failed: the log cannot tell it from its repetition.
	MessageID func(msg *message.Message) string

	// Redelivered says that a message may have been delivered before: it goes straight into the log, which knows it if it
	// was recorded, and takes out what kills its process. Default: what watermill-amqp says; other subscribers say nothing,
	// and the function is called again. Answer true, and every message is worked on from the log alone.
	Redelivered func(msg *message.Message) bool

	// Middlewares stand around the function, here and in the log; those of the router only around Handle. The first is the
	// outermost.
	Middlewares []message.HandlerMiddleware

	// Type is how the entries of failed messages are run. A failed message comes due after Type.Retry(1).
	Type compensator.TypeConfig

	// Propagator, if given, extracts what travels in a message's metadata, a trace for example, into the context of the
	// function. Give the one of compensator.Config.
	Propagator compensator.Propagator

	// RecordTimeout is how long a failed message may take into the log, whatever became of its context. Default 10 s; less
	// than your broker waits for an acknowledgement.
	RecordTimeout time.Duration
}

func (cfg ConsumerConfig) withDefaults() ConsumerConfig {
	setDefault(&cfg.RecordTimeout, 10*time.Second)
	if cfg.MessageID == nil {
		cfg.MessageID = func(msg *message.Message) string { return msg.UUID }
	}
	if cfg.Redelivered == nil {
		cfg.Redelivered = func(msg *message.Message) bool { return msg.Metadata.Get(redeliveredMetadata) == "true" }
	}
	if cfg.Type.Retry == nil {
		cfg.Type.Retry = compensator.Exponential(time.Second, 10*time.Minute)
	}
	return cfg
}

func (cfg ConsumerConfig) validate() error {
	problems := []error{
		fieldProblem(cfg.Type.RefuseOtherContent, "Type.RefuseOtherContent", "cannot be kept: a message that is delivered again may have other metadata"),
		fieldProblem(cfg.RecordTimeout < time.Millisecond, "RecordTimeout", fmt.Sprintf("%v is less than 1 ms", cfg.RecordTimeout)),
	}
	for _, m := range cfg.Middlewares {
		problems = append(problems, fieldProblem(m == nil, "Middlewares", "one is nil"))
	}
	return errors.Join(problems...)
}

// Consumer works on the messages of a router's handler, or of a subscription.
type Consumer struct {
	c            *compensator.Compensator
	businessType string
	entries      *compensator.Type[Delivery]
	work         message.HandlerFunc
	cfg          ConsumerConfig
	refusals     atomic.Int32 // messages in a row that were neither done nor recorded
}

// Consume registers the business type under which failed messages are recorded, and returns the Consumer, whose Handle
// is the router's handler. It must come before c's Run, which works off the entries: in this process, or in another
// that registers the same type. Errors name the field that is wrong.
//
// work does what a message asks for. nil: it is done, and so it is when the error is compensator.ErrAlreadySucceeded.
// Any other error, and a panic, makes the message an entry of the log, which calls work again, by the type's schedule;
// there the error says the same as a handler's: see compensator.Permanent and its like. It may run more than once for a
// message, and is called concurrently. It publishes nothing; for one that returns messages see Publisher.Publishing.
//
// An entry takes a payload of about three quarters of compensator's Config.MaxContent, since it is stored as base64.
func Consume(c *compensator.Compensator, businessType string, work message.NoPublishHandlerFunc, cfg ConsumerConfig) (*Consumer, error) {
	cfg = cfg.withDefaults()
	if work == nil {
		return nil, fieldProblem(true, "work", "is nil")
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	k := &Consumer{c: c, businessType: businessType, cfg: cfg}
	k.work = func(msg *message.Message) ([]*message.Message, error) { return nil, work(msg) }
	for i := len(cfg.Middlewares) - 1; i >= 0; i-- {
		k.work = cfg.Middlewares[i](k.work)
	}
	var err error
	k.entries, err = compensator.Handle(c, businessType, k.again, cfg.Type)
	return k, err
}

// IdempotentID is the key under which a message is recorded: of its topic, what MessageID says of it, and the business
// type. Empty for a message without an id.
func (k *Consumer) IdempotentID(topic, messageID string) compensator.IdempotentID {
	return idempotentID(k.businessType, topic, messageID)
}

// Handle works on a message: give it to Router.AddConsumerHandler (AddNoPublisherHandler before watermill 1.5), or call
// it, and Ack or Nack by its answer. nil: acknowledge, it is done, or its entry has committed. An error: it is neither,
// and must come again; the router nacks it. That is so when the log is away, when it refuses the message
// (ErrRefused: too large), and when the message's context ended and the function with it. Before all but
// the last Handle pauses, 3 s at most, so that the same message does not come at full speed.
func (k *Consumer) Handle(msg *message.Message) error {
	ctx := msg.Context() // a middleware may leave another, which has ended
	err := k.settle(ctx, msg)
	switch {
	case err == nil:
		k.refusals.Store(0)
	case !interrupted(ctx, err):
		pause(ctx, k.refusals.Add(1))
	}
	return err
}

// settle returns nil when nothing is left to do but to acknowledge. A message that was delivered before may have ended
// a process: the log has ways to treat those, and knows the message if it was recorded. One that the log does not take
// has its function alone.
func (k *Consumer) settle(ctx context.Context, msg *message.Message) error {
	a, err := k.arrive(ctx, msg)
	if err != nil {
		return err
	}
	ctx = k.extract(ctx, a.Metadata)
	if a.again {
		if err := k.record(ctx, a, 0); !refusedByTheLog(err) {
			return err
		}
	}
	msg.SetContext(ctx)
	err = k.call(msg)
	if err == nil || interrupted(ctx, err) {
		return err
	}
	refused := k.record(ctx, a, k.failed(a, err))
	switch {
	case refused == nil:
		return nil
	case refusedByTheLog(refused):
		refused = fmt.Errorf("%w: %w", ErrRefused, refused)
	}
	return fmt.Errorf("watermill: a failed message of topic %q, %q, cannot be recorded: %w", a.Topic, a.UUID, errors.Join(refused, err))
}

// arrival is a message as it came.
type arrival struct {
	*Delivery
	id    compensator.IdempotentID
	again bool
}

// arrive asks the user's functions about a message. Their panic is an error, which Handle paces.
func (k *Consumer) arrive(ctx context.Context, msg *message.Message) (a *arrival, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	topic := message.SubscribeTopicFromCtx(ctx)
	if topic == "" {
		topic = k.cfg.Topic
	}
	if topic == "" {
		return nil, fieldProblem(true, "Topic", "is missing: the message comes from no router")
	}
	id := k.IdempotentID(topic, k.cfg.MessageID(msg))
	return &arrival{Delivery: newDelivery(topic, msg), id: id, again: k.cfg.Redelivered(msg)}, nil
}

// extract is the context with what travelled in the metadata.
func (k *Consumer) extract(ctx context.Context, metadata map[string]string) (extracted context.Context) {
	if k.cfg.Propagator == nil {
		return ctx
	}
	defer func() {
		if p := recover(); p != nil || extracted == nil {
			extracted = ctx
		}
	}()
	return k.cfg.Propagator.Extract(ctx, metadata)
}

// call runs the function. Its panic is a failure: the message of a broken function must not be delivered for ever.
func (k *Consumer) call(msg *message.Message) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	produced, err := k.work(msg)
	switch {
	case errors.Is(err, compensator.ErrAlreadySucceeded):
		return nil
	case err == nil && len(produced) > 0:
		return message.ErrOutputInNoPublisherHandler // by a middleware
	}
	return err
}

// interrupted reports whether a function failed only because its message's context was ended: the subscriber stops, or
// has given the message up, and delivers it again. A deadline is a failure.
func interrupted(ctx context.Context, err error) bool {
	return ctx.Err() == context.Canceled && errors.Is(err, context.Canceled)
}

// failed notes on a message that nobody should work on it again, or returns after how long it comes due. What is the
// user's in it may panic.
func (k *Consumer) failed(a *arrival, err error) (delay time.Duration) {
	defer func() {
		if recover() != nil {
			delay = longestPause
		}
	}()
	if compensator.VerdictOf(err) == compensator.VerdictPermanent {
		a.Parked = cmp.Or(processlog.FitError(err.Error()), "parked: no reason given")
		return 0
	}
	return min(max(0, k.cfg.Type.Retry(1)), processlog.MaxDelay)
}

// record commits an entry of a message. That of one recorded before changes nothing.
func (k *Consumer) record(ctx context.Context, a *arrival, delay time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.cfg.RecordTimeout)
	defer cancel()
	return k.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := k.entries.Record(ctx, tx, *a.Delivery, compensator.Options{IdempotentID: a.id, Delay: delay})
		return err
	})
}

func refusedByTheLog(err error) bool {
	var field *compensator.FieldError
	var other *compensator.OtherTypeError
	return errors.As(err, &field) || errors.As(err, &other)
}

// again is the handler of the entries.
func (k *Consumer) again(ctx context.Context, e *compensator.Entry, d Delivery) error {
	if d.Parked != "" && e.Epoch == 0 { // once a person has requeued it, it is worked on
		return compensator.Permanent(errors.New(d.Parked))
	}
	msg := d.Message()
	msg.SetContext(context.WithValue(k.extract(ctx, d.Metadata), entryKey{}, e))
	err := k.call(msg)
	select {
	case <-msg.Nacked():
		if err == nil {
			return errNacked
		}
	default:
	}
	return err
}

var errNacked = errors.New("watermill: the function has nacked the message")

// pause waits after the failures-th failure in a row, counted from 1, with full jitter above a floor, or until ctx ends.
func pause(ctx context.Context, failures int32) {
	most := min(longestPause-firstPause, firstPause<<min(failures, 10))
	timer := time.NewTimer(firstPause + rand.N(most))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
