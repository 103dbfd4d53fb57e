// Package engine takes an entry from the commit of its transaction to its end. The database alone decides which process
// has an entry and what became of the entry. Everything in memory ends with the process.
//
// These are the stages of an entry, each with its file, in the order of an entry's life:
//
//   - Recorded (record.go): a service inserts the entry in its own transaction. Recording learns how that transaction
//     ends. If this process has reserved a slot, the entry is inserted with a lease. After the commit, its first
//     attempt runs here without a claim. Every other attempt begins with a claim.
//   - Due (schedule.go): the claim schedule starts a claim of a type when it is worthwhile. The source, for example a
//     queue, reports due entries. Without a queue, the rounds of the reconciler report them.
//   - Claimed (claim.go): a claim leases rows in the database. While the rows are locked, the picker says which of them
//     may run here.
//   - Run (run.go): each attempt runs in a goroutine. The process holds the attempt until its outcome is stored, and
//     renews its lease (lease.go).
//   - Judged (outcome.go): the outcome follows from the error of the handler and the row.
//   - Settled (settle.go): one statement stores several outcomes. A failure changes a row only if the row still has the
//     version that it had after the claim. A success of a plain handler only needs the epoch of the claim and an
//     unfinished entry. See promise G8.
//   - Reconciled (reconcile.go): rounds find entries that are overdue, because a process died or a source forgot them.
//
// The engine does not import the features, which are the packages in internal/features. A feature attaches itself to
// the engine through one or more of the methods and fields in the next table. Each line names the method or field, what
// it decides, and the features that use it. Methods and fields of Type are in admission.go, those of Engine in base.go.
//
//	Type.AttachAdmission  which entries are claimed, and how many    breaker, limits, pause, quarantine
//	Type.AttachOrder      entries that wait for others to end        ordering
//	Type.AttachGrouping   one call for several entries               batches
//	Type.AttachSlots      number of calls at once                    slots
//	Type.Run, Type.Undo   how the handler is called                  batches, transactional
//	Engine.AttachSource   who reports due entries                    queue
//	Engine.AttachWatcher  what the database has answered             rollback
//	Engine.Hooks          the life of an entry                       attempts, batches, cases, commitpoll, health,
//	                                                                 limits, ordering, readback, statistics, waiting
//	Engine.Await          batchers that a stop waits for             instances, limits, ordering, queue, readback,
//	                                                                 rollback, statistics, waiting
//
// The packages invalidrows, periodic, single and timingwheel attach nothing. The first three call the engine from loops
// or requests of their own. The last one is a queue in memory.
//
// A claim has to treat some entries and types in a special way. Each line of the next table names a special case, says
// what it means, and names the code where the case begins and ends.
//
//	held           this process has an attempt of the entry, and does not claim it    holdings.admit, Engine.forget
//	stuck          the handler runs on after its timeout, and others may claim        holdings.examine, Attempt.returned
//	suspect        the entry has lost leases, and few suspects run at once            Row.DeliveryCount, SuspectDone
//	counted only   the claim counts a lost lease and runs nothing                     picker.mayClaim
//	without call   the entry may run, but no slot was left for it                     picker.accept
//	blocked        another entry has to end first                                     Order
//	more due       a claim got all that it asked for, and the next begins at once     typeSchedule.claimEnded
//	backlog        the database has due entries that the source does not report       ExpectBacklog, claimEnded
//	lost race      other processes claimed all that this claim read; the next waits   typeSchedule.scheduleNext
//	lingering      the entry is due and waits for others to share its call            Grouping.Look
//	refused claim  the database refused a claim of the type, and the type pauses      typeSchedule.scheduleNext
//	refused row    the database refuses to change the entry; tries become rarer       package refusals
//
// Files have about 400 lines at most. A stage stays in one file, because its parts are read together.
//
// Three rules hold everywhere:
//
//   - A write changes a row only if the row is still as it was read. So another process may change the row first, and
//     losing this race is a normal result. See promises G4 and G8.
//   - The source only gives hints, and the database decides. See promise G10.
//   - Nothing blocks while it holds a mutex.
//
// The promises G1, G2 and so on are in docs/reference/guarantees.md.
//
// The root package calls Scan, Reconcile and Renew in goroutines, and waits for them. Scan runs each claim and each look
// in a goroutine, and waits for these too. All other goroutines flush batchers of package groupcommit, or run handlers.
// Drain waits for both, and Close waits for the batchers.
package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/refusals"
	"github.com/compensator-go/compensator/internal/releases"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Engine runs the entries of a process. All its methods may be called concurrently. Each part that has state is a type,
