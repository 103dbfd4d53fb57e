package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Attempt is the work on one entry under one lease: a handler call, or the entry's part of a shared call. If a shared
// call returns no verdict for the entry, the attempt has a second call, in which the entry runs alone. holdings.mu
// guards the flags, except returned, which is atomic.
type Attempt struct {
	Row        processlog.Row
	queueToken int64 // token of the queue lease that the claim used; 0 without a queue lease

	Type *Type
	// SlotUsers counts the attempts that must still end before the slot of their shared call is free. All attempts of
	// the call point to the same counter. Nil means that the attempt has a slot of its own. Set SlotUsers before you
	// call Engine.Finish or Engine.RunAlone.
	SlotUsers *atomic.Int32

	// Acted says that the handler has had an effect outside its transaction. If the attempt then does not end with a
	// success, the outcome of the attempt is unknown. Only the goroutine of the attempt may set Acted.
	Acted bool

	// call is the handler call of the attempt. The goroutine that runs the attempt may read ctx, cancel, timeout and
	// startedAt without holdings.mu.
	call

	// leaseEnd is the end of the lease. It is a time by the monotonic clock and by the wall clock of this process: see
	// leaseEndedLocked. No write depends on leaseEnd. holdings.mu guards leaseEnd once the attempt runs.
	leaseEnd time.Time

	returned        atomic.Bool // the handler has returned; from then on its outcome takes precedence over a dead-lettering
	lostAfterReturn bool        // the lease was lost after the handler had returned, so there is nothing to renew
	obsolete        error       // why this process no longer owns the entry; nil while it does
}

type call struct {
	ctx       context.Context // kept to read its cause; nil if no handler is called, because the entry is dead-lettered
	cancel    context.CancelCauseFunc
	timeout   *callTimeout
	startedAt time.Time
	number    uint32 // 1 for the first call of the attempt
	stuck     bool   // the call was reported as stuck
	renewing  bool   // the shared call has returned after the lease had ended, and RenewLapsed renews the lease
}

// Context returns the context of the attempt's handler call.
func (a *Attempt) Context() context.Context { return a.ctx }

// Elapsed returns how long ago the attempt's handler call began. It returns 0 if no call began.
func (a *Attempt) Elapsed() time.Duration {
	if a.ctx == nil {
		return 0
	}
	return time.Since(a.startedAt)
}

func (a *Attempt) endCall() {
	a.cancel(nil)
	a.timeout.callEnded()
}

type holdingKey struct {
	id    processlog.ID
	epoch uint32
}

func (a *Attempt) holdingKey() holdingKey { return holdingKey{a.Row.ID, a.Row.Epoch} }

func (a *Attempt) compensating() bool { return a.Row.State == processlog.Compensating }

func (a *Attempt) isStuckLocked() bool { return a.stuck && !a.renewing && !a.returned.Load() }

// makeObsoleteLocked ends the context of an attempt, and stores the first cause in the field obsolete. The field is
// needed because a context that has already timed out keeps the timeout as its cause.
func (a *Attempt) makeObsoleteLocked(cause error) {
	a.obsolete = cmp.Or(a.obsolete, cause)
	a.cancel(cause)
}

func (a *Attempt) loseLeaseLocked() {
	if a.returned.Load() {
		// The outcome of the handler is on its way to the database, which stores a success even without the lease. So
		// do not end the attempt with ErrLeaseLost.
		a.lostAfterReturn = true
	} else {
		a.makeObsoleteLocked(processlog.ErrLeaseLost)
	}
}

func (a *Attempt) suspectDone(why SuspectEnd) {
	suspectDone(a.Type.admissions, &a.Row, LostLeases(&a.Row), why)
}

// Event returns the event that describes the attempt to an observer. err is the error that the handler has returned, or
// nil.
func (a *Attempt) Event(err error) observe.AttemptEvent {
	return observe.AttemptEvent{
		Context: a.ctx, ID: a.Row.ID, IdempotencyKey: a.Row.IdempotencyKey, BusinessType: a.Row.BusinessType, BusinessID: a.Row.BusinessID,
		Attempt: a.Row.Attempt(), Compensation: a.compensating(), Late: -a.Row.DueIn, Duration: time.Since(a.startedAt), Err: usererr.Original(err),
	}
}

