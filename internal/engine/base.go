package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/compensator-go/compensator/internal/problems"
	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/internal/releases"
	"github.com/compensator-go/compensator/internal/report"
	"github.com/compensator-go/compensator/internal/sleep"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// StatementTimeout limits each statement of the library, except the reads of the reconciler, which have scanTimeout. So
// a dead connection cannot block a batcher forever.
const StatementTimeout = 10 * time.Second

// Base holds what every part of the engine and every feature uses: the settings, the store, and the list of problems.
type Base struct {
	*Config
	Problems *problems.List
	Refusals *refusals.List // entries that the database refuses to change
	Releases *releases.List // gives back the leases of claims whose entries did not run
	watcher  Watcher
	instance processlog.InstanceID // id of this process, which LeaseToken puts into tokens; zero: tokens name no process

	// Work is the context of work that may outlast the call that began it, for example a claim. Close ends this
	// context.
	Work    context.Context
	endWork context.CancelCauseFunc
}

func newBase(ctx context.Context, cfg *Config) *Base {
	b := &Base{Config: cfg, watcher: noWatcher}
	b.Problems = problems.New(cfg.Log, cfg.ErrorNumber, func() bool { return b.Work.Err() != nil })
	b.Work, b.endWork = context.WithCancelCause(b.Reporting(context.WithoutCancel(ctx)))
	return b
}

// MarkLeases makes the token of each later lease begin with a mark that names this process. Call MarkLeases before
// anything is recorded or run.
func (b *Base) MarkLeases(by processlog.InstanceID) { b.instance = by }

// LeaseToken returns a new random token for a lease.
func (b *Base) LeaseToken() processlog.Token {
	token := processlog.NewToken()
	if b.instance != (processlog.InstanceID{}) {
		token = token.Mark(b.instance)
	}
	return token
}

// Statement returns a context for one statement of the library. It ends after StatementTimeout.
func (b *Base) Statement() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.Work, StatementTimeout)
}

// Wait waits for d. It returns false if the engine is closed first.
func (b *Base) Wait(d time.Duration) bool { return sleep.For(b.Work, d) }

// ProblemReadBack is exported for features that read recorded entries back.
const ProblemReadBack = "new entries could not be read back"

// These texts say what fails. Each is the key of a Problem, and appears in the log.
const (
	ProblemDue     = "due entries could not be found in the database"
	problemClaim   = "entries could not be claimed"
	problemRelease = "leases could not be given back"
	problemRenew   = "leases could not be renewed"
	problemStore   = "outcomes could not be stored"
	problemRound   = "the log could not be searched for forgotten entries"
)

// NoteResult records the result of a statement of the library. The text in the parameter what says what the statement
// does, for example ProblemDue. The parameter err is nil if the statement has succeeded. An error is logged, and Health
// lists it until the same statement succeeds.
func (b *Base) NoteResult(what string, err error) { b.Problems.NoteResult(what, "", err) }

// QueueShare returns how long a question to the queue may take: half of the time that ctx has left, and at most limit.
func QueueShare(ctx context.Context, limit time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return limit
	}
	return min(time.Until(deadline)/2, limit)
}

// Reporting returns a copy of ctx. A store or a connection that gets the copy reports its problems to this engine.
func (b *Base) Reporting(ctx context.Context) context.Context { return report.To(ctx, b.Problems) }

// NotifyObserver calls a function of the observer in a separate goroutine, and waits for it. So a function that panics
// or calls runtime.Goexit cannot end a goroutine of the engine.
func NotifyObserver[E any](b *Base, observe func(E), event E) {
	if observe == nil {
		return
	}
	if problem := usererr.Contain(func() { observe(event) }); problem != "" {
		b.Log.Error("compensator: a function of the observer has not returned", "err", problem)
	}
}

func notifyHere[E any](b *Base, observe func(E), event E) {
	defer func() {
		if p := recover(); p != nil {
			b.Log.Error("compensator: a function of the observer has not returned", "err", "it panicked: "+usererr.PanicText(p))
		}
	}()
	observe(event)
}

