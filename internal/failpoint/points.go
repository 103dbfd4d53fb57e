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

// Point names a step at which a process can die. The name says what the process did last before this step. A comment at
// a Point says what the process has not done yet.
type Point string

const (
	EntryInserted  Point = "entry-inserted"  // in a transaction that is still open
	CommitNext     Point = "commit-next"     // everything is written, but COMMIT is not sent yet
	CommitDone     Point = "commit-done"     // COMMIT has succeeded, but no code of this process has been notified yet
	CommitReported Point = "commit-reported" // the entries are known to be committed, but not yet claimed or enqueued
)

const (
	CommitFound    Point = "commit-found" // polling has found a commit that was not reported
	IDsResolved    Point = "ids-resolved"
	EntryReadBack  Point = "entry-read-back" // an entry inserted with a lease has not started yet
	FreshClaimed   Point = "fresh-claimed"   // new entries are claimed; those that must wait are not enqueued yet
	EnqueueNext    Point = "enqueue-next"    // the queue does not have the entries yet
	Enqueued       Point = "enqueued"        // entries are in the queue, but no scanner has been notified yet
	QueueClaimed   Point = "queue-claimed"   // the queue has leased entries, but the database has not leased them yet
	DueRead        Point = "due-read"        // due entries are read from the database, but not claimed yet
	LimitLocked    Point = "limit-locked"    // the rows of a limit are locked, but no entry is chosen yet
	ClaimLocked    Point = "claim-locked"    // rows are locked and chosen, but the leases are not written yet
	ClaimWritten   Point = "claim-written"
	PermitsWritten Point = "permits-written"
	ClaimCommitted Point = "claim-committed" // the result is not used yet
	ClaimReleased  Point = "claim-released"  // the queue does not have the released entries yet
	OverdueClaimed Point = "overdue-claimed" // overdue entries are claimed, but not started yet
	CrashesCounted Point = "crashes-counted" // an entry has lost too many leases, but is not stored as dead yet
)

const (
	AttemptStarted       Point = "attempt-started"        // neither the handler nor the compensation has run yet
	BatchStarted         Point = "batch-started"          // the handler has not run yet
	BatchBroken          Point = "batch-broken"           // the entries of the failed batch do not run one by one yet
	BatchEnded           Point = "batch-ended"            // the handler of an entry with AfterBatch is not called yet
	HandlerReturned      Point = "handler-returned"       // the outcome is not queued for storing yet
	CallReturned         Point = "call-returned"          // the handler's call is over; no transaction has begun yet
	ThenReturned         Point = "then-returned"          // the handler has returned; the outcome is not written yet
	OutcomeInTransaction Point = "outcome-in-transaction" // the outcome is written, but not committed yet
	HandlerCommitted     Point = "handler-committed"      // this process does not know it yet
	LeaseRenewed         Point = "lease-renewed"          // this process does not rely on it yet
)

const (
	OrderingJoined  Point = "ordering-joined"  // entries of serial types have positions in an open transaction
	OrderingRead    Point = "ordering-read"    // keys are read, but no entry is started or put back yet
	OrderingNoted   Point = "ordering-noted"   // blocked entries have notes, but still hold their leases
	OrderingBlocked Point = "ordering-blocked" // blocked entries are put back, and may have become first since then
	OrderingLeft    Point = "ordering-left"    // next entries are due, old notes are removed, no process is notified yet
	OrderingMoved   Point = "ordering-moved"   // the next entries are due, but not claimed or enqueued yet

	OrderingFollowed Point = "ordering-followed" // an entry is claimed; its predecessor's outcome is perhaps not stored
)

const (
	OutcomesNext   Point = "outcomes-next"   // a batch of outcomes is not stored yet
	OutcomesPart   Point = "outcomes-part"   // some outcomes of a batch are stored, the others perhaps not yet
	OutcomesStored Point = "outcomes-stored" // a batch of outcomes is stored, but the queue is not updated yet
	QueueSettled   Point = "queue-settled"
)

const (
	OwnerChecked    Point = "owner-checked"    // this process has not asked to lead yet
	LeadershipAsked Point = "leadership-asked" // this process has asked to lead, but has enqueued nothing yet
	HeadsRead       Point = "heads-read"       // the earliest entry of each type is read, but nothing is enqueued yet
	PageScanned     Point = "page-scanned"     // a page of entries is read from the database, but not enqueued yet
	RebuildBegun    Point = "rebuild-begun"    // this process must enqueue lost types, but has enqueued none yet
	RebuildEnqueued Point = "rebuild-enqueued" // the queue does not mark the types as complete yet
)

const (
	MessagesClaimed      Point = "messages-claimed" // deliveries are counted, but nothing else has happened yet
	MessagesRead         Point = "messages-read"    // nothing is recorded yet
	MessagesWritten      Point = "messages-written" // in a transaction that is still open
	BatchHalved          Point = "batch-halved"     // the second half of a failed batch is not in the log yet
	AsideSettled         Point = "aside-settled"    // the rest of the batch is perhaps not in the log yet
	MessagesSettled      Point = "messages-settled" // nothing is acknowledged yet
	MessagesAcknowledged Point = "messages-acknowledged"
)

const (
	RowsTaken   Point = "rows-taken"   // entries and the writes of Take are in a transaction that is still open
	RowsAdopted Point = "rows-adopted" // a page of rows is adopted, but the next page is not read yet
)

const (
	CaseOpened       Point = "case-opened"       // a case is written, but not committed. The same transaction has made the entry dead, or maintenance has found the dead entry
	CaseClosed       Point = "case-closed"       // a change, its audit record and the closed case are written, but not committed
	LimitChanged     Point = "limit-changed"     // a person's change of a limit and its operation are written, but not committed
	OperationWritten Point = "operation-written" // an operation is written, but not committed; the change that it describes is not written yet
	AuditWritten     Point = "audit-written"     // a person's action and its audit record are not committed yet
	BatchRecorded    Point = "batch-recorded"    // the record of an action on several entries is not committed yet
	ChangeCommitted  Point = "change-committed"  // neither a running attempt nor the queue has been notified yet
	ResultInTx       Point = "result-in-tx"      // the outcome and its Result are written in a transaction that is still open
	ResultsWritten   Point = "results-written"
	FaultsWritten    Point = "faults-written"
	AttemptsWritten  Point = "attempts-written"
	StatsAdded       Point = "stats-added"     // folded counts are added to other rows, in a transaction that is still open; the folded rows are not deleted yet
	BacklogCounted   Point = "backlog-counted" // the counts are not stored yet
	InstanceEnds     Point = "instance-ends"   // this process has not stored yet that it ends
	PurgePart        Point = "purge-part"      // the statements after this one have not run yet
	MarksRead        Point = "marks-read"      // the marks of the slots are read, but no due slot is recorded yet
	MarkMoved        Point = "mark-moved"      // the mark is moved in the open transaction that records the entries
	SlotTaken        Point = "slot-taken"      // this process has taken a slot of the maintenance, but has not begun the round of this slot
	MigrationPart    Point = "migration-part"  // the statements after this one have not run yet
)

const (
	StopBegun       Point = "stop-begun" // Run takes no new entries
	LoopsEnded      Point = "loops-ended"
	HandlersEnded   Point = "handlers-ended"   // the wait for handlers is over; outcomes are perhaps not stored yet
	OutcomesDrained Point = "outcomes-drained" // the outcomes are drained, but the queue is perhaps not updated yet
)
