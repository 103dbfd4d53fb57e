package admin

import (
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// These limits of an Admin's queries keep the Admin from slowing the service, which uses the same database.
const (
	readsAtOnce = 4               // maximum number of concurrent queries for reads
	actsAtOnce  = 2               // maximum number of concurrent queries for actions. It is separate, so that a pause never waits for readers
	readTime    = 2 * time.Second // default of Options.ReadTime
)

type action struct{}

// acting marks ctx as the context of an action. Queries with this context use the semaphore Admin.actions.
func acting(ctx context.Context) context.Context { return context.WithValue(ctx, action{}, true) }

// read runs one query. It first waits for a free place in a semaphore: Admin.actions for queries of actions, and
// Admin.reads for other queries.
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

// typesFor is how long an Admin uses the types that it read. In lists of one state, and in lists for actors who may not
// see all types, a new type appears up to this much later.
const typesFor = 5 * time.Second

// types returns the business types of the log, up to typesFor old.
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

// within returns the types that a query may read: the types in asked, or all types, without the types that the actor
// may not see. So hidden rows change neither the rows of a page nor the position where a page ends. A query that names
// one type reads only that type.
//
// If types is nil and ok is true, the query may read all types. If ok is false, the actor may see none of the types.
//
// An actor can still notice that hidden rows exist. Cursors contain row numbers, and hidden rows have row numbers too.
// So the cursors of two pages reveal how many records lie between the pages.
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