// Config holds the dependencies and settings of an engine. All fields are required unless their comment says otherwise.
type Config struct {
	Store    processlog.Store
	Log      *slog.Logger
	Observer observe.Observer

	Lease             time.Duration // lease of types that set no lease; the intervals of the scanner and of the renewer depend on it, too
	Grace             time.Duration
	ReconcileInterval time.Duration
	PollInterval      time.Duration
	StopTimeout       time.Duration

	// Extract returns a copy of base with values from the headers of an entry, for its handler.
	Extract func(base context.Context, headers map[string]string) context.Context

	// ErrorNumber returns the error number of the database server, for example 1213 for a deadlock. It returns 0 if err has
	// no such number.
	ErrorNumber func(err error) uint16
}

// Watcher is a set of functions by which a feature follows the answers of the database, for example to detect a
// rollback. All functions are set. They do nothing unless [Engine.AttachWatcher] has replaced them.
type Watcher struct {
	// HoldReason returns why this process must not claim and start entries now. HoldReason returns nil if this process
	// may claim and start entries. HoldReason does not block. The feature calls Engine.Wake when HoldReason returns nil
	// again.
	HoldReason func() error

	// Claimed is called with the rows of each claim before any of them starts. The parameter asked is the time at which
	// the claim statement was sent. If Claimed returns an error, no row starts, and the engine gives back the leases.
	// Claimed may ask the database.
	Claimed func(rows []processlog.Row, asked time.Time) error

	// Read is called with rows that this process has recorded and then read back outside a transaction.
	Read func(rows []processlog.Row, asked time.Time)

	// Stored is called for each outcome that the database has stored. Its parameters are:
	//
	//   - row is the entry as it was claimed.
	//   - o is the outcome.
	//   - token was written into the entry's row together with the outcome.
	//   - asked is the time at which the statement with the outcome was sent.
	Stored func(row *processlog.Row, o *processlog.Outcome, token processlog.Token, asked time.Time)

	// Recorded is called with entries whose transaction is reported as committed. It is not called with entries that a
	// feature starts in this process. The process reads these entries back from the database, and the engine then calls
	// Read or Claimed.
	//
	// Recorded must not wait, because it runs in the goroutine that committed the transaction. After Recorded has
	// returned, the engine may overwrite the slice fresh. So Recorded must copy the entries that it needs later.
	Recorded func(fresh []InsertedEntry)

	// Failed is called when a claim or a search for due entries has failed.
	Failed func()

	// Round is called at the beginning of each round of the reconciler, with the context of Run.
	Round func(ctx context.Context)
}

// RecordedEntry is an entry whose transaction is reported as committed. The report may be wrong, so the entry may be
// missing.
type RecordedEntry struct {
	ID             processlog.ID // zero if the database did not return it
	IdempotencyKey processlog.IdempotencyKey
	BusinessType   string
	Watched        bool // whether this process saw the commit on the connection. False means that Receipt.Committed or a read of the database has reported the commit
}

// PurgeNoteAge is how long a Watcher may remember an entry after it has seen the entry in the database. If a remembered
// entry is missing, the Watcher believes that the database has lost the entry. So a purge must leave a note in the
// audit table if it deletes an entry that ended less than PurgeNoteAge ago. The note tells the Watcher why the entry is
// missing.
const PurgeNoteAge = time.Hour

var noWatcher = Watcher{
	HoldReason: func() error { return nil },
	Claimed:    func([]processlog.Row, time.Time) error { return nil },
	Read:       func([]processlog.Row, time.Time) {},
	Stored:     func(*processlog.Row, *processlog.Outcome, processlog.Token, time.Time) {},
	Recorded:   func([]InsertedEntry) {},
	Failed:     func() {},
	Round:      func(context.Context) {},
}

// AttachWatcher lets a feature watch the engine. Call AttachWatcher before anything is recorded or run.
func (e *Engine) AttachWatcher(configure func(w *Watcher)) { configure(&e.watcher) }

// HoldReason calls Watcher.HoldReason.
func (b *Base) HoldReason() error { return b.watcher.HoldReason() }

