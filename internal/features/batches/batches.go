// Package batches runs handlers that take several entries in one call. An entry can stay unclaimed and wait for other
// entries that share its call.
package batches

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/processlog"
)

// Settings are the settings of a type whose handler takes several entries.
type Settings struct {
	// Call runs the handler. Its result has the meaning that BatchFunc of the root package documents.
	Call func(ctx context.Context, rows []*processlog.Row) []error
	Size int           // maximum number of entries in one call
	Wait time.Duration // how long a due entry may wait for other entries that can share its handler call
}

// Batches manages the types of one engine whose handlers take several entries in a call.
type Batches struct {
	e *engine.Engine

	mu       sync.Mutex
	timedOut map[*engine.Attempt]struct{}
}

// New makes the batches of an engine.
func New(e *engine.Engine) *Batches {
	b := &Batches{e: e, timedOut: make(map[*engine.Attempt]struct{})}
	e.Hooks.Prepare = append(e.Hooks.Prepare, func(a *engine.Attempt, o processlog.Outcome) processlog.Outcome {
		if a.Type.Grouped() && b.takeTimedOut(a) {
			markTimedOut(a, &o)
		}
		return o
	})
	e.Hooks.Dropped = append(e.Hooks.Dropped, func(a *engine.Attempt) {
		if a.Type.Grouped() {
			b.takeTimedOut(a)
		}
	})
	return b
}

// Attach makes each call of a type's handler take several entries.
func (b *Batches) Attach(t *engine.Type, s Settings) {
	t.Run = engine.HandlerOf(func(ctx context.Context, row *processlog.Row) error {
		return singleVerdict(s.call(ctx, []*processlog.Row{row}))
	})
	c := &batchCalls{settings: s, lingerState: lingerState{wait: s.Wait, batchSize: s.Size}, b: b, e: b.e, t: t}
	t.AttachGrouping(engine.Grouping{Seats: s.Size, Start: c.start, Linger: s.Wait, EntryDue: c.entryDue, Look: c.look})
}

type batchCalls struct {
	lingerState
	settings Settings

	b *Batches
	e *engine.Engine
	t *engine.Type
}

func (c *batchCalls) start(batch []*engine.Attempt) {
	for _, admission := range c.t.Admissions() {
		admission.SharedCallBegins(batch)
	}
	go c.runBatch(batch)
}

// runBatch calls the handler for a batch. The call has a context of its own, so the end of one entry's attempt does not
// fail the other entries.
//
// If the call returns no usable verdicts, each entry runs again alone. That second run spends the entry's attempt.
func (c *batchCalls) runBatch(batch []*engine.Attempt) {
	var verdicts []error
	called, complete := false, false
	ctx, cancel := c.e.HandlerContext(c.t)
	// The variable complete stays false if the handler calls runtime.Goexit. It also stays false if Run ends before the
	// handler starts.
	defer func() {
		timedOut := errors.Is(context.Cause(ctx), processlog.ErrTimeout)
		for _, admission := range c.t.Admissions() {
			admission.SharedCallEnded(batch, verdicts, complete, context.Cause(ctx))
		}
		cancel()
		if complete {
			shareSlot(batch, 1) // The first settled entry frees the slot of the call.
		} else {
			c.e.RenewLapsed(c.t, batch)
			shareSlot(batch, len(batch)) // Each entry runs again alone, and the last one frees the slot.
		}
		for i, a := range batch {
			switch {
			case !called: // The handler was not called, because Run is ending.
				c.e.Finish(a, engine.Result{Err: processlog.ErrStopping, Unstarted: true})
			case !complete:
				c.rerunAlone(a, timedOut)
			case verdicts == nil:
				c.e.Finish(a, engine.Result{})
			default:
				c.e.Finish(a, engine.Result{Err: verdicts[i]})
			}
		}
	}()
	rows := make([]*processlog.Row, len(batch))
	for i, a := range batch {
		rows[i] = &a.Row
		engine.NotifyObserver(c.e.Base, c.e.Observer.AttemptStarted, a.Event(nil))
	}
	failpoint.Reach(failpoint.BatchStarted)
	if called = !c.e.Stopping(); called {
		verdicts, complete = c.callHandler(ctx, rows)
	}
}

