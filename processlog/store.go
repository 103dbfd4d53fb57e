package processlog

import (
	"context"
	"database/sql"
	"time"
)

// Tx is what an entry is recorded through: any handle on an open transaction. *sql.Tx, *sqlx.Tx, bun.Tx and
// the root's *ScopedTx satisfy it as they are.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Transaction is a transaction the store began itself. Where it has QueryRowContext, PrepareContext and StmtContext, as a
// *sql.Tx has, whoever works in it may use them.
type Transaction interface {
	Tx
	Commit() error
	Rollback() error
}

// Store is the truth: the table of entries. Every method may be called concurrently, does its work in one
// short transaction at READ COMMITTED or in the caller's, and computes "now" from the database's clock, so
// only durations cross its border, but for the slots of a Calendar. It is five contracts, by who asks. An implementation is right when it passes
// suite.TestStore of package compensatortest/suite.
type Store interface {
	Recorder
	Worker
	Keeper
	Calendar
	Turns

	// Check reports, all at once, every reason why this server, session or table is not safe to run on.
	Check(ctx context.Context) error

	// Fingerprint identifies the table's database for good; Migrate drew it.
	Fingerprint(ctx context.Context) (string, error)

	// Close releases what the store opened itself; the user's *sql.DB stays open.
	Close() error
}

// Recorder is what recording asks of a store.
type Recorder interface {
	// Begin starts a READ COMMITTED transaction for InTx and transactional handlers.
	Begin(ctx context.Context) (Transaction, error)

	// Probe returns ErrNoTransaction unless tx has an open transaction on the server. It never changes the
	// transaction.
	Probe(ctx context.Context, tx Tx) error

	// Insert writes drafts in the caller's transaction, in one statement when none is a duplicate, and
	// answers for each in the order given. proven says that the caller knows the transaction to be open;
	// otherwise Insert refuses with ErrNoTransaction when it is not, and nothing is written. A draft whose
	// idempotent id exists changes nothing and is answered as a duplicate. Drafts hold no two equal
	// idempotent ids. On any other error the statement wrote nothing, but the server may have ended the
	// transaction: see ErrTxAborted.
	Insert(ctx context.Context, tx Tx, drafts []Draft, proven bool) ([]Inserted, error)

	// IDs finds committed entries by idempotent id; with a tx, also the transaction's own. Absent ones are
	// absent from the answer.
	IDs(ctx context.Context, tx Tx, idempotentIDs []IdempotentID) (map[IdempotentID]ID, error)
}

// Worker is what working entries off asks of a store.
type Worker interface {
	// Load reads rows as committed. Missing ids are missing from the answer, whose order is undefined.
	Load(ctx context.Context, ids []ID) ([]Row, error)

	// Versions reads where entries stand, as committed, and nothing of their content; otherwise as Load.
	Versions(ctx context.Context, ids []ID) ([]Version, error)

	// Heads returns, for each state an entry can be claimed in and each business type that has one, the
	// earliest next_at. Its cost grows with the number of types, not of entries.
	Heads(ctx context.Context) ([]Head, error)

	// Scan reads a window of non-terminal entries in the order (next_at, id), at most Window.Limit of them.
	Scan(ctx context.Context, window Window) ([]Scheduled, error)

	// Due returns up to limit entries of a type that could be claimed now, earliest due first within each
	// state. It locks nothing.
	Due(ctx context.Context, businessType string, limit int) ([]ID, error)

	// Claim leases the wanted entries that are non-terminal, due, and free: lease past, or held under the
	// wanted token. accept sees each such row while it is locked, and may refuse it; it must not block.
	// A claim adds one to version and delivery count, and stores token; a delivery counted under the wanted
	// token is the caller's own and is not counted again. Rows that others hold locked are never waited for.
	// A row that the database refuses to write is rejected, and holds up no other.
	// On error nothing is known to be claimed and no handler may run; Release gives back what may have been.
	Claim(ctx context.Context, want []Wanted, token Token, lease time.Duration, accept func(*Row) bool) (Claimed, error)

	// Release undoes a claim that ran nothing: of the rows last written under token the lease ends and the
	// delivery is not counted. ErrBusy: some are locked, and all others are released, but for those that a *RefusedError
	// beside it names. A *RefusedError names rows that the database refuses to write: all others are released.
	Release(ctx context.Context, ids []ID, token Token) error

	// Renew sets the lease of held entries to end lease from now, of all but those that it names.
	Renew(ctx context.Context, held []Held, lease time.Duration) (Unrenewed, error)

	// Settle writes outcomes, each under its own fence, and answers in the order given. Calling it again
	// with the same token and outcomes after an error is safe: what was applied is recognised by token.
	// Outcomes name no entry twice. A row that the database refuses to write holds up no other.
	Settle(ctx context.Context, token Token, outcomes []Outcome) ([]Settled, error)

	// SettleTx writes one outcome in the handler's transaction, fenced by version: it absorbs nothing. It returns ErrLeaseLost
	// when the fence no longer holds, ErrTxAborted when the server rolled the transaction back, and
	// another ErrNoTransaction when the handler ended it.
	SettleTx(ctx context.Context, tx Tx, token Token, outcome Outcome) error
}

