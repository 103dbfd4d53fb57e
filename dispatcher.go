package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
)

// dispatcher runs claimed entries, each in a goroutine of its own, and knows which of them this process holds.
type dispatcher struct {
	c          *Compensator
	quarantine quarantine

	mu       sync.Mutex              // guards the fields below
	held     map[holding]*attempt    // from admit until the outcome is stored, or dropped
	handlers int                     // of them, those whose handler has not returned
	idle     chan struct{}           // closed when no handler runs; nil when nobody asked
	run      context.Context         // Run's own: no handler is started once it has ended
	base     context.Context         // of handlers; it outlives Run's own
	stop     context.CancelCauseFunc // ends base
}

// attempt is one run of a handler on one entry, or the entry's share of a batch.
type attempt struct {
	row     Row
	token   int64       // of the queue lease it was claimed with; 0: none
	suspect atomic.Bool // it holds a place in quarantine

	t       *handlerType
	ctx     context.Context // the handler's; kept to ask why it ended
	cancel  context.CancelCauseFunc
	started time.Time

	leaseEnd time.Time   // by our clock, which no write depends on; guarded by dispatcher.mu once running
	stuck    bool        // reported; guarded by dispatcher.mu
	anew     bool        // its batch has returned, and its lease is asked for anew; guarded by dispatcher.mu
	returned atomic.Bool // its handler has: from then on what it reports comes before all that is counted against its entry
	lapsed   bool        // the row has moved on, so that there is nothing to renew; guarded by dispatcher.mu
	gone     bool        // the entry is this process's no more; guarded by dispatcher.mu
}

func newDispatcher(c *Compensator) *dispatcher {
	return &dispatcher{c: c, held: make(map[holding]*attempt)}
}

// open makes ready for a Run.
func (d *dispatcher) open(run context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.run = run
	d.base, d.stop = context.WithCancelCause(d.c.work)
}

// start runs claimed entries of one type, each of which holds a slot, and returns at once those that it may not start.
// Entries whose last lease was lost stay out of batches: a killer must not take others with it.
func (d *dispatcher) start(t *handlerType, attempts []*attempt) (refused []*attempt) {
	for _, a := range attempts {
		d.prepare(a)
	}
	attempts, refused = d.admit(attempts)
	var batch []*attempt
	for _, a := range attempts {
		if t.runBatch != nil && a.row.State != Compensating && lostLeases(&a.row) == 0 {
			batch = append(batch, a)
		} else {
			go d.attempt(a)
		}
	}
	for chunk := range slices.Chunk(batch, t.cfg.BatchSize) {
		if len(chunk) == 1 {
			go d.attempt(chunk[0]) // alone already: what comes of it counts
		} else {
			go d.runBatch(t, chunk)
		}
	}
	return refused
}

// admit takes attempts in that may start: Run goes on, the lease does, and this process does not hold the entry already. A
// claim may have been answered late, or this process have stood still since, for longer than the lease: then others may
// have had the entry.
func (d *dispatcher) admit(attempts []*attempt) (admitted, refused []*attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	admitted = attempts[:0]
	now := time.Now()
	for _, a := range attempts {
		if d.run.Err() != nil || d.held[a.holding()] != nil || now.After(a.leaseEnd) {
			a.cancel(nil)
			refused = append(refused, a)
			continue
		}
		d.held[a.holding()] = a
		d.handlers++
		admitted = append(admitted, a)
	}
	return admitted, refused
}

// prepare gives an attempt its context: bounded by the type's timeout, with what Record's context carried,
// ended by a lost lease, by Cancel, or when Run gives up waiting.
func (d *dispatcher) prepare(a *attempt) {
	own := &a.row
	if a.t.runBatch != nil && a.row.State != Compensating {
		own = nil // alone in its batch or not: a batch carries nothing of one entry
	}
	ctx, cancel := d.handlerContext(a.t, own)
	d.mu.Lock()
	defer d.mu.Unlock()
	a.ctx, a.cancel, a.started, a.stuck = ctx, cancel, time.Now(), false
	a.anew = false
}

// handlerContext is a handler's context, with what travelled with an entry if its row is given.
func (d *dispatcher) handlerContext(t *handlerType, own *Row) (context.Context, context.CancelCauseFunc) {
	d.mu.Lock()
	ctx := d.base
	d.mu.Unlock()
	if own != nil {
		ctx = d.c.extract(ctx, own.Headers) // the user's code: not under the mutex
	}
	ctx, endTimeout := context.WithTimeoutCause(ctx, t.cfg.Timeout, ErrTimeout)
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, func(cause error) { cancel(cause); endTimeout() }
}

// extract gives a handler the values that travelled with its entry; a propagator that panics on them, or answers with
// no context, gives none.
func (c *Compensator) extract(base context.Context, headers map[string]string) (ctx context.Context) {
	if c.cfg.Propagator == nil {
		return base
	}
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("compensator: propagator panicked", "panic", p)
			ctx = base
		}
	}()
	if ctx = c.cfg.Propagator.Extract(base, headers); ctx == nil {
		c.log.Error("compensator: propagator returned no context")
		return base
	}
	return ctx
}

