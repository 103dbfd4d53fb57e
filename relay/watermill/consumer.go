package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// Metadata of a delivery, not of its message.
const (
	redeliveredMetadata = "_watermill_amqp_redelivered" // set by watermill-amqp on a message that was delivered before
	deliveriesMetadata  = "x-delivery-count"            // a header of RabbitMQ's quorum queues, from the second delivery on
	acquiredMetadata    = "x-acquired-count"            // the same, since RabbitMQ 4.3
	offsetMetadata      = "x-stream-offset"             // a header of RabbitMQ's streams
)

// Metadata that ConsumerConfig.Refused finds on its message.
const (
	RefusedMetadata      = "compensator-refused"       // why the log refuses the message; at most 1,000 characters
	RefusedTopicMetadata = "compensator-refused-topic" // the topic that the message comes from
)

var (
	// ErrRefused says that the log will never take a message, for example because it is too large. See ConsumerConfig.Refused.
	ErrRefused = errors.New("watermill: the log refuses the message")

	// ErrStream says that a message comes from a RabbitMQ stream. A stream does not deliver again what was not acknowledged, so a
	// Consumer would lose messages. Consume from a queue instead.
	ErrStream = errors.New("watermill: the message comes from a RabbitMQ stream, which delivers nothing again")
)

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 3 * time.Second
)

// ConsumerConfig says how a Consumer treats its messages. Its zero value suits a router's handler.
type ConsumerConfig struct {
	// Topic of messages that come from no router. A router's name their own.
	Topic string

	// MessageID tells a message from all others of its topic. Default: its UUID. It is called concurrently. A message whose
	// id is empty has as many entries as deliveries that failed: the log cannot tell it from its repetition. A message for which
	// MessageID panics is recorded without an id, and waits for a person.
	MessageID func(msg *message.Message) string

	// Redelivered reports whether a message may have been delivered before. Such a message goes straight into the log. The log knows
	// it if it was recorded, and stops calling work for a message that kills its process. Return true always to work from the log
	// alone. It is called concurrently. A panic counts as true.
	//
	// Default: watermill-amqp says so, or RabbitMQ's header x-delivery-count or x-acquired-count is above 0. Other subscribers say
	// nothing. Then work is called again.
	Redelivered func(msg *message.Message) bool

	// Middlewares stand around the function, here and in the log; those of the router only around Handle. The first is the
	// outermost.
	Middlewares []message.HandlerMiddleware

	// Type is how the entries of failed messages are run. A failed message comes due after Type.Retry(1).
	Type compensator.TypeConfig

	// Propagator, if given, extracts what travels in a message's metadata, a trace for example, into the context of the
	// function. Give the one of compensator.Config.
	Propagator compensator.Propagator

	// RecordTimeout is how long one try to record a failed message may take, whatever became of its context. Default 10 s. Set it
	// below the time that your broker waits for an acknowledgement.
	RecordTimeout time.Duration

	// Refused puts a message that the log will never take where a person finds it; Publisher.RefusedTo puts it into a topic. msg is the
	// message as it came, with RefusedMetadata and RefusedTopicMetadata. reason wraps ErrRefused. The message is acknowledged once Refused has returned nil. After an error Refused is called again, with
	// pauses. If it returns reason, Handle returns that error, for example to watermill's PoisonQueueWithFilter. It is called
	// concurrently.
	//
	// Without Refused, Handle holds such a message, unacknowledged, until the message's context ends.
	Refused func(ctx context.Context, msg *message.Message, reason error) error

	// Logger is told about messages that Handle holds. It never gets their content. Default slog.Default().
	Logger *slog.Logger
}

