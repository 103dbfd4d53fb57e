package relay

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Publishing makes of a handler that returns messages one that a Consumer can call: it publishes them to topic, and
// fails when that fails. Called again by the log, it publishes again: give the messages UUIDs that depend on the message
// they come from, and nothing else, so that a consumer knows them. Errors name the argument that is wrong.
func (p *Publisher) Publishing(topic string, handler message.HandlerFunc) (message.NoPublishHandlerFunc, error) {
	err := errors.Join(fieldProblem(p == nil, "publisher", "is nil"), fieldProblem(topic == "", "Topic", "is empty"), fieldProblem(handler == nil, "handler", "is nil"))
	if err != nil {
		return nil, err
	}
	return func(msg *message.Message) error {
		ctx := msg.Context() // a middleware may leave another, which has ended
		produced, err := handler(msg)
		if err != nil || len(produced) == 0 {
			return err
		}
		ctx, cancel := p.timed(ctx)
		defer cancel()
		return p.outcome(p.publish(ctx, topic, produced))
	}, nil
}
