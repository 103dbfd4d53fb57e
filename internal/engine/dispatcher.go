package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// dispatcher runs claimed entries, each call of a handler in a goroutine of its own. Drain waits for them.
type dispatcher struct {
	*Base
	claimSchedule    *claimSchedule
	holdings         *holdings
	rollbackDetector *rollbackDetector
	claims           *claims
	settler          *settler
	renewer          *renewer

	mu      sync.Mutex              // guards the fields below
	run     context.Context         // Run's own: no handler is started once it has ended
	handler context.Context         // what handlers' contexts are made of; it outlives Run's own
	stop    context.CancelCauseFunc // ends handler
}

// open makes ready for a Run.
func (d *dispatcher) open(run context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.run = run
	d.handler, d.stop = context.WithCancelCause(d.Work)
}

func (d *dispatcher) contexts() (run, handler context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.run, d.handler
}

// stopping reports whether Run's context has ended.
func (d *dispatcher) stopping() bool {
	run, _ := d.contexts()
	return run.Err() != nil
}

// startClaimed starts rows that one write of ours has leased, as a statement tells that was sent when asked says; token is
// that of the queue's lease, or 0. What comes too late for this Run, or for its lease, is given back. An error: of some nobody knows
// whose turn it is; they are due still, and a claim that follows at once would bring them again.
func (d *dispatcher) startClaimed(t *Type, rows []processlog.Row, asked time.Time, token int64) error {
	claimed := d.attempts(t, rows, asked, token)
	needed := callsOf(t, claimed)
	first, blocked, giveUp := t.separate(claimed)
	spare := needed - callsOf(t, first)
	d.startAttempts(t, first)
	if len(first) == len(claimed) {
		return nil
	}
	return d.giveUp(t, spare, blocked, giveUp)
}

// attempts makes them of claimed rows. What has lost too many leases is dead-lettered.
func (d *dispatcher) attempts(t *Type, rows []processlog.Row, asked time.Time, token int64) []*Attempt {
	attempts := make([]*Attempt, 0, len(rows))
	for _, row := range rows {
		a := &Attempt{Type: t, Row: row, token: token, leaseEnd: asked.Add(row.LeaseLeft)}
		lost := LostLeases(&row)
		if lost > crashBudget {
			d.deadLetter(a)
			continue
		}
		attempts = append(attempts, a)
	}
	return attempts
}

// startAttempts starts them, or gives them back.
func (d *dispatcher) startAttempts(t *Type, attempts []*Attempt) {
	needed := callsOf(t, attempts)
	attempts, shut := t.Admitted(attempts)
	if len(shut) > 0 {
		d.giveBack(t, shut, needed-callsOf(t, attempts))
		for _, a := range shut {
			// Other processes need not wait for the end of the queue's lease.
			d.settler.source.Move(processlog.QueueEntry{BusinessType: t.Name, ID: a.Row.ID})
		}
	}
	if refused, calls := d.start(t, attempts); len(refused) > 0 {
		for _, a := range refused {
			t.ended(a, Result{Unstarted: true})
		}
		d.giveBack(t, refused, calls)
	}
}

// deadLetter ends an entry whose leases keep ending with no outcome.
func (d *dispatcher) deadLetter(a *Attempt) {
	failpoint.Reach(failpoint.CrashesCounted)
	// It waits for the database as any outcome does, and is withdrawn should a stuck handler return meanwhile (G8).
	d.settler.batcher.Add(settlement{a: a, outcome: a.Type.crashed(&a.Row, d.holdings.since(&a.Row)), deadLetters: true})
	d.claimSchedule.free(a.Type, 1)
}

// giveBack hands back what may not start, and the calls it would have needed. No handler was called, so nothing is counted
// (G15, G16).
func (d *dispatcher) giveBack(t *Type, attempts []*Attempt, calls int) {
	entries := make([]processlog.QueueEntry, len(attempts))
	for i, a := range attempts {
		entries[i] = processlog.QueueEntry{BusinessType: t.Name, ID: a.Row.ID}
	}
	// The slots first: the statement may wait for the database. The places in quarantine last: as long as the lease
	// stands, a death counts against its entry.
	d.claimSchedule.free(t, calls)
	d.claims.release(attempts[0].Row.Token, entries...)
	for _, a := range attempts {
		a.left(NotRun)
		d.settler.givenBack(a)
	}
}

