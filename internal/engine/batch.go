package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/processlog"
)

// runBatch runs a batch under one context of its own, so that the end of one entry's attempt does not fail the others.
//
// If the batch has no verdict for each entry, it costs no attempt. Every entry then runs again alone, and that run
// counts.
func (d *dispatcher) runBatch(t *Type, batch []*Attempt) {
	var verdicts []error
	whole := false
	// The context carries no entry's values: with the values of one tenant's entry, the handler would work for all
	// tenants as that tenant.
	ctx, cancel := d.handlerContext(t, nil)
	// whole stays false if the handler calls runtime.Goexit, or if Run stops before the handler starts. The deferred
	// function handles all entries in these cases too.
	defer func() {
		timedOut := errors.Is(context.Cause(ctx), processlog.ErrTimeout)
		t.callEnded(batch, verdicts, whole, context.Cause(ctx))
		cancel(nil)
		if !whole {
			d.renewLate(t, batch)
		}
		leaveSlot(batch, whole)
		for i, a := range batch {
			switch {
			case !whole:
				a.lateBatch = timedOut
				d.again(a)
			case verdicts == nil:
				d.finish(a, Result{})
			default:
				d.finish(a, Result{Err: verdicts[i]})
			}
		}
	}()
	rows := make([]*processlog.Row, len(batch))
	for i, a := range batch {
		rows[i] = &a.Row
		Tell(d.Base, d.Observer.AttemptStarted, a.event(nil))
	}
	failpoint.Reach(failpoint.BatchStarted)
	if !d.stopping() {
		verdicts, whole = d.callBatch(ctx, t, rows)
	}
}

// leaveSlot makes the entries of a batch share the slot of its call. If the batch has a verdict for each entry, the
// first settled entry frees the slot. Otherwise each entry runs again alone, and the last one frees it.
func leaveSlot(batch []*Attempt, whole bool) {
	slot := new(sharedSlot)
	slot.left.Store(1)
	if !whole {
		slot.left.Store(int32(len(batch)))
	}
	for _, a := range batch {
		a.slot = slot
	}
}

// callBatch calls the batch handler. A nil verdicts means success for all entries. whole reports whether there is a
// verdict for each entry.
func (d *dispatcher) callBatch(ctx context.Context, t *Type, rows []*processlog.Row) (verdicts []error, whole bool) {
	defer func() {
		if p := recover(); p != nil {
			d.Log.Warn("compensator: batch handler panicked; its entries run alone", "type", t.Name, "panic", usererr.PanicText(p))
			whole = false
		}
	}()
	verdicts = t.callBatch(ctx, rows)
	if verdicts == nil {
		return nil, true
	}
	// After a timeout the errors may not be the entries' own, so an error counts only once its entry has run alone (G7).
	// A batch without errors is a success, however late.
	timedOut := errors.Is(context.Cause(ctx), processlog.ErrTimeout) && slices.ContainsFunc(verdicts, func(err error) bool { return err != nil })
	return verdicts, len(verdicts) == len(rows) && !timedOut
}

// again runs an entry of a failed batch alone. If no handler may be called for the entry, it ends the attempt instead.
func (d *dispatcher) again(a *Attempt) {
	if cause := d.over(a); cause != nil {
		d.finish(a, Result{Err: cause, Cause: cause})
		return
	}
	if !a.Type.readmit(a) {
		d.finish(a, Result{Err: soon(errShut)}) // A handler was called under this lease, so settle the entry instead of giving it back (G4).
		return
	}
	failpoint.Reach(failpoint.BatchBroken)
	Tell(d.Base, d.Observer.AttemptEnded, a.event(errNoVerdict))
	a.cancel(nil)
	// The entry is still held and counted as a running handler, so drain waits for this call too.
	d.prepare(a)
	go d.attempt(a)
}

// over returns why no handler may be called for an attempt again, or nil.
func (d *dispatcher) over(a *Attempt) error {
	stopping := d.stopping()
	d.holdings.mu.Lock()
	defer d.holdings.mu.Unlock()
	switch cause := context.Cause(a.ctx); {
	case stopping, errors.Is(cause, processlog.ErrStopping):
		return processlog.ErrStopping
	case !a.gone && time.Now().After(a.leaseEnd):
		return processlog.ErrLeaseLost // renewLate did not get a new lease.
	case !a.gone:
		return nil
	// The context keeps its first cause, the timeout. It does not show a lost lease or a cancellation that came later.
	case errors.Is(cause, processlog.ErrTimeout):
		return processlog.ErrLeaseLost // Use this error for a cancelled entry too.
	default:
		return cause
	}
}

// renewLate renews the leases that ended before their batch returned. A stuck batch may return so late that other
// processes have run its entries. Their leases cannot be renewed.
func (d *dispatcher) renewLate(t *Type, batch []*Attempt) {
	var late []*Attempt
	for _, a := range batch {
		// Skip leases that have not ended. The next round of the renewer renews them.
		if d.beginAnew(a) {
			late = append(late, a)
		}
	}
	if len(late) > 0 && !d.stopping() {
		d.renewer.renewAll(t.Lease, late)
	}
}

// beginAnew reports whether an attempt's lease has ended, by the clock of this process. If so, the attempt no longer
// counts as stuck in its batch.
func (d *dispatcher) beginAnew(a *Attempt) bool {
	d.holdings.mu.Lock()
	defer d.holdings.mu.Unlock()
	a.anew = time.Now().After(a.leaseEnd)
	return a.anew
}

// errNoVerdict ends the first call of an entry whose batch had no verdict. The entry runs again alone.
var errNoVerdict = errors.New("compensator: the batch came to no verdict; its entries run alone")

// errShut ends the attempt of an entry whose batch had no verdict, if the entry may not run alone. For example, the end
// of the batch has opened a breaker.
var errShut = errors.New("compensator: the batch came to no verdict, and its type may start nothing now; its entries wait")

// only returns the verdict of a batch with one entry.
func only(verdicts []error) error {
	switch {
	case verdicts == nil:
		return nil
	case len(verdicts) != 1:
		return fmt.Errorf("batch handler answered with %d errors for 1 entry", len(verdicts))
	}
	return verdicts[0]
}
