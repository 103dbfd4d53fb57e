package engine

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/internal/report"
	"github.com/compensator-go/compensator/internal/usererr"
)

// A connection that has gone silent must not hold up a batcher for good.
const StatementTimeout = 10 * time.Second

// Base is what every part works with: the servers, the settings, and the list of problems.
type Base struct {
	*Config
	Problems ProblemList

	// Work is the context of everything that outlives a call; Close ends it.
	Work    context.Context
	endWork context.CancelCauseFunc
}

func newBase(ctx context.Context, cfg *Config) *Base {
	b := &Base{Config: cfg}
	b.Problems.log, b.Problems.number, b.Problems.closed = cfg.Log, cfg.ErrorNumber, func() bool { return b.Work.Err() != nil }
	b.Work, b.endWork = context.WithCancelCause(b.reporting(context.WithoutCancel(ctx)))
	return b
}

func (b *Base) Statement() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.Work, StatementTimeout)
}

// Wait waits, and returns false when the engine is closed meanwhile.
func (b *Base) Wait(d time.Duration) bool { return Rest(b.Work, d) }

// Rest waits, and reports whether ctx still lasts.
func Rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Saw takes the result of a statement of ours.
func (b *Base) Saw(what string, err error) {
	if err != nil {
		b.Problems.Failed(what, "", err)
		return
	}
	b.Problems.Passed(what, "")
}

// QueueShare returns how much of the time that ctx has left a call to the queue may take: half of it, and at most most. So a silent
// queue leaves time for the database where both are asked under one deadline.
func QueueShare(ctx context.Context, most time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return most
	}
	return min(time.Until(deadline)/2, most)
}

// reporting makes a context lead to this engine what lies beneath an interface, or beneath package sql, has to tell.
func (b *Base) reporting(ctx context.Context) context.Context { return report.To(ctx, reports{b}) }

// reports takes what is told. A session that is thrown away is mended by that.
type reports struct{ *Base }

func (r reports) Reported(what string, err error) {
	if what == report.Session {
		r.Problems.Complain(what, err)
		return
	}
	r.Saw(what, err)
}

// Tell calls one of the observer's functions.
func Tell[E any](b *Base, observe func(E), event E) {
	if observe == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			b.Log.Error("observer panicked", "panic", usererr.PanicText(p))
		}
	}()
	observe(event)
}

// setIn makes the map when it is first needed.
func setIn[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[key] = value
}