// giveUp gives up attempts that are blocked after all: first the slots of their calls, because the write may wait for the
// database, and last their places among suspects, because a death counts against an entry as long as its lease stands.
func (d *dispatcher) giveUp(t *Type, calls int, blocked []*Attempt, write func() error) error {
	d.claimSchedule.free(t, calls)
	if len(blocked) == 0 {
		return nil
	}
	err := write()
	for _, a := range blocked {
		a.left(NotRun)
	}
	return err
}

// start runs claimed entries of one type, which hold the slots of the calls they need, and returns at once those that it
// may not start, and how many calls are not needed for that.
func (d *dispatcher) start(t *Type, attempts []*Attempt) (refused []*Attempt, spare int) {
	needed := callsOf(t, attempts)
	for _, a := range attempts {
		d.prepare(a)
	}
	run, _ := d.contexts()
	attempts, refused = d.holdings.admit(run, attempts)
	spare = needed - callsOf(t, attempts)
	var batches [companies][]*Attempt
	for _, a := range attempts {
		with := t.company(a.Row.State, LostLeases(&a.Row))
		if with == alone {
			go d.attempt(a)
		} else {
			batches[with] = append(batches[with], a)
		}
	}
	for _, batch := range batches {
		for chunk := range slices.Chunk(batch, t.Seats()) {
			if len(chunk) == 1 {
				go d.attempt(chunk[0]) // alone already: what comes of it counts
			} else {
				t.joined(chunk)
				go d.runBatch(t, chunk)
			}
		}
	}
	return refused, spare
}

// callsOf is Type.calls of attempts.
func callsOf(t *Type, attempts []*Attempt) int {
	return t.callsOf(len(attempts), func(i int) *processlog.Row { return &attempts[i].Row })
}

// prepare gives an attempt its context: bounded by the type's timeout, with what Record's context carried,
// ended by a lost lease, by Cancel, or when Run gives up waiting.
func (d *dispatcher) prepare(a *Attempt) {
	own := &a.Row
	if a.batched() {
		own = nil // alone in its batch or not: a batch carries nothing of one entry
	}
	ctx, cancel := d.handlerContext(a.Type, own)
	d.holdings.mu.Lock()
	defer d.holdings.mu.Unlock()
	// Also for an entry of a broken batch: it begins anew, and what was found of the batch's handler is not its own.
	a.ctx, a.cancel, a.started, a.stuck = ctx, cancel, time.Now(), false
	a.anew = false
	a.calls++ // under one lock with when it began: who finds it stuck means this call, or the one before
}

// handlerContext is a handler's context, with what travelled with an entry if its row is given.
func (d *dispatcher) handlerContext(t *Type, own *processlog.Row) (context.Context, context.CancelCauseFunc) {
	_, ctx := d.contexts()
	if own != nil {
		ctx = d.Extract(ctx, own.Headers) // the user's code: not under the mutex
	}
	ctx, endTimeout := context.WithTimeoutCause(ctx, t.Timeout, processlog.ErrTimeout)
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, func(cause error) { cancel(cause); endTimeout() }
}

// attempt runs one attempt to its end. The outcome is handed on from a deferred call, which a handler that ends
// its goroutine cannot skip.
func (d *dispatcher) attempt(a *Attempt) {
	end := Result{Err: &processlog.PanicError{Stack: []byte("runtime.Goexit")}}
	defer func() { d.finish(a, end) }()
	Tell(d.Base, d.Observer.AttemptStarted, a.event(nil))
	failpoint.Reach(failpoint.AttemptStarted)
	end = d.call(a)
}

// Result is how an attempt came out.
type Result struct {
	Err       error
	settled   bool             // the outcome is durable: the handler's own transaction carried it
	token     processlog.Token // it carries, when settled
	asked     time.Time        // when settled: before the COMMIT, or the question, whose answer says so
	Unstarted bool             // no handler was called: the claim is given back
	Cause     error            // why it ended, where that is not what has ended its context
}

