// Package failpoint marks the steps of an entry's life, and of a message's or an old row's way into the log, at which a process can die.
//
// In an ordinary build Reach is an empty function, and the compiler leaves nothing of it. Built with the tag
// failpoints, a process ends itself with SIGKILL at the step named in the environment:
//
//	COMPENSATOR_FAILPOINT=claim-committed    the first time it gets there
//	COMPENSATOR_FAILPOINT=claim-committed:7  the seventh time
//
// Package crashmatrix kills processes at every one of them.
package failpoint

// Point is a step. Its name says what has happened; the next thing the process would do has not.
type Point string

// Recording.
const (
	EntryInserted  Point = "entry-inserted"  // in a transaction that is still open
	CommitNext     Point = "commit-next"     // all is written, COMMIT is not sent
	CommitDone     Point = "commit-done"     // COMMIT succeeded, nobody here has been told
	CommitReported Point = "commit-reported" // the entries are not on their way yet
)

// From commit to claim.
const (
	CommitFound    Point = "commit-found"    // a poll has found a commit that nobody reported; its entries are not on their way
	IDsResolved    Point = "ids-resolved"    // of a bulk insert
	EntryReadBack  Point = "entry-read-back" // a inserted with a lease one, not started
	FreshClaimed   Point = "fresh-claimed"   // by id, after its commit; those that have to wait are not enqueued
	EnqueueNext    Point = "enqueue-next"    // the queue is not told
	Enqueued       Point = "enqueued"        // the queue knows, no scanner does
	QueueClaimed   Point = "queue-claimed"   // leased in the queue, not in the database
	DueRead        Point = "due-read"        // due entries seen in the database, without the queue; not claimed
	ClaimLocked    Point = "claim-locked"    // rows locked and chosen, not written
	ClaimWritten   Point = "claim-written"   // not committed
	ClaimCommitted Point = "claim-committed" // leased in the database, its answer not used
	ClaimReleased  Point = "claim-released"  // a claim that ran nothing is undone, the queue not told
	OverdueClaimed Point = "overdue-claimed" // straight from the database, by the reconciler; not started
	CrashesCounted Point = "crashes-counted" // an entry lost too many leases; that is not stored
)

// Attempts.
const (
	AttemptStarted       Point = "attempt-started"        // the handler, or the compensation, has not run
	BatchStarted         Point = "batch-started"          // of several entries; the handler has not run
	BatchBroken          Point = "batch-broken"           // it came to no verdict; its entries have not run alone
	BatchEnded           Point = "batch-ended"            // an entry has found that all of the batch it comes after have; its handler has not run
	HandlerReturned      Point = "handler-returned"       // the outcome is not on its way
	OutcomeInTransaction Point = "outcome-in-transaction" // written behind a transactional handler, not committed
	HandlerCommitted     Point = "handler-committed"      // its effect and its outcome are durable, nobody here knows
	LeaseRenewed         Point = "lease-renewed"          // in the database; we do not count on it yet
)

// Taking turns.
const (
	OrderingJoined  Point = "ordering-joined"  // entries of serial types stand in line, in a transaction that is still open
	OrderingRead    Point = "ordering-read"    // who of the claimed is first is known; nothing is started or put back
	OrderingNoted   Point = "ordering-noted"   // claimed entries are noted as parked, and hold their leases still
	OrderingBlocked Point = "ordering-blocked" // they wait for their turns; nobody has looked since who is first
	OrderingLeft    Point = "ordering-left"    // the next of a line is made due, ended entries are out of it; nobody is told
	OrderingMoved   Point = "ordering-moved"   // the next are due, and the queue is not told

	OrderingFollowed Point = "ordering-followed" // the next of a key is claimed and not started; the outcome of the one in front may not be stored
)

// Settling.
const (
	OutcomesNext   Point = "outcomes-next"   // a batch of outcomes is not stored
	OutcomesPart   Point = "outcomes-part"   // one statement of the batch is stored, others may not be
	OutcomesStored Point = "outcomes-stored" // the queue is not told
	QueueSettled   Point = "queue-settled"   // the queue has been told
)

// Reconciling.
const (
	EpochRead       Point = "epoch-read"       // the queue's memory is known to be lost or kept; nothing was done about it
	LeadershipAsked Point = "leadership-asked" // this process may lead now, and has enqueued nothing
	HeadsRead       Point = "heads-read"       // nothing of the round is done
	PageScanned     Point = "page-scanned"     // entries to enqueue are read; the queue is not told
	RebuildBegun    Point = "rebuild-begun"    // types the queue has lost are this process's to enqueue; nothing is
	RebuildEnqueued Point = "rebuild-enqueued" // all of them is; the queue is not told that it is whole
)

// Taking messages in.
const (
	MessagesClaimed      Point = "messages-claimed"      // that were left pending: their delivery is counted, nothing else is known
	MessagesRead         Point = "messages-read"         // a batch is this consumer's; nothing is recorded
	MessagesWritten      Point = "messages-written"      // entries and business rows, in a transaction that is still open
	BatchHalved          Point = "batch-halved"          // of a batch that failed the first half is in the log, the second is not
	AsideSettled         Point = "aside-settled"         // a message that failed is in the log; the rest of its batch may not be
	MessagesSettled      Point = "messages-settled"      // the whole batch is in the log; the source is not told
	MessagesAcknowledged Point = "messages-acknowledged" // the source has been told
)

// Adopting rows of an old table.
const (
	RowsTaken   Point = "rows-taken"   // entries, and what Take makes of their rows, in a transaction that is still open
	RowsAdopted Point = "rows-adopted" // a page is committed, the next is not read
)

// People and services.
const (
	CaseOpened       Point = "case-opened"       // in the transaction that makes its entry dead, or in maintenance's; not committed
	CaseClosed       Point = "case-closed"       // behind a change and its record, not committed
	OperationWritten Point = "operation-written" // before what it speaks of; not committed
	AuditWritten     Point = "audit-written"     // a person's action and its record are not committed
	ChangeCommitted  Point = "change-committed"  // neither a running attempt nor the queue is told
	PurgePart        Point = "purge-part"        // one statement's rows are deleted
	MarksRead        Point = "marks-read"        // of periodic types, nothing is recorded of what is due
	MarkMoved        Point = "mark-moved"        // in a transaction that is still open, and has not its entries yet
	MigrationPart    Point = "migration-part"    // one statement has made its table
)

// Stopping.
const (
	StopBegun       Point = "stop-begun"       // Run takes no new entries
	LoopsEnded      Point = "loops-ended"      // nothing is claimed any more
	HandlersEnded   Point = "handlers-ended"   // their outcomes may not be stored
	OutcomesDrained Point = "outcomes-drained" // the queue may not be told
)
