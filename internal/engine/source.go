package engine

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Source tells the engine of due entries before the reconciler finds them in the database. It is a hint: whether an entry is
// due, free and there at all only the database says (G10). Many goroutines call the methods at once.
type Source interface {
	// Reach says whose entries the source tells of now.
	Reach() Reach

	// Wants reports whether the source keeps an entry that comes due after that time.
	Wants(businessType string, in time.Duration) bool

	// Enqueue hands over entries that come due. Move hands over an entry whose due time somebody has changed. Settle tells what
	// became of an entry that Claim has returned. The three return at once. The reconciler finds what they could not hand over.
	Enqueue(entries []processlog.QueueEntry)
	Move(entry processlog.QueueEntry)
	Settle(businessType string, o processlog.QueueOutcome)

	// Claim returns up to n entries that are due, and offers them to no other process for a lease. ok is false if the source
	// does not answer.
	Claim(t *Type, n int) (offer processlog.Leased, ok bool)

	// LookSoon makes the source find out soon when the next entry of each type is due.
	LookSoon()

	// Round is called when a round of the reconciler begins. The returned function is called with what the round has read, after
	// it has claimed entries that are overdue.
	Round(ctx context.Context) func(ctx context.Context, heads Heads, event *observe.ReconciledEvent)
}

// Reach says whose entries a source tells of.
type Reach int

const (
	ReachNone Reach = iota // it tells of none: there is no source, or it does not answer
	ReachOwn               // of those that this process has told it
	ReachAll               // of those of all processes
)

// Heads is the earliest entry of each type and state, as a round of the reconciler has read them.
type Heads struct {
	List []processlog.Head
	Read time.Time // before they were read
}

// SetSource gives the engine a source. Call it before anything is registered.
func (e *Engine) SetSource(s Source) { e.source.Source = s }

// source is the engine's Source, or the database alone.
type source struct{ Source }

// up reports whether the source tells of entries. While none does, the reconciler is the clock.
func (s *source) up() bool { return s.Reach() != ReachNone }

// databaseAlone is the Source of an engine that has the database alone.
type databaseAlone struct {
	types         *types
	claimSchedule *claimSchedule
}

func (databaseAlone) Reach() Reach { return ReachNone }
func (a databaseAlone) Wants(businessType string, _ time.Duration) bool {
	return a.types.accepting(businessType) != nil
}
func (databaseAlone) Settle(string, processlog.QueueOutcome)     {}
func (databaseAlone) Claim(*Type, int) (processlog.Leased, bool) { return processlog.Leased{}, false }
func (databaseAlone) LookSoon()                                  {}

func (a databaseAlone) Enqueue(entries []processlog.QueueEntry) {
	for _, e := range entries {
		a.Move(e)
	}
}

// Move has the scanner claim the entry's type when the entry is due, if the type runs here.
func (a databaseAlone) Move(e processlog.QueueEntry) { a.claimSchedule.expect(e.BusinessType, e.In) }

func (databaseAlone) Round(context.Context) func(context.Context, Heads, *observe.ReconciledEvent) {
	return func(context.Context, Heads, *observe.ReconciledEvent) {}
}