// attempt runs one attempt to its end. The outcome is handed on from a deferred call, which a handler that ends
// its goroutine cannot skip.
func (d *dispatcher) attempt(a *attempt) {
	end := ending{err: &PanicError{Stack: []byte("runtime.Goexit")}}
	defer func() { d.finish(a, end) }()
	tell(d.c, d.c.cfg.Observer.AttemptStarted, a.event(nil))
	failpoint.Reach(failpoint.AttemptStarted)
	end = d.call(a)
}

// ending is how an attempt came out.
type ending struct {
	err       error
	settled   bool  // the outcome is durable: the handler's own transaction carried it
	token     Token // it carries, when settled
	unstarted bool  // no handler was called: the claim is given back
	cause     error // why it ended, where that is not what has ended its context
}

// call runs what the entry's state asks for, and turns a panic into a failure.
func (d *dispatcher) call(a *attempt) (end ending) {
	defer func() {
		if p := recover(); p != nil {
			end = ending{err: &PanicError{Value: p, Stack: debug.Stack()}}
		}
	}()
	t, entry := a.t, d.entry(a)
	compensating := a.row.State == Compensating
	switch {
	case d.stopping(): // its start was held up: by an observer, or by what else runs in this process
		return ending{err: ErrStopping, unstarted: true}
	case compensating && t.undo != nil:
		return ending{err: t.undo(a.ctx, entry)}
	case compensating:
		return d.runTx(a, t.cfg.CompensateTx)
	case t.runTx != nil:
		return d.runTx(a, t.runTx)
	case t.runBatch != nil:
		return ending{err: only(t.runBatch(a.ctx, []*Entry{entry}))}
	}
	return ending{err: t.run(a.ctx, entry)}
}

// entry makes a handler's own copy of the entry.
func (d *dispatcher) entry(a *attempt) *Entry {
	e := entryOf(&a.row, a.t.cfg.Codec)
	e.engine = d.c
	return e
}

// only is the verdict of a batch of one.
func only(verdicts []error) error {
	switch {
	case verdicts == nil:
		return nil
	case len(verdicts) != 1:
		return fmt.Errorf("batch handler answered with %d errors for 1 entry", len(verdicts))
	}
	return verdicts[0]
}

// runBatch runs a batch, under a context of its own: what ends one entry's attempt must not fail the others'.
// A batch that did not come to a verdict for each entry spends no attempt: every entry is run again alone,
// and that counts.
func (d *dispatcher) runBatch(t *handlerType, batch []*attempt) {
	var verdicts []error
	whole := false
	ctx, cancel := d.handlerContext(t, nil)
	defer func() {
		cancel(nil)
		if !whole {
			d.renewLate(t, batch)
		}
		for i, a := range batch {
			switch {
			case !whole:
				d.again(a)
			case verdicts == nil:
				d.finish(a, ending{})
			default:
				d.finish(a, ending{err: verdicts[i]})
			}
		}
	}()
	entries := make([]*Entry, len(batch))
	for i, a := range batch {
		entries[i] = d.entry(a)
		tell(d.c, d.c.cfg.Observer.AttemptStarted, a.event(nil))
	}
	failpoint.Reach(failpoint.BatchStarted)
	if !d.stopping() {
		verdicts, whole = d.callBatch(ctx, t, entries)
	}
}

func (d *dispatcher) callBatch(ctx context.Context, t *handlerType, entries []*Entry) (verdicts []error, whole bool) {
	defer func() {
		if p := recover(); p != nil {
			d.c.log.Warn("compensator: batch handler panicked; its entries run alone", "type", t.name, "panic", p)
			whole = false
		}
	}()
	verdicts = t.runBatch(ctx, entries)
	if verdicts == nil {
		return nil, true
	}
	timedOut := errors.Is(context.Cause(ctx), ErrTimeout) && slices.ContainsFunc(verdicts, func(err error) bool { return err != nil })
	return verdicts, len(verdicts) == len(entries) && !timedOut
}

// again runs an entry of a failed batch by itself, unless it is this process's no more, or no handler may start.
func (d *dispatcher) again(a *attempt) {
	if cause := d.over(a); cause != nil {
		d.finish(a, ending{err: cause, cause: cause})
		return
	}
	failpoint.Reach(failpoint.BatchBroken)
	tell(d.c, d.c.cfg.Observer.AttemptEnded, a.event(errNoVerdict))
	a.cancel(nil)
	d.prepare(a)
	go d.attempt(a)
}

// over is why no handler may be called for an attempt once more; nil: one may.
func (d *dispatcher) over(a *attempt) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch cause := context.Cause(a.ctx); {
	case d.run.Err() != nil, errors.Is(cause, ErrStopping):
		return ErrStopping
	case !a.gone && time.Now().After(a.leaseEnd):
		return ErrLeaseLost // it was asked for anew, and was not to be had
	case !a.gone:
		return nil
	case errors.Is(cause, ErrTimeout):
		return ErrLeaseLost // cancelled or not
	default:
		return cause
	}
}