// WatchRead calls Watcher.Read.
func (b *Base) WatchRead(rows []processlog.Row, asked time.Time) { b.watcher.Read(rows, asked) }

// Hooks are the functions by which features take part in the life of an entry, from Record to its stored outcome. All
// functions must be safe for concurrent use. They must return at once, except Closing and the functions that
// BeforeInsert returns.
//
// The engine calls the functions in the order of the fields.
type Hooks struct {
	// BeforeInsert is called before entries are inserted. It may change the drafts. If BeforeInsert returns an error,
	// nothing is recorded. BeforeInsert may also return a function, or nil. The engine calls this function after the
	// insert, in the same transaction: see RecorderWrite.
	BeforeInsert []func(drafts []processlog.Draft) (write RecorderWrite, err error)

	// Reserve is called before the insert, if this process sees the end of the transaction. It chooses the drafts that
	// are inserted with a lease, and sets their Draft.Lease. It returns one Reservation for each draft, which is nil
	// for the drafts that it did not choose.
	Reserve []func(drafts []processlog.Draft) []Reservation

	// AwaitCommit is called after the insert, if this process does not see the end of the transaction. A feature may
	// find out whether the transaction has committed, and then calls Recording.CommitFound.
	AwaitCommit []func(r *Recording)

	// Committed is called with the entries of each Record call whose commit this process has seen. Committed must not
	// keep its arguments.
	Committed []func(drafts []processlog.Draft, inserted []processlog.Inserted)

	// Start is called with entries whose transaction has committed. A feature starts some of these entries in this
	// process. It returns the others, and the engine passes them to the source. Start may overwrite the slice fresh and
	// return a part of it.
	Start []func(fresh []InsertedEntry) (others []InsertedEntry)

	// FindID is called for an entry that the source accepts and whose id is not known. A feature that reads the id
	// hands the entry to Engine.StartRecorded, and returns true. FindID must not claim an entry before
	// InsertedEntry.Due.
	FindID []func(f InsertedEntry) bool

	// AwaitChange is called after a transaction has changed an entry, for example by Cancel. It is called only if this
	// process does not see the end of that transaction. A feature may find out whether the transaction has committed.
	// If so, the feature calls Engine.ChangeCommitted.
	AwaitChange []func(before processlog.Row, ch processlog.Change)

	// Ordered reports whether an entry of a type may be blocked by another entry of the type. Ordered also knows types
	// that do not run here.
	Ordered []func(businessType string) bool

	// GivenBack is called when the engine gives up the lease of an attempt that does not start.
	GivenBack []func(a *Attempt)

	// Ended is called when the handler of an attempt has returned, before the outcome of the attempt is stored. The
	// field end.Cause says why the context of the handler ended. The parameter counted is true if the attempt counts as
	// a failure of the entry.
	Ended []func(a *Attempt, end Result, counted bool)

	// Failed is called when an attempt has failed, before the outcome of the attempt is passed on to be stored. The
	// field end.Err is the error of the handler. The field end.Cause says why the context of the handler ended. Failed
	// returns a description of the attempt, a *FailedAttempt, or nil. The engine stores this description together with
	// the outcome.
	//
	// Failed is also called when an entry is dead-lettered because consecutive leases ended with no outcome. Then
	// end.Err is nil.
	Failed []func(a *Attempt, end Result, o processlog.Outcome) *processlog.FailedAttempt

	// Prepare is called once for each outcome that Store.Settle will store, before the outcome waits to be sent.
	// Prepare returns the outcome, and can add data to it. The transaction that stores the outcome also stores this
	// data. Prepare is not called for a success that a transactional handler has stored in its own transaction: see
	// Result.Stored.
	Prepare []func(a *Attempt, o processlog.Outcome) processlog.Outcome

	// IsAwaited reports whether another entry waits for the outcome of an attempt. The engine stores such an outcome
	// sooner than other outcomes.
	IsAwaited []func(a *Attempt) bool

	// Storing is called with the outcomes for which IsAwaited returned true, before the engine sends them to the
	// database. Storing may return the function onAnswer, or nil. The engine calls onAnswer once, when the database has
	// answered or the first try has failed.
	Storing []func(batch []Settling) (onAnswer func())

	// Stored is called when an outcome is stored. The parameter failed says whether the outcome counts as a failure of
	// the entry.
	Stored []func(a *Attempt, to processlog.State, failed bool)

	// Dropped is called when an attempt ends and no outcome of it is stored.
	Dropped []func(a *Attempt)

	// Moved is called when a change by a service or a person has ended an entry, for example Cancel.
	Moved []func(row *processlog.Row, to processlog.State)

	// Closing is called by Engine.Close after the end of Base.Work. Closing waits for the goroutines of the feature
	// that may still hand entries to the engine.
	Closing []func()
}

