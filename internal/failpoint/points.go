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

// Point names a step at which a process can die. The name says what the process did last before this step.
type Point string

const (
	EntryInserted  Point = "entry-inserted"  // in a transaction that is still open
	CommitNext     Point = "commit-next"     // everything is written, COMMIT is not sent
	CommitDone     Point = "commit-done"     // COMMIT succeeded, but no code of this process has been notified
	CommitReported Point = "commit-reported" // the entries are known to be committed, but not yet claimed or enqueued
)

const (
	CommitFound    Point = "commit-found" // polling has found a commit that was not reported
	IDsResolved    Point = "ids-resolved"
	EntryReadBack  Point = "entry-read-back" // an entry inserted with a lease has been read back, but has not started
	FreshClaimed   Point = "fresh-claimed"   // entries are claimed by id after their commit, but entries that must wait are not enqueued
	EnqueueNext    Point = "enqueue-next"    // the queue does not have the entries yet
	Enqueued       Point = "enqueued"        // no scanner has been notified
	QueueClaimed   Point = "queue-claimed"   // entries are not leased in the database
	DueRead        Point = "due-read"        // entries are not claimed
	LimitLocked    Point = "limit-locked"    // no entry is chosen
	ClaimLocked    Point = "claim-locked"    // rows are locked and chosen, but the leases are not written
	ClaimWritten   Point = "claim-written"
	PermitsWritten Point = "permits-written"
	ClaimCommitted Point = "claim-committed" // the result is not used yet
	ClaimReleased  Point = "claim-released"  // the queue is not updated
	OverdueClaimed Point = "overdue-claimed" // entries are not started
	CrashesCounted Point = "crashes-counted" // not stored yet
)

const (
	AttemptStarted       Point = "attempt-started"        // neither the handler nor the compensation has run
	BatchStarted         Point = "batch-started"          // the handler has not run
	BatchBroken          Point = "batch-broken"           // the shared call of a batch has failed, but its entries do not run one by one yet
	BatchEnded           Point = "batch-ended"            // an entry with AfterBatch has found its batch ended, but its handler is not called yet
	HandlerReturned      Point = "handler-returned"       // the outcome is not queued for storing
	CallReturned         Point = "call-returned"          // the transaction has not begun
	ThenReturned         Point = "then-returned"          // the outcome is not written
	OutcomeInTransaction Point = "outcome-in-transaction" // not committed
	HandlerCommitted     Point = "handler-committed"      // this process does not know it yet
	LeaseRenewed         Point = "lease-renewed"          // this process does not rely on it yet
)

const (
	OrderingJoined  Point = "ordering-joined"  // entries of serial types have positions, in a transaction that is still open
	OrderingRead    Point = "ordering-read"    // nothing is started or put back
	OrderingNoted   Point = "ordering-noted"   // claimed entries still hold their leases
	OrderingBlocked Point = "ordering-blocked" // blocked entries are put back, but this process has not checked whether they have become first since then
	OrderingLeft    Point = "ordering-left"    // the next entries of the keys are due and ended entries are removed, but no process is notified
	OrderingMoved   Point = "ordering-moved"   // the queue is not updated

	OrderingFollowed Point = "ordering-followed" // the next entry of a key is claimed and not started, and the outcome of the entry before it may not be stored
)

const (
	OutcomesNext   Point = "outcomes-next"   // a batch of outcomes is not stored
	OutcomesPart   Point = "outcomes-part"   // one statement has stored some outcomes of a batch, but the other outcomes are perhaps not stored yet
	OutcomesStored Point = "outcomes-stored" // the queue is not updated
	QueueSettled   Point = "queue-settled"
)

const (
	OwnerChecked    Point = "owner-checked"    // this process has not asked to lead
	LeadershipAsked Point = "leadership-asked" // nothing is enqueued
	HeadsRead       Point = "heads-read"       // nothing is enqueued
	PageScanned     Point = "page-scanned"     // the queue is not updated
	RebuildBegun    Point = "rebuild-begun"    // this process must enqueue the types that the queue has lost, but has enqueued none of them
	RebuildEnqueued Point = "rebuild-enqueued" // the types are not marked as whole
)

const (
	MessagesClaimed      Point = "messages-claimed" // pending messages are claimed and their delivery is counted, but nothing else has happened
	MessagesRead         Point = "messages-read"    // nothing is recorded
	MessagesWritten      Point = "messages-written" // in a transaction that is still open
	BatchHalved          Point = "batch-halved"     // the first half of a failed batch is in the log, the second is not
	AsideSettled         Point = "aside-settled"    // the rest of the batch may not be in the log
	MessagesSettled      Point = "messages-settled" // nothing is acknowledged
	MessagesAcknowledged Point = "messages-acknowledged"
)

const (
	RowsTaken   Point = "rows-taken"   // entries and the writes of Take are in a transaction that is still open
	RowsAdopted Point = "rows-adopted" // the next page is not read
)

const (
	CaseOpened       Point = "case-opened"       // a case is written, but not committed. The same transaction has made the entry dead, or maintenance has found the dead entry
	CaseClosed       Point = "case-closed"       // a change, its audit record and the closed case are written, but not committed
	LimitChanged     Point = "limit-changed"     // a person's change of a limit and its operation are written, but not committed
	OperationWritten Point = "operation-written" // an operation is written, but not committed; the change that it describes is not written yet
	AuditWritten     Point = "audit-written"     // a person's action and its audit record are written, not committed
	BatchRecorded    Point = "batch-recorded"    // the record of an action on several entries is written, not committed
	ChangeCommitted  Point = "change-committed"  // neither a running attempt nor the queue is notified
	ResultInTx       Point = "result-in-tx"      // the outcome and its Result are written in a transaction that is still open
	ResultsWritten   Point = "results-written"
	FaultsWritten    Point = "faults-written"
	AttemptsWritten  Point = "attempts-written"
	StatsAdded       Point = "stats-added"     // folded counts are added to other rows, in a transaction that is still open; the folded rows are not deleted yet
	BacklogCounted   Point = "backlog-counted" // not stored
	InstanceEnds     Point = "instance-ends"   // this process has not stored that it ends
	PurgePart        Point = "purge-part"      // other statements may not have run
	MarksRead        Point = "marks-read"      // no due slot is recorded
	MarkMoved        Point = "mark-moved"      // the last slot has moved, and the transaction with its entries is still open
	SlotTaken        Point = "slot-taken"      // this process has taken a slot of the maintenance, but has not begun the round of this slot
	MigrationPart    Point = "migration-part"  // other statements may not have run
)

const (
	StopBegun       Point = "stop-begun" // Run takes no new entries
	LoopsEnded      Point = "loops-ended"
	HandlersEnded   Point = "handlers-ended"   // all handlers have ended, but their outcomes may not be stored
	OutcomesDrained Point = "outcomes-drained" // the queue may not be updated
)
