package engine

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// Type is a business type that runs here, its settings as the root has filled them in.
type Type struct {
	Name               string
	MaxProcessCount    int
	MaxCompensateCount int
	Timeout            time.Duration
	Lease              time.Duration
	Concurrency        int           // calls of the handler at once, of however many entries each
	BatchSize          int           // entries a call is given at most; only RunBatch has more than one
	BatchWait          time.Duration // how long an entry that is due may wait for others to share its call
	MaxWait            time.Duration // how old an entry is from whose handler's waits count as failures; 0: they never do
	CompensateCrashed  bool
	Retry              func(failures int) time.Duration

	// Exactly one of these three is set. A batch is answered as the root's BatchFunc says.
	Run      func(ctx context.Context, row *processlog.Row) error
	RunTx    func(ctx context.Context, tx Transaction, row *processlog.Row) error
	RunBatch func(ctx context.Context, rows []*processlog.Row) []error

	// Ready, if it is set, is asked before Run and RunTx are called, and before a transaction is begun. An error is the attempt's.
	Ready func(ctx context.Context, row *processlog.Row) error

	// At most one of these two is set.
	Undo   func(ctx context.Context, row *processlog.Row) error
	UndoTx func(ctx context.Context, tx Transaction, row *processlog.Row) error

	slots      Slots
	admissions []Admission
}

// Seats returns how many entries one call of the handler has room for.
func (t *Type) Seats() int {
	if t.RunBatch == nil {
		return 1
	}
	return max(1, t.BatchSize)
}

const (
	// SuspectAfter is how many leases in a row an entry loses before it may have killed a process.
	SuspectAfter = 1

	// AloneAfter is how many before it runs alone.
	AloneAfter = 2
)

// company is whom an entry shares its call with.
type company int

const (
	alone        company = iota
	withOthers           // that have lost no lease
	withSuspects         // that have lost one
	companies
)

// company is whom an entry that has lost so many leases shares its call with. A compensation is one entry's. An entry that may
// have killed a process is kept apart from those that have not.
func (t *Type) company(state processlog.State, lost int) company {
	switch {
	case t.RunBatch == nil, state == processlog.Compensating, lost >= AloneAfter:
		return alone
	case lost >= SuspectAfter:
		return withSuspects
	}
	return withOthers
}

// callsFor is how many calls n entries need that share them.
func (t *Type) callsFor(n int) int { return (n + t.Seats() - 1) / t.Seats() }

// fits is how many entries one statement may bring for so many calls. While the type is limited an entry takes a whole call.
func (t *Type) fits(calls int) int {
	calls = min(calls, processlog.MaxRows)
	if t.limited() {
		return calls
	}
	return min(calls*t.Seats(), processlog.MaxRows)
}

// calls is how many calls claimed rows need.
func (t *Type) calls(rows []processlog.Row) int {
	return t.callsOf(len(rows), func(i int) *processlog.Row { return &rows[i] })
}

func (t *Type) callsOf(n int, row func(i int) *processlog.Row) int {
	var entries [companies]int
	for i := range n {
		entries[t.company(row(i).State, LostLeases(row(i)))]++
	}
	return entries[alone] + t.callsFor(entries[withOthers]) + t.callsFor(entries[withSuspects])
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

// call runs the handler, or the compensation, that needs no transaction. Its error is a copy: see package usererr.
func (t *Type) call(ctx context.Context, row *processlog.Row) error {
	switch {
	case row.State == processlog.Compensating:
		return usererr.Of(t.Undo(ctx, row))
	case t.RunBatch != nil:
		return only(t.callBatch(ctx, []*processlog.Row{row}))
	}
	return usererr.Of(t.Run(ctx, row))
}

// callBatch runs the batch handler. Its errors are copies: see package usererr.
func (t *Type) callBatch(ctx context.Context, rows []*processlog.Row) []error {
	verdicts := t.RunBatch(ctx, rows)
	if verdicts == nil {
		return nil
	}
	copies := make([]error, len(verdicts)) // the handler may keep its slice
	for i, err := range verdicts {
		copies[i] = usererr.Of(err)
	}
	return copies
}
