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
	"github.com/compensator-go/compensator/intake"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// These metadata describe one delivery and do not belong to the message itself.
const (
	redeliveredMetadata = "_watermill_amqp_redelivered" // set by watermill-amqp on a redelivered message
	deliveriesMetadata  = "x-delivery-count"            // header of RabbitMQ's quorum queues, from the second delivery on
	acquiredMetadata    = "x-acquired-count"            // header that replaces x-delivery-count since RabbitMQ 4.3
	offsetMetadata      = "x-stream-offset"             // header of RabbitMQ's streams
)

// These metadata are set on the message that ConsumerConfig.Refused gets.
const (
	RefusedMetadata      = "compensator-refused"       // reason why the log refuses the message; at most 1,000 characters
	RefusedTopicMetadata = "compensator-refused-topic" // the topic that the message comes from
)

var (
	// ErrRefused says that the log will never accept a message, for example because it is too large. See
	// ConsumerConfig.Refused.
	ErrRefused = errors.New("watermill: the log refuses the message")

	// ErrStream says that a message comes from a RabbitMQ stream. A stream does not redeliver unacknowledged messages,
	// so a Consumer would lose messages. Consume from a queue instead.
	ErrStream = errors.New("watermill: the message comes from a RabbitMQ stream, which does not redeliver messages: consume from a queue")
)

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 3 * time.Second
)

// ConsumerConfig configures a Consumer. The zero value works for messages from a watermill router.
type ConsumerConfig struct {
	// Topic is the topic of messages that do not come from a router. Messages from a router carry their topic.
	Topic string

	// MessageID returns an id that is unique within the topic. The default is the UUID of the message. MessageID is
	// called concurrently. A message with an empty id gets one entry for each failed delivery, because the log cannot
	// recognise a repeated delivery. If MessageID panics, the message is recorded without an id and waits for a person.
	MessageID func(msg *message.Message) string

	// Redelivered reports whether a message may have been delivered before. The Consumer records a redelivered message
	// as an entry, unless the log already has an entry for the message. The handler of this entry calls the function
	// `work` that you give to Consume. If `work` crashes its process repeatedly, the entry is dead. If only
	// handlers of entries should call `work`, let Redelivered always return true. Redelivered is called concurrently.
	// If Redelivered panics, the message counts as redelivered.
	//
	// The default function reads the flag of watermill-amqp and RabbitMQ's headers x-delivery-count and
	// x-acquired-count. Other subscribers do not mark redelivered messages, so the Consumer calls `work` for each of
	// their deliveries.
	Redelivered func(msg *message.Message) bool

	// Middlewares wrap `work`, both in Handle and in the handlers of entries. The first middleware is the outermost.
	// The middlewares of a watermill router wrap only Handle.
	Middlewares []message.HandlerMiddleware

	// Type configures the entries of failed messages. A failed message comes due after the delay Type.Retry(1).
	Type compensator.HandlerConfig[Delivery]

	// Propagator is optional. Propagator extracts values such as a trace from the metadata of a message, and adds these
	// values to the context of the call of `work`. Use the same Propagator as in compensator.Config.
	Propagator compensator.Propagator

	// RecordTimeout limits one attempt to record a failed message. The attempt continues even if the message's context
	// ends. The default is 10 s. Set RecordTimeout below the time that your broker waits for an acknowledgement.
	RecordTimeout time.Duration

	// Refused moves a message that the log will never accept to a place where a person finds it. The log refuses a
	// message that is too large or that the codec cannot encode. The log also refuses a message whose row a trigger or a
	// constraint of yours has refused three times, while other rows were accepted. Publisher.RefusedTo returns a
	// Refused that publishes to a topic. msg is the unchanged message, plus RefusedMetadata and RefusedTopicMetadata.
	// `reason` wraps ErrRefused. Refused is called concurrently.
	//
	// If Refused returns nil, the message is acknowledged. If Refused returns `reason`, Handle returns `reason`, for
	// example to watermill's PoisonQueueWithFilter. If Refused returns any other error, the Consumer pauses and calls
	// Refused again.
	//
	// If Refused is nil, Handle does not acknowledge a refused message, and returns only when the message's context
	// ends.
	Refused func(ctx context.Context, msg *message.Message, reason error) error

	// Logger logs which messages Handle cannot finish yet, never with their content. The default is slog.Default().
	Logger *slog.Logger
}

