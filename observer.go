package compensator

import (
	"time"

	"github.com/compensator-go/compensator/internal/engine"
)

// Observer is told what happens, for metrics and traces. Any field may be nil. The functions are called
// from the goroutine at work and must not block; a panic in one is recovered and logged. New fields may be
// added: use names in literals.
type Observer struct {
	// AttemptStarted comes before a handler or compensation runs; not for entries taken out unrun.
	AttemptStarted func(AttemptEvent)

	// AttemptEnded comes when a handler or compensation has returned, before its outcome is stored.
	AttemptEnded func(AttemptEvent)

	// Settled comes when an outcome is durable, with the state the entry is in now.
	Settled func(SettledEvent)

	// OutcomeDropped comes when an outcome lost its fence: somebody else moved the entry on. Nothing is
	// wrong; its effect may have happened twice unless the handler is transactional. A success whose entry says
	// otherwise, because it was cancelled or taken out meanwhile, is in the log as a warning, too.
	OutcomeDropped func(SettledEvent)

	// Stuck comes once for a handler that runs on after its timeout, or, if it is transactional, for one whose COMMIT
	// does. Its entry will be attempted again elsewhere once the lease ends; where nobody else takes it, it is taken
	// out after three leases.
	Stuck func(AttemptEvent)

	// QueueDown and QueueUp come when the queue stops and starts answering. Meanwhile the database is polled.
	QueueDown func(err error)
	QueueUp   func()

	// EntryMissing comes when an entry was recorded, its transaction was said to have committed, and the row is not
	// there when it is looked for. Where nobody watches the transaction that is how a rollback by the server shows
	// whose error was swallowed. An entry with a delay, or of a type that does not run here, is looked for by the
	// next round of the reconciler, in a process that only records now and then, and of many the newest 32 are.
	EntryMissing func(MissingEvent)

	// HistoryLost comes once when the database has gone back, and nothing is started and recorded here any more; see
	// ErrHistoryLost.
	HistoryLost func(*LossError)

	// Reconciled comes after each round, and when types were rebuilt by themselves, with what the queue did not know
	// or could not say.
	Reconciled func(ReconciledEvent)
}

// AttemptEvent describes one attempt.
type AttemptEvent struct {
	ID           EntryID
	BusinessType string
	Attempt      int
	Compensation bool
	Late         time.Duration // start − due, by the database's clock as of the claim
	Duration     time.Duration // so far
	Err          error         // of an ended attempt
}

// SettledEvent describes a stored outcome.
type SettledEvent struct {
	ID           EntryID
	BusinessType string
	State        State
	EndedBy      EndedBy
	Attempt      int
}

// MissingEvent describes an entry that is not there.
type MissingEvent struct {
	ID           EntryID // zero after a bulk Record on MySQL
	BusinessType string
	IdempotentID string
	LikelyCause  string
}

// ReconciledEvent sums up a round of the reconciler.
type ReconciledEvent struct {
	Announced    int      // told to the queue, which may have known them
	Polled       int      // claimed straight from the database
	Rebuilt      bool     // the queue had lost its memory: everything within the horizon was announced
	RebuiltTypes []string // the queue had lost entries of these types alone: the same, of them; each type's first time counts
	UnknownTypes []string // types with overdue entries that this process has no handler for
}

// forEngine makes the engine's of it.
func (o Observer) forEngine() engine.Observer {
	told := engine.Observer{QueueDown: o.QueueDown, QueueUp: o.QueueUp, HistoryLost: o.HistoryLost}
	if o.AttemptStarted != nil {
		told.AttemptStarted = func(e engine.AttemptEvent) { o.AttemptStarted(AttemptEvent(e)) }
	}
	if o.AttemptEnded != nil {
		told.AttemptEnded = func(e engine.AttemptEvent) { o.AttemptEnded(AttemptEvent(e)) }
	}
	if o.Settled != nil {
		told.Settled = func(e engine.SettledEvent) { o.Settled(SettledEvent(e)) }
	}
	if o.OutcomeDropped != nil {
		told.OutcomeDropped = func(e engine.SettledEvent) { o.OutcomeDropped(SettledEvent(e)) }
	}
	if o.Stuck != nil {
		told.Stuck = func(e engine.AttemptEvent) { o.Stuck(AttemptEvent(e)) }
	}
	if o.EntryMissing != nil {
		told.EntryMissing = func(e engine.MissingEvent) { o.EntryMissing(MissingEvent(e)) }
	}
	if o.Reconciled != nil {
		told.Reconciled = func(e engine.ReconciledEvent) { o.Reconciled(ReconciledEvent(e)) }
	}
	return told
}
