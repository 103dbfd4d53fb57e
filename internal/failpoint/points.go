// Package failpoint marks the steps at which a process can die: in the life of an entry, and while messages or old rows
// are recorded.
//
// In an ordinary build Reach is an empty function that the compiler removes. With the build tag failpoints, a process
// ends itself with SIGKILL at the step named in the environment:
//
//	COMPENSATOR_FAILPOINT=claim-committed    the first time it reaches the step
//	COMPENSATOR_FAILPOINT=claim-committed:7  the seventh time
//
// Package crashmatrix kills processes at every step.
package failpoint

// Point is a step. Its name says what the process did last before it dies.
type Point string

// These are the points of recording.
const (
	EntryInserted  Point = "entry-inserted"  // in a transaction that is still open
	CommitNext     Point = "commit-next"     // everything is written, COMMIT is not sent
	CommitDone     Point = "commit-done"     // COMMIT succeeded, but no code of this process has been notified
	CommitReported Point = "commit-reported" // the entries are known to be committed, but not yet claimed or enqueued
)

// These are the points between commit and claim.
const (
	CommitFound    Point = "commit-found"    // polling has found a commit that was not reported, but its entries are not yet claimed or enqueued
	IDsResolved    Point = "ids-resolved"    // the ids of a bulk insert are known
	EntryReadBack  Point = "entry-read-back" // an entry inserted with a lease has been read back, but has not started
	FreshClaimed   Point = "fresh-claimed"   // entries are claimed by id after their commit, but entries that must wait are not enqueued
	EnqueueNext    Point = "enqueue-next"    // the queue does not have the entries yet
	Enqueued       Point = "enqueued"        // the queue has the entries, but no scanner has been notified
	QueueClaimed   Point = "queue-claimed"   // entries are leased in the queue, but not in the database
	DueRead        Point = "due-read"        // due entries were read from the database without the queue, but they are not claimed
	LimitLocked    Point = "limit-locked"    // the rows of a limit are locked, but no entry is chosen
	ClaimLocked    Point = "claim-locked"    // rows are locked and chosen, but the leases are not written
	ClaimWritten   Point = "claim-written"   // the leases are written, but not committed
	PermitsWritten Point = "permits-written" // the permits of the claimed entries are written, but not committed
	ClaimCommitted Point = "claim-committed" // entries are leased in the database, but the result is not used yet
	ClaimReleased  Point = "claim-released"  // a claim that ran nothing is undone, but the queue is not updated
	OverdueClaimed Point = "overdue-claimed" // the reconciler claimed entries directly from the database, but they are not started
	CrashesCounted Point = "crashes-counted" // an entry lost too many leases, but that is not stored
)

// These are the points of attempts.
const (
	AttemptStarted       Point = "attempt-started"        // an attempt has started, but neither the handler nor the compensation has run
	BatchStarted         Point = "batch-started"          // a batch of several entries is ready, but the handler has not run
	BatchBroken          Point = "batch-broken"           // the handler of a batch returned no verdict, but its entries have not run one by one
	BatchEnded           Point = "batch-ended"            // all entries of the batch before this entry have ended, but the handler of this entry has not run
	HandlerReturned      Point = "handler-returned"       // the handler has returned, but its outcome is not queued for storing
	CallReturned         Point = "call-returned"          // a handler has worked outside the database, and its transaction has not begun
	ThenReturned         Point = "then-returned"          // a handler has written in the transaction that begins after its call, but its outcome is not written
	OutcomeInTransaction Point = "outcome-in-transaction" // the outcome is written after a transactional handler, not committed
	HandlerCommitted     Point = "handler-committed"      // the effect and the outcome are committed, but this process does not know it yet
	LeaseRenewed         Point = "lease-renewed"          // a lease is renewed in the database, but this process does not rely on it yet
)

// These are the points of ordering keys.
const (
	OrderingJoined  Point = "ordering-joined"  // entries of serial types have positions, in a transaction that is still open
	OrderingRead    Point = "ordering-read"    // the first entries of the claimed keys are known, but nothing is started or put back
	OrderingNoted   Point = "ordering-noted"   // claimed entries are noted as blocked, and still hold their leases
	OrderingBlocked Point = "ordering-blocked" // blocked entries are put back, but this process has not checked whether they have become first since then
	OrderingLeft    Point = "ordering-left"    // the next entries of the keys are due and ended entries are removed, but no process is notified
	OrderingMoved   Point = "ordering-moved"   // the next entries are due, the queue is not updated

	OrderingFollowed Point = "ordering-followed" // the next entry of a key is claimed and not started, and the outcome of the entry before it may not be stored
)

