package observe

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Observer is told what happens, for metrics and traces. Any field may be nil. The functions are called
// from the goroutine at work and must not block; a panic in one is recovered and logged. New fields may be
// added: use names in literals. A middleware that makes a span around a handler, and these for what happens beside it,
// is all that tracing needs.
type Observer struct {
	// Recorded comes for each new entry once Record has written it, not for a Duplicate, and before its transaction ends: it
	// may still be rolled back. It runs in the caller's goroutine, inside his transaction.
	Recorded func(RecordedEvent)

	// AttemptStarted comes before a handler or compensation runs; not for entries taken out unrun.
	AttemptStarted func(AttemptEvent)

	// AttemptEnded comes when a handler or compensation has returned, before its outcome is stored.
	AttemptEnded func(AttemptEvent)

	// Settled comes when an outcome is durable, with the state the entry is in now. It also comes when a handler returns nil and its
	// entry was completed meanwhile, in the handler's own transaction for example. EndedBy says so.
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

	// BreakerOpened comes when a type's breaker opens in this process, and again after each probe that leaves it open, with
	// the next one's moment. BreakerClosed comes when a probe has closed it, with how it was open.
	BreakerOpened func(OpenBreaker)
	BreakerClosed func(OpenBreaker)

	// EntryMissing comes when an entry was recorded, its transaction was said to have committed, and the row is not
	// there when it is looked for. Where nobody watches the transaction that is how a rollback by the server shows
	// whose error was swallowed. An entry with a delay, or of a type that does not run here, is looked for by the
	// next round of the reconciler, in a process that only records now and then, and of many the newest 32 are.
	EntryMissing func(MissingEvent)

	// HistoryLost comes once when the database has gone back, and nothing is started and recorded here any more; see
	// processlog.ErrHistoryLost.
	HistoryLost func(*processlog.LossError)

	// Reconciled comes after each round, and when types were rebuilt by themselves, with what the queue did not know
	// or could not say.
	Reconciled func(ReconciledEvent)
}

// RecordedEvent describes a new entry in a transaction that is still open.
type RecordedEvent struct {
	Context      context.Context // Record's
	ID           processlog.ID   // zero after a bulk Record on MySQL
	IdempotentID processlog.IdempotentID
	BusinessType string
	BusinessID   string
}

// AttemptEvent describes one attempt.
type AttemptEvent struct {
	Context      context.Context // the handler's, with what travelled with the entry; a batch's for all of it. At the end it is over
	ID           processlog.ID
	IdempotentID processlog.IdempotentID
	BusinessType string
	BusinessID   string
	Attempt      int
	Compensation bool
	Late         time.Duration // start − due, by the database's clock as of the claim
	Duration     time.Duration // so far
	Err          error         // of an ended attempt; VerdictOf says what it asks for
}

// SettledEvent describes a stored outcome.
type SettledEvent struct {
	Context      context.Context // the attempt's, which is over; its values remain
	ID           processlog.ID
	IdempotentID processlog.IdempotentID
	BusinessType string
	BusinessID   string
	State        processlog.State
	EndedBy      processlog.EndedBy
	Attempt      int
}

// MissingEvent describes an entry that is not there.
type MissingEvent struct {
	ID           processlog.ID // zero after a bulk Record on MySQL
	BusinessType string
	IdempotentID processlog.IdempotentID
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
