package processlog

import (
	"context"
	"database/sql"
	"time"
)

// Tx is the handle through which an entry is recorded. It is any handle on an open transaction, for example *sql.Tx,
// *sqlx.Tx, bun.Tx or *ScopedTx of the root package.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Transaction is a transaction that the store began. It may also have QueryRowContext, PrepareContext and StmtContext,
// as *sql.Tx does. Then handlers may use these methods.
type Transaction interface {
	Tx
	Commit() error
	Rollback() error
}

// Store is the table of entries, and the truth about them. Its methods are called concurrently. Each does its work in
// one short transaction at READ COMMITTED, or in the caller's transaction. It computes "now" from the database's clock,
// so only durations are passed. The slots of a Calendar are the one exception. Store consists of five contracts, one
// for each kind of caller. An implementation is right if it passes suite.TestStore of package compensatortest/suite.
type Store interface {
	Recorder
	Worker
	Keeper
	Calendar
	Ordering

	// Check returns every reason at once why this server, session or table is not safe to use.
	Check(ctx context.Context) error

	// Fingerprint identifies the database of the table. Migrate drew it, and it never changes.
	Fingerprint(ctx context.Context) (string, error)

	// Close releases what the store opened itself. The user's *sql.DB stays open.
	Close() error
}

// Recorder is the part of a store that records entries.
type Recorder interface {
	// Begin begins a READ COMMITTED transaction, for InTx and transactional handlers.
	Begin(ctx context.Context) (Transaction, error)

	// Probe returns ErrNoTransaction unless tx has an open transaction on the server. It never changes the transaction.
	Probe(ctx context.Context, tx Tx) error

	// Insert writes drafts in the caller's transaction. It needs one statement if none of them is a duplicate. It
	// returns one result for each draft, in the given order. A draft whose idempotency key exists changes nothing, and
	// its result is a duplicate. All idempotency keys of drafts must differ.
	//
	// proven says that the caller knows the transaction to be open. Without it, Insert returns ErrNoTransaction, and
	// writes nothing, if no transaction is open. After any other error the statement wrote nothing, but the server may
	// have ended the transaction: see ErrTxAborted.
	Insert(ctx context.Context, tx Tx, drafts []Draft, proven bool) ([]Inserted, error)

	// IDs finds committed entries by their idempotency keys. With a tx it also finds those of the transaction. Keys that
	// do not exist are missing from the result.
	IDs(ctx context.Context, tx Tx, idempotencyKeys []IdempotencyKey) (map[IdempotencyKey]ID, error)
}

// Worker is the part of a store that runs entries.
type Worker interface {
	// Load reads committed rows, in no order. Ids that do not exist are missing from the result.
	Load(ctx context.Context, ids []ID) ([]Row, error)

	// Versions reads the committed versions and states of entries, without their content. Otherwise it works as Load.
	Versions(ctx context.Context, ids []ID) ([]Version, error)

	// Heads returns the earliest next_at for each business type and each state from which entries can be claimed. Its
	// cost grows with the number of types, not of entries.
	Heads(ctx context.Context) ([]Head, error)

	// Scan reads a window of non-terminal entries in the order (next_at, id), at most Window.Limit of them.
	Scan(ctx context.Context, window Window) ([]Scheduled, error)

	// Due returns up to limit entries of a type that could be claimed now. Within each state, the earliest due entry
	// comes first. Due locks nothing.
	Due(ctx context.Context, businessType string, limit int) ([]ID, error)

	// Claim leases those wanted entries that are not terminal, due, and free. An entry is free if its lease has ended,
	// or if the wanted token holds it. accept is called with each such row while the row is locked, and may refuse it.
	// accept must not block.
	//
	// A claim adds one to the version and to the delivery count, and stores token. If the wanted token holds the entry,
	// that delivery was counted already and is not counted again. Claim never waits for rows that others have locked. A
	// row that the database refuses to write is rejected, and the other rows are claimed.
	//
	// After an error it is unknown what was claimed, and no handler may run. Release returns what may have been claimed.
	Claim(ctx context.Context, want []Wanted, token Token, lease time.Duration, accept func(*Row) bool) (Claimed, error)

	// Release undoes a claim whose handlers have not run. It ends the lease of each row that was last written under
	// token, and takes the delivery back. ErrBusy says that some rows are locked, and that all others were released. A
	// *RefusedError names rows that the database refuses to write, and all others were released. Both errors may come
	// together.
	Release(ctx context.Context, ids []ID, token Token) error

	// Renew makes the leases of held entries end lease from now. It names the entries that it did not renew.
	Renew(ctx context.Context, held []Held, lease time.Duration) (Unrenewed, error)

	// Settle writes outcomes, each under its own fence. It returns one result for each, in the given order. After an
	// error the caller may call it again with the same token and outcomes: the token shows what was applied already. No
	// two outcomes may name the same entry. A row that the database refuses to write does not hold up the others.
	Settle(ctx context.Context, token Token, outcomes []Outcome) ([]Settled, error)

	// SettleTx writes one outcome in the handler's transaction. Only the version fences it, and Absorb has no effect. It
	// returns ErrLeaseLost if the version has changed, and ErrTxAborted if the server rolled the transaction back. It
	// returns another ErrNoTransaction if the handler ended the transaction.
	SettleTx(ctx context.Context, tx Tx, token Token, outcome Outcome) error
}