// These are the points of settling.
const (
	OutcomesNext   Point = "outcomes-next"   // a batch of outcomes is not stored
	OutcomesPart   Point = "outcomes-part"   // one statement of the batch is stored, others may not be
	OutcomesStored Point = "outcomes-stored" // the outcomes are stored, but the queue is not updated
	QueueSettled   Point = "queue-settled"   // the queue is updated
)

// These are the points of reconciling.
const (
	OwnerChecked    Point = "owner-checked"    // the queue belongs to this database, and this process has not asked to lead
	LeadershipAsked Point = "leadership-asked" // this process may be the leader, and has enqueued nothing
	HeadsRead       Point = "heads-read"       // the reconciler has read the oldest entry of each type, but has enqueued nothing
	PageScanned     Point = "page-scanned"     // the entries to enqueue are read, the queue is not updated
	RebuildBegun    Point = "rebuild-begun"    // this process must enqueue the types that the queue has lost, but has enqueued none of them
	RebuildEnqueued Point = "rebuild-enqueued" // all entries are enqueued, but the types are not marked as whole
)

// These are the points of intake.
const (
	MessagesClaimed      Point = "messages-claimed"      // pending messages are claimed and their delivery is counted, but nothing else has happened
	MessagesRead         Point = "messages-read"         // a batch is delivered to this consumer, but nothing is recorded
	MessagesWritten      Point = "messages-written"      // entries and business rows are written, in a transaction that is still open
	BatchHalved          Point = "batch-halved"          // the first half of a failed batch is in the log, the second is not
	AsideSettled         Point = "aside-settled"         // a failed message is in the log, but the rest of its batch may not be
	MessagesSettled      Point = "messages-settled"      // the whole batch is in the log, but nothing is acknowledged
	MessagesAcknowledged Point = "messages-acknowledged" // the batch is acknowledged
)

// These are the points of adopting rows of an old table.
const (
	RowsTaken   Point = "rows-taken"   // entries and the writes of Take are in a transaction that is still open
	RowsAdopted Point = "rows-adopted" // a page is committed, the next is not read
)

// These are the points of operations and maintenance.
const (
	CaseOpened       Point = "case-opened"       // a case is opened, but not committed; the transaction makes the entry dead, or belongs to maintenance
	CaseClosed       Point = "case-closed"       // a change, its audit record and the closed case are written, but not committed
	LimitChanged     Point = "limit-changed"     // a person's change of a limit and its operation are written, but not committed
	OperationWritten Point = "operation-written" // an operation is written, but not committed; the change that it describes is not written yet
	AuditWritten     Point = "audit-written"     // a person's action and its audit record are written, not committed
	BatchRecorded    Point = "batch-recorded"    // the record of an action on several entries is written, not committed
	ChangeCommitted  Point = "change-committed"  // a change is committed, but neither a running attempt nor the queue is notified
	ResultInTx       Point = "result-in-tx"      // the outcome and its Result are written in the handler's transaction, which is still open
	ResultsWritten   Point = "results-written"   // the Results of outcomes are written in the transaction that stores the outcomes, but not committed
	FaultsWritten    Point = "faults-written"    // the Faults of outcomes are written in the transaction that stores the outcomes, but not committed
	AttemptsWritten  Point = "attempts-written"  // the failed attempts of outcomes are written in the transaction that stores the outcomes, but not committed
	StatsAdded       Point = "stats-added"       // folded counts are added to other rows, in a transaction that is still open; the folded rows are not deleted yet
	BacklogCounted   Point = "backlog-counted"   // the backlog of all types is counted, but not stored
	InstanceEnds     Point = "instance-ends"     // all outcomes are stored, but this process has not stored that it ends
	PurgePart        Point = "purge-part"        // one statement of a purge has deleted its rows; others may not have run
	MarksRead        Point = "marks-read"        // the last slots of periodic types are read, but no due slot is recorded
	MarkMoved        Point = "mark-moved"        // the last slot has moved, and the transaction with its entries is still open
	SlotTaken        Point = "slot-taken"        // this process has taken a slot of maintenance, and its round has not begun
	MigrationPart    Point = "migration-part"    // one statement of a migration has created its table; others may not have run
)

// These are the points of stopping.
const (
	StopBegun       Point = "stop-begun"       // Run takes no new entries
	LoopsEnded      Point = "loops-ended"      // nothing is claimed any more
	HandlersEnded   Point = "handlers-ended"   // all handlers have ended, but their outcomes may not be stored
	OutcomesDrained Point = "outcomes-drained" // all outcomes are stored, but the queue may not be updated
)
