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

// StatementTimeout limits each statement of the library. Without it, a connection that no longer answers would block a
// batcher forever.
const StatementTimeout = 10 * time.Second

// Base holds what every part of the engine and every feature uses: the settings, the store, and the list of problems.
type Base struct {
	*Config
	Problems *problems.List
	Refusals *refusals.List // entries that the database refuses to change
	Releases *releases.List // gives back the leases of claims whose entries did not run
	watcher  Watcher
	instance processlog.InstanceID // id of this process, which LeaseToken puts into tokens; zero: tokens name no process

	// Work is the context of work that may outlast the call that began it, for example a claim. Close ends this context.
	Work    context.Context
	endWork context.CancelCauseFunc
}

func newBase(ctx context.Context, cfg *Config) *Base {
	b := &Base{Config: cfg, watcher: noWatcher}
	b.Problems = problems.New(cfg.Log, cfg.ErrorNumber, func() bool { return b.Work.Err() != nil })
	b.Work, b.endWork = context.WithCancelCause(b.Reporting(context.WithoutCancel(ctx)))
	return b
}

// MarkLeases makes the token of each later lease begin with a mark that names this process. Call MarkLeases before anything
// is recorded or run.
func (b *Base) MarkLeases(by processlog.InstanceID) { b.instance = by }

// LeaseToken returns a new random token for a lease. If MarkLeases was called, the token begins with the mark of this
// process.
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

// NoteResult records the error of a statement of the library, or nil. The parameter what names the statement. An error is
// logged, and Health lists it until the same statement succeeds.
func (b *Base) NoteResult(what string, err error) { b.Problems.NoteResult(what, "", err) }

// QueueShare returns how long a question to the queue may take: half of the time that ctx has left, and at most limit. The
// caller may also have to ask the database before ctx ends. This leaves time for the database if the queue does not answer.
func QueueShare(ctx context.Context, limit time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return limit
	}
	return min(time.Until(deadline)/2, limit)
}

// Reporting returns a copy of ctx. If the store or a connection gets this copy, it reports its problems to this engine.
func (b *Base) Reporting(ctx context.Context) context.Context { return report.To(ctx, b.Problems) }

// NotifyObserver calls a function of the observer in a separate goroutine, and waits for it. So a function that panics or
// calls runtime.Goexit cannot end a goroutine of the engine.
func NotifyObserver[E any](b *Base, observe func(E), event E) {
	if observe == nil {
		return
	}
	if problem := usererr.Contain(func() { observe(event) }); problem != "" {
		b.Log.Error("compensator: a function of the observer has not returned", "err", problem)
	}
}

// notifyHere calls a function of the observer in the caller's goroutine. It logs a panic of the function.
func notifyHere[E any](b *Base, observe func(E), event E) {
	defer func() {
		if p := recover(); p != nil {
			b.Log.Error("compensator: a function of the observer has not returned", "err", "it panicked: "+usererr.PanicText(p))
		}
	}()
	observe(event)
}

// Config holds the dependencies and settings of an engine. All fields are required unless their comment says otherwise.
// Durations have the meaning that Config of the root package documents.
type Config struct {
	Store    processlog.Store
	Log      *slog.Logger
	Observer observe.Observer

	Lease             time.Duration // lease of types that set no lease; the intervals of the scanner and of the renewer depend on it, too
	Grace             time.Duration
	ReconcileInterval time.Duration
	PollInterval      time.Duration
	StopTimeout       time.Duration

	// Extract returns the context base with the values that it reads from the headers of an entry. The entry's handler gets
	// this context.
	Extract func(base context.Context, headers map[string]string) context.Context

	// ErrorNumber returns the number that the server gave an error, or 0. By this number the log recognises the same cause
	// even if the texts of two errors differ.
	ErrorNumber func(err error) uint16
}

// Watcher is a set of functions by which a feature follows the answers of the database, for example to detect a rollback.
// All functions are set. They do nothing unless [Engine.AttachWatcher] has replaced them.
type Watcher struct {
	// HoldReason returns nil while claims may begin and entries may start in this process. Otherwise it returns the reason
	// why they may not. HoldReason does not block. The feature calls Engine.Wake when HoldReason returns nil again.
	HoldReason func() error

	// Claimed is called with the rows of each claim before any of them starts. asked is when the claim statement was sent.
	// If Claimed returns an error, no row starts, and the engine gives back the leases. Claimed may ask the database.
	Claimed func(rows []processlog.Row, asked time.Time) error

	// Read is called with rows that this process has recorded and then read back outside a transaction.
	Read func(rows []processlog.Row, asked time.Time)

	// Stored is called for each outcome that the database has stored. row is the entry as it was claimed. token is the token
	// with which the outcome was written. asked is when the statement that stored the outcome was sent.
	Stored func(row *processlog.Row, o *processlog.Outcome, token processlog.Token, asked time.Time)

	// Recorded is called for entries whose commit is reported, unless this process reads them back from the database. In that
	// case Read is called instead. Recorded must not wait, because it runs in the goroutine that committed. It must not keep
	// fresh.
	Recorded func(fresh []InsertedEntry)

	// Failed is called when a claim or a search for due entries has failed. After a failover another server may answer the
	// next one.
	Failed func()

	// Round is called by the reconciler, which searches the database for forgotten entries every few seconds. Each search is
	// one round, and Round is called before the round claims anything. ctx is the context of Run.
	Round func(ctx context.Context)
}

// RecordedEntry is an entry whose transaction is reported as committed. The report may be wrong, so the entry may be missing.
type RecordedEntry struct {
	ID             processlog.ID // zero if the database did not return it
	IdempotencyKey processlog.IdempotencyKey
	BusinessType   string
	Watched        bool // the connection has seen the commit
}

// PurgeNoteAge is how long a Watcher may remember an entry after it has seen the entry in the database. A purge that
// deletes an entry which ended less than PurgeNoteAge ago must leave a note in the audit table. Without the note, a Watcher
// could report the purged entry as lost.
const PurgeNoteAge = time.Hour

// noWatcher is a Watcher that does nothing.
var noWatcher = Watcher{
	HoldReason: func() error { return nil },
	Claimed:    func([]processlog.Row, time.Time) error { return nil },
	Read:       func([]processlog.Row, time.Time) {},
	Stored:     func(*processlog.Row, *processlog.Outcome, processlog.Token, time.Time) {},
	Recorded:   func([]InsertedEntry) {},
	Failed:     func() {},
	Round:      func(context.Context) {},
}

// AttachWatcher lets a feature watch the engine. The function configure gets the engine's Watcher and sets the functions
// that the feature implements. Call AttachWatcher before anything is recorded or run.
func (e *Engine) AttachWatcher(configure func(w *Watcher)) { configure(&e.watcher) }

// HoldReason calls Watcher.HoldReason.
func (b *Base) HoldReason() error { return b.watcher.HoldReason() }

// WatchRead calls Watcher.Read.
func (b *Base) WatchRead(rows []processlog.Row, asked time.Time) { b.watcher.Read(rows, asked) }

// WatchRecorded calls Watcher.Recorded.
func (b *Base) WatchRecorded(fresh []InsertedEntry) { b.watcher.Recorded(fresh) }