func (cfg ConsumerConfig) withDefaults() ConsumerConfig {
	setDefault(&cfg.RecordTimeout, 10*time.Second)
	setDefault(&cfg.Logger, slog.Default())
	if cfg.MessageID == nil {
		cfg.MessageID = func(msg *message.Message) string { return msg.UUID }
	}
	if cfg.Redelivered == nil {
		cfg.Redelivered = isRedelivered
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
		fieldProblem(cfg.Type.RefuseOtherContent, "Type.RefuseOtherContent", "is not supported: a redelivered message may have other metadata"),
		fieldProblem(cfg.RecordTimeout < time.Millisecond, "RecordTimeout", fmt.Sprintf("%v is less than 1 ms", cfg.RecordTimeout)),
	}
	for _, m := range cfg.Middlewares {
		problems = append(problems, fieldProblem(m == nil, "Middlewares", "one is nil"))
	}
	return errors.Join(problems...)
}

// Consumer processes the messages of a router's handler or of a subscription. Its methods may be called concurrently.
type Consumer struct {
	businessType string
	recorder     *intake.Recorder[Delivery]
	work         message.HandlerFunc
	cfg          ConsumerConfig
	errors       atomic.Int32 // number of consecutive errors of Handle; errors of messages whose context ended do not count
}

// Consume registers the business type for failed messages and returns the Consumer. Pass its Handle to a router. Call
// Consume before c.Run, which processes the entries. Other processes that register the same type process the entries,
// too. An invalid field is a *compensator.FieldError. While c.Run runs, the error is compensator.ErrRunning.
//
// A nil result of work, or compensator.ErrAlreadySucceeded, says that the message is done. After any other error, a
// panic or runtime.Goexit, the Consumer records the message as an entry, and the log calls work again by the type's
// schedule. In these calls, an error of work means the same as a handler's error.
//
// work may run more than once for a message, and it is called concurrently. For a function that returns messages, use
// Publisher.Publishing.
//
// ConsumerConfig.Refused gets a message that fails and is larger than about three quarters of Config.MaxContent of
// package compensator.
func Consume(ctx context.Context, c *compensator.Compensator, businessType string, work message.NoPublishHandlerFunc, cfg ConsumerConfig) (*Consumer, error) {
	cfg = cfg.withDefaults()
	if work == nil {
		return nil, fieldProblem(true, "work", "is nil")
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	k := &Consumer{businessType: businessType, cfg: cfg}
	k.work = func(msg *message.Message) ([]*message.Message, error) { return nil, work(msg) }
	for i := len(cfg.Middlewares) - 1; i >= 0; i-- {
		k.work = cfg.Middlewares[i](k.work)
	}
	entries, err := compensator.Handle(ctx, c, businessType, k.recordAgain, &cfg.Type)
	if err != nil {
		return nil, err
	}
	k.recorder, err = intake.NewRecorder(c, entries, intake.RecorderConfig[Delivery]{Codec: cfg.Type.Codec, Timeout: cfg.RecordTimeout})
	return k, err
}

// IdempotencyKey returns the key under which a message is recorded. It consists of the business type, the topic and the
// result of MessageID. It is empty for a message without an id.
func (k *Consumer) IdempotencyKey(topic, messageID string) compensator.IdempotencyKey {
	return idempotencyKey(k.businessType, topic, messageID)
}

// Handle processes a message. Pass it to Router.AddConsumerHandler (AddNoPublisherHandler before watermill 1.5). If you
// call it yourself, call Ack after a nil result and Nack after an error. Nil says that the message is done or that its
// entry has committed. An error says that the message must be delivered again.
//
// As long as the log is unavailable, Handle does not return. It retries, with pauses of at most 3 s, until the message
// is recorded, its context is cancelled, or the Compensator is closed. A deadline of the context limits the call of
// work, but not this wait. If the log refuses the message, Handle may wait, too: see ConsumerConfig.Refused.
//
// Handle returns an error in these cases:
//
//   - The message's context was cancelled, or the Compensator was closed, before the message was recorded.
//   - ConsumerConfig.Refused returned its reason.
//   - The message has no topic.
//   - The message comes from a stream (ErrStream).
//
// In the last three cases Handle pauses for at most 3 s before it returns.
func (k *Consumer) Handle(msg *message.Message) error {
	ctx, release := untilCancelled(msg.Context())
	defer release()
	err := k.settle(ctx, msg)
	switch {
	case err == nil:
		k.errors.Store(0)
	case ctx.Err() == nil:
		pause(ctx, int(k.errors.Add(1)))
	}
	return err
}

// untilCancelled returns a context that ends when ctx is cancelled, but not at a deadline of ctx. If a deadline ended
// the wait for the log, the message would be delivered again, and some brokers drop a message after a number of
// deliveries.
func untilCancelled(ctx context.Context) (held context.Context, release func()) {
	held, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if ctx.Err() == context.Canceled {
			cancel()
		}
	})
	return held, func() { stop(); cancel() }
}

