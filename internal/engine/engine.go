package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Engine is the whole machine. All its methods may be called concurrently. Each part knows those that stand before it, and
// no other; the life of an entry goes through them from recording (its Recording), intake and scanner, which claim and
// start, by dispatcher and settler to the enqueuer and the claim schedule.
type Engine struct {
	*Base
	types            *types
	claimSchedule    *claimSchedule
	enqueuer         *enqueuer
	missing          *missing
	rollbackDetector *rollbackDetector
	holdings         *holdings
	refusals         *refusals
	pendingReleases  *pendingReleases
	ordering         *ordering
	claims           *claims
	settler          *settler
	renewer          *renewer
	dispatcher       *dispatcher
	intake           *intake
	poller           *commitPoller
	scanner          *scanner
	reconciler       *reconciler

	mu      sync.Mutex // guards running
	running bool
}

// New makes an engine. What it tells of problem goes where cfg says; of ctx it keeps the values. Close it.
func New(ctx context.Context, cfg Config) *Engine {
	e := &Engine{Base: newBase(ctx, &cfg)}
	b := e.Base
	e.types = newTypes(cfg.Lease)
	e.claimSchedule = newClaimSchedule(e.types)
	e.enqueuer = newEnqueuer(b, e.types, e.claimSchedule)
	e.missing = &missing{b}
	e.rollbackDetector = newRollbackDetector(b, e.types, e.claimSchedule, e.missing)
	e.holdings = newHoldings(e.claimSchedule)
	e.refusals = &refusals{Base: b, answered: make(chan struct{}, 1)}
	e.pendingReleases = newPendingReleases(b, e.enqueuer, e.refusals)
	e.ordering = newOrdering(b, e.claimSchedule, e.enqueuer, e.refusals)
	e.claims = &claims{Base: b, holdings: e.holdings, enqueuer: e.enqueuer, rollbackDetector: e.rollbackDetector, pendingReleases: e.pendingReleases, refusals: e.refusals}
	e.settler = (&settler{Base: b, claimSchedule: e.claimSchedule, enqueuer: e.enqueuer, holdings: e.holdings, rollbackDetector: e.rollbackDetector, ordering: e.ordering, refusals: e.refusals}).withBatchers()
	e.renewer = &renewer{Base: b, types: e.types, holdings: e.holdings, refusals: e.refusals}
	e.dispatcher = &dispatcher{Base: b, claimSchedule: e.claimSchedule, holdings: e.holdings, rollbackDetector: e.rollbackDetector, ordering: e.ordering, claims: e.claims, settler: e.settler,
		renewer: e.renewer}
	e.intake = (&intake{Base: b, types: e.types, claimSchedule: e.claimSchedule, enqueuer: e.enqueuer, missing: e.missing, rollbackDetector: e.rollbackDetector, ordering: e.ordering,
		claims: e.claims, settler: e.settler, dispatcher: e.dispatcher}).withBatchers()
	e.poller = &commitPoller{Base: b}
	e.scanner = &scanner{Base: b, types: e.types, claimSchedule: e.claimSchedule, enqueuer: e.enqueuer, rollbackDetector: e.rollbackDetector, holdings: e.holdings, ordering: e.ordering,
		claims: e.claims, settler: e.settler, dispatcher: e.dispatcher}
	e.ordering.follow = e.intake.follow
	e.ordering.claimAhead = func(h *handover) { e.intake.ahead.Add(h) }
	e.ordering.startAhead = func(h *handover) { e.intake.handed.Add(h) }
	e.reconciler = &reconciler{Base: b, types: e.types, claimSchedule: e.claimSchedule, enqueuer: e.enqueuer, holdings: e.holdings,
		rollbackDetector: e.rollbackDetector, ordering: e.ordering, claims: e.claims, settler: e.settler, dispatcher: e.dispatcher}
	return e
}

// Register adds a type, before Run. attach are the features of the type. Errors name what is wrong.
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
	return e.types.add(&t)
}

