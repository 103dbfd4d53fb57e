// Package engine takes an entry from the commit of its transaction to its end. The database alone decides who has an entry and
// what became of it. Everything in memory ends with the process.
//
// This is the story of an entry, with the files in the order in which it passes them.
//
//   - Recorded (record.go): a service inserts the entry in its own transaction. Recording learns how that transaction ends.
//     After the commit it hands the entry to the source. A Starter may claim the entry here instead.
//   - Due (schedule.go): the claim schedule knows when a claim of each type is worthwhile, and starts it. A source
//     (record.go), for example a queue, reports due entries to it. Without a source the reconciler does.
//   - Claimed (claim.go): the source or the database names the entries to claim. A claim leases their rows in the database.
//     While the rows are locked, the picker says which of them may run here. Package readahead keeps rows that were found
//     due and not tried yet. Package releases gives back the leases of claims that ran nothing.
//   - Run (run.go): each attempt runs in a goroutine. The holdings keep an attempt from before the handler is
//     called until the outcome is stored. The renewer renews the leases of held attempts (lease.go).
//   - Judged (outcome.go): package verdict reads what the error of the handler asks for. The outcome follows from this and the
//     row: succeeded, due again, compensated, or dead.
//   - Settled (settle.go): outcomes are stored together, each guarded by the version that the claim has left. Package refusals
//     remembers the rows that the database refuses to change. They are offered less and less often.
//   - Reconciled (reconcile.go): rounds find entries that are overdue, because a process died or a source forgot them.
//
// The engine does not import the features. Package internal/features attaches them through these types:
//
//   - An Admission decides which entries may be claimed and started. An Order blocks entries until others have ended. A
//     Grouping makes one call take several entries. A Claimer claims instead of the store. Slots count the calls
//     (admission.go).
//   - A Settlement acts when outcomes are stored (settle.go). A Watcher follows the answers of the database (base.go).
//   - A Recorder writes when entries are recorded. A Starter starts them where they were recorded. A CommitPoller finds out
//     which transactions have committed (record.go).
//   - A Source reports due entries (record.go).
//
// A business type is in type.go. The clients and settings that every part uses are in base.go.
//
// These special cases meet in claims. The right column names what sets and ends each of them.
//
//	held          this process has an attempt of the entry, so it does not claim it       holdings, admit to forget
//	stuck         a handler runs on after its timeout; its entry is left to others        holdings.examine, until it returns
//	suspect       the entry has lost leases, so few of its kind run at once               Row.DeliveryCount; Admission.SuspectDone
//	counted only  the claim counts a lost lease and runs nothing                          picker.mayClaim, in one claim
//	without call  the entry may run, but no slot was left for it                          picker.accept, in one claim
//	blocked       another entry has to end first                                          Order
//	more due      a claim took all it asked for, so the next one begins at once           typeSchedule.claimEnded
//	lost race     other processes claimed all that this claim read, so the next one waits typeSchedule.scheduleNext
//	lingering     the entry is due and waits for others to share its call                 Grouping.Look
//	refused claim the database refused a claim of the type, so the type pauses            typeSchedule.scheduleNext
//	refused row   the database refuses to change the entry, which is tried less often     package refusals
//
// A queue adds two cases (package queue). The backlog is due entries that only the database has. A claim is empty if other
// processes have taken all due entries of the queue.
//
// Files have at most 400 lines where a stage allows it. The stages in admission.go, claim.go, run.go, lease.go and settle.go are
// longer, because each has one purpose whose parts are read together.
//
// Three rules hold everywhere. Each write is guarded by what was read of the row (G4, G8), so losing a race is a normal result. The
// source is a hint (G10). Nothing blocks while it holds a mutex. Numbers such as G4 name the promises in docs/reference/guarantees.md.
//
// The root package makes an Engine. Run calls Scan, Reconcile and Renew in goroutines. They return when their contexts end,
// and Run waits for them. All other goroutines flush batchers of package groupcommit, or run handlers. Drain waits for both,
// and Close waits for the batchers.
package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/internal/releases"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Engine runs the entries of a process. All its methods may be called concurrently. Each part that has state is a type,
// such as holdings, and owns its state and its mutex. Parts without state are methods of Engine. The package comment names
// the file of each part.
type Engine struct {
	*Base
	*types
	*claimSchedule
	*holdings
	source      Source
	outcomes    *outcomes
	settlements []*Settlement // of features
	starter     Starter
	poller      CommitPoller
	recorders   []Recorder                                                        // of features
	committed   []func(drafts []processlog.Draft, inserted []processlog.Inserted) // of features

	claimBatchers    []Batcher // of features, with claims; Drain waits for them before handlers and after outcomes, and Close waits for them, too
	drainEndBatchers []Batcher // of features; Drain waits for them at its end, and Close waits for them, too
	closeBatchers    []Batcher // of features; only Close waits for them

	mu                 sync.Mutex // guards the fields below
	running            bool
	runContext         context.Context         // context of Run; no handler starts after its end
	handlersContext    context.Context         // parent of the handlers' contexts; it ends later than runContext
	endHandlersContext context.CancelCauseFunc // ends handlers
}

