package admin

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// A shared result is used for 200 times as long as its reading took, at least for 2 seconds and at most for 10 seconds.
const (
	minCacheTime    = 2 * time.Second
	cacheTimeFactor = 200
	maxCacheTime    = 10 * time.Second
)

// cached caches one result that covers all types. The Admin shows an actor only the part with types that the actor may
// see.
type cached[T any] struct {
	semaphore   chan struct{} // semaphore of size one; its holder may use the fields below and read a new result
	lastValue   T
	startedAt   time.Time // when the latest reading began
	endedAt     time.Time
	usableUntil time.Time // until when the result may be used
	actionCount int64     // value of Admin.actionCount when the latest reading began
}

func newCached[T any]() *cached[T] { return &cached[T]{semaphore: make(chan struct{}, 1)} }

// get returns the last result if it is usable, and reads a new result otherwise. The last result is usable if no action
// has happened since its reading began, and if one of these conditions holds:
//
//   - The caller called get before the time usableUntil.
//   - The caller called get while the result was being read, and has waited for it.
func (s *cached[T]) get(ctx context.Context, actionCount *atomic.Int64, read func(ctx context.Context) (T, error)) (result T, startedAt time.Time, err error) {
	var zero T
	calledAt := time.Now()
	select {
	case s.semaphore <- struct{}{}:
		defer func() { <-s.semaphore }()
	case <-ctx.Done():
		return zero, startedAt, ctx.Err()
	}
	if s.actionCount == actionCount.Load() && (calledAt.Before(s.usableUntil) || s.endedAt.After(calledAt)) {
		return s.lastValue, s.startedAt, nil
	}
	startedAt = time.Now()
	doneActions := actionCount.Load()
	value, err := read(ctx)
	if err == nil {
		// If the context ended during the reading, the value may be incomplete even without an error. Do not keep this
		// value for other callers.
		err = ctx.Err()
	}
	if err != nil {
		return zero, startedAt, err
	}
	s.lastValue, s.startedAt, s.endedAt, s.actionCount = value, startedAt, time.Now(), doneActions
	s.usableUntil = startedAt.Add(min(max(minCacheTime, cacheTimeFactor*s.endedAt.Sub(startedAt)), maxCacheTime))
	return value, startedAt, nil
}

func (d *Admin) readCounts(ctx context.Context) ([]processlog.Count, time.Time, error) {
	return d.counts.get(ctx, &d.actionCount, func(ctx context.Context) ([]processlog.Count, error) {
		return runQuery(ctx, d, func(ctx context.Context) ([]processlog.Count, error) {
			return d.log.Store().Count(ctx, nil, processlog.CountFilter{States: unfinished, AtMost: maxCount})
		})
	})
}

// condition is cached separately, because reading it is much faster than counting.
type condition struct {
	health   observe.Health
	settings []processlog.Setting
	backlog  BacklogReading
}

func (d *Admin) readCondition(ctx context.Context) (condition, error) {
	current, _, err := d.conditions.get(ctx, &d.actionCount, func(ctx context.Context) (c condition, err error) {
		c.health, err = runQuery(ctx, d, func(ctx context.Context) (observe.Health, error) { return d.c.Health(ctx), nil })
		if err != nil {
			return c, err
		}
		c.settings, err = runQuery(ctx, d, d.log.Operations().Settings)
		if err == nil && d.hasStatistics { // Without the backlog the overview still has the counts up to 1,000, so ignore an error.
			c.backlog, _ = runQuery(ctx, d, d.log.Operations().ReadBacklog)
		}
		return c, err
	})
	return current, err
}

// cachedFailures returns the shared result if the parameter types is nil, for an actor who sees every type. For another
// actor it reads the log. The shared result has at most maxGroups rows of all types, so it may lack failures of the
// types that this actor sees.
func (d *Admin) cachedFailures(ctx context.Context, types []string) ([]processlog.CaseGroup, error) {
	if types != nil {
		return d.readFailures(ctx, types, Fingerprint{})
	}
	sums, _, err := d.groups.get(ctx, &d.actionCount, func(ctx context.Context) ([]processlog.CaseGroup, error) {
		return d.readFailures(ctx, nil, Fingerprint{})
	})
	return sums, err
}

// readFailures reads the open cases, added up by type, failure and currency. It scrubs the errors here, so that
// cachedFailures stores scrubbed errors and need not scrub them again for each reader.
func (d *Admin) readFailures(ctx context.Context, types []string, failure Fingerprint) ([]processlog.CaseGroup, error) {
	sums, err := runQuery(ctx, d, func(ctx context.Context) ([]processlog.CaseGroup, error) {
		return d.log.Operations().CaseGroups(ctx, types, failure)
	})
	for i := range sums {
		sums[i].Error = d.log.Scrub(sums[i].Error)
	}
	return sums, err
}