// call runs what the entry's state asks for, and turns a panic into a failure.
func (d *dispatcher) call(a *Attempt) (end Result) {
	defer func() {
		if p := recover(); p != nil {
			end = Result{Err: panicked(p)}
		}
	}()
	inTx := a.Type.RunTx
	if a.compensating() {
		inTx = a.Type.UndoTx
	}
	if end, late := d.heldUp(a); late { // by an observer, or by what else runs in this process
		return end
	}
	if a.Type.Ready != nil && !a.compensating() {
		if err := a.Type.Ready(a.ctx, &a.Row); err != nil {
			return Result{Err: usererr.Of(Free(err))}
		}
	}
	if inTx != nil {
		return d.runTx(a, inTx)
	}
	return Result{Err: a.Type.call(a.ctx, &a.Row)}
}

// heldUp reports whether a handler is not to be called any more, and what becomes of its attempt: one that has run out of
// time passes for stuck, and its place is another suspect's (G16).
func (d *dispatcher) heldUp(a *Attempt) (end Result, late bool) {
	switch {
	case d.stopping():
		return Result{Err: processlog.ErrStopping, Unstarted: true}, true
	case a.ctx.Err() != nil:
		return Result{Err: ours(fmt.Errorf("the attempt was over before its handler could begin: %w", context.Cause(a.ctx)))}, true
	}
	return Result{}, false
}

// panicked is the failure of a panic with p. Its text is made here, since the methods of p are the user's.
func panicked(p any) error { return usererr.Of(&processlog.PanicError{Value: p, Stack: debug.Stack()}) }

// finish takes the handler's verdict, frees its slot, and hands the outcome to be stored.
func (d *dispatcher) finish(a *Attempt, end Result) {
	failpoint.Reach(failpoint.HandlerReturned)
	// Before the context is let go of, which would be the cause otherwise.
	cause := cmp.Or(end.Cause, context.Cause(a.ctx))
	a.cancel(nil)
	Tell(d.Base, d.Observer.AttemptEnded, a.event(end.Err))
	s := settlement{a: a, outcome: a.Type.safeOutcomeOf(&a.Row, end.Err, cause), token: end.token}
	if a.lateBatch {
		s.outcome = a.Type.withLateBatch(s.outcome)
	}
	if !errors.Is(cause, processlog.ErrCancelled) { // told to stop, a handler may blame whatever it waited for
		d.Problems.attempted(a.Type.Name, end.Err, s.outcome.ProcessCount != a.Row.ProcessCount || s.outcome.CompensateCount != a.Row.CompensateCount)
	}
	// From here on a claim finds it held, not stuck, and a dead-lettering of it gives way (G8).
	a.returned.Store(true)
	// Before its slot is free: should this open the breaker, nothing more is claimed.
	end.Cause = cause
	a.Type.ended(a, end)
	// Before the outcome is on its way: whoever sees it stored, and records the next entry, finds the slot free.
	if a.freesSlot() {
		d.claimSchedule.free(a.Type, 1)
	}
	switch {
	case end.Unstarted:
		d.claims.release(a.Row.Token, processlog.QueueEntry{BusinessType: a.Type.Name, ID: a.Row.ID})
		d.holdings.forget(a)
		d.settler.dropped(a)
	case end.settled:
		d.rollbackDetector.remembered.sawStored([]settlement{s}, []processlog.Settled{{Applied: true}}, end.asked)
		d.settler.settled(s, processlog.Settled{Applied: true})
	// Effect and outcome went back together: there is nothing to store, and whoever moved the entry on has it (G5).
	case end.Err == errFenceLost:
		d.settler.settled(s, processlog.Settled{})
	default:
		d.settler.store(s)
	}
	d.holdings.handlerReturned() // after it is in the batcher: a drain that finds no handler waits for what the batcher holds
}

// drain waits for running handlers: two thirds of timeout undisturbed, the rest with their contexts ended.
func (d *dispatcher) drain(timeout time.Duration) error {
	grace := time.NewTimer(timeout * 2 / 3)
	defer grace.Stop()
	select {
	case <-d.holdings.whenIdle():
	case <-grace.C:
	}
	d.stop(processlog.ErrStopping) // nothing starts from here on
	deadline := time.NewTimer(timeout / 3)
	defer deadline.Stop()
	select {
	case <-d.holdings.whenIdle():
		return nil
	case <-deadline.C:
		return d.stuckError()
	}
}

// stuckError names the handlers that have not returned. Perhaps the last one just has.
func (d *dispatcher) stuckError() error {
	if running := d.holdings.running(); len(running) > 0 {
		return &processlog.StuckError{Stuck: running}
	}
	return nil
}