// New makes an engine. The engine keeps the values of ctx, but goes on when ctx ends. Close the engine when you are done.
func New(ctx context.Context, cfg Config) *Engine {
	e := &Engine{Base: newBase(ctx, &cfg)}
	b := e.Base
	e.types = newTypes(cfg.Lease)
	e.claimSchedule = newClaimSchedule(e.types)
	e.source = noSource{e}
	e.holdings = newHoldings()
	b.Refusals = refusals.New(b.Problems, b.Log, func() bool { return b.Work.Err() != nil })
	b.Releases = releases.New(releases.Config{
		Release: func(ids []processlog.ID, token processlog.Token) (processlog.Unreleased, error) {
			ctx, cancel := b.Statement()
			defer cancel()
			return b.Store.Release(ctx, ids, token)
		},
		NoteResult: func(err error) { b.NoteResult(problemRelease, err) },
		Offer:      func(entries []processlog.QueueEntry) { e.source.Enqueue(entries) },
		Wait:       b.Wait, Pause: Backoff, Refusals: b.Refusals, MaxDuration: StatementTimeout,
	})
	e.outcomes = e.newOutcomes()
	e.starter = noStarter{e}
	e.poller = noPoller{}
	return e
}

// Register adds a type. Call it before Run. The functions in attach add features to the type. Errors name what is wrong.
func (e *Engine) Register(t Type, attach ...func(t *Type)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		return fmt.Errorf("register %q: %w: register types before Run", t.Name, processlog.ErrRunning)
	}
	t.slots = unlimited{}
	for _, f := range attach {
		f(&t)
	}
	return e.types.addType(&t)
}

// ChangeCommitted is called when a service or a person has changed an entry, for example with Cancel, and the transaction
// has committed. It cancels an attempt of the entry that runs here, and passes a new due time to the source.
func (e *Engine) ChangeCommitted(before processlog.Row, ch processlog.Change) {
	failpoint.Reach(failpoint.ChangeCommitted)
	after, err := ch.After(before)
	if err != nil || after.Version == before.Version {
		return
	}
	if ch.Action != processlog.ActionReschedule {
		e.holdings.cancel(&before, fmt.Errorf("%w: %s", processlog.ErrCancelled, ch.Action))
	}
	switch {
	case !after.State.Terminal():
		e.source.Move(processlog.QueueEntry{BusinessType: before.BusinessType, ID: before.ID, In: ch.Delay})
	case after.State != before.State: // An erasure leaves the state of an ended entry as it is.
		for _, f := range e.settlements {
			f.Moved(&before, after.State)
		}
	}
}

// AwaitChangeCommit polls the database until the transaction of a change has committed, and then calls ChangeCommitted. It
// is for a transaction whose end this process does not see.
func (e *Engine) AwaitChangeCommit(before processlog.Row, ch processlog.Change) {
	e.poller.Changed(before, ch)
}

// AwaitInDrain registers batchers of a feature. Drain waits until these batchers are empty, after all its other waits.
// Close waits for them, too.
func (e *Engine) AwaitInDrain(batchers ...Batcher) {
	e.drainEndBatchers = append(e.drainEndBatchers, batchers...)
}

// AwaitClaims registers batchers that a feature uses for claims. Drain waits twice until these batchers are empty. It
// waits first before it waits for handlers, because a claim may start a handler. It waits again after it has stored the
// outcomes, because a stored outcome can add a claim. Close waits for these batchers, too.
func (e *Engine) AwaitClaims(batchers ...Batcher) {
	e.claimBatchers = append(e.claimBatchers, batchers...)
}

// AwaitInClose registers batchers of a feature. Close waits until they are empty.
func (e *Engine) AwaitInClose(batchers ...Batcher) {
	e.closeBatchers = append(e.closeBatchers, batchers...)
}

// Start prepares for a Run whose context is ctx. After it has returned, the engine takes new entries. It returns ErrRunning
// if a Run is under way.
func (e *Engine) Start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		return processlog.ErrRunning
	}
	e.running = true
	e.types.notifyRunBegins()
	e.claimSchedule.prepare()
	e.runContext = ctx
	e.handlersContext, e.endHandlersContext = context.WithCancelCause(e.Work)
	e.acceptsEntries.Store(true)
	return nil
}

// Running reports whether a Run is under way: from Start to End.
func (e *Engine) Running() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running
}

// OpenProblems lists the problems that exist now, the oldest first.
func (e *Engine) OpenProblems() []observe.Problem {
	e.Refusals.ForgetOld()
	return e.Problems.Open()
}

