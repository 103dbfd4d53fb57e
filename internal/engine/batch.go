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

// runBatch runs a batch, under a context of its own: what ends one entry's attempt must not fail the others'.
// A batch that did not come to a verdict for each entry spends no attempt: every entry is run again alone,
// and that counts.
func (d *dispatcher) runBatch(t *Type, batch []*Attempt) {
	var verdicts []error
	whole := false
	// No entry's values travel with it: in one entry's a batch would do all tenants' work as that one.
	ctx, cancel := d.handlerContext(t, nil)
	// A handler that ends its goroutine, or whose start the stop has overtaken, leaves whole false: all entries are
	// dealt with from here.
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

// leaveSlot leaves the call's slot to the entries of a batch: free with the first outcome where the handler is done with all of
// them, and with the last where each runs again alone.
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

// callBatch returns what a batch answered, nil for no error at all, and whether that is a verdict for each entry.
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
	// Errors of a batch that ran out of time may be no entry's own: each counts only once it has run alone (G7). All
	// nil is a success, however late.
	timedOut := errors.Is(context.Cause(ctx), processlog.ErrTimeout) && slices.ContainsFunc(verdicts, func(err error) bool { return err != nil })
	return verdicts, len(verdicts) == len(rows) && !timedOut
}

// again runs an entry of a failed batch by itself, unless it is this process's no more, or no handler may start.
func (d *dispatcher) again(a *Attempt) {
	if cause := d.over(a); cause != nil {
		d.finish(a, Result{Err: cause, Cause: cause})
		return
	}
	if !a.Type.readmit(a) {
		d.finish(a, Result{Err: soon(errShut)}) // its lease was used: it is settled, and not given back (G4)
		return
	}
	failpoint.Reach(failpoint.BatchBroken)
	Tell(d.Base, d.Observer.AttemptEnded, a.event(errNoVerdict))
	a.cancel(nil)
	// It is held and counted already: whoever waits for handlers goes on waiting for this one.
	d.prepare(a)
	go d.attempt(a)
}

// over is why no handler may be called for an attempt once more; nil: one may.
func (d *dispatcher) over(a *Attempt) error {
	stopping := d.stopping()
	d.holdings.mu.Lock()
	defer d.holdings.mu.Unlock()
	switch cause := context.Cause(a.ctx); {
	case stopping, errors.Is(cause, processlog.ErrStopping):
		return processlog.ErrStopping
	case !a.gone && time.Now().After(a.leaseEnd):
		return processlog.ErrLeaseLost // it was asked for anew, and was not to be had
	case !a.gone:
		return nil
	// The context keeps its first cause, and tells of no loss or cancellation that came after the batch's timeout.
	case errors.Is(cause, processlog.ErrTimeout):
		return processlog.ErrLeaseLost // cancelled or not
	default:
		return cause
	}
}

// renewLate asks for the leases anew that ended before a batch did: a stuck one may return long after them, when others
// have had its entries.
func (d *dispatcher) renewLate(t *Type, batch []*Attempt) {
	var late []*Attempt
	for _, a := range batch {
		// One whose lease runs is renewed with the next round, as any.
		if d.beginAnew(a) {
			late = append(late, a)
		}
	}
	if len(late) > 0 && !d.stopping() {
		d.renewer.renewAll(t.Lease, late)
	}
}

// beginAnew reports whether an attempt's lease has ended, by our clock. From then on its batch is not what it is stuck on.
func (d *dispatcher) beginAnew(a *Attempt) bool {
	d.holdings.mu.Lock()
	defer d.holdings.mu.Unlock()
	a.anew = time.Now().After(a.leaseEnd)
	return a.anew
}

// errNoVerdict ends the attempts of a batch whose entries are run again alone.
var errNoVerdict = errors.New("compensator: the batch came to no verdict; its entries run alone")

// errShut ends attempts of such a batch that may not run alone either, because its end has opened a breaker for example.
var errShut = errors.New("compensator: the batch came to no verdict, and its type may start nothing now; its entries wait")

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