// Changed is the result of RequeueAll for one entry.
type Changed struct {
	Before Row   // the row before the change, without its content
	Err    error // why the entry was not changed: ErrChanged, ErrNotFound, ErrBusy, or an error of Change.After
}

// Keeper is the part of a store for services and people.
type Keeper interface {
	// Change applies one action of a service or a person, and returns the row as it was before. If tx is not nil it
	// works in tx; for proven see Insert. If Change.After leaves the version unchanged, everything is done already and
	// nothing is written.
	//
	// An erasure keeps the time at which the entry ended. It replaces earlier audit records by the result of
	// AuditRecord.Erased. It removes the ordering notes of an entry that has ended, unless the entry is dead. Change may
	// return ErrNotFound, a *StateError, an *OtherTypeError and, without tx, ErrBusy. These change nothing and leave tx
	// usable.
	Change(ctx context.Context, tx Tx, proven bool, change Change) (Row, error)

	// RequeueAll requeues each entry that still has the version seen, in one transaction. It returns one result for
	// each, in the given order. Change.AfterSeen computes the new row, and the Ref of change is not used. It never waits
	// for rows that others have locked. seen names no entry twice. After an error either everything was done or nothing.
	// A second call then returns ErrChanged for what was done.
	RequeueAll(ctx context.Context, seen []Version, change Change) ([]Changed, error)

	// Resolve reads one committed row. If a running transaction wrote it, Resolve waits for the end of that transaction.
	// ErrNotFound means that it was rolled back, or never wrote. Resolve returns ErrBusy if waiting takes too long.
	Resolve(ctx context.Context, ref Ref) (Row, error)

	// List, Count and History are for people: see Compensator.List. Count counts committed entries, or what tx sees if
	// tx is not nil.
	List(ctx context.Context, filter Filter) (Page, error)
	Count(ctx context.Context, tx Tx, filter CountFilter) ([]Count, error)
	History(ctx context.Context, id ID) ([]AuditRecord, error)

	// Note records an action on the log as a whole. History returns it under the zero ID.
	Note(ctx context.Context, action Action, by AuditInfo) error

	// Purge deletes up to limit entries that reached state more than age ago, and returns their number. An empty
	// businessType selects all types. Purge never waits for an entry that another transaction has locked in any index,
	// and skips it. A transaction that records such a key meanwhile waits for one short transaction at most. A
	// *RefusedError names entries that the database refuses to delete. The others are deleted all the same, and counted.
	Purge(ctx context.Context, businessType string, state State, age time.Duration, limit int) (int, error)
}