// startClaimed starts the rows that one claim has leased. It gives up the leases of rows that must not start now, for
// example because their entries are blocked. The parameter queueToken is the token of the queue's lease, or 0. The
// claim holds a slot for each handler call of the rows. The result blocked is the number of blocked entries. An error
// means that these entries could not be postponed. They are still due, so the caller must not claim again at once.
func (e *Engine) startClaimed(found ClaimedRows, queueToken int64) (blocked int, err error) {
	t := found.Type
	startable, waiting, giveUp := t.separate(e.attemptsOf(found, queueToken))
	admitted, skipped := t.Admitted(startable)
	calls, late := e.startCalls(t, admitted)
	for _, a := range late {
		attemptEnded(t.admissions, a, Result{Unstarted: true})
	}
	// Free the slots before the leases, because the database may be slow to release leases.
	if unneeded := t.callsOfRows(found.Mine) - calls; unneeded > 0 {
		e.FreeSlots(t, unneeded)
	}
	e.releaseUnstarted(skipped)
	for _, a := range skipped {
		// Offer the entry to other processes now.
		e.source.Move(processlog.QueueEntry{BusinessType: t.Name, ID: a.Row.ID})
	}
	e.releaseUnstarted(late)
	return len(waiting), e.giveBack(waiting, giveUp)
}

// attemptsOf returns an attempt for each claimed row. It leaves out an entry that has lost more leases than crashBudget
// allows, and dead-letters this entry.
func (e *Engine) attemptsOf(found ClaimedRows, queueToken int64) []*Attempt {
	attempts := make([]*Attempt, 0, len(found.Mine))
	for _, row := range found.Mine {
		a := &Attempt{Type: found.Type, Row: row, queueToken: queueToken, leaseEnd: found.SentAt.Add(row.LeaseLeft)}
		lost := LostLeases(&row)
		if lost > crashBudget {
			e.deadLetter(a)
			continue
		}
		attempts = append(attempts, a)
	}
	return attempts
}

func (e *Engine) deadLetter(a *Attempt) {
	failpoint.Reach(failpoint.CrashesCounted)
	// A handler of this entry may be stuck in this process. If so, the variable running describes the attempt of this
	// handler. The handler may return before the dead-lettering is stored. The outcome of the handler then replaces the
	// dead-lettering. See promise G8.
	running, _ := e.HeldAttempt(&a.Row)
	e.store(pendingOutcome{attempt: a, outcome: a.Type.crashOutcome(&a.Row, running.StartedAt), deadLetters: true}, Result{})
}

// releaseUnstarted gives up the leases of attempts that did not start. Such a lease counts neither as an attempt nor as
// a lost lease of its entry. See promises G15 and G16.
func (e *Engine) releaseUnstarted(attempts []*Attempt) {
	_ = e.giveBack(attempts, func() error {
		entries := make([]processlog.QueueEntry, len(attempts))
		for i, a := range attempts {
			entries[i] = processlog.QueueEntry{BusinessType: a.Type.Name, ID: a.Row.ID}
		}
		e.Releases.Release(attempts[0].Row.Token, entries...)
		return nil
	})
}

// giveBack gives up the leases of attempts that do not start, and then notifies the features.
//
// The order is important. A notified feature may start a suspect, which is an entry that may have crashed a process. If
// this suspect crashes this process too, a lease that was not given up yet counts as lost, although its entry never ran.
func (e *Engine) giveBack(attempts []*Attempt, giveUp func() error) error {
	if len(attempts) == 0 {
		return nil
	}
	err := giveUp()
	for _, a := range attempts {
		a.suspectDone(NotRun)
		for _, givenBack := range e.Hooks.GivenBack {
			givenBack(a)
		}
	}
	return err
}