// settle processes a message. It records a redelivered message without a call of work, because this message may have
// crashed a process. It calls work for a redelivered message only if the log refuses the message. The message's own
// context limits work, and ctx limits the wait for the log.
func (k *Consumer) settle(ctx context.Context, msg *message.Message) error {
	a, err := k.arrive(ctx, msg)
	if err != nil {
		return err
	}
	ctx = k.extract(ctx, a.Metadata)
	msg.SetContext(k.extract(msg.Context(), a.Metadata))
	if a.isRecordedAgain {
		err := k.keep(ctx, a, 0)
		switch {
		case !errors.Is(err, intake.ErrRefused):
			return err
		case a.SetAside != "":
			return k.setAside(ctx, a, err)
		}
	}
	err = k.call(msg)
	if err == nil || isInterrupted(msg.Context(), err) {
		return err
	}
	keepErr := k.keep(ctx, a, k.noteFailure(a, err))
	switch {
	case keepErr == nil:
		return nil
	case errors.Is(keepErr, intake.ErrRefused):
		return k.setAside(ctx, a, errors.Join(keepErr, err))
	}
	return errors.Join(keepErr, err)
}

type arrival struct {
	*Delivery
	id              compensator.IdempotencyKey
	isRecordedAgain bool // whether to record the message before any call of the function work
}

// arrive collects the properties of a message. If MessageID panics, the message gets no id, and is recorded as set
// aside.
func (k *Consumer) arrive(ctx context.Context, msg *message.Message) (*arrival, error) {
	topic := message.SubscribeTopicFromCtx(ctx)
	if topic == "" {
		topic = k.cfg.Topic
	}
	switch {
	case topic == "":
		return nil, fieldProblem(true, "Topic", "is missing: the message does not come from a router")
	case msg.Metadata.Get(offsetMetadata) != "" && msg.Metadata.Get(redeliveredMetadata) == "":
		return nil, fmt.Errorf("%w: topic %q", ErrStream, topic)
	}
	a := &arrival{Delivery: newDelivery(topic, msg), isRecordedAgain: true}
	if err := runRecovered(func() { a.isRecordedAgain = k.cfg.Redelivered(msg) }); err != nil {
		k.cfg.Logger.Error("watermill: Redelivered panicked", "topic", topic, "uuid", msg.UUID, "err", err)
	}
	if err := runRecovered(func() { a.id = k.IdempotencyKey(topic, k.cfg.MessageID(msg)) }); err != nil {
		a.isRecordedAgain, a.SetAside = true, setAsideFor(fmt.Errorf("MessageID: %w", err))
	}
	return a, nil
}

func runRecovered(work func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	work()
	return nil
}