// Calendar is the part of a store for periodic types. The mark of a type is its last slot that was recorded or skipped.
// Marks are stored apart from the entries, so that no slot is recorded again after its entry was purged. They are whole
// milliseconds.
type Calendar interface {
	// Marks reads the database's clock and the marks of business types. A type without a mark is missing from the
	// result. If the table of marks is missing, Marks returns a *FieldError that names it.
	Marks(ctx context.Context, businessTypes []string) (now time.Time, marks map[string]time.Time, err error)

	// BeginMark creates the mark of a business type at the database's now. It reports false, and changes nothing, if the
	// mark exists.
	BeginMark(ctx context.Context, businessType string) (bool, error)

	// MoveMark moves a mark in a transaction of Begin. It reports false, and changes nothing, if the mark is not at from
	// any more, or if another transaction has locked it. It does not wait for that lock.
	MoveMark(ctx context.Context, tx Tx, businessType string, from, to time.Time) (bool, error)
}

// Draft is a validated entry to insert.
type Draft struct {
	IdempotencyKey IdempotencyKey
	BusinessType   string
	BatchID        string
	BusinessID     string
	BusinessExtID  string
	UserID         string
	UserName       string
	Content        []byte
	Headers        []byte // encoded; may be empty

	MaxProcessCount int           // 0: use the type's
	Delay           time.Duration // time until due, in whole milliseconds, ≥ 0
	Token           Token         // token of this Record call
	Lease           time.Duration // if > 0: insert with a lease under Token, and count the delivery
	Done            bool          // insert as succeeded, ended by complete, because the recorder does the work itself. Then Delay and Lease are 0
}

// Inserted is the result for one draft.
type Inserted struct {
	ID ID // zero if the server does not return the ids of a bulk insert: see Recorder.IDs

	// If Duplicate is true, the other fields describe the existing entry.
	Duplicate      bool
	BusinessType   string
	State          State
	ContentMatches bool // its content equals the draft's, or was erased
}

// Row is a row of the table.
type Row struct {
	ID             ID
	IdempotencyKey IdempotencyKey
	BusinessType   string
	BatchID        string
	BusinessID     string
	BusinessExtID  string
	UserID         string
	UserName       string
	Content        []byte
	Headers        map[string]string // decoded from Draft.Headers

	State           State
	ProcessCount    int // failures recorded in this epoch
	MaxProcessCount int // 0: use the type's
	CompensateCount int // failed compensations in this epoch. In a dead entry it is above 0 if a compensation began
	DeliveryCount   int // consecutive leases that ended without a recorded outcome, including the present lease
	Version         uint64
	Epoch           uint32
	NextAt          time.Time // due time, or the time at which a terminal state was reached. UTC, milliseconds
	EndedBy         EndedBy
	LastError       string
	CreatedAt       time.Time // UTC, milliseconds
	UpdatedAt       time.Time // UTC, milliseconds
	Erased          bool      // a person has erased content, headers, user name and errors

	Token     Token
	DueIn     time.Duration // next_at minus the database's now; ≤ 0: due
	LeaseLeft time.Duration // end of the lease minus the database's now; ≤ 0: free
}

// Age returns the time since the entry was recorded, at the moment when the row was read. It uses the database's clock
// only.
func (r *Row) Age() time.Duration { return r.NextAt.Sub(r.CreatedAt) - r.DueIn }

// Attempt returns the number of this run in the present epoch. It is 1 for the first run. Runs whose outcome was
// recorded count.
func (r *Row) Attempt() int {
	if r.State == Compensating {
		return r.CompensateCount + 1
	}
	return r.ProcessCount + 1
}

// Version is the version and state of an entry.
type Version struct {
	ID             ID
	IdempotencyKey IdempotencyKey
	State          State
	Number         uint64 // Row.Version
	Epoch          uint32
	Token          Token
}

// Wanted is an entry to claim. A non-zero Token says that a lease under this token belongs to the caller, and that no
// handler ran under it.
type Wanted struct {
	ID    ID
	Token Token
}

