package relay

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/usererr"
)

// ErrNoAnswer: Publish had not returned in time, or no call of it was free. The message may arrive all the same.
var ErrNoAnswer = errors.New("watermill: the publisher did not answer")

// errUntried: Publish was not even called. That is never the message's fault, and no Judge is asked.
var errUntried = errors.New("no call of Publish was free, or no time was left for one")

// Publisher relays entries through a message.Publisher, whose nil it takes for the broker's word that it holds the
// message. So it must not be one that returns before: watermill-amqp wants Publish.ConfirmDelivery, Kafka its synchronous
// publisher and acks from all replicas, NATS JetStream. Its methods may be called concurrently.
type Publisher struct {
	to    message.Publisher
	cfg   Config
	slots chan struct{} // one for each Publish under way
}

// NewPublisher returns a Publisher on one of watermill's, which stays the caller's to close: after Run has returned. A
// router closes the publishers of its handlers when it ends; give it another.
func NewPublisher(to message.Publisher, cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(fieldProblem(to == nil, "publisher", "is nil"), cfg.validate()); err != nil {
		return nil, err
	}
	return &Publisher{to: to, cfg: cfg, slots: make(chan struct{}, cfg.Concurrency)}, nil
}

// timed bounds one message, or one batch.
func (p *Publisher) timed(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, p.cfg.Timeout, fmt.Errorf("gave up after %v", p.cfg.Timeout))
}

// send publishes messages to a topic, and returns each one's outcome as a handler's; nil: the broker has it.
func (p *Publisher) send(ctx context.Context, topic string, messages []*message.Message) []error {
	outcomes := make([]error, len(messages))
	err := p.publish(ctx, topic, messages)
	for i := range messages {
		switch {
		case err == nil || len(messages) == 1:
			outcomes[i] = p.outcome(err)
		case ctx.Err() == context.Canceled: // by whoever waits for the batch: nothing is known of each alone
			outcomes[i] = compensator.Unavailable(err)
		case errors.Is(err, ErrNoAnswer): // in its own time: a silence is that of all
			outcomes[i] = p.outcome(err)
		default:
			// Which of several messages it was the publisher does not say. Alone, each is told.
			outcomes[i] = p.outcome(p.publish(ctx, topic, messages[i:i+1]))
		}
	}
	return outcomes
}

// outcome makes a handler's error of what became of a message.
func (p *Publisher) outcome(err error) (outcome error) {
	defer func() {
		if v := recover(); v != nil { // of Judge, in a goroutine of a batch
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
	return usererr.Safe(p.cfg.Judge(err))
}

// publish calls Publish, and waits for it no longer than ctx: watermill gives it none.
func (p *Publisher) publish(ctx context.Context, topic string, messages []*message.Message) error {
	if ctx.Err() == nil {
		select {
		case p.slots <- struct{}{}:
			return p.await(ctx, topic, messages)
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("%w: topic %q: %w: %d of %d are under way: %w", ErrNoAnswer, topic, errUntried, len(p.slots), cap(p.slots), context.Cause(ctx))
}

func (p *Publisher) await(ctx context.Context, topic string, messages []*message.Message) error {
	answer := make(chan error, 1)
	go func() {
		defer func() { <-p.slots }()
		answer <- p.call(topic, messages)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: topic %q: %w", ErrNoAnswer, topic, context.Cause(ctx))
	}
}

// call makes an error of a panic: of a marshaler that does not know the content, for example.
func (p *Publisher) call(topic string, messages []*message.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &compensator.PanicError{Value: v, Stack: debug.Stack()}
		}
		if err != nil {
			err = fmt.Errorf("watermill: publish to topic %q: %w", topic, err)
		}
	}()
	return usererr.Safe(p.to.Publish(topic, messages...))
}
