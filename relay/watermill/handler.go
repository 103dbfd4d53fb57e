package relay

import (
	"context"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

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

// HandleBatch registers a business type whose entries are published in batches of at most cfg.BatchSize. cfg may be
// nil. Publish is called once for each topic of a batch. See compensator.HandleBatch.
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

// Handler returns a handler that publishes an entry. The handler returns nil after Publish has returned nil.
//
// For an empty topic or invalid metadata the handler returns a *compensator.FieldError in compensator.Permanent. If
// Publish returns an error, or does not return in time, Config.Judge decides the outcome. In both cases the broker may
// have the message, and the next attempt sends it again with the same UUID.
func (p *Publisher) Handler(route Route) compensator.HandlerFunc {
	return func(ctx context.Context, e *compensator.Entry) error {
		ctx, cancel := p.withTimeout(ctx)
		defer cancel()
		topic, m, err := addressed(ctx, route, e)
		if err != nil {
			return err
		}
		return p.send(ctx, topic, []*message.Message{m})[0]
	}
}

// BatchHandler returns a handler that publishes the entries of each topic together. It publishes to all topics
// concurrently. Each entry has its own outcome, as with Handler. If Publish fails for several messages together, the
// handler sends them again one by one.
func (p *Publisher) BatchHandler(route Route) compensator.BatchFunc {
	return func(ctx context.Context, entries []*compensator.Entry) []error {
		ctx, cancel := p.withTimeout(ctx)
		defer cancel()
		outcomes := make([]error, len(entries))
		var sending sync.WaitGroup
		for topic, parcel := range parcels(ctx, route, entries, outcomes) {
			sending.Go(func() {
				for n, outcome := range p.send(ctx, topic, parcel.messages) {
					outcomes[parcel.places[n]] = outcome
				}
			})
		}
		sending.Wait()
		return outcomes
	}
}

type parcel struct {
	messages []*message.Message
	places   []int // index of each message's entry in the batch
}

// parcels sets the outcome of an entry for which the route fails.
func parcels(ctx context.Context, route Route, entries []*compensator.Entry, outcomes []error) map[string]*parcel {
	sorted := make(map[string]*parcel)
	for i, e := range entries {
		topic, m, err := addressed(e.Context(ctx), route, e)
		if err != nil {
			outcomes[i] = err
			continue
		}
		to := sorted[topic]
		if to == nil {
			to = new(parcel)
			sorted[topic] = to
		}
		to.messages, to.places = append(to.messages, m), append(to.places, i)
	}
	return sorted
}

// addressed returns an error that is the outcome of the attempt.
func addressed(ctx context.Context, route Route, e *compensator.Entry) (topic string, m *message.Message, err error) {
	destination, err := route(e)
	if err != nil {
		return "", nil, processlog.SafeError(err)
	}
	if m, err = newMessage(ctx, e, destination); err != nil {
		return "", nil, compensator.Permanent(err)
	}
	return destination.Topic, m, nil
}
