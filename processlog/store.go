package processlog

import (
	"context"
	"database/sql"
	"time"
)

// Tx is any handle on an open transaction, such as *sql.Tx, *sqlx.Tx, bun.Tx or *ScopedTx of the root package.
type Tx interface {
	// ExecContext runs a statement, as *sql.Tx does.
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)

	// QueryContext runs a query, as *sql.Tx does.
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Transaction is a transaction that the store began. It may also have QueryRowContext, PrepareContext and StmtContext, as
// *sql.Tx does, for handlers.
type Transaction interface {
	Tx

	// Commit commits, as *sql.Tx does.
	Commit() error

	// Rollback rolls back, as *sql.Tx does. After Commit it changes nothing.
	Rollback() error
}

// Store is the table of entries. If Store and Queue disagree, Store is right. The methods of Store are called
// concurrently. Each method works in short transactions at READ COMMITTED, or in the transaction of the caller. A
// Store reads the current time from the database's clock.
//
// An implementation is right if it passes suite.TestStore of package compensatortest/suite.
type Store interface {
	Recorder
	Worker
	Keeper
	Calendar
	Ordering
	StartLimits

	// Check returns all reasons why this server, session or table is not safe to use.
	Check(ctx context.Context) error

	// Fingerprint identifies the database of the table. It never changes.
	Fingerprint(ctx context.Context) (string, error)

	// Close releases the resources that the store opened itself. The *sql.DB of the user stays open.
	Close() error
}

// Recorder is the part of a store that records entries.
type Recorder interface {
	// Begin begins a READ COMMITTED transaction, for InTx and transactional handlers.
	Begin(ctx context.Context) (Transaction, error)

	// Probe returns ErrNoTransaction if tx has no open transaction on the server. It never changes the transaction.
	Probe(ctx context.Context, tx Tx) error

	// Insert writes drafts in the transaction tx of the caller. The idempotency keys of drafts must differ. Insert
	// returns one result for each draft, in the order of drafts. If the key of a draft already exists, Insert changes
	// nothing for this draft, and its result is a duplicate. Without duplicates, Insert needs one statement.
	//
	// If the argument proven is true, the caller guarantees that the transaction is open. Otherwise Insert checks this,
	// and returns ErrNoTransaction if the transaction is not open. After any error nothing was written, but the server
	// may have ended the transaction: see ErrTxAborted.
	Insert(ctx context.Context, tx Tx, drafts []Draft, proven bool) ([]Inserted, error)

	// IDs finds committed entries by their idempotency keys. If tx is not nil, IDs also finds entries that tx has
	// inserted. The result lacks keys that do not exist.
	IDs(ctx context.Context, tx Tx, idempotencyKeys []IdempotencyKey) (map[IdempotencyKey]ID, error)
}

// Worker is the part of a store that runs entries.
type Worker interface {
	// Load reads committed rows, in no order. The result lacks ids that do not exist.
	Load(ctx context.Context, ids []ID) ([]Row, error)

	// Versions works like Load, but reads no content.
	Versions(ctx context.Context, ids []ID) ([]Version, error)

	// Heads returns the earliest next_at for each pair of a business type and a state from which entries can be
	// claimed. The cost of Heads does not grow with the number of entries.
	Heads(ctx context.Context) ([]Head, error)

	// Scan reads at most Window.Limit non-terminal entries of a window, ordered by (next_at, id).
	Scan(ctx context.Context, window Window) ([]Scheduled, error)

	// Due returns up to limit entries of a type that could be claimed now, the earliest first within each state. Due
	// locks no rows.
	Due(ctx context.Context, businessType string, limit int) ([]ID, error)

	// Claim leases the wanted entries that are due, free, and not terminal. An entry is free if it has no lease, or if
	// its lease has ended. An entry is also free if its lease is held under Wanted.Token, an earlier token of the
	// caller. Claim calls the function accept with each such row while the row is locked. It leases the row only if
	// accept returns true. The function accept must not block.
	//
	// A claim adds one to the version and to the delivery count of an entry. The new lease is held under the argument
	// token. An entry that was held under Wanted.Token keeps its delivery count.
	//
	// Claim never waits for locked rows. If the database refuses to write a row, Claim lists this row in
	// Claimed.Refused, and claims the other rows. The claimed rows have their Faults. A Store may leave out the Faults
	// of a row without a LastError.
	//
	// After an error it is unknown which rows were claimed, and the caller must run no handler. Call Release for the
	// wanted entries.
	Claim(ctx context.Context, wanted []Wanted, token Token, lease time.Duration, accept func(*Row) bool) (Claimed, error)

	// Release undoes the claim of entries whose handlers have not run. It ends the lease of each row whose last write
	// stored the argument token. It also subtracts the delivery from the delivery count. The result names the entries
	// that Release did not release.
	Release(ctx context.Context, ids []ID, token Token) (Unreleased, error)

	// Renew sets the leases of held entries to end at now + lease. The result names the entries that Renew did not
	// renew.
	Renew(ctx context.Context, leases []Held, lease time.Duration) (Unrenewed, error)

	// Settle writes each outcome whose row fulfils the condition of Outcome.Version. It returns one result for each
	// outcome, in the order of outcomes. No two outcomes may name the same entry. If the database refuses to write one
	// row, Settle still writes the other rows.
	//
	// After an error the caller may call Settle again with the same token and outcomes. The token in a row shows that
	// the outcome of the row was applied.
	Settle(ctx context.Context, token Token, outcomes []Outcome) ([]Settled, error)

	// SettleTx writes the argument outcome, with its Result, in the transaction tx of the handler. It writes only if
	// the row still has Outcome.Version. SettleTx returns
	//
	//   - ErrLeaseLost if the version has changed,
	//   - ErrTxAborted, which wraps ErrNoTransaction, if the server rolled tx back, and
	//   - ErrNoTransaction without ErrTxAborted if the handler ended tx.
	SettleTx(ctx context.Context, tx Tx, token Token, outcome Outcome) error
}

