package rabbitmq

import (
	"context"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/usererr"
)

// Handle registers a business type whose entries are published one by one; see compensator.Handle. Its entries are
// recorded like any other's. They go out together better: see HandleBatch.
func Handle[T any](c *compensator.Compensator, businessType string, p *Publisher, route Route, cfg compensator.TypeConfig) (*compensator.Type[T], error) {
	if err := p.check(route); err != nil {
		return nil, err
	}
	publish := p.Handler(route)
	return compensator.Handle(c, businessType, func(ctx context.Context, e *compensator.Entry, _ T) error { return publish(ctx, e) }, cfg)
}

// HandleBatch registers a business type whose entries are published several at a time, with all their confirms awaited
// together: cfg.BatchSize at most; see compensator.HandleBatch.
func HandleBatch[T any](c *compensator.Compensator, businessType string, p *Publisher, route Route, cfg compensator.TypeConfig) (*compensator.Type[T], error) {
	if err := p.check(route); err != nil {
		return nil, err
	}
	publish := p.BatchHandler(route)
	return compensator.HandleBatch(c, businessType, func(ctx context.Context, items []compensator.Item[T]) []error {
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

// Handler publishes an entry. It returns nil once the broker has confirmed that a queue holds the message.
//
// A message that no queue is bound for, that is too large, whose exchange does not exist, or that this user may not
// publish there, is a *RefusedError in compensator.Permanent, which names exchange and key. A broker that is away, blocks, rejects with
// a nack or does not confirm in time is compensator.Unavailable; see Config.CountUnavailable. After each of these the message may have
// arrived all the same, and is sent again with the same message id. A nack says that one queue did not take the message: other queues
// that are bound for it may have it.
func (p *Publisher) Handler(route Route) compensator.HandlerFunc {
	return func(ctx context.Context, e *compensator.Entry) error {
		m, err := p.message(route, e)
		if err != nil {
			return err
		}
		return p.send(ctx, []*message{m})[0]
	}
}

// BatchHandler publishes entries and then awaits all confirms. Each has its own outcome, as with Handler. When the
// broker closes the channel because of one, those it has not confirmed are sent again, alone.
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

// message asks the route and makes the message; an error is the attempt's outcome.
func (p *Publisher) message(route Route, e *compensator.Entry) (*message, error) {
	to, err := route(e)
	if err != nil {
		return nil, usererr.Safe(err)
	}
	m, err := newMessage(e, to)
	if err != nil {
		return nil, compensator.Permanent(err)
	}
	return m, nil
}
