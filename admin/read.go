package admin

import (
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// What an Admin asks of the log at a time, and for how long: people must not hold up the service whose database it is.
const (
	readsAtOnce = 4               // for who looks
	actsAtOnce  = 2               // for who acts: the brake does not wait for readers
	readTime    = 2 * time.Second // unless Options say otherwise
)

type action struct{}

// acting marks what is read for an action.
func acting(ctx context.Context) context.Context { return context.WithValue(ctx, action{}, true) }

// read asks the log once the Admin's other reads, or those of other actions, leave room.
func read[T any](ctx context.Context, d *Admin, ask func(ctx context.Context) (T, error)) (answer T, err error) {
	room := d.reads
	if ctx.Value(action{}) != nil {
		room = d.actions
	}
	select {
	case room <- struct{}{}:
		defer func() { <-room }()
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, d.readTime)
	defer cancel()
	return ask(ctx)
}

// casesOf reads the cases of entries.
func (d *Admin) casesOf(ctx context.Context, ids []processlog.ID) ([]Case, error) {
	cases, err := read(ctx, d, func(ctx context.Context) ([]Case, error) { return d.log.Operations().CasesOf(ctx, ids) })
	for i := range cases {
		cases[i].Amount = inCapitals(cases[i].Amount)
	}
	return cases, err
}

// typesFor is how long an Admin goes by the types that it has found: so late is a new one in the lists of who may not see all, and
// in those of one state.
const typesFor = 5 * time.Second

// types are the business types that there are.
func (d *Admin) types(ctx context.Context) ([]string, error) {
	d.mu.Lock()
	found, at := d.found, d.foundAt
	d.mu.Unlock()
	if time.Since(at) < typesFor {
		return found, nil
	}
	found, err := read(ctx, d, d.log.Operations().Types)
	if err == nil {
		d.mu.Lock()
		d.found, d.foundAt = found, time.Now()
		d.mu.Unlock()
	}
	return found, err
}

// within narrows a query to the types that an actor sees, of those that were asked for or of all, so that what he does not see
// leaves no trace in pages, nor in where they end. nil, and ok: he sees all there are. ok: he sees some. A query that names its type
// is within that. Cursors name rows, whose numbers others' take part in: a audit log's tell how many records there were in between.
func (d *Admin) within(ctx context.Context, sees *sight, named string, asked []string, more ...string) (types []string, ok bool, err error) {
	if asked == nil && named != "" {
		asked = []string{named}
	}
	of := asked
	if asked == nil {
		if of, err = d.types(ctx); err != nil {
			return nil, false, err
		}
		of = slices.Concat(more, of)
	}
	for _, name := range of {
		if sees.sees(ctx, name) {
			types = append(types, name)
		}
	}
	if asked == nil && len(types) == len(of) {
		return nil, true, nil
	}
	return types, len(types) > 0, nil
}