// Changed is the result of RequeueAll for one entry.
type Changed struct {
	Before Row   // the row as it was before the change, without its content
	Err    error // why the entry was not changed: ErrChanged, ErrNotFound, ErrBusy, or an error of Change.After
}

// Keeper is the part of a store that services and people use to read and change entries.
type Keeper interface {
	// Change applies one action of a service or a person, and returns the row as it was before. If tx is not nil,
	// Change writes in tx. The argument proven has the same meaning as in Insert. If Change.After returns the same
	// version, Change writes nothing.
	//
	// An erasure keeps the time at which the entry ended. It deletes the Result of the entry. It clears the errors of
	// the entry's failed attempts and of its case, and the reasons of its operations. It replaces the audit records of
	// the entry by AuditRecord.Erased. It also removes the ordering notes of an ended entry that is not dead.
	//
	// Change may return ErrNotFound, a *StateError, an *OtherTypeError and, if tx is nil, ErrBusy. After such an error
	// nothing is changed, and tx can still be used.
	Change(ctx context.Context, tx Tx, proven bool, change Change) (Row, error)

	// RequeueAll requeues each entry whose version is still the version in the argument seen, in one transaction. It
	// returns one result for each element of seen, in the same order. Change.AfterSeen computes the new row. RequeueAll
	// ignores the Ref of change. No two elements of seen may name the same entry. RequeueAll never waits for locked
	// rows.
	//
	// After an error, either all changes were made or none. If all changes were made, a second call returns ErrChanged
	// for each entry.
	RequeueAll(ctx context.Context, seen []Version, change Change) ([]Changed, error)

	// Resolve reads one committed row. If a running transaction wrote the row, Resolve waits until this transaction
	// ends. If the wait takes too long, Resolve returns ErrBusy. ErrNotFound means that the row was rolled back or
	// never written.
	Resolve(ctx context.Context, ref Ref) (Row, error)

	// Ends reads rows as Load does, for entries whose end a caller awaits. If an entry succeeded with a result, its row
	// has this Result. If an entry has not ended, its row has no Content. Ends sends one statement for each 500 ids.
	Ends(ctx context.Context, ids []ID) ([]Row, error)

	// List reads one page of committed rows for people: see Log.List of package admin.
	List(ctx context.Context, filter Filter) (Page, error)

	// Count counts committed entries by type and state. If tx is not nil, Count counts the entries that tx sees.
	Count(ctx context.Context, tx Tx, filter CountFilter) ([]Count, error)

	// History reads the audit records of an entry, the oldest first. For the zero ID, History reads the records that
	// Note has written.
	History(ctx context.Context, id ID) ([]AuditRecord, error)

	// Note records an action on the log as a whole, under the zero ID.
	Note(ctx context.Context, action Action, by AuditInfo) error

	// Purge deletes up to limit entries that have been in the given state for longer than the duration age. It also
	// deletes the Faults, Results and failed attempts of these entries. It returns the number of deleted entries. An
	// empty businessType selects all types.
	//
	// Purge skips an entry if another transaction has locked its row in any index. If a transaction
	// records the key of an entry that Purge is deleting, its INSERT waits for at most one short transaction of Purge. A
	// *RefusedError names entries that the database refuses to delete. The other entries are deleted and counted.
	Purge(ctx context.Context, businessType string, state State, age time.Duration, limit int) (int, error)
}

