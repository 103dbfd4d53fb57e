package observe

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Observer has callbacks for metrics and traces. Any field may be nil. The library calls them in the goroutine that
// does the work, so they must not block. It recovers from a panic in one and logs it. Later versions may add fields, so
// use field names in literals. For tracing, these callbacks and a middleware with a span around the handler are enough.
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
	// handler returns nil and its entry was completed meanwhile, for example in the handler's own transaction. EndedBy
	// tells these apart.
	Settled func(SettledEvent)

	// OutcomeDropped is called when an outcome did not fit the version of the entry any more, because another process, a
	// service or a person has moved the entry on. This is no fault. The effect may have happened twice, unless the
	// handler is transactional. If the attempt succeeded but the entry says otherwise, for example because it was
	// cancelled, a warning is logged, too.
	OutcomeDropped func(SettledEvent)

	// Stuck is called once for a handler that still runs after its timeout, and for a transactional handler whose COMMIT
	// does. When the lease ends, another process attempts the entry. If no other process takes it, the entry is
	// dead-lettered after three leases.
	Stuck func(AttemptEvent)

	// QueueDown and QueueUp are called when the queue stops answering and when it answers again. In between the library
	// polls the database.
	QueueDown func(err error)
	QueueUp   func()

	// BreakerOpened is called when the breaker of a type opens in this process. It is called again after each try that
	// leaves it open, with the time of the next one. BreakerClosed is called when a try has closed it. Its argument
	// describes how it was open.
	BreakerOpened func(OpenBreaker)
	BreakerClosed func(OpenBreaker)

	// EntryMissing is called when an entry was recorded, its transaction was reported as committed, and the row does not
	// exist. Without a Connector this is how a rollback by the server shows whose error the caller ignored. An entry
	// with a delay, or of a type without a handler here, is looked for in the next round of the reconciler. In a process
	// that only records, such rounds are rare, and only the newest 32 entries are looked for.
	EntryMissing func(MissingEvent)

	// HistoryLost is called once when the database has gone back in time. This process then records and starts nothing
	// any more: see processlog.ErrHistoryLost.
	HistoryLost func(*processlog.LossError)

	// Reconciled is called after each round of the reconciler, and after types were rebuilt alone. Its argument says
	// what the queue did not know.
	Reconciled func(ReconciledEvent)
}

// RecordedEvent describes a new entry in a transaction that is still open.
type RecordedEvent struct {
	Context        context.Context // context of Record
	ID             processlog.ID   // zero after a Record of several entries on MySQL
	IdempotencyKey processlog.IdempotencyKey
	BusinessType   string
	BusinessID     string
}

// AttemptEvent describes one attempt.
type AttemptEvent struct {
	Context        context.Context // context of the handler, with the values that travelled with the entry. For a batch it is shared. In AttemptEnded it has ended
	ID             processlog.ID
	IdempotencyKey processlog.IdempotencyKey
	BusinessType   string
	BusinessID     string
	Attempt        int
	Compensation   bool
	Late           time.Duration // start minus due time, by the database's clock at the claim
	Duration       time.Duration // time since the start
	Err            error         // set in AttemptEnded. VerdictOf says what it asks for
}

// SettledEvent describes a stored outcome.
type SettledEvent struct {
	Context        context.Context // context of the attempt. It has ended, but its values remain
	ID             processlog.ID
	IdempotencyKey processlog.IdempotencyKey
	BusinessType   string
	BusinessID     string
	State          processlog.State
	EndedBy        processlog.EndedBy
	Attempt        int
}

// MissingEvent describes an entry whose row does not exist.
type MissingEvent struct {
	ID             processlog.ID // zero after a Record of several entries on MySQL
	BusinessType   string
	IdempotencyKey processlog.IdempotencyKey
	LikelyCause    string
}

// ReconciledEvent describes a round of the reconciler.
type ReconciledEvent struct {
	Enqueued     int      // number of entries that were enqueued. The queue may have known some
	Polled       int      // number of entries that were claimed straight from the database
	Rebuilt      bool     // the queue had lost everything, so all entries within the horizon were enqueued again
	RebuiltTypes []string // the queue had lost entries of these types only, and they were enqueued again. The first time of each type counts, too
	UnknownTypes []string // types with overdue entries and without a handler in this process
}
