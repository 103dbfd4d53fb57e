package observe

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Observer has callbacks for metrics and traces. Any field may be nil. Callbacks are called concurrently. The work
// waits for a callback, so a callback must not block. If a callback panics or ends its goroutine, the library logs this,
// and the work goes on. Later versions may add fields, so use field names in literals. For tracing you need
// these callbacks and a middleware that creates a span around the handler.
type Observer struct {
	// Recorded is called for each new entry after Record has written it. It is not called for a Duplicate. It runs in
	// the caller's goroutine and before the transaction ends, so the entry may still be rolled back.
	Recorded func(RecordedEvent)

	// AttemptStarted is called before a handler or compensation runs. It is not called for an entry that is
	// dead-lettered after repeated crashes.
	AttemptStarted func(AttemptEvent)

	// AttemptEnded is called when a handler or compensation has returned, before its outcome is stored.
	AttemptEnded func(AttemptEvent)

	// Settled is called when an outcome is durable, with the present state of the entry. It is also called when a
	// handler returns nil and its entry was completed meanwhile, for example in the handler's own transaction.
	// SettledEvent.EndedBy says whether the handler or the Complete ended the entry.
	Settled func(SettledEvent)

	// OutcomeDropped is called when an outcome no longer fits the version of the entry, because another process, a service
	// or a person has changed the entry. A dropped outcome is no error. The effect of the attempt may have happened twice,
	// except the effect of a transactional handler. If the attempt succeeded but the entry has another result, for
	// example because it was cancelled, the library also logs a warning. SettledEvent.EndedBy says what has ended the
	// entry. EndedBy is empty after the attempt of a transactional handler.
	OutcomeDropped func(SettledEvent)

	// Stuck is called once for a handler that still runs after its timeout. Stuck is also called for a transactional
	// handler whose COMMIT still runs after the timeout. When the lease ends, another process may claim the entry and
	// attempt it. If no other process does so, the library dead-letters the entry after three leases.
	Stuck func(AttemptEvent)

	// QueueDown is called when the queue stops answering. Until QueueUp is called the library polls the database.
	QueueDown func(err error)
	QueueUp   func() // called when the queue answers again

	// BreakerOpened is called when the breaker of a type opens in this process. BreakerOpened is called again, with the
	// time of the next attempt, after each attempt that leaves the breaker open.
	BreakerOpened func(OpenBreaker)

	// BreakerClosed is called when an attempt has closed the breaker. Its argument holds the last values of the open
	// breaker.
	BreakerClosed func(OpenBreaker)

	// EntryMissing is called when a recorded entry has no row although its transaction was reported as committed.
	// Usually the server rolled the transaction back and the caller ignored the error. Without a Connector, only this
	// callback reports such an entry.
	//
	// An entry with a delay, or of a type without a handler in this process, is checked in the next round of the
	// reconciler. A process that only records has few such rounds, and each round checks only the newest 32 entries.
	EntryMissing func(MissingEvent)

	// HistoryLost is called when this process notices that the database was rolled back to an earlier state. If this
	// process notices more lost entries before a person accepts the loss, HistoryLost is called again with all lost
	// entries. See processlog.ErrHistoryLost.
	HistoryLost func(*processlog.LossError)

	// Reconciled is called after each round of the reconciler. It is also called after types were rebuilt outside a
	// round. The event says how many entries were enqueued.
	Reconciled func(ReconciledEvent)
}

// RecordedEvent describes a new entry in a transaction that is still open.
type RecordedEvent struct {
	Context        context.Context           // context that Record got
	ID             processlog.ID             // zero if Record got several entries on MySQL
	IdempotencyKey processlog.IdempotencyKey // Entry.IdempotencyKey
	BusinessType   string                    // Entry.BusinessType
	BusinessID     string                    // Entry.BusinessID
}

// AttemptEvent describes one attempt.
type AttemptEvent struct {
	// Context is the context of the handler. It has the values that were recorded with the entry. The entries of a
	// batch share one context. In AttemptEnded the context has ended already.
	Context        context.Context
	ID             processlog.ID             // Entry.ID
	IdempotencyKey processlog.IdempotencyKey // Entry.IdempotencyKey
	BusinessType   string                    // Entry.BusinessType
	BusinessID     string                    // Entry.BusinessID
	Attempt        int                       // number of the attempt in its epoch, from 1. A compensation has its own numbers
	Compensation   bool                      // whether the compensation runs, not the handler
	Late           time.Duration             // start minus due time, by the database's clock at the claim
	Duration       time.Duration             // time since the start
	Err            error                     // error that the handler returned, set in AttemptEnded; VerdictOf returns its meaning
}

// SettledEvent describes a stored outcome.
type SettledEvent struct {
	Context        context.Context           // context of the attempt; it has ended, but its values can still be read
	ID             processlog.ID             // Entry.ID
	IdempotencyKey processlog.IdempotencyKey // Entry.IdempotencyKey
	BusinessType   string                    // Entry.BusinessType
	BusinessID     string                    // Entry.BusinessID
	State          processlog.State          // state of the entry after the outcome
	EndedBy        processlog.EndedBy        // cause of the terminal state; empty in other states
	Attempt        int                       // number of the attempt in its epoch, from 1
}

// MissingEvent describes an entry whose row does not exist.
type MissingEvent struct {
	ID             processlog.ID             // zero if Record got several entries on MySQL
	BusinessType   string                    // Entry.BusinessType
	IdempotencyKey processlog.IdempotencyKey // Entry.IdempotencyKey
	LikelyCause    string                    // text for people that names the usual cause. Do not parse it
}

// ReconciledEvent describes a round of the reconciler.
type ReconciledEvent struct {
	Enqueued     int      // number of enqueued entries; the queue may already have had some of them
	Polled       int      // number of entries that were claimed straight from the database, not through the queue
	Rebuilt      bool     // whether the queue had lost everything, so that all entries within the horizon were enqueued again
	RebuiltTypes []string // types of which the queue had lost entries; all their entries were enqueued again. A new type is listed too
	UnknownTypes []string // types with overdue entries and without a handler in this process
}