// StopAccepting makes the engine take no more new entries.
func (e *Engine) StopAccepting() { e.acceptsEntries.Store(false) }

// RunEnded allows the next Start.
func (e *Engine) RunEnded() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.StopAccepting()
	e.running = false
}

// contexts returns the context of Run, and the context that all handlers' contexts derive from.
func (e *Engine) contexts() (run, handlers context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runContext, e.handlersContext
}

// Stopping reports whether Run's context has ended.
func (e *Engine) Stopping() bool {
	run, _ := e.contexts()
	return run.Err() != nil
}

// Drain waits for running handlers and stores their outcomes. Call it when Scan and Reconcile have ended, while Renew still
// runs. If handlers do not return in time, errors.As finds a *StuckError in the error of Drain. If outcomes could not be
// stored, the error says so.
func (e *Engine) Drain() error {
	startedAt := time.Now()
	awaitBatchers(startedAt.Add(e.StopTimeout/3), e.claimBatchers...)
	drainErr := e.awaitHandlers(e.StopTimeout - time.Since(startedAt))
	failpoint.Reach(failpoint.HandlersEnded)
	graceEnd := time.Now().Add(max(e.StopTimeout/3, stopGrace))
	if !awaitBatchers(graceEnd, &e.outcomes.ordinary, &e.outcomes.prompt, &e.outcomes.locked) {
		return errors.Join(drainErr, errors.New("compensator: outcomes of finished handlers could not be stored; their entries will run again when their leases end"))
	}
	if refusedErr := e.Refusals.RetryOutcomes(stopGrace); refusedErr != nil {
		drainErr = errors.Join(drainErr, fmt.Errorf("compensator: outcomes of finished handlers are not stored; their entries will run again when their leases end: %w", refusedErr))
	}
	failpoint.Reach(failpoint.OutcomesDrained)
	if !awaitBatchers(graceEnd, e.claimBatchers...) {
		return errors.Join(drainErr, errors.New("compensator: claims under way were not answered; what they bring is given back, or comes due when its lease ends"))
	}
	awaitBatchers(graceEnd, e.drainEndBatchers...)
	return drainErr
}

// awaitHandlers waits for running handlers, at most for timeout. After two thirds of timeout it ends their contexts. Its
// error names the handlers that have not returned.
func (e *Engine) awaitHandlers(timeout time.Duration) error {
	grace := time.NewTimer(timeout * 2 / 3)
	defer grace.Stop()
	select {
	case <-e.holdings.whenIdle():
	case <-grace.C:
	}
	e.endHandlersContext(processlog.ErrStopping) // No handler starts after this call.
	deadline := time.NewTimer(timeout / 3)
	defer deadline.Stop()
	select {
	case <-e.holdings.whenIdle():
		return nil
	case <-deadline.C:
		return e.stuckError()
	}
}

// stuckError returns an error that lists the handlers that have not returned. It returns nil if the last handler has just
// returned.
func (e *Engine) stuckError() error {
	if running := e.holdings.running(func(a HeldAttempt) bool { return !a.Returned }); len(running) > 0 {
		return &processlog.StuckError{Stuck: running}
	}
	return nil
}

// stopGrace is the minimum time that a stop waits for outcomes to be stored.
const stopGrace = time.Second

// Close waits up to closeTimeout for the batchers, and then cancels the work that is left.
func (e *Engine) Close() {
	batchers := []Batcher{&e.outcomes.ordinary, &e.outcomes.prompt, &e.outcomes.locked, &e.outcomes.refused,
		&e.Releases.Batcher}
	batchers = slices.Concat(batchers, e.claimBatchers, e.drainEndBatchers, e.closeBatchers)
	awaitBatchers(time.Now().Add(closeTimeout), batchers...)
	e.endWork(processlog.ErrClosed)
	e.poller.Close() // The poller adds entries to batchers, so end it before the batchers.
	for _, b := range batchers {
		<-b.Done() // only statements are left to wait for, and the ended context has cancelled them
	}
}

const closeTimeout = 5 * time.Second

// Batcher is a batcher of package groupcommit that the engine can wait for.
type Batcher interface {
	Done() <-chan struct{}
	Quiet() bool
}

// awaitBatchers waits until all batchers are empty, and returns true. Batchers may add work to each other. If a batcher
// still has work at the deadline, awaitBatchers returns false. If the deadline has passed before this wait begins,
// awaitBatchers returns at once whether all batchers are empty.
func awaitBatchers(deadline time.Time, batchers ...Batcher) bool {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	isBusy := func(b Batcher) bool { return !b.Quiet() }
	for {
		for _, b := range batchers {
			select {
			case <-b.Done():
			case <-timer.C:
				return !slices.ContainsFunc(batchers, isBusy) // Both cases may be ready.
			}
		}
		if !slices.ContainsFunc(batchers, isBusy) {
			return true
		}
	}
}