// such as holdings, and owns its state and its mutex.
type Engine struct {
	*Base
	*types
	*claimSchedule
	*holdings
	source   Source
	outcomes *outcomes
	Hooks    Hooks // of features

	batchers [waitPhases][]Batcher

	mu  sync.Mutex          // held by Register and Start, so that no type is added after Run has begun
	run atomic.Pointer[run] // the latest Run; nil before the first
}

type run struct {
	context     context.Context         // the context of Run, which the caller has passed; no handler starts after its end
	handlers    context.Context         // parent of the contexts of handlers. It ends some time after the context of Run, so that running handlers can finish
	endHandlers context.CancelCauseFunc // ends the context in the field handlers
	accepts     bool                    // whether this Run takes new entries until its context ends
	hasEnded    atomic.Bool
}

// New makes an engine. The engine keeps the values of ctx, but goes on when ctx ends. Close the engine when you are
// done.
func New(ctx context.Context, cfg Config) *Engine {
	e := &Engine{Base: newBase(ctx, &cfg)}
	b := e.Base
	e.types = newTypes(cfg.Lease)
	e.claimSchedule = newClaimSchedule(e.types)
	e.source = e.storeOnly()
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
	e.Await(WaitInClose, &e.outcomes.ordinary, &e.outcomes.prompt, &e.outcomes.locked, &e.outcomes.refused, &e.Releases.Batcher)
	return e
}

// Register adds a type. Call it before Run.
func (e *Engine) Register(t Type, attach ...func(t *Type)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Running() {
		return fmt.Errorf("register %q: %w: register types before Run", t.Name, processlog.ErrRunning)
	}
	t.slots = unlimited{}
	for _, f := range attach {
		f(&t)
	}
	return e.types.addType(&t)
}

// ChangeCommitted is called when the transaction of a change has committed, for example of Cancel.
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
	// A new state means that the change has ended the entry. The old state means that the entry had ended before, and
	// was only erased now.
	case after.State != before.State:
		for _, moved := range e.Hooks.Moved {
			moved(&before, after.State)
		}
	}
}

// AwaitChangeCommit lets the features find out whether the transaction of a change has committed. It is for a
// transaction whose end this process does not see.
func (e *Engine) AwaitChangeCommit(before processlog.Row, ch processlog.Change) {
	for _, awaitChange := range e.Hooks.AwaitChange {
		awaitChange(before, ch)
	}
}

// WaitPhase says when the engine waits, during a stop, until certain batchers of a feature are empty. The first two
// phases belong to Drain, and the last phase is Close. In this last phase, Close waits for the batchers of all phases.
type WaitPhase int

const (
	// WaitForClaims is the phase for batchers of claims. Drain waits for these batchers before it waits for handlers,
	// because a claim may start a handler.
	WaitForClaims  WaitPhase = iota
	WaitAtDrainEnd           // the phase at the end of Drain, after all its other waits
	WaitInClose              // the phase of Close, for batchers without a phase in Drain
	waitPhases               // number of phases
)

// Await adds batchers of a feature to those that the engine waits for when it stops. The parameter phase says at which
// point of Drain or Close the engine waits for them.
func (e *Engine) Await(phase WaitPhase, batchers ...Batcher) {
	e.batchers[phase] = append(e.batchers[phase], batchers...)
}