func (cfg ConsumerConfig) withDefaults() ConsumerConfig {
	setDefault(&cfg.RecordTimeout, 10*time.Second)
	setDefault(&cfg.Logger, slog.Default())
	if cfg.MessageID == nil {
		cfg.MessageID = func(msg *message.Message) string { return msg.UUID }
	}
	if cfg.Redelivered == nil {
		cfg.Redelivered = redelivered
	}
	if cfg.Type.Codec == nil {
		cfg.Type.Codec = compensator.JSON
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
	errors       atomic.Int32 // of Handle in a row, but for messages whose context ended
}

// Consume registers the business type under which failed messages are recorded, and returns the Consumer, whose Handle
// is the router's handler. It must come before c's Run, which works off the entries: in this process, or in another
// that registers the same type. Errors name the field that is wrong.
//
// work does what a message asks for. nil: it is done, and so it is when the error is compensator.ErrAlreadySucceeded.
// Any other error, a panic, and runtime.Goexit make the message an entry of the log, which calls work again, by the type's schedule;
// there the error says the same as a handler's: see compensator.Permanent and its like. It may run more than once for a
// message, and is called concurrently. It publishes nothing; for one that returns messages see Publisher.Publishing.
//
// An entry takes a payload of about three quarters of compensator's Config.MaxContent, since it is stored as base64. What becomes of a
// larger message that fails, ConsumerConfig.Refused says.
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

// IdempotencyKey is the key under which a message is recorded: of its topic, what MessageID says of it, and the business
// type. Empty for a message without an id.
func (k *Consumer) IdempotencyKey(topic, messageID string) compensator.IdempotencyKey {
	return idempotencyKey(k.businessType, topic, messageID)
}

// Handle works on a message: give it to Router.AddConsumerHandler (AddNoPublisherHandler before watermill 1.5), or call
// it, and Ack or Nack by its answer. nil: acknowledge, it is done, or its entry has committed. An error: it is neither,
// and must come again; the router nacks it.
//
// While the log is away Handle does not return: it holds the message and tries again, with pauses of 3 s at most, until the message
// is recorded or its context ends. So an outage of the database spends none of the deliveries that a broker allows. It holds a
// message that the log refuses likewise: see ConsumerConfig.Refused.
//
// Handle returns an error when the message's context ended before the message was recorded, when ConsumerConfig.Refused says so, for
// a message without a topic, and for ErrStream. The last three come after a pause of 3 s at most.
func (k *Consumer) Handle(msg *message.Message) error {
	ctx := msg.Context() // a middleware may leave another, which has ended
	err := k.settle(ctx, msg)
	switch {
	case err == nil:
		k.errors.Store(0)
	case ctx.Err() == nil:
		pause(ctx, int(k.errors.Add(1)))
	}
	return err
}

// settle returns nil when the message can be acknowledged. A message that was delivered before goes into the log without a call of
// work, because it may have killed a process. If the log refuses such a message, work is called all the same.
func (k *Consumer) settle(ctx context.Context, msg *message.Message) error {
	a, err := k.arrive(ctx, msg)
	if err != nil {
		return err
	}
	ctx = k.extract(ctx, a.Metadata)
	if a.again {
		err := k.keep(ctx, a, 0)
		switch {
		case !isRefusal(err):
			return err
		case a.SetAside != "":
			return k.setAside(ctx, a, err)
		}
	}
	msg.SetContext(ctx)
	err = k.call(msg)
	if err == nil || interrupted(ctx, err) {
		return err
	}
	kept := k.keep(ctx, a, k.failed(a, err))
	switch {
	case kept == nil:
		return nil
	case isRefusal(kept):
		return k.setAside(ctx, a, errors.Join(kept, err))
	}
	return errors.Join(kept, err)
}

// arrival is a message as it came.
type arrival struct {
	*Delivery
	id    compensator.IdempotencyKey
	again bool // it goes straight into the log
}

// arrive calls the user's functions about a message. Where MessageID panics, the message is to be set aside without an id.
func (k *Consumer) arrive(ctx context.Context, msg *message.Message) (*arrival, error) {
	topic := message.SubscribeTopicFromCtx(ctx)
	if topic == "" {
		topic = k.cfg.Topic
	}
	switch {
	case topic == "":
		return nil, fieldProblem(true, "Topic", "is missing: the message comes from no router")
	case msg.Metadata.Get(offsetMetadata) != "" && msg.Metadata.Get(redeliveredMetadata) == "":
		return nil, fmt.Errorf("%w: topic %q", ErrStream, topic)
	}
	a := &arrival{Delivery: newDelivery(topic, msg), again: true}
	if err := recovered(func() { a.again = k.cfg.Redelivered(msg) }); err != nil {
		k.cfg.Logger.Error("watermill: Redelivered panicked", "topic", topic, "uuid", msg.UUID, "err", err)
	}
	if err := recovered(func() { a.id = k.IdempotencyKey(topic, k.cfg.MessageID(msg)) }); err != nil {
		a.again, a.SetAside = true, setAsideFor(fmt.Errorf("MessageID: %w", err))
	}
	return a, nil
}

// recovered calls work and returns its panic as an error.
func recovered(work func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	work()
	return nil
}

// redelivered is the default of ConsumerConfig.Redelivered.
func redelivered(msg *message.Message) bool {
	if msg.Metadata.Get(redeliveredMetadata) == "true" {
		return true
	}
	for _, name := range []string{deliveriesMetadata, acquiredMetadata} {
		if n, err := strconv.Atoi(msg.Metadata.Get(name)); err == nil && n > 0 {
			return true
		}
	}
	return false
}

// setAsideFor is the text of a reason, of the length that LastError has, and never empty.
func setAsideFor(reason error) string {
	return cmp.Or(processlog.FitError(usererr.Text(reason)), "parked: no reason given")
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

// call runs the function in a goroutine of its own and waits for it. A panic and runtime.Goexit are failures: the message of a broken
// function must not be delivered for ever, and a router's goroutine that ends neither acks nor nacks.
func (k *Consumer) call(msg *message.Message) error {
	ended := make(chan error, 1)
	go func() {
		err := error(new(compensator.PanicError)) // stays after runtime.Goexit
		defer func() {
			if p := recover(); p != nil {
				err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
			}
			ended <- err
		}()
		err = k.outcome(k.work(msg))
	}()
	return <-ended
}

// outcome is what the function's results mean.
func (k *Consumer) outcome(produced []*message.Message, err error) error {
	err = usererr.Safe(err)
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
		a.SetAside = setAsideFor(err)
		return 0
	}
	return min(max(0, k.cfg.Type.Retry(1)), processlog.MaxDelay)
}

// keep records a message and retries until the log answers: until then the message is held. An error says that the log refuses the
// message, as a *refusal, or that ctx has ended.
func (k *Consumer) keep(ctx context.Context, a *arrival, delay time.Duration) error {
	for failures := 1; ; failures++ {
		err := k.record(ctx, a, delay)
		if err == nil {
			return nil
		}
		if k.refusedByTheLog(a.Delivery, err) {
			return &refusal{err}
		}
		if failures == 1 && ctx.Err() == nil {
			k.cfg.Logger.Warn("watermill: message is held until it can be recorded", "topic", a.Topic, "uuid", a.UUID, "err", err)
		}
		if !pause(ctx, failures) {
			return fmt.Errorf("watermill: message %q of topic %q cannot be recorded: %w", a.UUID, a.Topic, err)
		}
	}
}

// record commits an entry of a message. That of one recorded before changes nothing.
func (k *Consumer) record(ctx context.Context, a *arrival, delay time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.cfg.RecordTimeout)
	defer cancel()
	return k.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := k.entries.Record(ctx, tx, *a.Delivery, compensator.Options{IdempotencyKey: a.id, Delay: delay})
		return err
	})
}