// Refusal is why nothing is to be recorded, or nil: the database has gone back. Asked for each Record, it may ask the
// database once in a while.
func (e *Engine) Refusal() error { return e.rollbackDetector.refusesRecords() }

// Lost returns why this process has stopped because the database went back, or nil. It asks nobody.
func (e *Engine) Lost() error {
	if lost := e.rollbackDetector.stopped(); lost != nil {
		return &lost.LossError
	}
	return nil
}

// AcceptLoss keeps a person's go-ahead after a loss, and returns what this process knows to be lost.
func (e *Engine) AcceptLoss(ctx context.Context, by processlog.AuditInfo) ([]processlog.LostEntry, error) {
	return e.rollbackDetector.acceptLoss(ctx, by)
}

// Changed acts on a change that has committed: an attempt here is told, and a new due moment enqueued.
func (e *Engine) Changed(before processlog.Row, ch processlog.Change) {
	failpoint.Reach(failpoint.ChangeCommitted)
	after, err := ch.After(before)
	if err != nil || after.Version == before.Version {
		return
	}
	if ch.Action != processlog.ActionReschedule {
		e.holdings.cancel(&before, fmt.Errorf("%w: %s", processlog.ErrCancelled, ch.Action))
	}
	if after.State.Terminal() {
		e.ordering.ended(&before, after.State)
	} else {
		e.enqueuer.move(before.BusinessType, before.ID, ch.Delay)
	}
}

// ChangedUnseen polls for the commit of a change, in a transaction whose end nobody here sees, if Changed has anything to do.
func (e *Engine) ChangedUnseen(before processlog.Row, ch processlog.Change) {
	after, err := ch.After(before)
	if err != nil || after.Version == before.Version {
		return
	}
	if after.State.Terminal() && before.LeaseLeft <= 0 && !e.IsSerial(before.BusinessType) {
		return
	}
	e.poller.add(unseenCommit{id: before.ID, token: ch.Token, committed: func() { e.Changed(before, ch) }})
}

// Wake has the scanner look at all types now.
func (e *Engine) Wake() { e.claimSchedule.Wake() }

// Overflow has a type claimed from the database now: it holds due entries that nothing else tells of.
func (e *Engine) Overflow(businessType string) { e.claimSchedule.overflow(businessType) }

// Types returns the registered types, sorted by name.
func (e *Engine) Types() []*Type {
	names := e.types.names()
	types := make([]*Type, len(names))
	for i, name := range names {
		types[i] = e.types.named(name)
	}
	return types
}

// Reporting makes a context lead here what the store and its connections have to tell of problem.
func (e *Engine) Reporting(ctx context.Context) context.Context { return e.reporting(ctx) }

// Start makes ready for a Run, whose context is ctx, and takes new entries from here on. ErrRunning.
func (e *Engine) Start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		return processlog.ErrRunning
	}
	e.running = true
	e.types.runBegins()
	e.dispatcher.open(ctx)
	e.types.accepts.Store(true)
	return nil
}

// Running reports whether a Run is under way: from Start to End.
func (e *Engine) Running() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running
}

// Accepting reports whether this process takes new entries: from Start to Refuse.
func (e *Engine) Accepting() bool { return e.types.accepts.Load() }

// Stuck lists the handlers that still run although their time is over.
func (e *Engine) Stuck() []processlog.StuckAttempt { return e.holdings.stuck() }

// OpenProblems lists what fails at present, the oldest problem first.
func (e *Engine) OpenProblems() []observe.Problem {
	e.refusals.forgetOld()
	return e.Problems.list()
}

// AskQueue asks the queue whether it answers. It returns at once, and answer waits for the result: nil, or why the queue cannot
// be used. The queue has its QueueShare of ctx. A queue in this process is not asked.
func (e *Engine) AskQueue(ctx context.Context) (answer func() error) {
	if e.Local {
		return e.enqueuer.health.problem
	}
	return e.enqueuer.health.question(ctx)
}

// Refuse takes no more new entries.
func (e *Engine) Refuse() { e.types.accepts.Store(false) }

