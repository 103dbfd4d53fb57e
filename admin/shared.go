package admin

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// What was read for one person is shown to others for sharedFor, or for sharedTimes as long as reading it took, if that is longer, but
// not for longer than sharedMost: however large the log is, people who watch take a two-hundredth of its database's time, or little more.
const (
	sharedFor   = 2 * time.Second
	sharedTimes = 200
	sharedMost  = 10 * time.Second
)

// shared is something read of all types, from which each actor is shown what he may see: fifty people who watch cost the
// database what one does, also when it is slow.
type shared[T any] struct {
	guard chan struct{} // held by who looks at what follows, and by who reads it anew
	last  T
	began time.Time // reading it
	ended time.Time
	good  time.Time // until then
	acts  int64     // what had been done through the Admin when it began
}

func newShared[T any]() *shared[T] { return &shared[T]{guard: make(chan struct{}, 1)} }

// get is what was read last, and when, or reads it anew once something was done since, or it is old: what comes while somebody
// waits is not, however long reading it took.
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
		err = ctx.Err() // what did not answer somebody who has gone may be well
	}
	if err != nil {
		return none, began, err
	}
	s.last, s.began, s.ended, s.acts = fresh, began, time.Now(), done
	s.good = began.Add(min(max(sharedFor, sharedTimes*s.ended.Sub(began)), sharedMost))
	return fresh, began, nil
}

// counted is the overview's entries, and when they were counted.
func (d *Admin) counted(ctx context.Context) ([]processlog.Count, time.Time, error) {
	return d.counts.get(ctx, &d.acts, func(ctx context.Context) ([]processlog.Count, error) {
		return read(ctx, d, func(ctx context.Context) ([]processlog.Count, error) {
			return d.log.Count(ctx, processlog.CountFilter{States: unfinished, AtMost: overviewMost})
		})
	})
}

// condition is what the overview is made of beside the counts, apart from them because it is read in a fraction of their time.
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

// failures are the open cases by failure and currency, shared by all who see every type; of some types they are read for who
// sees those, because there may be more of them than what is read of all.
func (d *Admin) failures(ctx context.Context, types []string) ([]processlog.CaseGroup, error) {
	if types != nil {
		return d.readFailures(ctx, types, Fingerprint{})
	}
	sums, _, err := d.groups.get(ctx, &d.acts, func(ctx context.Context) ([]processlog.CaseGroup, error) {
		return d.readFailures(ctx, nil, Fingerprint{})
	})
	return sums, err
}

// readFailures scrubs their errors, once for all who look.
func (d *Admin) readFailures(ctx context.Context, types []string, failure Fingerprint) ([]processlog.CaseGroup, error) {
	sums, err := read(ctx, d, func(ctx context.Context) ([]processlog.CaseGroup, error) {
		return d.log.Operations().CaseGroups(ctx, types, failure)
	})
	for i := range sums {
		sums[i].Error = d.log.Scrub(sums[i].Error)
	}
	return sums, err
}
