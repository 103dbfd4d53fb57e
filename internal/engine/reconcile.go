package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// reconciler enqueues entries that the queue has lost, and entries that come within the queue's horizon. It also claims
// overdue entries directly from the database at a low rate. This keeps the path without a queue in constant use.
//
// It keeps no position between rounds. A transaction may commit an entry with a lower id or an earlier due time than
// entries already seen.
type reconciler struct {
	*Base
	types         *types
	claimSchedule *claimSchedule
	source        *source
	holdings      *holdings
	claims        *claims
	settler       *settler
	dispatcher    *dispatcher
}

// scanTimeout limits each read of the reconciler, so that a dead connection cannot block its rounds forever. It is
// long, because some servers read many rows where others skip them.
const scanTimeout = time.Minute

// heads calls Store.Heads with a timeout. scan does the same for Store.Scan.
func (r *reconciler) heads(ctx context.Context) (Heads, error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	read := time.Now()
	list, err := r.Store.Heads(ctx)
	r.saw(ctx, err)
	return Heads{list, read}, err
}

func (r *reconciler) scan(ctx context.Context, w processlog.Window) ([]processlog.Scheduled, error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	found, err := r.Store.Scan(ctx, w)
	r.saw(ctx, err)
	return found, err
}

// saw records the result of a read, unless the end of Run has canceled it.
func (r *reconciler) saw(ctx context.Context, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		r.Base.Saw(problemRound, err)
	}
}

// run makes rounds until ctx ends.
func (r *reconciler) run(ctx context.Context) {
	for {
		r.round(ctx)
		if !Rest(ctx, r.interval()) {
			return
		}
	}
}

// interval returns the pause between two rounds. It is up to a fifth longer than configured, so that many instances do
// not read at the same time.
func (r *reconciler) interval() time.Duration {
	d := r.ReconcileInterval
	if r.source.Reach() != ReachAll {
		d = r.PollInterval
	}
	return d + jitter.N(d/5+1)
}

func (r *reconciler) round(ctx context.Context) {
	if ctx.Err() != nil {
		return // ctx may have ended together with the pause
	}
	finish := r.source.Round(ctx)
	for _, w := range r.watchers {
		w.Round(ctx)
	}
	heads, err := r.heads(ctx)
	if err != nil {
		return
	}
	failpoint.Reach(failpoint.HeadsRead)
	var event observe.ReconciledEvent
	r.pollAll(ctx, heads.List, &event)
	r.countStuck()
	finish(ctx, heads, &event)
	r.report(event)
}

// pollAll claims overdue entries of all types. It runs before anything is enqueued, because overdue entries have waited
// long enough.
func (r *reconciler) pollAll(ctx context.Context, heads []processlog.Head, event *observe.ReconciledEvent) {
	for _, head := range heads {
		t := r.types.named(head.BusinessType)
		overdue := head.DueIn < -r.grace()
		if t != nil && t.Blocks() && (overdue || head.DueIn <= 0 && !r.source.up()) {
			// Most due entries of this type may be blocked. The scanner searches for those that are not, a part of them in
			// each round.
			t.order.FindAgain()
			r.claimSchedule.overflow(t.Name)
			continue
		}
		switch {
		case t == nil && overdue:
			event.UnknownTypes = append(event.UnknownTypes, head.BusinessType)
		case t != nil && !r.source.up():
			// Without a queue, the reconciler tells the claim schedule when the next entry of the type is due.
			r.claimSchedule.expect(head.BusinessType, head.DueIn)
		case t != nil && overdue:
			event.Polled += r.poll(ctx, t, head.State)
		}
	}
}

// grace returns how long an entry may be due before the reconciler treats it as lost by the queue. A source that knows
// only this process's entries never knew the others, so the grace is then 0.
func (r *reconciler) grace() time.Duration {
	if r.source.Reach() == ReachOwn {
		return 0
	}
	return r.Grace
}

// poll claims overdue entries directly from the database, as many as there are free slots.
func (r *reconciler) poll(ctx context.Context, t *Type, state processlog.State) int {
	if r.settler.behind() {
		return 0
	}
	// Count the free slots now and take them after the read. No slot stays unused during the read.
	limit := t.fits(t.slots.Free())
	if limit == 0 {
		return 0
	}
	overdue, err := r.overdue(ctx, t, state, limit)
	if err != nil {
		return 0
	}
	calls := t.slots.Take(t.callsFor(len(overdue)))
	if calls == 0 {
		return 0
	}
	n := min(len(overdue), t.fits(calls))
	found, err := r.claims.claim(t, unleased(overdue[:n]), calls)
	failpoint.Reach(failpoint.OverdueClaimed)
	r.claimSchedule.free(t, calls-t.calls(found.Mine))
	if err != nil {
		return 0
	}
	_, err = r.dispatcher.startClaimed(t, found.Mine, found.asked, 0)
	if err == nil && (len(overdue) == limit || len(found.spare) > 0) {
		r.claimSchedule.overflow(t.Name) // there may be more, so let the scanner continue before the next round
	}
	return len(found.Mine)
}

// overdue lists entries of a type and state that have been due for longer than the grace. It leaves out leased entries
// and entries that this process holds. countStuck handles held entries whose handlers are stuck.
func (r *reconciler) overdue(ctx context.Context, t *Type, state processlog.State, limit int) ([]processlog.ID, error) {
	held := r.holdings.expired(t)
	page, err := r.scan(ctx, processlog.Window{BusinessType: t.Name, State: state, From: -processlog.MaxDelay, To: -r.grace(), Free: true, Limit: limit + len(held)})
	page = slices.DeleteFunc(page, func(e processlog.Scheduled) bool { return held[e.ID] })
	// These entries still wait for a full batch, so they are not lost.
	if t.Wait() > 0 && len(page) > 0 && len(page) < t.Seats() && -page[0].In < r.grace()+t.Wait() {
		return nil, err
	}
	ids := make([]processlog.ID, min(len(page), limit))
	for i := range ids {
		ids[i] = page[i].ID
	}
	return ids, err
}

// countStuck claims entries on which handlers of this process are stuck. It first leaves them to other processes for
// one lease time. Each claim counts one lost lease. An entry that has lost its last lease is dead-lettered. None of
// these entries runs.
func (r *reconciler) countStuck() {
	for t, stuckOnes := range grouped.Each(r.holdings.stuckOnes(), func(a *Attempt) *Type { return a.Type }) {
		if t.Paused() {
			continue
		}
		var ids []processlog.ID
		for _, a := range stuckOnes {
			ids = append(ids, a.Row.ID)
		}
		// Take no slots, because none of these entries runs. If stuck handlers hold all slots, no other claim would reach
		// these entries. If slots are free, overdue still leaves these entries to countStuck.
		found, err := r.claims.claimOnly(t, unleased(ids), len(ids), true)
		if err != nil {
			continue // the next round tries again
		}
		t.slots.Overdraw(len(found.Mine))                               // startClaimed releases a slot for each entry, as after a claim that took slots
		_, _ = r.dispatcher.startClaimed(t, found.Mine, found.asked, 0) // an error does not make the next round earlier
	}
}

func (r *reconciler) report(event observe.ReconciledEvent) {
	slices.Sort(event.UnknownTypes)
	event.UnknownTypes = slices.Compact(event.UnknownTypes)
	if len(event.UnknownTypes) > 0 && r.source.Reach() != ReachOwn {
		r.Log.Debug("compensator: overdue entries of types this process does not handle", "types", event.UnknownTypes)
	}
	Tell(r.Base, r.Observer.Reconciled, event)
}
