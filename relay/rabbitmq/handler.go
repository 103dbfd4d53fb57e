package rabbitmq

import (
	"context"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Handle registers a business type whose entries are published one at a time; see compensator.Handle. Record its
// entries like those of any other type. HandleBatch has a higher throughput. cfg may be nil.
func Handle[T any](ctx context.Context, c *compensator.Compensator, businessType string, p *Publisher, route Route, cfg *compensator.HandlerConfig[T]) (*compensator.Type[T], error) {
	if err := p.check(route); err != nil {
		return nil, err
	}
	publish := p.Handler(route)
	return compensator.Handle(ctx, c, businessType, func(ctx context.Context, e *compensator.Entry, _ T) error { return publish(ctx, e) }, cfg)
}

// HandleBatch registers a business type whose entries are published in batches of at most cfg.BatchSize. A batch waits
// once for all its confirms. See compensator.HandleBatch.
func HandleBatch[T any](ctx context.Context, c *compensator.Compensator, businessType string, p *Publisher, route Route, cfg *compensator.BatchConfig[T]) (*compensator.Type[T], error) {
	if err := p.check(route); err != nil {
		return nil, err
	}
	publish := p.BatchHandler(route)
	return compensator.HandleBatch(ctx, c, businessType, func(ctx context.Context, items []compensator.Item[T]) []error {
		entries := make([]*compensator.Entry, len(items))
		for i, item := range items {
			entries[i] = item.Entry
		}
		return publish(ctx, entries)
	}, cfg)
}

func (p *Publisher) check(route Route) error {
	switch {
	case p == nil:
		return &compensator.FieldError{Field: "publisher", Reason: "is nil"}
	case route == nil:
		return &compensator.FieldError{Field: "route", Reason: "is nil"}
	}
	return nil
}

// Handler returns a handler that publishes an entry. The handler returns nil after the broker has confirmed that a
// queue holds the message.
//
// The handler returns a *RefusedError in compensator.Permanent if the broker will never accept the message. The error
// names the exchange and the key. The reasons are: no queue is bound, the message is too large, the exchange does not
// exist, or this user may not publish there.
//
// The handler returns compensator.Unavailable if the broker is unreachable, blocks the connection, rejects the message
// with a nack, or does not confirm in time. See Config.CountUnavailable. In each of these cases a queue may have the
// message, but the next attempt sends the message again with the same message id. A nack says that one queue did not
// accept the message. Other queues bound to the exchange may have accepted the message.
func (p *Publisher) Handler(route Route) compensator.HandlerFunc {
	return func(ctx context.Context, e *compensator.Entry) error {
		m, err := p.message(route, e)
		if err != nil {
			return err
		}
		return p.send(ctx, []*message{m})[0]
	}
}

// BatchHandler returns a handler that publishes all entries and then awaits all confirms. Each entry has its own
// outcome, as with Handler. If the broker closes the channel because of one message, the handler sends the unconfirmed
// messages again one by one.
func (p *Publisher) BatchHandler(route Route) compensator.BatchFunc {
	return func(ctx context.Context, entries []*compensator.Entry) []error {
		outcomes := make([]error, len(entries))
		messages := make([]*message, 0, len(entries))
		places := make([]int, 0, len(entries))
		for i, e := range entries {
			m, err := p.message(route, e)
			if err != nil {
				outcomes[i] = err
				continue
			}
			messages, places = append(messages, m), append(places, i)
		}
		for n, outcome := range p.send(ctx, messages) {
			outcomes[places[n]] = outcome
		}
		return outcomes
	}
}

// message returns an error that is the outcome of the attempt.
func (p *Publisher) message(route Route, e *compensator.Entry) (*message, error) {
	destination, err := route(e)
	if err != nil {
		return nil, processlog.SafeError(err)
	}
	m, err := newMessage(e, destination)
	if err != nil {
		return nil, compensator.Permanent(err)
	}
	return m, nil
}