// RecorderWrite writes in the transaction that records entries, after their insert. The parameter inserted has the
// result of the insert for each draft, in the order of the drafts.
type RecorderWrite func(ctx context.Context, tx processlog.Tx, inserted []processlog.Inserted) error

// Source is a set of functions by which a queue reports due entries, so that the reconciler need not search the
// database for them. The reports are only hints. A claim asks the database whether the entry exists, is due and is
// free. See promise G10.
type Source struct {
	// Scope returns whether the source now reports the entries of all processes, of this process only, or no entries.
	Scope func() Scope

	// Accepts reports whether the source accepts an entry that is due after the given delay.
	Accepts func(businessType string, delay time.Duration) bool

	// Enqueue adds entries, each with the time until it is due. Enqueue, Move and Settle return at once.
	Enqueue func(entries []processlog.QueueEntry)

	// Move changes the due time of an entry in the source. If the source does not have the entry, Move adds the entry.
	Move func(entry processlog.QueueEntry)

	// Settle ends the lease that Queue.Claim has taken on one entry in the queue. The field o.Token names this lease.
	Settle func(businessType string, o processlog.QueueOutcome)

	// ClaimDue claims and starts due entries of the type t. The parameter calls is the number of handler calls that may
	// begin. The caller has taken as many slots as t.SlotsToSearch returns for this number. ClaimDue releases the slots
	// that it does not need. The parameter backlog says that the database holds due entries which the source does not
	// report.
	ClaimDue func(t *Type, calls int, backlog bool) ClaimResult

	// Round is called when a round of the reconciler begins. The engine calls finish at the end of the round, after it
	// has claimed overdue entries. heads has the earliest entry of each type and state.
	Round func(ctx context.Context) (finish func(ctx context.Context, heads Heads, event *observe.ReconciledEvent))
}

// Scope says whether a source reports the entries of all processes, of one process, or no entries.
type Scope int

const (
	ScopeNone Scope = iota // no entries: there is no source, or it does not answer
	ScopeOwn               // entries that this process has enqueued
	ScopeAll               // entries that any process has enqueued
)

// Heads holds the earliest entry of each type and state, as a round of the reconciler has read them.
type Heads struct {
	List   []processlog.Head
	SentAt time.Time // just before the statement was sent
}

// AttachSource attaches a source to the engine. Call it before a type is registered.
func (e *Engine) AttachSource(s Source) { e.source = s }

// Source returns the source of the engine.
func (e *Engine) Source() Source { return e.source }

func (e *Engine) sourceReports() bool { return e.source.Scope() != ScopeNone }

// storeOnly returns the Source of an engine without a queue.
func (e *Engine) storeOnly() Source {
	expect := func(entry processlog.QueueEntry) { e.Expect(entry.BusinessType, entry.In) }
	return Source{
		Scope:   func() Scope { return ScopeNone },
		Accepts: func(businessType string, _ time.Duration) bool { return e.AcceptingType(businessType) != nil },
		Enqueue: func(entries []processlog.QueueEntry) {
			for _, entry := range entries {
				expect(entry)
			}
		},
		Move:     expect,
		Settle:   func(string, processlog.QueueOutcome) {},
		ClaimDue: func(t *Type, calls int, _ bool) ClaimResult { return e.ClaimFromStore(t, calls) },
		Round:    func(context.Context) func(context.Context, Heads, *observe.ReconciledEvent) { return nil },
	}
}
