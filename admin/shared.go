package admin

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// These constants limit how long a shared result is used. It is used for sharedFor, or for sharedTimes times the
// duration of its reading if that is longer, but at most for sharedMost. So readers take about 0.5 % of the database's
// time, even with a large log.
const (
	sharedFor   = 2 * time.Second
	sharedTimes = 200
	sharedMost  = 10 * time.Second
)

// shared caches one result that covers all types. The Admin shows an actor only the part with types that the actor may
// see. So fifty readers cost the database as much as one reader, even when the database is slow.
type shared[T any] struct {
	guard chan struct{} // semaphore of size one; its holder may use the fields below and read a new result
	last  T
	began time.Time // when the latest reading began
	ended time.Time
	good  time.Time // until when the result may be used
	acts  int64     // value of Admin.acts when the latest reading began
}

func newShared[T any]() *shared[T] { return &shared[T]{guard: make(chan struct{}, 1)} }

// get returns the shared result, and when its reading began. It reads a new result in two cases: an action happened
// since the last reading began, or the result is too old. If the caller waited for a result, it gets that result,
// however long the reading took.
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
		err = ctx.Err() // The caller's context has ended, so an empty answer may say nothing about the database.
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
			return d.log.Store().Count(ctx, nil, processlog.CountFilter{States: unfinished, AtMost: overviewMost})
		})
	})
}

// condition is the part of the overview without the counts. It is cached separately, because reading it is much faster
// than counting.
type condition struct {
	health   observe.Health
	settings []processlog.Setting
}

func (d *Admin) condition(ctx context.Context) (condition, error) {
	found, _, err := d.standing.get(ctx, &d.acts, func(ctx context.Context) (c condition, err error) {
		c.health, err = read(ctx, d, func(ctx context.Context) (observe.Health, error) { return d.c.Health(ctx), nil })
		if err != nil {
			return c, err
		}
		c.settings, err = read(ctx, d, d.log.Operations().Settings)
		return c, err
	})
	return found, err
}

// failures returns the open cases by failure and currency. Actors who see every type share one result. For other
// actors, failures reads the cases of their types from the log. The shared result has at most groupsMost sums, so it
// may lack sums of these types.
func (d *Admin) failures(ctx context.Context, types []string) ([]processlog.CaseGroup, error) {
	if types != nil {
		return d.readFailures(ctx, types, Fingerprint{})
	}
	sums, _, err := d.groups.get(ctx, &d.acts, func(ctx context.Context) ([]processlog.CaseGroup, error) {
		return d.readFailures(ctx, nil, Fingerprint{})
	})
	return sums, err
}

// readFailures reads the sums and scrubs their errors. So the errors are scrubbed once for all readers.
func (d *Admin) readFailures(ctx context.Context, types []string, failure Fingerprint) ([]processlog.CaseGroup, error) {
	sums, err := read(ctx, d, func(ctx context.Context) ([]processlog.CaseGroup, error) {
		return d.log.Operations().CaseGroups(ctx, types, failure)
	})
	for i := range sums {
		sums[i].Error = d.log.Scrub(sums[i].Error)
	}
	return sums, err
}