// Changed answers for one entry of RequeueAll.
type Changed struct {
	Before Row   // as it was, without its content
	Err    error // why it was left as it is: ErrChanged, ErrNotFound, ErrBusy, or Change.After's refusal
}

// Keeper is what services and people ask of a store.
type Keeper interface {
	// Change makes one action of a service or a person, in tx when one is given and proven open (see
	// Insert), and returns the row as it was before. Where Change.After leaves the version as it is, all is done already
	// and nothing is written. An erasure leaves the moment of the end, and of the entry's earlier records what
	// AuditRecord.Erased says; the turns of what is erased and has ended, other than dead, are forgotten. ErrNotFound,
	// *StateError, *OtherTypeError and, without tx, ErrBusy are its refusals; they change nothing and leave tx usable.
	Change(ctx context.Context, tx Tx, proven bool, change Change) (Row, error)

	// RequeueAll makes one requeue of each entry that still stands as it was seen, in one transaction, and answers in
	// the order given. Change.AfterSeen says what it leaves; its Ref is not read. Rows that others hold locked are never
	// waited for. Seen names no entry twice. On error all is done or nothing: tried again, what was done is ErrChanged.
	RequeueAll(ctx context.Context, seen []Version, change Change) ([]Changed, error)

	// Resolve reads one committed row by reference and waits for a transaction in flight that wrote it:
	// ErrNotFound means it was rolled back, or never was. It returns ErrBusy when that takes too long.
	Resolve(ctx context.Context, ref Ref) (Row, error)

	// List, Count and History serve people; see Compensator.List. Count sees what is committed, or what tx sees, if one is
	// given.
	List(ctx context.Context, filter Filter) (Page, error)
	Count(ctx context.Context, tx Tx, filter CountFilter) ([]Count, error)
	History(ctx context.Context, id ID) ([]AuditRecord, error)

	// Note keeps an action on the log as a whole. History tells it under the zero ID.
	Note(ctx context.Context, action Action, by ByHand) error

	// Purge deletes up to limit entries that reached state more than age ago, of one business type or, where it is empty,
	// of all, and returns how many. It passes by entries that another transaction holds, in whichever index, and waits for none.
	// Whoever records such an id meanwhile waits for one short transaction at most. A *RefusedError names entries
	// that the database refuses to delete: the others are deleted all the same, and counted.
	Purge(ctx context.Context, businessType string, state State, age time.Duration, limit int) (int, error)
}

// Calendar is what periodic types ask of a store: of each its mark, which is the last slot that is recorded or passed
// over. Marks stand apart from the entries, so that no slot is recorded again when its entry is purged. They are whole
// milliseconds.
type Calendar interface {
	// Marks reads the database's clock and the marks of business types. One that has none is missing from the answer.
	// Without the table of marks it returns a *FieldError that names it.
	Marks(ctx context.Context, businessTypes []string) (now time.Time, marks map[string]time.Time, err error)

	// BeginMark gives a business type a mark at the database's now. It reports false, and has changed nothing, where there
	// is one.
	BeginMark(ctx context.Context, businessType string) (bool, error)

	// MoveMark moves a mark in a transaction of Begin. It reports false, and has changed nothing, where the mark is not
	// at from any more or another transaction holds it, which is not waited for.
	MoveMark(ctx context.Context, tx Tx, businessType string, from, to time.Time) (bool, error)
}

// Draft is an entry about to be inserted: validated, with its delay resolved.
type Draft struct {
	IdempotentID  IdempotentID
	BusinessType  string
	BatchID       string
	BusinessID    string
	BusinessExtID string
	UserID        string
	UserName      string
	Content       []byte
	Headers       []byte // encoded, may be empty

	MaxProcessCount int           // 0: the type's
	Delay           time.Duration // until due, whole milliseconds, ≥ 0
	Token           Token         // of this Record call
	Lease           time.Duration // > 0: born claimed under Token, delivery counted
	Done            bool          // born succeeded, by complete: its recorder does the work himself. It has no Delay and no Lease
}

// Inserted answers for one draft.
type Inserted struct {
	ID ID // zero when the server cannot tell ids of a bulk insert; see Store.IDs

	// Of a duplicate, the existing entry:
	Duplicate      bool
	BusinessType   string
	State          State
	ContentMatches bool // its content equals the draft's, or was erased
}