func isRedelivered(msg *message.Message) bool {
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

// setAsideFor returns a text that fits LastError and is never empty.
func setAsideFor(reason error) string {
	return cmp.Or(processlog.FitError(processlog.ErrorText(reason)), "set aside: no reason given")
}

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

// call runs the user's function in a goroutine of its own, because in the router's goroutine a runtime.Goexit would
// prevent both ack and nack.
func (k *Consumer) call(msg *message.Message) error {
	result := make(chan error, 1)
	go func() {
		err := error(new(compensator.PanicError)) // If the function work calls runtime.Goexit, call returns this error.
		defer func() {
			if p := recover(); p != nil {
				err = &compensator.PanicError{Value: p, Stack: debug.Stack()}
			}
			result <- err
		}()
		err = k.outcome(k.work(msg))
	}()
	return <-result
}

func (k *Consumer) outcome(produced []*message.Message, err error) error {
	err = processlog.SafeError(err)
	switch {
	case errors.Is(err, compensator.ErrAlreadySucceeded):
		return nil
	case err == nil && len(produced) > 0:
		return message.ErrOutputInNoPublisherHandler // A middleware has returned messages to publish.
	}
	return err
}

// isInterrupted reports whether the subscriber has cancelled the context of a message, and err is the result. A
// subscriber does so when it stops or gives the message up, and later delivers the message again. If a deadline ended
// the context, isInterrupted returns false.
func isInterrupted(ctx context.Context, err error) bool {
	return ctx.Err() == context.Canceled && errors.Is(err, context.Canceled)
}

// noteFailure returns the delay before the next try of a failed message. It recovers from a panic in a method of err or
// in the schedule, because both are user code.
func (k *Consumer) noteFailure(a *arrival, err error) (delay time.Duration) {
	defer func() {
		if recover() != nil {
			delay = longestPause
		}
	}()
	if compensator.VerdictOf(err) == observe.Permanent {
		a.SetAside = setAsideFor(err)
		return 0
	}
	return min(max(0, k.cfg.Type.Retry(1)), processlog.MaxDelay)
}

// keep records a message whose handler has failed, and retries until the log answers. If the log refuses the message,
// keep returns intake.ErrRefused. It returns another error only if ctx has ended or the Compensator is closed.
func (k *Consumer) keep(ctx context.Context, a *arrival, delay time.Duration) error {
	attempts := k.recorder.Attempts(*a.Delivery)
	for failures := 1; ; failures++ {
		err := attempts.Record(context.WithoutCancel(ctx), compensator.Options{IdempotencyKey: a.id, Delay: delay})
		if err == nil || errors.Is(err, intake.ErrRefused) || errors.Is(err, compensator.ErrClosed) {
			return err
		}
		if failures == 1 && ctx.Err() == nil {
			k.cfg.Logger.Warn("watermill: message is held until it can be recorded", "topic", a.Topic, "uuid", a.UUID, "err", err)
		}
		if !pause(ctx, failures) {
			return fmt.Errorf("watermill: message %q of topic %q cannot be recorded: %w", a.UUID, a.Topic, err)
		}
	}
}

// stillRefused is the number of failed calls of Refused between two log lines about the same message. This takes about
// five minutes.
const stillRefused = 100

// setAside calls the user's function Refused until it returns nil or an error that wraps ErrRefused. It stops earlier
// if ctx ends.
func (k *Consumer) setAside(ctx context.Context, a *arrival, cause error) error {
	reason := fmt.Errorf("%w: %q of topic %q: %w", ErrRefused, a.UUID, a.Topic, cause)
	for failures := 1; ; failures++ {
		err := k.handleRefused(ctx, a, reason)
		if err == nil || errors.Is(err, ErrRefused) {
			return err
		}
		if failures%stillRefused == 1 {
			k.cfg.Logger.Error("watermill: message is held, because the log refuses it and it cannot be set aside",
				"topic", a.Topic, "uuid", a.UUID, "reason", cause, "err", err)
		}
		if !pause(ctx, failures) {
			return errors.Join(reason, err)
		}
	}
}

var errNoRefused = errors.New("ConsumerConfig.Refused is not set")

func (k *Consumer) handleRefused(ctx context.Context, a *arrival, reason error) (err error) {
	if k.cfg.Refused == nil {
		return errNoRefused
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.cfg.RecordTimeout)
	defer cancel()
	msg := a.Message()
	msg.SetContext(ctx)
	msg.Metadata.Set(RefusedMetadata, setAsideFor(reason))
	msg.Metadata.Set(RefusedTopicMetadata, a.Topic)
	if panicked := runRecovered(func() { err = k.cfg.Refused(ctx, msg, reason) }); panicked != nil {
		return panicked
	}
	return processlog.SafeError(err)
}

func (k *Consumer) recordAgain(ctx context.Context, e *compensator.Entry, d Delivery) error {
	// A message that was set aside waits for a person. Epoch 0 means that nobody has requeued the entry yet.
	if d.SetAside != "" && e.Epoch == 0 {
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

// pause waits for a random time that grows with failures, and returns false if ctx has ended.
func pause(ctx context.Context, failures int) bool {
	maxPause := min(longestPause-firstPause, firstPause<<min(failures, 10))
	timer := time.NewTimer(firstPause + rand.N(maxPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
