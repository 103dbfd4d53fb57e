package engine

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// Type is a business type that runs in this process. The root package has filled in all defaults.
type Type struct {
	Name                  string
	MaxAttempts           int
	MaxCompensateAttempts int
	Timeout               time.Duration
	Lease                 time.Duration
	Concurrency           int           // maximum number of handler calls at once, however many entries each takes
	MaxWait               time.Duration // age of an entry from which its handler's waits count as failures; 0: they never count
	CompensateCrashed     bool
	Retry                 func(failures int) time.Duration

	// Exactly one of these two is set. A feature sets RunAttempt to call the handler itself. If the handler has a result,
	// it sets Row.Result before it returns nil.
	Run        func(ctx context.Context, row *processlog.Row) error
	RunAttempt func(a *Attempt) Result

	// Ready, if set, is called before Run, and before RunAttempt. If it returns an error, the
	// attempt ends with that error and no handler is called.
	Ready func(ctx context.Context, row *processlog.Row) error

	// At most one of these two is set.
	Undo        func(ctx context.Context, row *processlog.Row) error
	UndoAttempt func(a *Attempt) Result

	slots      Slots
	admissions []*Admission
	order      *Order   // nil: no entry waits for another
	grouping   Grouping // nil: each entry has a call of its own
}

// SuspectAfter is how many leases in a row an entry must lose to be a suspect: it may have crashed a process.
const SuspectAfter = 1

func (t *Type) compensates() bool { return t.Undo != nil || t.UndoAttempt != nil }

func (t *Type) maxAttempts(row *processlog.Row) int {
	if row.MaxAttempts > 0 {
		return row.MaxAttempts
	}
	return t.MaxAttempts
}

// Attempt runs a handler once without an engine, and returns what would become of the row. The handler must not need a
// transaction of the library.
func (t *Type) Attempt(ctx context.Context, row *processlog.Row) (o processlog.Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
		o = t.safeOutcomeOf(row, err, context.Cause(ctx))
	}()
	return o, t.call(ctx, row)
}

// call runs the handler or the compensation if it needs no transaction. It returns a copy of the error: see package
// usererr.
func (t *Type) call(ctx context.Context, row *processlog.Row) error {
	if row.State == processlog.Compensating {
		return usererr.Of(t.Undo(ctx, row))
	}
	return usererr.Of(t.Run(ctx, row))
}
