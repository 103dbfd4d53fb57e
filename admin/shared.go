package admin

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// A shared result is used for sharedFor, or for sharedTimes as long as reading it took, whichever is longer. sharedMost
// is the limit. So readers take about 0.5 % of the database's time, also with a large log.
const (
	sharedFor   = 2 * time.Second
	sharedTimes = 200
	sharedMost  = 10 * time.Second
)

// shared caches one result for all types. Each actor is shown the part that they may see. So fifty readers cost the
// database as much as one, also when the database is slow.
type shared[T any] struct {
	guard chan struct{} // semaphore of one; the holder may use the fields below and read a new result
	last  T
	began time.Time // when the last reading began
	ended time.Time
	good  time.Time // the result may be used until then
	acts  int64     // Admin.acts when the last reading began
}

func newShared[T any]() *shared[T] { return &shared[T]{guard: make(chan struct{}, 1)} }

// get returns the shared result, and when its reading began. It reads a new result if an action was done since, or if
// the result is too old. A result that arrives while the caller waits is never too old, however long its reading took.
func (s *shared[T]) get(ctx context.Context, acts *atomic.Int64, read func(ctx context.Context) (T, error)) (last T, began time.Time, err error) {
	var none T
	asked := time.Now()
	select {
	case s.guard <- struct{}{}:
		defer func() { <-s.guard }()
	case <-ctx.Done():
		return none, began, ctx.Err()
	}
	if s.acts == acts.Load() && (asked.Before(s.good) || s.ended.After(asked)) {
		return s.last, s.began, nil
	}
	began = time.Now()
	done := acts.Load()
	fresh, err := read(ctx)
	if err == nil {
		err = ctx.Err() // after the caller has gone, an empty answer may say nothing about the database
	}
	if err != nil {
		return none, began, err
	}
	s.last, s.began, s.ended, s.acts = fresh, began, time.Now(), done
	s.good = began.Add(min(max(sharedFor, sharedTimes*s.ended.Sub(began)), sharedMost))
	return fresh, began, nil
}

// counted returns the overview's counts, and when they were counted.
func (d *Admin) counted(ctx context.Context) ([]processlog.Count, time.Time, error) {
	return d.counts.get(ctx, &d.acts, func(ctx context.Context) ([]processlog.Count, error) {
		return read(ctx, d, func(ctx context.Context) ([]processlog.Count, error) {
			return d.log.Count(ctx, processlog.CountFilter{States: unfinished, AtMost: overviewMost})
		})
	})
}

// condition is the rest of the overview. It is apart from the counts because reading it takes a fraction of their time.
type condition struct {
	health   compensator.Health
	settings []processlog.Setting
}

func (d *Admin) condition(ctx context.Context) (condition, error) {
	found, _, err := d.standing.get(ctx, &d.acts, func(ctx context.Context) (c condition, err error) {
		c.health, err = read(ctx, d, func(ctx context.Context) (compensator.Health, error) { return d.c.Health(ctx), nil })
		if err != nil {
			return c, err
		}
		c.settings, err = read(ctx, d, d.log.Operations().Settings)
		return c, err
	})
	return found, err
}

// failures returns the open cases by failure and currency. Actors who see every type share one result. For other actors
// it is read for their types, because the shared result is limited to groupsMost sums and may lack sums of these types.
func (d *Admin) failures(ctx context.Context, types []string) ([]processlog.CaseGroup, error) {
	if types != nil {
		return d.readFailures(ctx, types, Fingerprint{})
	}
	sums, _, err := d.groups.get(ctx, &d.acts, func(ctx context.Context) ([]processlog.CaseGroup, error) {
		return d.readFailures(ctx, nil, Fingerprint{})
	})
	return sums, err
}

// readFailures reads the sums and scrubs their errors, once for all readers.
func (d *Admin) readFailures(ctx context.Context, types []string, failure Fingerprint) ([]processlog.CaseGroup, error) {
	sums, err := read(ctx, d, func(ctx context.Context) ([]processlog.CaseGroup, error) {
		return d.log.Operations().CaseGroups(ctx, types, failure)
	})
	for i := range sums {
		sums[i].Error = d.log.Scrub(sums[i].Error)
	}
	return sums, err
}
