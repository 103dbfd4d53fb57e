package admin

import (
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// These limits of an Admin's queries keep the Admin from slowing the service, which uses the same database.
const (
	maxReads        = 4               // maximum number of concurrent queries for reads
	maxActionReads  = 2               // maximum number of concurrent queries for actions. It is separate, so that an action such as Pause never waits for reads
	defaultReadTime = 2 * time.Second // default of Options.ReadTime
)

type actionKey struct{}

// withAction marks ctx as the context of an action. Queries with this context use the semaphore Admin.actions.
func withAction(ctx context.Context) context.Context {
	return context.WithValue(ctx, actionKey{}, true)
}

// runQuery runs one query. It first waits for a free place in a semaphore: Admin.actions for queries of actions, and
// Admin.reads for other queries.
func runQuery[T any](ctx context.Context, d *Admin, query func(ctx context.Context) (T, error)) (result T, err error) {
	semaphore := d.reads
	if ctx.Value(actionKey{}) != nil {
		semaphore = d.actions
	}
	select {
	case semaphore <- struct{}{}:
		defer func() { <-semaphore }()
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, d.readTime)
	defer cancel()
	return query(ctx)
}

func (d *Admin) casesOf(ctx context.Context, ids []processlog.ID) ([]Case, error) {
	cases, err := runQuery(ctx, d, func(ctx context.Context) ([]Case, error) { return d.log.Operations().CasesOf(ctx, ids) })
	for i := range cases {
		cases[i].Amount = withUpperCurrency(cases[i].Amount)
	}
	return cases, err
}

// typesCacheTime is how long an Admin uses the types that it read. For this time a new type can be missing in lists of one
// state, and in lists for actors who may not see all types.
const typesCacheTime = 5 * time.Second

// readTypes returns the business types of the log, up to typesCacheTime old.
func (d *Admin) readTypes(ctx context.Context) ([]string, error) {
	d.mu.Lock()
	types, at := d.types, d.typesReadAt
	d.mu.Unlock()
	if time.Since(at) < typesCacheTime {
		return types, nil
	}
	types, err := runQuery(ctx, d, d.log.Operations().Types)
	if err == nil {
		d.mu.Lock()
		d.types, d.typesReadAt = types, time.Now()
		d.mu.Unlock()
	}
	return types, err
}

// visibleTypes returns the types that a query may read. The candidates are the types in wanted, or else wantedType, or
// else all types of the log. visibleTypes leaves out the candidates that the actor may not see. So hidden rows change
// neither the rows of a page nor the position where a page ends.
//
// If types is nil and ok is true, the query may read all types. If ok is false, the actor may see none of the types.
//
// An actor can still notice that hidden rows exist. Cursors contain row numbers, and hidden rows have row numbers too. So
// the cursors of two pages reveal how many records lie between the pages.
func (d *Admin) visibleTypes(ctx context.Context, mayRead *typeRights, wantedType string, wanted []string, extraTypes ...string) (types []string, ok bool, err error) {
	if wanted == nil && wantedType != "" {
		wanted = []string{wantedType}
	}
	candidates := wanted
	if wanted == nil {
		if candidates, err = d.readTypes(ctx); err != nil {
			return nil, false, err
		}
		candidates = slices.Concat(extraTypes, candidates)
	}
	for _, name := range candidates {
		if mayRead.holds(ctx, name) {
			types = append(types, name)
		}
	}
	if wanted == nil && len(types) == len(candidates) {
		return nil, true, nil
	}
	return types, len(types) > 0, nil
}