// startCalls starts attempts of one type and returns at once. The caller has taken slots for all handler calls of these
// attempts. startCalls returns two results: the number of handler calls that begin, and the attempts that do not start.
// The function holdings.admit decides which attempts do not start.
func (e *Engine) startCalls(t *Type, attempts []*Attempt) (calls int, late []*Attempt) {
	if len(attempts) == 0 {
		return 0, nil
	}
	timeout := e.newTimeout(t, len(attempts))
	for _, a := range attempts {
		e.prepare(a, timeout)
	}
	attempts, late = e.holdings.admit(e.run.Load().context, attempts)
	var batches [sharingClasses][]*Attempt
	for _, a := range attempts {
		class := t.sharingClass(a.Row.State, LostLeases(&a.Row))
		if class == notShared {
			calls++
			go e.runAttempt(a)
		} else {
			batches[class] = append(batches[class], a)
		}
	}
	for _, batch := range batches {
		for chunk := range slices.Chunk(batch, t.Seats()) {
			calls++
			if len(chunk) == 1 {
				go e.runAttempt(chunk[0]) // A single attempt needs no shared call.
			} else {
				t.grouping.Start(chunk)
			}
		}
	}
	return calls, late
}

// prepare begins a handler call. The context of the call ends in these cases:
//
//   - The type's timeout has passed.
//   - The lease of the entry is lost.
//   - A service or a person has changed the entry, for example with Cancel.
//   - Run stops waiting for handlers.
func (e *Engine) prepare(a *Attempt, timeout *callTimeout) {
	ctx := timeout.ctx
	// If the call takes only this entry, its context gets the values from the headers of the entry. The context of a
	// batch gets no values, because the entries of a batch have different headers.
	if !a.Type.Grouped() || a.compensating() {
		ctx = e.Extract(ctx, a.Row.Headers) // Extract is user code, so call it without a mutex.
	}
	ctx, cancel := context.WithCancelCause(ctx)
	e.holdings.beginCall(a, ctx, cancel, timeout)
}

type callTimeout struct {
	ctx       context.Context
	cancel    context.CancelFunc
	callsLeft atomic.Int32 // calls that have not ended
}

func (e *Engine) newTimeout(t *Type, calls int) *callTimeout {
	timeout := new(callTimeout)
	timeout.ctx, timeout.cancel = context.WithTimeoutCause(e.run.Load().handlers, t.Timeout, processlog.ErrTimeout)
	timeout.callsLeft.Store(int32(calls))
	return timeout
}

func (t *callTimeout) callEnded() {
	if t.callsLeft.Add(-1) == 0 {
		t.cancel()
	}
}

// HandlerContext returns the context of a handler call for several entries. The context has no values from the headers
// of an entry.
func (e *Engine) HandlerContext(t *Type) (context.Context, context.CancelFunc) {
	timeout := e.newTimeout(t, 1)
	return timeout.ctx, timeout.cancel
}

// RunAlone calls the handler again for one attempt, whose shared call has returned no verdict. Drain also waits for
// this call.
func (e *Engine) RunAlone(a *Attempt) {
	a.endCall()
	e.prepare(a, e.newTimeout(a.Type, 1))
	go e.runAttempt(a)
}

// SecondCallError returns why the handler must not be called again for an attempt.
func (e *Engine) SecondCallError(a *Attempt) error {
	if e.Stopping() || errors.Is(context.Cause(a.ctx), processlog.ErrStopping) {
		return processlog.ErrStopping
	}
	return e.holdings.lossOf(a)
}

// runAttempt calls the handler of an attempt. A deferred call passes the result to Finish, so that a handler that calls
// runtime.Goexit cannot skip Finish.
func (e *Engine) runAttempt(a *Attempt) {
	result := Result{Err: errGoexit}
	defer func() { e.Finish(a, result) }()
	NotifyObserver(e.Base, e.Observer.AttemptStarted, a.Event(nil))
	failpoint.Reach(failpoint.AttemptStarted)
	result = e.callHandler(a)
}

var errGoexit error = &processlog.PanicError{Stack: []byte("runtime.Goexit")}

// Result is how an attempt ended.
type Result struct {
	Err       error
	Stored    bool             // the outcome is durable: the handler's own transaction committed it
	Token     processlog.Token // token of the stored outcome, if Stored
	SentAt    time.Time        // when the COMMIT was sent, or the read that confirmed the COMMIT; set only with Stored
	MovedOn   bool             // the handler's own transaction was rolled back, because another process or an admin had changed the entry
	Unstarted bool             // no handler was called, and the claim is given back
	Cause     error            // why the attempt ended. If Cause is nil, Finish takes the cause from the context of the attempt
}