// Calendar is the part of a store for periodic types. Each type has a mark: the time of its last slot that was recorded or
// skipped, in whole milliseconds. Marks are in a separate table, so no slot is recorded again after its entry was purged.
type Calendar interface {
	// Marks reads the database's clock and the marks of business types. A type without a mark is missing from the result.
	// If the table of marks is missing, Marks returns a *FieldError that names it.
	Marks(ctx context.Context, businessTypes []string) (now time.Time, marks map[string]time.Time, err error)

	// BeginMark creates the mark of a business type at the database's current time, or returns false if the mark exists.
	BeginMark(ctx context.Context, businessType string) (bool, error)

	// MoveMark moves the mark of a business type. The arguments from and to are the old and the new time of the mark.
	// MoveMark runs in tx, a transaction of Begin. It changes nothing and returns false if the mark is no longer at the
	// old time, or if another transaction has locked the mark. If tx is nil, MoveMark runs outside a transaction, and
	// may wait until the other transaction has ended.
	MoveMark(ctx context.Context, tx Tx, businessType string, from, to time.Time) (bool, error)
}

// Draft is a validated entry to insert.
type Draft struct {
	IdempotencyKey IdempotencyKey // 1 to 191 characters
	BusinessType   string         // names the handler
	BatchID        string         // may be empty, like the four fields that follow
	BusinessID     string         // id of the thing that the work changes
	BusinessExtID  string         // a second id of the thing that the work changes
	UserID         string         // user for whom the work is done
	UserName       string         // name of that user
	Content        []byte         // encoded input of the handler
	Headers        []byte         // encoded; may be empty

	MaxAttempts int           // 0: the type's value applies
	Delay       time.Duration // time until the entry is due, in whole milliseconds, ≥ 0
	Token       Token         // token of this Record call
	Lease       time.Duration // if it is above 0, insert the entry with a lease of this length under Token, and count the delivery
	// Done says to insert the entry as succeeded, with EndedByComplete as EndedBy. If Done is true, Delay and Lease are
	// 0.
	Done bool
}

// Row returns a Row with the texts and content of the draft, and no other field. The Row shares Content with the draft.
func (d *Draft) Row() Row {
	return Row{
		IdempotencyKey: d.IdempotencyKey, BusinessType: d.BusinessType, BatchID: d.BatchID, BusinessID: d.BusinessID,
		BusinessExtID: d.BusinessExtID, UserID: d.UserID, UserName: d.UserName, Content: d.Content,
	}
}

// Inserted is the result for one draft.
type Inserted struct {
	ID ID // zero if the server does not return the ids of an insert of several rows. Call Recorder.IDs in this case

	Duplicate bool // an entry with this idempotency key exists. The fields below describe it

	BusinessType   string // business type of the existing entry
	State          State  // state of the existing entry
	ContentMatches bool   // the existing entry has the draft's content, or its content was erased
}

// Row is a row of the table, as a Store reads it. A handler gets an Entry of the root package instead, so that it cannot
// see or change a lease.
type Row struct {
	ID             ID                // assigned by the database
	IdempotencyKey IdempotencyKey    // Draft.IdempotencyKey
	BusinessType   string            // Draft.BusinessType
	BatchID        string            // Draft.BatchID
	BusinessID     string            // Draft.BusinessID
	BusinessExtID  string            // Draft.BusinessExtID
	UserID         string            // Draft.UserID
	UserName       string            // Draft.UserName
	Content        []byte            // Draft.Content; nil if the call reads no content
	Headers        map[string]string // decoded from Draft.Headers

	State           State     // how far the entry has come
	ProcessCount    int       // failures recorded in this epoch
	MaxAttempts     int       // 0: the type's value applies
	CompensateCount int       // failed compensations in this epoch. If it is above 0 in a dead entry, a compensation has begun
	DeliveryCount   int       // consecutive leases that ended without a recorded outcome, including the present lease
	Version         uint64    // grows by one with each write of the row, except the renewal of a lease
	Epoch           uint32    // 0 at first. A requeue, a manual settlement or an erasure by a person adds one
	NextAt          time.Time // due time; in a terminal state the time at which the state was reached. UTC, milliseconds
	EndedBy         EndedBy   // cause of the terminal state; empty in other states
	LastError       string    // error of the last failed attempt
	CreatedAt       time.Time // UTC, milliseconds
	UpdatedAt       time.Time // UTC, milliseconds
	Erased          bool      // a person has erased content, headers, user name and errors

	Faults Faults // set by Claim and by Operations.DeadWithoutCase only

	// Result is the encoded result of the handler. Ends sets it for an entry that succeeded with a result in its present
	// epoch. In the process that runs the entry, the handler's call sets it.
	Result []byte

	Token     Token         // token of the last write that has set one: an insert with a lease, a claim, an outcome or a change
	DueIn     time.Duration // next_at minus the database's current time; ≤ 0: the entry is due
	LeaseLeft time.Duration // end of the lease minus the database's current time; ≤ 0: no lease
}