// Start prepares for a Run whose context is ctx. If the parameter accepts is true, the engine takes new entries until
// ctx ends. If it is false, the engine takes no new entries. Start returns ErrRunning if a Run is under way.
func (e *Engine) Start(ctx context.Context, accepts bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Running() {
		return processlog.ErrRunning
	}
	for _, t := range e.Types() {
		for _, a := range t.admissions {
			a.RunBegins()
		}
	}
	e.claimSchedule.prepare()
	r := &run{context: ctx, accepts: accepts}
	r.handlers, r.endHandlers = context.WithCancelCause(e.Work)
	e.run.Store(r)
	return nil
}

// RunEnded allows the next Start.
func (e *Engine) RunEnded() { e.run.Load().hasEnded.Store(true) }

// Running reports whether a Run is under way: from Start to RunEnded.
func (e *Engine) Running() bool {
	r := e.run.Load()
	return r != nil && !r.hasEnded.Load()
}

// Accepts reports whether this process takes new entries now. The result is true if a Run is under way, if this Run
// takes new entries, and if its context has not ended.
func (e *Engine) Accepts() bool { return e.Running() && e.run.Load().accepts && !e.Stopping() }

// Stopping reports whether the context of the latest Run has ended.
func (e *Engine) Stopping() bool { return e.run.Load().context.Err() != nil }

// AcceptingType returns a registered type if Run takes new entries now. Otherwise it returns nil.
func (e *Engine) AcceptingType(name string) *Type {
	if !e.Accepts() {
		return nil
	}
	return e.TypeNamed(name)
}

// OpenProblems lists the problems that exist now, the oldest first.
func (e *Engine) OpenProblems() []observe.Problem {
	e.Refusals.ForgetOld()
	return e.Problems.Open()
}

// Drain waits for running handlers and stores their outcomes. Call it when Scan and Reconcile have ended, and while
// Renew still runs. Its error has a *StuckError in its tree if handlers do not return in time. It also returns an error
// if outcomes could not be stored.
func (e *Engine) Drain() error {
	startedAt := time.Now()
	awaitBatchers(startedAt.Add(e.StopTimeout/3), e.batchers[WaitForClaims]...)
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
	if !awaitBatchers(graceEnd, e.batchers[WaitForClaims]...) {
		return errors.Join(drainErr, errors.New("compensator: claims under way were not answered; what they bring is given back, or comes due when its lease ends"))
	}
	awaitBatchers(graceEnd, e.batchers[WaitAtDrainEnd]...)
	return drainErr
}

// awaitHandlers waits for running handlers, at most for timeout. After two thirds of timeout it ends their contexts.
func (e *Engine) awaitHandlers(timeout time.Duration) error {
	e.holdings.awaitIdle(timeout * 2 / 3)
	e.run.Load().endHandlers(processlog.ErrStopping) // No handler starts after this call.
	if e.holdings.awaitIdle(timeout / 3) {
		return nil
	}
	if running := e.holdings.running(func(a HeldAttempt) bool { return !a.Returned }); len(running) > 0 {
		return &processlog.StuckError{Stuck: running}
	}
	return nil
}

// stopGrace is the minimum time that a stop waits for outcomes to be stored.
const stopGrace = time.Second

// Close waits up to closeTimeout for the batchers, and then cancels the work that is left.
func (e *Engine) Close() {
	batchers := slices.Concat(e.batchers[:]...)
	awaitBatchers(time.Now().Add(closeTimeout), batchers...)
	e.endWork(processlog.ErrClosed)
	for _, closing := range e.Hooks.Closing {
		closing() // It may wait for goroutines that add to the batchers, so call it before the wait for the batchers.
	}
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

// awaitBatchers waits until all batchers are empty, at most until the deadline. It returns false if a batcher is not
// empty at the deadline. The work of one batcher may add work to another batcher. So awaitBatchers waits for all of
// them again until all are empty at the same time.
func awaitBatchers(deadline time.Time, batchers ...Batcher) bool {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	isBusy := func(b Batcher) bool { return !b.Quiet() }
	for {
		for _, b := range batchers {
			select {
			case <-b.Done():
			case <-timer.C:
				// If the timer fires when the batcher has just become empty, select may choose either case. So look at
				// the batchers once more.
				return !slices.ContainsFunc(batchers, isBusy)
			}
		}
		if !slices.ContainsFunc(batchers, isBusy) {
			return true
		}
	}
}
