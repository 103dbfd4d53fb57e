package admin

import (
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Queries of actions have their own limit, so that an action such as Pause never waits for other reads.
const (
	maxReads        = 4               // maximum number of queries that run at once in calls that only read
	maxActionReads  = 2               // maximum number of queries that run at once in actions, such as Pause
	defaultReadTime = 2 * time.Second // default of Options.ReadTime
)

type actionKey struct{}

func withAction(ctx context.Context) context.Context {
	return context.WithValue(ctx, actionKey{}, true)
}

// runQuery first waits for a place in Admin.actions or Admin.reads.
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

// typesCacheTime is how long an Admin uses the types that it read.
const typesCacheTime = 5 * time.Second

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

// visibleTypes returns the types that a query may read, so that hidden rows do not change a page. If types is nil and
// ok is true, the query may read all types. If ok is false, the actor may see none of the types.
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
