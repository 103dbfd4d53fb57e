package engine

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Source reports due entries before the reconciler finds them in the database. Its reports are only hints. A claim asks
// the database whether the entry exists, is due and is free (G10). The methods are safe for concurrent use.
type Source interface {
	// Reach returns which processes' entries the source reports now.
	Reach() Reach

	// Wants reports whether the source accepts an entry that comes due after the duration in.
	Wants(businessType string, in time.Duration) bool

	// Enqueue adds entries that come due. Like Move and Settle it returns at once. If one of them fails, the reconciler
	// finds the entry later.
	Enqueue(entries []processlog.QueueEntry)

	// Move changes the due time of an entry. If the source does not have the entry, Move adds it.
	Move(entry processlog.QueueEntry)

	// Settle ends the source's lease of an entry that Claim has returned. It removes the entry or makes it due again.
	Settle(businessType string, o processlog.QueueOutcome)

	// Claim returns up to n entries that are due. It leases them: for the lease time of t the source offers them to no other
	// process. ok is false if the source does not answer.
	Claim(t *Type, n int) (offer processlog.Leased, ok bool)

	// Ask asks the queue whether it answers, and returns at once. The function answer waits for the result: nil, or an error
	// that says why the queue cannot be used. The queue may use its QueueShare of the time that ctx has left.
	Ask(ctx context.Context) (answer func() error)

	// LookSoon makes the source find out when the next entry of each type is due, and then call Engine.Expect or
	// Engine.Postpone. It returns at once.
	LookSoon()

	// Round is called when a round of the reconciler begins. The returned function is called at the end of the round, after
	// overdue entries were claimed. heads are the heads that the round has read.
	Round(ctx context.Context) func(ctx context.Context, heads Heads, event *observe.ReconciledEvent)
}

// Reach says which processes' entries a source reports.
type Reach int

const (
	ReachNone Reach = iota // no entries: there is no source, or it does not answer
	ReachOwn               // entries that this process has enqueued
	ReachAll               // entries that any process has enqueued
)

// Heads holds the earliest entry of each type and state, as a round of the reconciler has read them.
type Heads struct {
	List []processlog.Head
	Read time.Time // just before the statement was sent
}

// SetSource attaches a source to the engine. Call it before a type is registered.
func (e *Engine) SetSource(s Source) { e.source = s }

// fromSource reports whether the source reports entries. If not, claims read due entries from the database.
func (e *Engine) fromSource() bool { return e.source.Reach() != ReachNone }

// databaseAlone is the Source of an engine that has no queue. It keeps no entries and only schedules claims.
type databaseAlone struct {
	types         *types
	claimSchedule *claimSchedule
}

func (databaseAlone) Reach() Reach { return ReachNone }
func (a databaseAlone) Wants(businessType string, _ time.Duration) bool {
	return a.types.Accepting(businessType) != nil
}
func (databaseAlone) Settle(string, processlog.QueueOutcome)     {}
func (databaseAlone) Claim(*Type, int) (processlog.Leased, bool) { return processlog.Leased{}, false }
func (databaseAlone) Ask(context.Context) func() error           { return func() error { return nil } }
func (databaseAlone) LookSoon()                                  {}

func (a databaseAlone) Enqueue(entries []processlog.QueueEntry) {
	for _, e := range entries {
		a.Move(e)
	}
}

// Move schedules a claim of the entry's type for the time when the entry is due, if the type runs here.
func (a databaseAlone) Move(e processlog.QueueEntry) { a.claimSchedule.Expect(e.BusinessType, e.In) }

func (databaseAlone) Round(context.Context) func(context.Context, Heads, *observe.ReconciledEvent) {
	return func(context.Context, Heads, *observe.ReconciledEvent) {}
}
