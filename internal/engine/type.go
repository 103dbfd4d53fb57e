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
	Concurrency           int           // maximum number of handler calls at once; a batch is one call
	BatchSize             int           // maximum number of entries in one call; only RunBatch takes more than one
	BatchWait             time.Duration // how long a due entry may wait for others to share its call
	MaxWait               time.Duration // age of an entry from which its handler's waits count as failures; 0: they never count
	CompensateCrashed     bool
	Retry                 func(failures int) time.Duration

	// Exactly one of these three is set. The result of RunBatch has the meaning that BatchFunc of the root package
	// documents.
	Run      func(ctx context.Context, row *processlog.Row) error
	RunTx    func(ctx context.Context, tx Transaction, row *processlog.Row) error
	RunBatch func(ctx context.Context, rows []*processlog.Row) []error

	// Ready, if set, is called before Run, and before the transaction of RunTx begins. If it returns an error, the
	// attempt ends with that error and no handler is called.
	Ready func(ctx context.Context, row *processlog.Row) error

	// At most one of these two is set.
	Undo   func(ctx context.Context, row *processlog.Row) error
	UndoTx func(ctx context.Context, tx Transaction, row *processlog.Row) error

	slots      Slots
	admissions []Admission
}

// Seats returns how many entries one call of the handler takes at most.
func (t *Type) Seats() int {
	if t.RunBatch == nil {
		return 1
	}
	return max(1, t.BatchSize)
}

const (
	// SuspectAfter is how many leases in a row an entry must lose to be a suspect: it may have crashed a process.
	SuspectAfter = 1

	// AloneAfter is how many leases in a row an entry must lose to run alone.
	AloneAfter = 2
)

// company says which other entries share an entry's handler call.
type company int

const (
	alone        company = iota
	withOthers           // entries that have lost no lease
	withSuspects         // entries that have lost fewer than AloneAfter leases, and at least SuspectAfter
	companies
)

// company returns which entries may share a call with an entry that has lost this many leases. A compensation always
// runs alone. Suspects do not share a call with entries that have lost no lease.
func (t *Type) company(state processlog.State, lost int) company {
	switch {
	case t.RunBatch == nil, state == processlog.Compensating, lost >= AloneAfter:
		return alone
	case lost >= SuspectAfter:
		return withSuspects
	}
	return withOthers
}

// callsFor returns how many calls n entries need if they share calls.
func (t *Type) callsFor(n int) int { return (n + t.Seats() - 1) / t.Seats() }

// fits returns how many entries one claim statement may lease for a number of calls. While an admission limits the
// type, each entry counts as a whole call.
func (t *Type) fits(calls int) int {
	calls = min(calls, processlog.MaxRows)
	if t.limited() {
		return calls
	}
	return min(calls*t.Seats(), processlog.MaxRows)
}

// calls returns how many calls the claimed rows need.
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
	switch {
	case row.State == processlog.Compensating:
		return usererr.Of(t.Undo(ctx, row))
	case t.RunBatch != nil:
		return only(t.callBatch(ctx, []*processlog.Row{row}))
	}
	return usererr.Of(t.Run(ctx, row))
}

// callBatch runs the batch handler. It returns copies of the errors: see package usererr.
func (t *Type) callBatch(ctx context.Context, rows []*processlog.Row) []error {
	verdicts := t.RunBatch(ctx, rows)
	if verdicts == nil {
		return nil
	}
	copies := make([]error, len(verdicts)) // Copy the slice, because the handler may keep it.
	for i, err := range verdicts {
		copies[i] = usererr.Of(err)
	}
	return copies
}