func shareSlot(batch []*engine.Attempt, n int) {
	left := new(atomic.Int32)
	left.Store(int32(n))
	for _, a := range batch {
		a.SlotUsers = left
	}
}

func (c *batchCalls) callHandler(ctx context.Context, rows []*processlog.Row) (verdicts []error, complete bool) {
	defer func() {
		if p := recover(); p != nil {
			c.e.Log.Warn("compensator: batch handler panicked; its entries run alone", "type", c.t.Name, "panic", usererr.PanicText(p))
			complete = false
		}
	}()
	verdicts = c.settings.call(ctx, rows)
	if verdicts == nil {
		return nil, true
	}
	// After a timeout, the timeout may have caused the error of an entry. An error with such a cause must not cost an
	// attempt, so the result complete is false, and the entries run again alone. See promise G7. A batch without errors
	// is a success, even if it ends after its timeout.
	timedOut := errors.Is(context.Cause(ctx), processlog.ErrTimeout) && slices.ContainsFunc(verdicts, func(err error) bool { return err != nil })
	return verdicts, len(verdicts) == len(rows) && !timedOut
}

func (s *Settings) call(ctx context.Context, rows []*processlog.Row) []error {
	verdicts := s.Call(ctx, rows)
	if verdicts == nil {
		return nil
	}
	copies := make([]error, len(verdicts))
	for i, err := range verdicts {
		copies[i] = usererr.Of(err)
	}
	return copies
}

// rerunAlone calls the handler again for one entry of a batch, if that is still allowed. If the batch has timed out,
// its call may have had the effect of the entry. rerunAlone notes the timeout, so that the stored outcome says this.
func (c *batchCalls) rerunAlone(a *engine.Attempt, timedOut bool) {
	if timedOut {
		c.b.noteTimeout(a)
	}
	if cause := c.e.SecondCallError(a); cause != nil {
		c.e.Finish(a, engine.Result{Err: cause, Cause: cause})
		return
	}
	if slices.ContainsFunc(c.t.Admissions(), func(admission *engine.Admission) bool { return !admission.AdmitAlone(a) }) {
		// Store an outcome, so that the row shows that the handler was called under this lease. If the lease were given
		// back instead, the row would look as if the handler had not been called. See promise G16.
		c.e.Finish(a, engine.Result{Err: verdict.RetrySoon(errNotAdmitted)})
		return
	}
	failpoint.Reach(failpoint.BatchBroken)
	engine.NotifyObserver(c.e.Base, c.e.Observer.AttemptEnded, a.Event(errNoVerdict))
	c.e.RunAlone(a)
}

func (b *Batches) noteTimeout(a *engine.Attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timedOut[a] = struct{}{}
}

func (b *Batches) takeTimedOut(a *engine.Attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, timedOut := b.timedOut[a]
	delete(b.timedOut, a)
	return timedOut
}

func markTimedOut(a *engine.Attempt, o *processlog.Outcome) {
	if o.TimedOut || o.EndedBy == processlog.EndedByHandler {
		return
	}
	o.TimedOut = true
	faults := a.Row.Faults.In(&a.Row)
	if o.Faults != nil {
		faults = *o.Faults
	}
	// An earlier attempt may have added the timeout to the error text. That is so if the outcome of the entry was
	// unknown already, and if o.LastError is still the error text of the row. In all other cases, add the timeout now.
	if !faults.OutcomeUnknown || o.LastError != a.Row.LastError {
		o.LastError = fmt.Sprintf("%v after %v in its batch; then, alone: %s", processlog.ErrTimeout, a.Type.Timeout, o.LastError)
	}
	faults.OutcomeUnknown = true
	*o = engine.WithFaults(*o, &a.Row, faults)
}

var errNoVerdict = errors.New("compensator: the batch came to no verdict; its entries run alone")

var errNotAdmitted = errors.New("compensator: the batch came to no verdict, and its type may start nothing now; its entries wait")

func singleVerdict(verdicts []error) error {
	switch {
	case verdicts == nil:
		return nil
	case len(verdicts) != 1:
		return fmt.Errorf("batch handler answered with %d errors for 1 entry", len(verdicts))
	}
	return verdicts[0]
}