// Draft returns a draft with the texts and content of the row, and no other field. The draft shares Content with the row.
func (r *Row) Draft() Draft {
	return Draft{
		IdempotencyKey: r.IdempotencyKey, BusinessType: r.BusinessType, BatchID: r.BatchID, BusinessID: r.BusinessID,
		BusinessExtID: r.BusinessExtID, UserID: r.UserID, UserName: r.UserName, Content: r.Content,
	}
}

// Age returns how old the entry was when the row was read, by the database's clock.
func (r *Row) Age() time.Duration { return r.NextAt.Sub(r.CreatedAt) - r.DueIn }

// Faults are facts about an entry's errors. From these facts the engine decides whether an error costs an attempt, and
// which kind of case a dead entry gets.
type Faults struct {
	Epoch        uint32 // Row.Epoch when the Faults were written
	Compensating bool   // whether ServerFaults and ServerDowns are from the compensation, not from the handler
	ServerFaults int    // consecutive attempts that ended with an error of the database, which a statement of the handler may have caused
	ServerDowns  int    // consecutive attempts that ended because the whole server was unusable

	// OutcomeUnknown reports whether an attempt of this epoch may have had an effect that the log does not know. The
	// attempt timed out or was ended early, its lease ended without an outcome, or a change of the entry dropped it.
	OutcomeUnknown bool
}

// In returns the part of f that applies to a row. If f is from another epoch, no part applies. ServerFaults and
// ServerDowns of the handler do not apply to a compensating row. Those of the compensation apply only to a compensating
// row.
func (f Faults) In(row *Row) Faults {
	in := Faults{Epoch: row.Epoch, Compensating: row.State == Compensating}
	if f.Epoch != in.Epoch {
		return in
	}
	in.OutcomeUnknown = f.OutcomeUnknown
	if f.Compensating == in.Compensating {
		in.ServerFaults, in.ServerDowns = f.ServerFaults, f.ServerDowns
	}
	return in
}

// Attempt returns the number of this run in the present epoch, from 1. Only earlier runs whose outcome was recorded are
// counted.
func (r *Row) Attempt() int {
	if r.State == Compensating {
		return r.CompensateCount + 1
	}
	return r.ProcessCount + 1
}

// Version is the version and state of an entry.
type Version struct {
	ID             ID             // Row.ID
	IdempotencyKey IdempotencyKey // Row.IdempotencyKey
	State          State          // Row.State
	Number         uint64         // Row.Version
	Epoch          uint32         // Row.Epoch
	Token          Token          // Row.Token
}

// Wanted is an entry to claim. No handler has run under the lease of Token.
type Wanted struct {
	ID    ID    // id of the entry
	Token Token // token of the caller's lease; zero: none
}

// Claimed is the result of Claim. Each wanted entry is in one of these lists.
type Claimed struct {
	Mine    []Row // rows leased to the caller, as they are after the claim
	Skipped []Row // rows that could have been claimed, but accept returned false
	// Waiting lists entries that are not due yet, that have a lease, or whose rows are locked. Scheduled.In is the time
	// after which to claim the entry again. For a locked row this time is at most 50 ms.
	Waiting []Scheduled
	Gone    []ID // entries that are terminal, or whose rows do not exist

	// Refused lists unchanged entries whose rows the database refuses to write, for example by a trigger.
	Refused []Refusal

	Limited []Limited // entries that got no permit; set by ClaimLimited only
	// Rooms says how many starts and permits are still free for each key. It contains only the keys that ClaimLimited
	// has read. nil means that ClaimLimited has read no key.
	Rooms   map[string]Room
	InForce *LimitValues // values that ClaimLimited has obeyed; nil if it has read no limit

	// GrantedAfter is a time by this process's clock. The database granted the permits after this time, but only
	// shortly after. If GrantedAfter is zero, use the start of the claim.
	GrantedAfter time.Time
}

// Held is an entry that the caller holds under a lease.
type Held struct {
	ID      ID     // id of the entry
	Version uint64 // version of the row after the claim
}

// Unreleased names the entries that Release did not release.
type Unreleased struct {
	Busy    []ID      // another transaction has locked these rows. Call Release again
	Refused []Refusal // the database refuses to write these rows, for example by a trigger
}

