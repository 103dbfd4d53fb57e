package relay

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// ErrNoAnswer says that Publish did not return in time, or that no slot for a call was free. The broker may have the
// message.
var ErrNoAnswer = errors.New("watermill: the publisher did not answer")

// errUntried is the error of a message that was not passed to Publish. Config.Judge does not judge errUntried, because
// the message is not its cause.
var errUntried = errors.New("no slot for a call of Publish was free, or no time was left")

// Publisher relays entries through a message.Publisher of watermill. If Publish returns nil, the Publisher assumes that
// the broker holds the message. So Publish must not return earlier. watermill-amqp needs Publish.ConfirmDelivery, Kafka
// needs its synchronous publisher and acks from all replicas, and NATS needs JetStream. The methods of Publisher may be
// called concurrently.
type Publisher struct {
	sink  message.Publisher
	cfg   Config
	slots chan struct{} // holds one value for each active call of Publish
}

// NewPublisher returns a Publisher that sends through sink, a publisher of watermill. After Run has returned, the caller
// closes that publisher. Do not pass a publisher that a watermill router uses, because a router closes the publishers
// of its handlers when it ends.
func NewPublisher(sink message.Publisher, cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(fieldProblem(sink == nil, "publisher", "is nil"), cfg.validate()); err != nil {
		return nil, err
	}
	return &Publisher{sink: sink, cfg: cfg, slots: make(chan struct{}, cfg.Concurrency)}, nil
}

func (p *Publisher) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, p.cfg.Timeout, fmt.Errorf("gave up after %v", p.cfg.Timeout))
}

// send publishes messages, and returns one error for each message. The error is nil if the broker holds the message.
func (p *Publisher) send(ctx context.Context, topic string, messages []*message.Message) []error {
	outcomes := make([]error, len(messages))
	err := p.publish(ctx, topic, messages)
	for i := range messages {
		switch {
		case err == nil || len(messages) == 1:
			outcomes[i] = p.outcome(err)
		case ctx.Err() == context.Canceled: // The caller of the batch has cancelled the batch, so the outcome of each message is unknown.
			outcomes[i] = compensator.Unavailable(err)
		case errors.Is(err, ErrNoAnswer): // The timeout has passed for all messages together.
			outcomes[i] = p.outcome(err)
		default:
			// The publisher does not say which of several messages failed.
			outcomes[i] = p.outcome(p.publish(ctx, topic, messages[i:i+1]))
		}
	}
	return outcomes
}

func (p *Publisher) outcome(err error) (outcome error) {
	defer func() {
		if v := recover(); v != nil { // Judge may panic. In a goroutine of a batch, such a panic would end the process.
			outcome = &compensator.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	var panicked *compensator.PanicError
	switch {
	case err == nil || errors.As(err, &panicked):
		return err
	case errors.Is(err, errUntried):
		return compensator.Unavailable(err)
	}
	return processlog.SafeError(p.cfg.Judge(err))
}

// publish sends messages in another goroutine, and returns an error when ctx ends before the answer. The method Publish
// of watermill takes no context, so publish cannot stop the call.
func (p *Publisher) publish(ctx context.Context, topic string, messages []*message.Message) error {
	if ctx.Err() == nil {
		select {
		case p.slots <- struct{}{}:
			return p.awaitSend(ctx, topic, messages)
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("%w: topic %q: %w: %d of %d calls are running: %w", ErrNoAnswer, topic, errUntried, len(p.slots), cap(p.slots), context.Cause(ctx))
}

func (p *Publisher) awaitSend(ctx context.Context, topic string, messages []*message.Message) error {
	result := make(chan error, 1)
	go func() {
		defer func() { <-p.slots }()
		result <- p.call(topic, messages)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: topic %q: %w", ErrNoAnswer, topic, context.Cause(ctx))
	}
}

// call calls the watermill publisher, and turns a panic into an error. For example, the marshaler of the publisher may
// panic if it does not know the content of a message.
func (p *Publisher) call(topic string, messages []*message.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &compensator.PanicError{Value: v, Stack: debug.Stack()}
		}
		if err != nil {
			err = fmt.Errorf("watermill: publish to topic %q: %w", topic, err)
		}
	}()
	return processlog.SafeError(p.sink.Publish(topic, messages...))
}