// refusal is why the log will never take a message.
type refusal struct{ reason error }

func (r *refusal) Error() string { return r.reason.Error() }
func (r *refusal) Unwrap() error { return r.reason }

func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// refusedByTheLog reports whether the log will never take a message. A codec that fails may have lost its keys for a while: then the
// message is held like one whose database is away.
func (k *Consumer) refusedByTheLog(d *Delivery, err error) bool {
	var field *compensator.FieldError
	var other *compensator.OtherTypeError
	return (errors.As(err, &field) || errors.As(err, &other)) && k.encodes(d)
}

func (k *Consumer) encodes(d *Delivery) bool {
	var err error
	panicked := recovered(func() { _, err = k.cfg.Type.Codec.Marshal(*d) })
	return panicked == nil && err == nil
}

// stillRefused is how many pauses lie between two log lines about a message that nobody takes: about five minutes.
const stillRefused = 100

// setAside gives a message that the log refuses to ConsumerConfig.Refused, until that has it. An error goes to the router.
func (k *Consumer) setAside(ctx context.Context, a *arrival, why error) error {
	reason := fmt.Errorf("%w: %q of topic %q: %w", ErrRefused, a.UUID, a.Topic, why)
	for failures := 1; ; failures++ {
		err := k.refused(ctx, a, reason)
		if err == nil || errors.Is(err, ErrRefused) {
			return err
		}
		if failures%stillRefused == 1 {
			k.cfg.Logger.Error("watermill: message is held, because the log refuses it and it cannot be set aside",
				"topic", a.Topic, "uuid", a.UUID, "reason", why, "err", err)
		}
		if !pause(ctx, failures) {
			return errors.Join(reason, err)
		}
	}
}

var errNoRefused = errors.New("ConsumerConfig.Refused is not set")

// refused calls ConsumerConfig.Refused with the message as it came.
func (k *Consumer) refused(ctx context.Context, a *arrival, reason error) (err error) {
	if k.cfg.Refused == nil {
		return errNoRefused
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.cfg.RecordTimeout)
	defer cancel()
	msg := a.Message()
	msg.SetContext(ctx)
	msg.Metadata.Set(RefusedMetadata, setAsideFor(reason))
	msg.Metadata.Set(RefusedTopicMetadata, a.Topic)
	if panicked := recovered(func() { err = k.cfg.Refused(ctx, msg, reason) }); panicked != nil {
		return panicked
	}
	return usererr.Safe(err)
}

// again is the handler of the entries.
func (k *Consumer) again(ctx context.Context, e *compensator.Entry, d Delivery) error {
	if d.SetAside != "" && e.Epoch == 0 { // once a person has requeued it, it is worked on
		return compensator.Permanent(errors.New(d.SetAside))
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

// pause waits after the failures-th failure in a row, counted from 1, with full jitter above a floor, or until ctx ends. It reports
// whether ctx is still alive.
func pause(ctx context.Context, failures int) bool {
	most := min(longestPause-firstPause, firstPause<<min(failures, 10))
	timer := time.NewTimer(firstPause + rand.N(most))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
