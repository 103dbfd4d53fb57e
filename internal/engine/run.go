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

// Attempt is the work on one entry under one lease: a handler call, or the entry's part of a shared call. After a shared
// call without a verdict, the attempt has a second call, in which the entry runs alone.
//
// This table says who sets the flags. All but returned are guarded by holdings.mu.
//
//	stuck            examine sets it when the handler has exceeded its timeout by stuckAfter. beginCall resets it.
//	renewing         markLapsed sets it when a shared call returns after the lease has ended. beginCall resets it.
//	returned         Finish sets it when the last handler call has returned. It is atomic and stays set.
//	lostAfterReturn  loseLeaseLocked sets it when the lease is lost after the handler has returned. It stays set.
//	obsolete         makeObsoleteLocked sets it when the lease is lost before the handler has returned, or when a change
//	                 of the entry has ended the attempt. It stays set.
//	refusedRenewals  renewed counts the renewals that the database has refused.
//	renewAfter       renewed sets it after each refused renewal. It has no effect once this time has passed.
//	callCount        beginCall counts the handler calls.
//
// These combinations need an explanation. All others follow from the table:
//
//   - lostAfterReturn is set only if returned is set. The process keeps holding the entry until the database answers that
//     the outcome is outdated.
//   - stuck may be set together with renewing or returned. In this case the stuck handler call has returned, and
//     isStuckLocked is false.
//   - renewing is set only between two handler calls. If no second call may begin, returned is set next, and renewing
//     stays set.
//   - obsolete may be set together with returned, in either order. For example, a change may end an attempt whose outcome
//     waits to be stored.
type Attempt struct {
	Row        processlog.Row
	queueToken int64 // token of the queue lease that the claim used; 0 without a queue lease

	Type *Type
	// SlotUsers is the number of attempts that must still end before the slot of the call is free. The attempts of one call
	// share it. It is nil if the attempt has its own slot. Set it before you call Engine.Finish or Engine.RunAlone.
	SlotUsers *atomic.Int32

	// Acted says that the handler has had an effect outside its transaction. If the attempt then does not end with a success,
	// its outcome is unknown. Set it in the goroutine of the attempt.
	Acted bool

	// The next four fields belong to one handler call. After a shared call without a verdict, they get new values for the
	// second call. They are written under holdings.mu. The goroutine that runs the attempt may read them without the lock.
	ctx       context.Context // kept to read its cause; nil if no handler is called, because the entry is dead-lettered
	cancel    context.CancelCauseFunc
	timeout   *callTimeout
	startedAt time.Time

	leaseEnd        time.Time   // end of the lease, by the monotonic clock of this process. No write depends on it. Guarded by holdings.mu once the attempt runs
	stuck           bool        // the handler call was reported as stuck
	renewing        bool        // the shared call has returned after the lease had ended, and RenewLapsed renews the lease
	returned        atomic.Bool // the handler has returned; from then on its outcome takes precedence over a dead-lettering
	lostAfterReturn bool        // the lease was lost after the handler had returned, so there is nothing to renew
	obsolete        error       // why this process no longer owns the entry; nil while it does

	refusedRenewals int       // number of times the database has refused to renew the lease
	renewAfter      time.Time // earliest time of the next renewal after a refusal

	callCount uint32 // number of handler calls that have begun for the attempt
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

// endCall ends the context of the attempt's handler call.
func (a *Attempt) endCall() {
	a.cancel(nil)
	a.timeout.callEnded()
}

// holdingKey identifies an entry within one epoch. A process holds at most one attempt for each key. A manual Requeue
// starts another epoch.
type holdingKey struct {
	id    processlog.ID
	epoch uint32
}

func (a *Attempt) holdingKey() holdingKey { return holdingKey{a.Row.ID, a.Row.Epoch} }

func (a *Attempt) compensating() bool { return a.Row.State == processlog.Compensating }

// isStuckLocked reports whether the handler was found stuck and has not returned since.
func (a *Attempt) isStuckLocked() bool { return a.stuck && !a.renewing && !a.returned.Load() }

// makeObsoleteLocked ends the attempt of an entry that this process no longer owns. It cancels the context of the handler
// call, and also sets the field obsolete to the first cause. The field is needed because a context that has already timed
// out keeps the timeout as its cause.
func (a *Attempt) makeObsoleteLocked(cause error) {
	a.obsolete = cmp.Or(a.obsolete, cause)
	a.cancel(cause)
}

// loseLeaseLocked marks the attempt's lease as lost.
func (a *Attempt) loseLeaseLocked() {
	if a.returned.Load() {
		// The handler's outcome is on its way to the database. Keep holding the entry until the database has stored the
		// outcome, or has answered that it is outdated.
		a.lostAfterReturn = true
	} else {
		a.makeObsoleteLocked(processlog.ErrLeaseLost)
	}
}

// suspectDone notifies the admissions if the entry is a suspect: an entry that may have crashed a process. It says that the
// entry can no longer crash this process.
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

// startClaimed starts the rows that one claim has leased. queueToken is the token of the queue's lease, or 0. The claim holds a
// slot for each handler call of the rows.
//
// startClaimed gives back the claim of an entry that an admission skips, or that may not start any more, because Run stops
// or its lease has ended. blocked is how many entries may not start because they turned out to be blocked by other entries.
//
// startClaimed also gives up the leases of the blocked entries, and postpones them: see Order.Separate. If it returns an
// error, the blocked entries are not postponed but still due. The caller must then not claim again at once, because it
// would find the same entries again.
func (e *Engine) startClaimed(found ClaimedRows, queueToken int64) (blocked int, err error) {
	t := found.Type
	startable, waiting, giveUp := t.separate(e.attemptsOf(found, queueToken))
	admitted, skipped := t.Admitted(startable)
	calls, late := e.startCalls(t, admitted)
	for _, a := range late {
		attemptEnded(t.admissions, a, Result{Unstarted: true})
	}
	// Free the slots before the leases, because the database may be slow.
	if unneeded := t.callsOfRows(found.Mine) - calls; unneeded > 0 {
		e.FreeSlots(t, unneeded)
	}
	e.releaseUnstarted(skipped)
	for _, a := range skipped {
		// Offer the entry to other processes now. Otherwise they wait until the queue's lease ends.
		e.source.Move(processlog.QueueEntry{BusinessType: t.Name, ID: a.Row.ID})
	}
	e.releaseUnstarted(late)
	return len(waiting), e.giveBack(waiting, giveUp)
}

// attemptsOf builds one attempt for each claimed row. It dead-letters rows that have lost more leases than crashBudget
// allows.
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

// deadLetter ends an entry whose leases keep ending without an outcome.
func (e *Engine) deadLetter(a *Attempt) {
	failpoint.Reach(failpoint.CrashesCounted)
	// The batcher tries to store this dead-lettering until the database answers. The entry may have a stuck handler in this
	// process. If this handler returns first, the batcher withdraws the dead-lettering, and stores the handler's outcome
	// instead (G8, a reported success is stored).
	running, _ := e.HeldAttempt(&a.Row)
	outcome := e.withFailedAttempt(a, Result{}, a.Type.crashOutcome(&a.Row, running.StartedAt))
	e.outcomes.ordinary.Add(pendingOutcome{attempt: a, outcome: outcome, deadLetters: true})
}

// releaseUnstarted releases the leases of attempts of one type that may not start. No handler was called, so the entries'
// attempt counts stay as they are (G15, stopping loses nothing; G16, repetitions are counted).
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

// giveBack gives up the leases of attempts that do not start, and notifies the features. The function giveUp gives up the
// leases.
//
// giveBack notifies the admissions last, because an admission may then start a suspect: an entry that may crash this
// process. If that happened while the leases were still held, each of these attempts would lose a lease.
func (e *Engine) giveBack(attempts []*Attempt, giveUp func() error) error {
	if len(attempts) == 0 {
		return nil
	}
	err := giveUp()
	for _, a := range attempts {
		a.suspectDone(NotRun)
		for _, f := range e.settlements {
			f.GivenBack(a)
		}
	}
	return err
}

// startCalls runs attempts of one type and returns at once. The attempts hold slots for all calls that they need. calls is how
// many handler calls begin. late lists the attempts that may not start any more.
func (e *Engine) startCalls(t *Type, attempts []*Attempt) (calls int, late []*Attempt) {
	if len(attempts) == 0 {
		return 0, nil
	}
	timeout := e.newTimeout(t, len(attempts))
	for _, a := range attempts {
		e.prepare(a, timeout)
	}
	run, _ := e.contexts()
	attempts, late = e.holdings.admit(run, attempts)
	var batches [sharingClasses][]*Attempt
	for _, a := range attempts {
		class := t.sharingClass(a.Row.State, LostLeases(&a.Row))
		if class == NotShared {
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

// prepare gives an attempt the context for its next handler call. The entry's headers hold values from the context that was
// passed to Record, for example a trace id. The new context has these values again. It ends at the type's timeout, when the
// lease is lost, by Cancel, or when Run stops waiting.
func (e *Engine) prepare(a *Attempt, timeout *callTimeout) {
	ctx := timeout.ctx
	// A handler that takes several entries gets no values from the headers of an entry, even if this call is for one entry.
	if !a.Type.Grouped() || a.compensating() {
		ctx = e.Extract(ctx, a.Row.Headers) // Extract is user code, so call it without a mutex.
	}
	ctx, cancel := context.WithCancelCause(ctx)
	e.holdings.beginCall(a, ctx, cancel, timeout)
}

// callTimeout is the timeout of handler calls that begin at the same time. They share its context and its timer.
type callTimeout struct {
	ctx       context.Context
	cancel    context.CancelFunc
	callsLeft atomic.Int32 // calls that have not ended
}

func (e *Engine) newTimeout(t *Type, calls int) *callTimeout {
	_, handler := e.contexts()
	timeout := new(callTimeout)
	timeout.ctx, timeout.cancel = context.WithTimeoutCause(handler, t.Timeout, processlog.ErrTimeout)
	timeout.callsLeft.Store(int32(calls))
	return timeout
}

// callEnded stops the timer after the last call.
func (t *callTimeout) callEnded() {
	if t.callsLeft.Add(-1) == 0 {
		t.cancel()
	}
}

// HandlerContext returns the context of a handler call for several entries. It has no values from the headers of an entry.
// Such a value may name a tenant, for example, and the handler would use it for the entries of other tenants, too.
func (e *Engine) HandlerContext(t *Type) (context.Context, context.CancelFunc) {
	timeout := e.newTimeout(t, 1)
	return timeout.ctx, timeout.cancel
}

// RunAlone calls the handler again for one attempt, whose shared call has returned no verdict. In this second call the
// entry is alone. The handler of the attempt still counts as running since the first call, so Drain also waits for the
// second call.
func (e *Engine) RunAlone(a *Attempt) {
	a.endCall()
	e.prepare(a, e.newTimeout(a.Type, 1))
	go e.runAttempt(a)
}

// SecondCallError returns why the handler must not be called again for an attempt, or nil if it may be called.
func (e *Engine) SecondCallError(a *Attempt) error {
	if e.Stopping() || errors.Is(context.Cause(a.ctx), processlog.ErrStopping) {
		return processlog.ErrStopping
	}
	return e.holdings.lossOf(a)
}

// runAttempt runs one attempt to its end. A deferred call passes the result to Finish, so that a handler that calls
// runtime.Goexit cannot skip it.
func (e *Engine) runAttempt(a *Attempt) {
	result := Result{Err: errGoexit}
	defer func() { e.Finish(a, result) }()
	NotifyObserver(e.Base, e.Observer.AttemptStarted, a.Event(nil))
	failpoint.Reach(failpoint.AttemptStarted)
	result = e.callHandler(a)
}

// errGoexit is the error of a handler that has called runtime.Goexit.
var errGoexit error = &processlog.PanicError{Stack: []byte("runtime.Goexit")}

// Result is how an attempt ended.
type Result struct {
	Err       error
	Stored    bool             // the outcome is durable: the handler's own transaction committed it
	Token     processlog.Token // token of the stored outcome, if Stored
	SentAt    time.Time        // if Stored: when the COMMIT, or the read that confirmed it, was sent
	MovedOn   bool             // the handler's own transaction was rolled back, because another process or an admin had changed the entry
	Unstarted bool             // no handler was called, and the claim is given back
	Cause     error            // why the attempt ended; nil: for the cause of its context
}

// callHandler runs the handler or the compensation, depending on the entry's state. It turns a panic into an error.
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

// TooLate reports whether it is too late to call the handler. If it is, result is the result of the attempt.
//
// The timeout of an attempt runs from its claim. So it may pass before the handler is called, and the renewer may already
// have reported the attempt as stuck. If the entry is a suspect, which means that it may crash the process, another
// suspect may start after this report. If this attempt started as well, too many suspects would run at once (G16,
// repetitions are counted).
func (e *Engine) TooLate(a *Attempt) (result Result, late bool) {
	switch {
	case e.Stopping():
		return Result{Err: processlog.ErrStopping, Unstarted: true}, true
	case a.ctx.Err() != nil:
		return Result{Err: verdict.NotCalled(fmt.Errorf("the attempt was over before its handler could begin: %w", context.Cause(a.ctx)))}, true
	}
	return Result{}, false
}

// panicked returns the error of a handler that has panicked with the value p. The methods of p are user code, and may panic
// too. So usererr.Of formats p now, protected against panics. Later, the error returns this text and calls no method of p.
func panicked(p any) error { return usererr.Of(&processlog.PanicError{Value: p, Stack: debug.Stack()}) }

// Finish computes the outcome of an attempt from the handler's result, frees the slot, and passes the outcome to its
// batcher.
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
	// From here on a claim sees that this process holds the entry, and that its handler is not stuck. If the handler was
	// stuck, a claim may have decided to dead-letter the entry. If this decision is not stored yet, it is withdrawn (G8,
	// a reported success is stored).
	a.returned.Store(true)
	// Notify the admissions before the slot is free. If this result opens the breaker, the breaker is open before a claim can
	// take the slot.
	result.Cause = cause
	attemptEnded(a.Type.admissions, a, result)
	for _, f := range e.settlements {
		f.Ended(a, result, Counted(&a.Row, &done.outcome))
	}
	// Free the slot before the outcome is stored. A caller that sees the stored outcome and records the next entry then
	// finds the slot free.
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
	// The effect and the outcome were rolled back together, so there is nothing to store. Another process or an admin has
	// already changed the entry (G5, an effect happens exactly once).
	case result.MovedOn:
		e.handleAnswer(done, processlog.Settled{})
	default:
		if result.Err != nil {
			done.outcome = e.withFailedAttempt(a, result, done.outcome)
		}
		e.store(done)
	}
	// Call this after the outcome is in its batcher. Drain first waits until no handler runs, and then until the batchers
	// are empty. It could miss an outcome that came to its batcher later.
	e.holdings.handlerReturned()
}