// End ends what Start has begun.
func (e *Engine) End() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Refuse()
	e.running = false
}

// Scan, Reconcile, Listen and Renew are the loops of a Run. Each ends with its context, and
// has then ended all that it has begun but handlers.
func (e *Engine) Scan(ctx context.Context)      { e.scanner.run(ctx) }
func (e *Engine) Reconcile(ctx context.Context) { e.reconciler.run(ctx) }
func (e *Engine) Renew(ctx context.Context)     { e.renewer.run(ctx) }

// Listen wakes the scanner for entries other processes enqueued.
func (e *Engine) Listen(ctx context.Context) { e.Queue.Listen(ctx, e.claimSchedule.notify) }

// Drain waits for running handlers and stores their outcomes, once all loops but Renew have ended. Handlers that do not
// return make it return a *StuckError; outcomes the database does not take, an error that says so.
func (e *Engine) Drain() error {
	began := time.Now()
	await(time.NewTimer(e.StopTimeout/3), &e.intake.resolve, &e.intake.verify, &e.intake.claim)
	stuck := e.dispatcher.drain(e.StopTimeout - time.Since(began))
	failpoint.Reach(failpoint.HandlersEnded)
	grace := time.NewTimer(max(e.StopTimeout/3, stopGrace))
	if !await(grace, &e.settler.batcher, &e.settler.prompt, &e.settler.slow) {
		return errors.Join(stuck, errors.New("compensator: outcomes of finished handlers could not be stored; their entries will run again when their leases end"))
	}
	if refused := e.settler.offerRefused(); refused != nil {
		stuck = errors.Join(stuck, fmt.Errorf("compensator: outcomes of finished handlers are not stored; their entries will run again when their leases end: %w", refused))
	}
	failpoint.Reach(failpoint.OutcomesDrained)
	if !await(grace, &e.intake.resolve, &e.intake.verify, &e.intake.claim, &e.intake.ahead, &e.intake.handed) {
		return errors.Join(stuck, errors.New("compensator: claims under way were not answered; what they bring is given back, or comes due when its lease ends"))
	}
	// A timer fires once: what comes after the end of its timeout is waited for no more.
	_ = await(grace, &e.intake.next, &e.ordering.rested) && await(grace, &e.intake.next, &e.ordering.gone) && await(grace, &e.enqueuer.acks, &e.enqueuer.fresh, &e.enqueuer.moved)
	return stuck
}

// stopGrace is how long a stop waits for outcomes to be stored, at least.
const stopGrace = time.Second

// Close waits briefly for what is on its way, and ends the rest.
func (e *Engine) Close() {
	batchers := []batcher{&e.intake.resolve, &e.intake.verify, &e.intake.claim, &e.settler.batcher, &e.settler.prompt, &e.settler.slow, &e.settler.refused, &e.ordering.rested, &e.ordering.gone, &e.intake.next, &e.intake.ahead, &e.intake.handed,
		&e.enqueuer.acks, &e.enqueuer.fresh, &e.enqueuer.moved, &e.enqueuer.health.questions, &e.pendingReleases.batcher, &e.rollbackDetector.batcher}
	await(time.NewTimer(closeTimeout), batchers...)
	e.endWork(processlog.ErrClosed)
	e.poller.close() // before the batchers that it hands entries to
	for _, l := range batchers {
		<-l.Done() // only statements are left to wait for, and the ended context has cancelled them
	}
}

const closeTimeout = 5 * time.Second

// batcher is a batcher that can be waited for.
type batcher interface {
	Done() <-chan struct{}
	Quiet() bool
}

// await waits until none of the batchers, which may feed each other, holds anything. It returns false when the
// timer ends first.
func await(timer *time.Timer, batchers ...batcher) bool {
	for {
		for _, l := range batchers {
			select {
			case <-l.Done():
			case <-timer.C:
				return false
			}
		}
		if !slices.ContainsFunc(batchers, func(l batcher) bool { return !l.Quiet() }) {
			return true
		}
	}
}