// Row is an entry as the table has it.
type Row struct {
	ID            ID
	IdempotentID  IdempotentID
	BusinessType  string
	BatchID       string
	BusinessID    string
	BusinessExtID string
	UserID        string
	UserName      string
	Content       []byte
	Headers       map[string]string // as decoded from Draft.Headers

	State           State
	ProcessCount    int // failures recorded in this epoch
	MaxProcessCount int // 0: the type's
	CompensateCount int // failed compensations in this epoch; of a dead entry: > 0 if one has begun
	DeliveryCount   int // leases in a row without a recorded outcome, the present one included
	Version         uint64
	Epoch           uint32
	NextAt          time.Time // due; in a terminal state: when it got there. UTC, milliseconds
	EndedBy         EndedBy
	LastError       string
	CreatedAt       time.Time // UTC, milliseconds
	UpdatedAt       time.Time // UTC, milliseconds
	Erased          bool      // a person had content, headers, user name and errors blanked

	Token     Token
	DueIn     time.Duration // next_at less the database's now; ≤ 0: due
	LeaseLeft time.Duration // lease end less the database's now; ≤ 0: free
}

// Age is how long ago it was recorded, by the database's clock alone, when it was read.
func (r *Row) Age() time.Duration { return r.NextAt.Sub(r.CreatedAt) - r.DueIn }

// Attempt counts the runs of this epoch that were recorded, this one included: 1 on the first.
func (r *Row) Attempt() int {
	if r.State == Compensating {
		return r.CompensateCount + 1
	}
	return r.ProcessCount + 1
}

// Version is where an entry stands.
type Version struct {
	ID           ID
	IdempotentID IdempotentID
	State        State
	Number       uint64 // Row.Version
	Epoch        uint32
	Token        Token
}

// Wanted is an entry to claim. A non-zero Token says that a lease under it is the caller's own, and has run
// nothing.
type Wanted struct {
	ID    ID
	Token Token
}

// Claimed is what Claim found out about each wanted entry.
type Claimed struct {
	Mine    []Row       // leased to the caller; as after the claim
	Refused []Row       // claimable, but accept said no
	Waiting []Scheduled // not due, leased or locked by another; In says when to look again: when locked, in at most 50 ms
	Gone    []ID        // terminal, or no such row

	// Rejected are entries that the database refuses to lease, by a trigger or a constraint. They stand as before.
	Rejected []Refusal
}

// Held is an entry the caller holds under a lease.
type Held struct {
	ID      ID
	Version uint64
}

// Unrenewed names what a Renew has left as it was.
type Unrenewed struct {
	Lost []ID // held no more: another version, or a terminal state
	Busy []ID // held still, and another transaction has the row; it may be asked for again

	// Rejected are held still, and the database refuses to write their rows, by a trigger or a constraint.
	Rejected []Refusal
}

// Outcome is what an attempt came to, computed from the row as claimed. Nothing is computed from stored
// counts in SQL, where the order of assignments would decide.
type Outcome struct {
	ID           ID
	IdempotentID IdempotentID // fences the write as well: a database that has gone back gives ids out again
	Epoch        uint32

	// Version fences the write. Absorb replaces that fence where To is Succeeded by "same epoch, still pending
	// or retrying", and where it is Compensated by "same epoch, still compensating": a success is true whoever
	// holds the lease now. Nothing else absorbs.
	Version uint64
	Absorb  bool

	To              State
	ProcessCount    int
	CompensateCount int
	After           time.Duration // next_at = now + After; 0 for a terminal state: settled now
	EndedBy         EndedBy
	LastError       string

	// TimedOut says that the attempt's time had passed when it ended, so that what it did outside this database may have
	// happened. A Store ignores it: it decides the kind of the case.
	TimedOut bool

	Case *CaseDraft // of one that comes to Dead: the case that opens with it, in the same transaction; nil: none
}

// Settled answers for one outcome.
type Settled struct {
	Applied bool
	State   State   // when not applied: where the entry stands now
	EndedBy EndedBy // when not applied: what has ended the entry, if anything has
	Missing bool    // when not applied: there is no such row any more
	Busy    bool    // when not applied: another transaction holds the row; hand the outcome in again

	// Refused is why the database refuses to write the row, by a trigger or a constraint: nothing is written. nil: it does not.
	Refused error
}

// Head is the earliest entry of one state and type.
type Head struct {
	BusinessType string
	State        State
	DueIn        time.Duration // of the earliest next_at; it may be of an entry that runs right now
}

// Misfit is an entry that does not run as it stands, and that no library has written so.
type Misfit struct {
	ID           ID
	BusinessType string
	Why          string // which column, and what is wrong with it
}

// MisfitFinder is a Store whose table others may write to by hand. It is asked now and then; another Store is not.
type MisfitFinder interface {
	// Misfits names up to limit of them. What it reads grows with the number of types, not of entries.
	Misfits(ctx context.Context, limit int) ([]Misfit, error)
}

// Window selects what Scan reads: entries of one type and state with From ≤ next_at−now < To.
type Window struct {
	BusinessType string
	State        State
	From, To     time.Duration
	After        Scheduled // zero, or the last of the page before: NextAt and ID are read
	Free         bool      // only entries that are not leased
	Limit        int
}

// Scheduled is an entry and when it wants attention.
type Scheduled struct {
	ID     ID
	In     time.Duration // until due, or until its lease ends when that is later; ≤ 0: now
	DueIn  time.Duration // until due, of what Scan has read
	NextAt int64         // as stored, unix ms of the database's clock; a position in the index, not a time
}
