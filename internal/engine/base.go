package engine

import (
	"context"
	"reflect"
	"time"

	"github.com/compensator-go/compensator/internal/problems"
	"github.com/compensator-go/compensator/internal/report"
	"github.com/compensator-go/compensator/internal/usererr"
)

// A connection that has gone silent must not hold up a batcher for good.
const StatementTimeout = 10 * time.Second

// Base is what every part and every feature works with: the settings, the store, and the list of problems.
type Base struct {
	*Config
	Problems *problems.List
	watchers []*Watcher

	// Work is the context of all work that outlives a call. Close ends it.
	Work    context.Context
	endWork context.CancelCauseFunc
}

func newBase(ctx context.Context, cfg *Config) *Base {
	b := &Base{Config: cfg}
	b.Problems = problems.New(cfg.Log, cfg.ErrorNumber, func() bool { return b.Work.Err() != nil })
	b.Work, b.endWork = context.WithCancelCause(b.reporting(context.WithoutCancel(ctx)))
	return b
}

// Statement returns the context of one statement.
func (b *Base) Statement() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.Work, StatementTimeout)
}

// Wait waits for d. It returns false if the engine is closed before.
func (b *Base) Wait(d time.Duration) bool { return Rest(b.Work, d) }

// Rest waits for d. It returns false if ctx ends before.
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

// ProblemReadBack is exported for features that read recorded entries back.
const ProblemReadBack = "new entries could not be read back"

// These texts say what fails. Each is the key of a Problem, and appears in the log.
const (
	problemDue     = "due entries could not be found in the database"
	problemClaim   = "entries could not be claimed"
	problemRelease = "leases could not be given back"
	problemRenew   = "leases could not be renewed"
	problemStore   = "outcomes could not be stored"
	problemRound   = "the log could not be searched for forgotten entries"
	problemContent = "contents cannot be decoded here: their entries wait for a version of the code that can"
	problemAttempt = "attempts end with nothing counted: something they need is not available"
	problemFaults  = "attempts fail, and count, for they have met the database's condition too often in a row"
)

// Saw takes the result of a statement of the library. An error is logged, and stands in Health until the same statement succeeds.
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

// reporting returns a context with which connections beneath package sql, for example, report problems to this engine.
func (b *Base) reporting(ctx context.Context) context.Context { return report.To(ctx, reports{b}) }

// reports takes such reports. A report about a session is logged only, because the session is thrown away.
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

// complete replaces the nil functions of a struct of functions by those of defaults.
func complete[F any](functions, defaults F) *F {
	of, from := reflect.ValueOf(&functions).Elem(), reflect.ValueOf(defaults)
	for i := range of.NumField() {
		if of.Field(i).IsNil() {
			of.Field(i).Set(from.Field(i))
		}
	}
	return &functions
}

// setIn sets a value in a map that may be nil.
func setIn[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[key] = value
}
