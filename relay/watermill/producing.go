package relay

import (
	"context"
	"errors"
	"github.com/compensator-go/compensator/processlog"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Publishing wraps a handler that returns messages, so that a Consumer can call it. The wrapper publishes the messages
// to topic, and returns an error if it cannot publish them. If the log calls the wrapper again, it publishes the
// messages again. So derive their UUIDs only from the incoming message, so that consumers recognise the repetition. An
// invalid argument is a *compensator.FieldError.
func (p *Publisher) Publishing(topic string, handler message.HandlerFunc) (message.NoPublishHandlerFunc, error) {
	err := errors.Join(fieldProblem(p == nil, "publisher", "is nil"), fieldProblem(topic == "", "Topic", "is empty"), fieldProblem(handler == nil, "handler", "is nil"))
	if err != nil {
		return nil, err
	}
	return func(msg *message.Message) error {
		// Take the context before the call of handler. A middleware inside handler may replace the message's context with a
		// context that has ended when handler returns.
		ctx := msg.Context()
		produced, err := handler(msg)
		if err != nil || len(produced) == 0 {
			return processlog.SafeError(err)
		}
		ctx, cancel := p.withTimeout(ctx)
		defer cancel()
		return p.outcome(p.publish(ctx, topic, produced))
	}, nil
}

// RefusedTo returns a ConsumerConfig.Refused that publishes messages to topic, where a person finds them. A message
// keeps its UUID and payload. An invalid argument is a *compensator.FieldError.
func (p *Publisher) RefusedTo(topic string) (func(ctx context.Context, msg *message.Message, reason error) error, error) {
	err := errors.Join(fieldProblem(p == nil, "publisher", "is nil"), fieldProblem(topic == "", "Topic", "is empty"))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, msg *message.Message, _ error) error {
		ctx, cancel := p.withTimeout(ctx)
		defer cancel()
		return p.publish(ctx, topic, []*message.Message{msg})
	}, nil
}