// callHandler calls the handler of an attempt, and turns a panic of the handler into an error.
func (e *Engine) callHandler(a *Attempt) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			result = Result{Err: panicked(p)}
		}
	}()
	if result, late := e.TooLate(a); late { // An observer or other work in this process may have delayed the call.
		return result
	}
	if a.compensating() {
		return a.Type.Undo(a)
	}
	return a.Type.Run(a)
}

// TooLate reports whether it is too late to call the handler of an attempt. It is too late if Run is stopping or if the
// context of the attempt has ended. If late is true, the attempt ends with the returned result and no call.
//
// The timeout of an attempt begins before its handler is called. After the timeout, this process may start a suspect,
// which is an entry that may have crashed a process. If the late handler ran at the same time as the suspect, a crash
// would cost both entries a lease. See promise G16.
func (e *Engine) TooLate(a *Attempt) (result Result, late bool) {
	switch {
	case e.Stopping():
		return Result{Err: processlog.ErrStopping, Unstarted: true}, true
	case a.ctx.Err() != nil:
		return Result{Err: verdict.NotCalled(fmt.Errorf("the attempt was over before its handler could begin: %w", context.Cause(a.ctx)))}, true
	}
	return Result{}, false
}

// panicked returns a *PanicError for the panic value p of a handler. The methods of p are code of the user and may
// panic, too. So usererr.Of makes the error safe to inspect.
func panicked(p any) error { return usererr.Of(&processlog.PanicError{Value: p, Stack: debug.Stack()}) }

// Finish computes the outcome of an attempt from the handler's result, and frees the slot. Then it passes the outcome
// to the batcher that stores outcomes. There may be nothing to store: see Result.Unstarted, Result.Stored and
// Result.MovedOn.
func (e *Engine) Finish(a *Attempt, result Result) {
	failpoint.Reach(failpoint.HandlerReturned)
	// Read the cause before endCall, which may set another cause.
	cause := cmp.Or(result.Cause, context.Cause(a.ctx))
	a.endCall()
	NotifyObserver(e.Base, e.Observer.AttemptEnded, a.Event(result.Err))
	err := result.Err
	if a.Acted {
		err = verdict.OutcomeUnknown(err)
	}
	done := pendingOutcome{attempt: a, outcome: a.Type.OutcomeOf(&a.Row, err, cause), token: result.Token}
	// From here on the handler does not count as stuck. If a dead-lettering of the entry is not stored yet, the engine
	// drops it and stores the outcome of the handler. See promise G8.
	a.returned.Store(true)
	// Tell the admissions the result before the slot is free. The result may open the breaker of the type. A claim that
	// takes the free slot must then find the breaker open.
	result.Cause = cause
	attemptEnded(a.Type.admissions, a, result)
	for _, ended := range e.Hooks.Ended {
		ended(a, result, Counted(&a.Row, &done.outcome))
	}
	// Free the slot before the outcome is stored, because a service that sees the outcome may record the next entry at
	// once.
	if a.SlotUsers == nil || a.SlotUsers.Add(-1) == 0 {
		e.FreeSlots(a.Type, 1)
	}
	switch {
	case result.Unstarted:
		e.Releases.Release(a.Row.Token, processlog.QueueEntry{BusinessType: a.Type.Name, ID: a.Row.ID})
		e.forget(a)
		e.notifyDropped(a)
	case result.Stored:
		stored := done // The watcher gets the address of this copy. If it got the address of done, each outcome would be allocated.
		e.watcher.Stored(&a.Row, &stored.outcome, done.token, result.SentAt)
		e.handleAnswer(done, processlog.Settled{Applied: true})
	// The effect and the outcome were rolled back together, so there is nothing to store. See promise G5.
	case result.MovedOn:
		e.handleAnswer(done, processlog.Settled{})
	default:
		e.store(done, result)
	}
	// Count the handler as returned only here, after its outcome was passed to a batcher. Drain waits first for the
	// handlers and then for the batchers. If the count came earlier, Drain could find the batchers empty and miss this
	// outcome.
	e.holdings.handlerReturned()
}
