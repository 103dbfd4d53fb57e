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

// reconciler brings back what the queue lost, moves entries into the queue as they come within its horizon,
// and polls the database directly at a low rate, so that the path that works without a queue is never
// untested. It remembers no position: a transaction may commit an entry with a lower id, or an earlier due
// moment, than those seen before.
type reconciler struct {
	*Base
	types            *types
	claimSchedule    *claimSchedule
	source           *source
	holdings         *holdings
	rollbackDetector *rollbackDetector
	claims           *claims
	settler          *settler
	dispatcher       *dispatcher
}

// scanTimeout bounds each reading of the reconciler: a connection that has gone silent must not end its
// rounds for good. It is long, for servers that read where others jump.
const scanTimeout = time.Minute

// heads and scan are the store's, in bounded time.
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

// saw takes the result of a reading, unless Run has ended it.
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

// interval spreads the rounds of many instances: up to a fifth longer than configured.
func (r *reconciler) interval() time.Duration {
	d := r.ReconcileInterval
	if r.source.Reach() != ReachAll {
		d = r.PollInterval
	}
	return d + jitter.N(d/5+1)
}

func (r *reconciler) round(ctx context.Context) {
	if ctx.Err() != nil {
		return // the end of Run and the end of the wait may both have come
	}
	finish := r.source.Round(ctx)
	// Before anything is claimed: the database may know less than this process has seen (G19).
	r.rollbackDetector.round()
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

// pollAll comes before anything is enqueued: what is overdue has waited long enough.
func (r *reconciler) pollAll(ctx context.Context, heads []processlog.Head, event *observe.ReconciledEvent) {
	for _, head := range heads {
		t := r.types.named(head.BusinessType)
		overdue := head.DueIn < -r.grace()
		if t != nil && t.finder() != nil && (overdue || head.DueIn <= 0 && !r.source.up()) {
			// Most of what is due may be blocked. The scanner looks for what is not, a part of it with each round.
			t.finder().FindAgain()
			r.claimSchedule.overflow(t.Name)
			continue
		}
		switch {
		case t == nil && overdue:
			event.UnknownTypes = append(event.UnknownTypes, head.BusinessType)
		case t != nil && !r.source.up():
			// With no queue to say when, this is the clock: the scanner asks the database then.
			r.claimSchedule.expect(head.BusinessType, head.DueIn)
		case t != nil && overdue:
			event.Polled += r.poll(ctx, t, head.State)
		}
	}
}

// grace is how long an entry may be due before the queue counts as having forgotten it. A wheel never knew the
// entries of other processes, so for them there is nothing to wait for.
func (r *reconciler) grace() time.Duration {
	if r.source.Reach() == ReachOwn {
		return 0
	}
	return r.Grace
}

// poll claims overdue entries straight from the database, as many as there are free slots.
func (r *reconciler) poll(ctx context.Context, t *Type, state processlog.State) int {
	if r.settler.behind() {
		return 0
	}
	// Counted now and taken once it is known how many are overdue: no slot stands empty while the log is read.
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
	err = r.dispatcher.startClaimed(t, found.Mine, found.asked, 0)
	if err == nil && (len(overdue) == limit || len(found.spare) > 0) {
		r.claimSchedule.overflow(t.Name) // there may be more: the scanner goes on without waiting for the next round
	}
	return len(found.Mine)
}

// overdue lists entries of a type and state that are due for longer than the grace, leased by nobody, and not held here: of
// those countStuck sees to the ones that have to be counted.
func (r *reconciler) overdue(ctx context.Context, t *Type, state processlog.State, limit int) ([]processlog.ID, error) {
	held := r.holdings.expired(t)
	page, err := r.scan(ctx, processlog.Window{BusinessType: t.Name, State: state, From: -processlog.MaxDelay, To: -r.grace(), Free: true, Limit: limit + len(held)})
	page = slices.DeleteFunc(page, func(e processlog.Scheduled) bool { return held[e.ID] })
	// What waits for others is not forgotten.
	if t.BatchWait > 0 && len(page) > 0 && len(page) < t.BatchSize && -page[0].In < r.grace()+t.BatchWait {
		return nil, err
	}
	ids := make([]processlog.ID, min(len(page), limit))
	for i := range ids {
		ids[i] = page[i].ID
	}
	return ids, err
}

// countStuck claims what handlers of this process are stuck on, to count a lease against it, and takes out what has lost
// its last. Nothing of it runs.
func (r *reconciler) countStuck() {
	stuckOnes := grouped.By(r.holdings.stuckOnes(), func(a *Attempt) *Type { return a.Type })
	for _, t := range stuckOnes.Order {
		if t.Paused() {
			continue
		}
		var ids []processlog.ID
		for _, a := range stuckOnes.Groups[t] {
			ids = append(ids, a.Row.ID)
		}
		// No slot is asked for: nothing of it runs. Where the stuck handlers have them all no other claim would meet their entries;
		// where they do not, overdue leaves them to us.
		found, err := r.claims.claimOnly(t, unleased(ids), len(ids), true)
		if err != nil {
			continue // the next round tries again
		}
		t.slots.Overdraw(len(found.Mine))                            // as a claim that needed a slot would have it
		_ = r.dispatcher.startClaimed(t, found.Mine, found.asked, 0) // the next round is no sooner for it
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