// renewLate asks for the leases anew that ended before a batch did: a stuck one may return long after them, when others
// have had its entries.
func (d *dispatcher) renewLate(t *handlerType, batch []*attempt) {
	var late []*attempt
	for _, a := range batch {
		if d.beginAnew(a) {
			late = append(late, a)
		}
	}
	if len(late) > 0 && !d.stopping() {
		d.renewAll(t.cfg.Lease, late)
	}
}

// beginAnew reports whether an attempt's lease has ended, by our clock. From then on its batch is not what it is stuck on.
func (d *dispatcher) beginAnew(a *attempt) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	a.anew = time.Now().After(a.leaseEnd)
	return a.anew
}

// stopping reports whether Run's context has ended.
func (d *dispatcher) stopping() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.run.Err() != nil
}

// errNoVerdict ends the attempts of a batch whose entries are run again alone.
var errNoVerdict = errors.New("compensator: the batch came to no verdict; its entries run alone")

// finish takes the handler's verdict, frees its slot, and hands the outcome to be stored.
func (d *dispatcher) finish(a *attempt, end ending) {
	failpoint.Reach(failpoint.HandlerReturned)
	cause := cmp.Or(end.cause, context.Cause(a.ctx))
	a.cancel(nil)
	tell(d.c, d.c.cfg.Observer.AttemptEnded, a.event(end.err))
	d.c.troubles.attempted(a.t.name, end.err)
	s := settlement{a: a, outcome: a.t.safeOutcomeOf(&a.row, end.err, cause), token: end.token}
	a.returned.Store(true)
	switch {
	case end.unstarted:
		d.c.release(a.row.Token, Announcement{BusinessType: a.t.name, ID: a.row.ID})
		d.forget(a)
	case end.settled:
		d.c.witness.sawStored([]settlement{s}, []Settled{{Applied: true}}, a.started)
		d.c.settled(s, Settled{Applied: true})
	case end.err == errFenceLost:
		d.c.settled(s, Settled{})
	default:
		d.c.settleLane.Add(s) // before the slot is free, so that a drain cannot miss it
	}
	d.handlerReturned(a)
	d.c.free(a.t, 1)
}

// leaveQuarantine lets the next suspect in.
func (d *dispatcher) leaveQuarantine(a *attempt) {
	if a.suspect.CompareAndSwap(true, false) {
		d.quarantine.leave(a.t, lostLeases(&a.row))
		d.c.scanner.overflow(a.t.name) // others like it were refused meanwhile
	}
}

func (d *dispatcher) handlerReturned(a *attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handlers--
	if d.handlers == 0 && d.idle != nil {
		close(d.idle)
		d.idle = nil
	}
}

// forget ends an attempt whose outcome is stored, or was dropped. Not sooner: until then the process may die of whatever
// it holds, and a claim would find the entry as if nothing had come of it.
func (d *dispatcher) forget(a *attempt) {
	d.mu.Lock()
	if d.held[a.holding()] == a {
		delete(d.held, a.holding())
	}
	d.mu.Unlock()
	d.leaveQuarantine(a)
}

// cancelEntry ends the context of an entry's running attempts.
func (d *dispatcher) cancelEntry(id EntryID, cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.held {
		if a.row.ID == id {
			a.endLocked(cause)
		}
	}
}

// endLocked ends the attempt of an entry that is this process's no more. A context that has timed out does not tell.
func (a *attempt) endLocked(cause error) {
	a.gone = true
	a.cancel(cause)
}

// drain waits for running handlers: two thirds of timeout undisturbed, the rest with their contexts ended.
func (d *dispatcher) drain(timeout time.Duration) error {
	patience := time.NewTimer(timeout * 2 / 3)
	defer patience.Stop()
	select {
	case <-d.whenIdle():
	case <-patience.C:
	}
	d.stop(ErrStopping) // nothing starts from here on
	deadline := time.NewTimer(timeout / 3)
	defer deadline.Stop()
	select {
	case <-d.whenIdle():
		return nil
	case <-deadline.C:
		return d.stuckError()
	}
}

func (d *dispatcher) whenIdle() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.handlers == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if d.idle == nil {
		d.idle = make(chan struct{})
	}
	return d.idle
}

func (d *dispatcher) stuckError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	stuck := &StuckError{}
	for _, a := range d.held {
		if !a.returned.Load() {
			stuck.Stuck = append(stuck.Stuck, StuckAttempt{ID: a.row.ID, BusinessType: a.t.name, Running: time.Since(a.started)})
		}
	}
	if len(stuck.Stuck) == 0 {
		return nil // the last one returned just now
	}
	slices.SortFunc(stuck.Stuck, func(a, b StuckAttempt) int { return a.ID.Compare(b.ID) })
	return stuck
}

func (a *attempt) event(err error) AttemptEvent {
	return AttemptEvent{
		ID: a.row.ID, BusinessType: a.row.BusinessType, Attempt: a.row.Attempt(), Compensation: a.row.State == Compensating,
		Late: -a.row.DueIn, Duration: time.Since(a.started), Err: err,
	}
}