// Claimed is the result of Claim. Each wanted entry is in one of its lists.
type Claimed struct {
	Mine    []Row       // leased to the caller; rows as they are after the claim
	Refused []Row       // could be claimed, but accept refused them
	Waiting []Scheduled // not due, leased, or locked by another transaction. In is when to try again; for a locked row at most 50 ms
	Gone    []ID        // terminal, or the row does not exist

	// Rejected are entries that the database refuses to lease, for example by a trigger. They are unchanged.
	Rejected []Refusal
}

// Held is an entry that the caller holds under a lease.
type Held struct {
	ID      ID
	Version uint64
}

// Unrenewed names the entries that Renew did not renew.
type Unrenewed struct {
	Lost []ID // not held any more: the version differs, or the state is terminal
	Busy []ID // still held, but another transaction has locked the row. Renew may be called again

	// Rejected are entries that are still held, but whose rows the database refuses to write, for example by a trigger.
	Rejected []Refusal
}

// Outcome is the result of an attempt, computed from the claimed row. SQL computes nothing from stored counts, because
// the result would depend on the order of the assignments.
type Outcome struct {
	ID             ID
	IdempotencyKey IdempotencyKey // also fences the write, because a database that went back in time assigns ids again
	Epoch          uint32

	// Version fences the write. Absorb replaces this fence for two states. For To = Succeeded the fence becomes "same
	// epoch, and pending or retrying". For To = Compensated it becomes "same epoch, and compensating". A success is true
	// whichever process holds the lease now. For other states Absorb has no effect.
	Version uint64
	Absorb  bool

	To              State
	ProcessCount    int
	CompensateCount int
	After           time.Duration // next_at becomes now + After. 0 for a terminal state
	EndedBy         EndedBy
	LastError       string

	// TimedOut says that the attempt ended after its timeout, so that its effects outside this database may have
	// happened. It decides the kind of the case. A Store ignores it.
	TimedOut bool

	Case *CaseDraft // for To = Dead: the case to open in the same transaction; nil: none
}

// Settled is the result of Settle for one outcome.
type Settled struct {
	Applied bool
	State   State   // if not applied: present state of the entry
	EndedBy EndedBy // if not applied: the cause that ended the entry, if it has ended
	Missing bool    // if not applied: the row does not exist any more
	Busy    bool    // if not applied: another transaction has locked the row. Pass the outcome again

	// Refused is why the database refuses to write the row, for example by a trigger. Then nothing is written. nil: it
	// does not refuse.
	Refused error
}

// Head is the earliest entry of one state and type.
type Head struct {
	BusinessType string
	State        State
	DueIn        time.Duration // time until the earliest next_at. That entry may be running at present
}

// InvalidRow is a row that cannot run as it is, and that the library did not write in this way.
type InvalidRow struct {
	ID           ID
	BusinessType string
	Why          string // the column, and what is wrong with it
}

// InvalidRowFinder is a Store whose table other programs may write to. The library calls it from time to time. A Store need
// not have it.
type InvalidRowFinder interface {
	// InvalidRows returns up to limit invalid rows. The number of rows it reads grows with the number of types, not of
	// entries.
	InvalidRows(ctx context.Context, limit int) ([]InvalidRow, error)
}

// Window selects what Scan reads: entries of one type and state with From ≤ next_at−now < To.
type Window struct {
	BusinessType string
	State        State
	From, To     time.Duration
	After        Scheduled // zero, or the last entry of the previous page. NextAt and ID are used
	Free         bool      // only entries that are not leased
	Limit        int
}

// Scheduled is an entry and the time at which it must be looked at.
type Scheduled struct {
	ID     ID
	In     time.Duration // time until it is due, or until its lease ends if that is later; ≤ 0: now
	DueIn  time.Duration // time until it is due; set by Scan
	NextAt int64         // as stored, in unix ms of the database's clock. It is a position in the index, not a time
}