// Unrenewed names the entries that Renew did not renew.
type Unrenewed struct {
	Lost []ID // entries that the caller no longer holds: the version differs, or the state is terminal
	Busy []ID // entries that the caller still holds, but whose rows another transaction has locked. Call Renew again

	// Refused lists entries that the caller still holds, but whose rows the database refuses to write.
	Refused []Refusal
}

// Outcome is the result of an attempt. Go code computes an Outcome from the claimed row. SQL must not compute the new
// counts from stored counts, because MySQL evaluates the assignments of an UPDATE from left to right.
type Outcome struct {
	ID             ID             // id of the entry
	IdempotencyKey IdempotencyKey // the row must also have this key, because a database that was rolled back assigns the same ids again
	Epoch          uint32         // epoch of the claimed row

	// Version is the version after the claim. The outcome is written only if the row still has this version. A success
	// is an exception, because it stays true even if another process holds the lease now. Settle writes a success if
	// the row has the same epoch. To write Succeeded, the row must also be pending or retrying. To write Compensated,
	// the row must be compensating. When Settle writes a success, it does not change the counts of the row.
	Version uint64

	To              State         // new state
	ProcessCount    int           // new Row.ProcessCount
	CompensateCount int           // new Row.CompensateCount
	After           time.Duration // time from now to next_at; 0 for a terminal state
	EndedBy         EndedBy       // new Row.EndedBy; empty unless To is terminal
	LastError       string        // new Row.LastError

	// TimedOut says that the attempt ended after its timeout, so that its effects outside this database may have happened.
	// A Store ignores it.
	TimedOut bool

	// Faults replaces the entry's Faults in the same transaction. If Faults is nil, the stored Faults do not change. If
	// Faults is not nil, LastError must not be empty. SettleTx ignores Faults.
	Faults *Faults

	Case *CaseDraft // for To = Dead: the case to open in the same transaction; nil: none

	// Attempt is the failed attempt to store in the same transaction. If Attempt is nil, none is stored, and no
	// statement is sent for it. A Store ignores Attempt if To is Succeeded or Compensated. SettleTx ignores Attempt.
	Attempt *FailedAttempt

	// Result is the encoded result of the handler. If the field To is Succeeded, the result is stored with the outcome.
	// An empty Result is stored, too. nil means that there is no result, and no statement is sent for it.
	Result []byte
}

// Settled is the result of Settle for one outcome.
type Settled struct {
	Applied bool  // whether the outcome is in the row, also from an earlier call with the same token
	State   State // present state of the entry, if the outcome was not applied
	// EndedBy is the cause that ended the entry. It is set if the entry had already ended, so that the outcome was not
	// applied.
	EndedBy EndedBy
	Missing bool // the outcome was not applied, because the row does not exist any more
	Busy    bool // the outcome was not applied, because another transaction has locked the row. Pass the outcome again

	// Refused is the reason if the database refuses to write the row, for example by a trigger. Then nothing was written
	// for this outcome.
	Refused error
}

// Head is the earliest due time among the entries of one state and type.
type Head struct {
	BusinessType string        // business type of the entries
	State        State         // state of the entries
	DueIn        time.Duration // time until the earliest next_at of the entries; that entry may be running
}

// InvalidRow is a row that another program wrote and that cannot run until a person repairs it.
type InvalidRow struct {
	ID           ID     // id of the row
	BusinessType string // business type of the row
	Why          string // name of the wrong column, and the reason
}

// InvalidRowFinder is implemented by a Store whose table other programs may write to. It is optional.
type InvalidRowFinder interface {
	// InvalidRows returns up to limit invalid rows. Its cost does not grow with the number of entries.
	InvalidRows(ctx context.Context, limit int) ([]InvalidRow, error)
}

// Window selects what Scan reads: entries of one type and state with From ≤ next_at−now < To.
type Window struct {
	BusinessType string        // business type of the entries
	State        State         // state of the entries; not terminal
	From, To     time.Duration // From inclusive, To exclusive; durations from now
	After        Scheduled     // zero, or the last entry of the previous page. Scan uses its NextAt and ID
	Free         bool          // whether to read only entries without a lease
	Limit        int           // maximum number of entries
}

// Scheduled is an entry with the time after which the library reads it again.
type Scheduled struct {
	ID     ID            // id of the entry
	In     time.Duration // time until the entry is due, or until its lease ends if that is later; ≤ 0: now
	DueIn  time.Duration // time until the entry is due; set by Scan
	NextAt int64         // stored next_at in unix ms of the database's clock. Use it only as a position in the index
}
