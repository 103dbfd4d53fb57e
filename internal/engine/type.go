package engine

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Type is a business type that runs here. Everything but the functions is required.
type Type struct {
	Name               string
	MaxProcessCount    int
	MaxCompensateCount int
	Timeout            time.Duration
	Lease              time.Duration
	Concurrency        int
	BatchSize          int
	CompensateCrashed  bool
	Breaker            Breaker // the zero value: none
	Retry              func(failures int) time.Duration

	// Exactly one of these three is set. A batch is answered as the root's BatchFunc says.
	Run      func(ctx context.Context, row *processlog.Row) error
	RunTx    func(ctx context.Context, tx Transaction, row *processlog.Row) error
	RunBatch func(ctx context.Context, rows []*processlog.Row) []error

	// At most one of these two is set.
	Undo   func(ctx context.Context, row *processlog.Row) error
	UndoTx func(ctx context.Context, tx Transaction, row *processlog.Row) error

	slots   *slots
	breaker *breaker
}

func (t *Type) compensates() bool { return t.Undo != nil || t.UndoTx != nil }

func (t *Type) maxProcessCount(row *processlog.Row) int {
	if row.MaxProcessCount > 0 {
		return row.MaxProcessCount
	}
	return t.MaxProcessCount
}

// Attempt runs a handler that needs no transaction of ours once, outside of any engine, and returns what would become of
// the row.
func (t *Type) Attempt(ctx context.Context, row *processlog.Row) (o processlog.Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
		o = t.safeOutcomeOf(row, err, context.Cause(ctx))
	}()
	return o, t.call(ctx, row)
}

// call runs the handler, or the compensation, that needs no transaction.
func (t *Type) call(ctx context.Context, row *processlog.Row) error {
	switch {
	case row.State == processlog.Compensating:
		return t.Undo(ctx, row)
	case t.RunBatch != nil:
		return only(t.RunBatch(ctx, []*processlog.Row{row}))
	}
	return t.Run(ctx, row)
}
