package engine

import (
	"context"
	"errors"
	"math"
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
	enqueuer         *enqueuer
	holdings         *holdings
	rollbackDetector *rollbackDetector
	ordering         *ordering
	claims           *claims
	settler          *settler
	dispatcher       *dispatcher

	owes    bool      // only this process knows of entries that the queue does not: at its start, and after an outage
	rebuild bool      // everything within the horizon is to be enqueued
	asked   time.Time // when the heads of the log were last asked for
	looked  time.Time // when the log was last looked through for invalid rows
	checked time.Time // when the queue was last known to be this database's
}

// scanPage is how many entries one reading of the reconciler takes.
const scanPage = 1000

// scanTimeout bounds each reading of the reconciler: a connection that has gone silent must not end its
// rounds for good. It is long, for servers that read where others jump.
const scanTimeout = time.Minute

// heads and scan are the store's, in bounded time.
func (r *reconciler) heads(ctx context.Context) ([]processlog.Head, error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	r.asked = time.Now()
	heads, err := r.Store.Heads(ctx)
	r.saw(ctx, err)
	return heads, err
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

// run makes rounds until ctx ends. At first nobody knows what the queue knows.
func (r *reconciler) run(ctx context.Context) {
	r.owes, r.rebuild, r.checked = true, true, time.Now()
	r.round(ctx)
	timer, rest := time.NewTimer(r.interval()), time.NewTimer(rebuildPause)
	defer timer.Stop()
	defer rest.Stop()
	var losses chan struct{} // nil while it rests from the last ones
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			r.round(ctx)
			timer.Reset(r.interval())
		case <-losses:
			losses = nil
			if r.restore(ctx) {
				rest.Reset(rebuildPause)
			} else {
				rest.Reset(lostPeek) // others are at it, or there is no room
			}
		case <-rest.C:
			losses = r.enqueuer.losses.news
		}
	}
}

// interval spreads the rounds of many instances: up to a fifth longer than configured.
func (r *reconciler) interval() time.Duration {
	d := r.ReconcileInterval
	if r.Local || !r.enqueuer.health.up() {
		d = r.PollInterval
	}
	return d + jitter.N(d/5+1)
}

func (r *reconciler) round(ctx context.Context) {
	if ctx.Err() != nil {
		return // the end of Run and the end of the wait may both have come
	}
	leads := r.probe(ctx)
	// Before anything is claimed: the database may know less than this process has seen (G19).
	r.rollbackDetector.round()
	rebuild := leads && r.rebuild && !r.Local
	var b rebuilding
	// Before the first head is read: should entries be lost again while they are enqueued, the mark goes with them,
	// and no type is called whole (G10).
	if rebuild {
		b = r.begin(ctx, r.types.names())
	}
	heads, err := r.heads(ctx)
	if err != nil {
		return
	}
	failpoint.Reach(failpoint.HeadsRead)
	event := observe.ReconciledEvent{Rebuilt: leads && r.rebuild}
	r.pollAll(ctx, heads, &event)
	r.countStuck()
	// Who does not lead enqueues, too, while the queue lacks what he alone was to tell it: that need not wait for
	// the leader's next round.
	if leads || r.owes && r.enqueuer.health.up() {
		missed := r.enqueueAll(ctx, heads, rebuild, &event)
		if r.enqueuer.losses.hold(missed) { // or nothing is missed
			// Only the leader enqueues the whole horizon: another one, who may lead next, still owes it.
			r.owes, r.rebuild = false, r.rebuild && !leads
		}
		r.end(ctx, b, missed)
	}
	r.report(event)
	r.lookForInvalidRows(ctx)
}

// pollAll comes before anything is enqueued: what is overdue has waited long enough.
func (r *reconciler) pollAll(ctx context.Context, heads []processlog.Head, event *observe.ReconciledEvent) {
	for _, head := range heads {
		t := r.types.named(head.BusinessType)
		overdue := head.DueIn < -r.grace()
		if _, serial := r.ordering.of(head.BusinessType); t != nil && serial && (overdue || head.DueIn <= 0 && !r.enqueuer.health.up()) {
			// Most of what is due may be blocked. The scanner looks for what is not, a part of it with each round.
			r.ordering.sweep(t.Name).begin()
			r.claimSchedule.overflow(t.Name)
			continue
		}
		switch {
		case t == nil && overdue:
			event.UnknownTypes = append(event.UnknownTypes, head.BusinessType)
		case t != nil && !r.enqueuer.health.up():
			// With no queue to say when, this is the clock: the scanner asks the database then.
			r.claimSchedule.expect(head.BusinessType, head.DueIn)
		case t != nil && overdue:
			event.Polled += r.poll(ctx, t, head.State)
		}
	}
}

// enqueueAll returns the types of which not everything could be enqueued.
func (r *reconciler) enqueueAll(ctx context.Context, heads []processlog.Head, rebuild bool, event *observe.ReconciledEvent) (missed []string) {
	for _, head := range heads {
		if r.Local && r.types.named(head.BusinessType) == nil {
			continue
		}
		n, ok := r.enqueue(ctx, head, rebuild)
		event.Enqueued += n
		if !ok {
			missed = append(missed, head.BusinessType)
		}
	}
	return missed
}

// probe asks the queue whether it is there, still ours, and has kept what it was told, and whether this
// process is the one to enqueue. Leading takes a write, so a queue that only answers reads stays down.
func (r *reconciler) probe(ctx context.Context) (leads bool) {
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	kept, err := r.Queue.Kept(ctx)
	failpoint.Reach(failpoint.EpochRead)
	// Before the lead is taken: behind another database's prefix nothing is to be enqueued.
	if err == nil {
		err = r.checkOwner(ctx, kept)
	}
	if err == nil {
		leads, err = r.Queue.Lead(ctx, 2*r.ReconcileInterval) // less than near, by more than a round
	}
	failpoint.Reach(failpoint.LeadershipAsked)
	r.enqueuer.health.probed(err)
	// Told once, and kept here until a round has enqueued everything.
	if r.enqueuer.health.takeGaps() {
		r.owes = true
	}
	if err != nil || !kept {
		r.rebuild = true
	}
	return leads && err == nil
}

// checkOwner makes sure, once a minute and after every outage and loss, that the queue is still this database's.
func (r *reconciler) checkOwner(ctx context.Context, kept bool) error {
	if kept && r.enqueuer.health.up() && time.Since(r.checked) < time.Minute {
		return nil
	}
	err := r.Queue.Check(ctx, r.Fingerprint)
	if err == nil {
		r.checked = time.Now()
	}
	return err
}

// grace is how long an entry may be due before the queue counts as having forgotten it. A wheel never knew the
// entries of other processes, so for them there is nothing to wait for.
func (r *reconciler) grace() time.Duration {
	if r.Local {
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

// enqueue tells the queue of one state and type: what is near, and what is overdue, which it may have lost; when it
// is rebuilt, everything within the horizon.
func (r *reconciler) enqueue(ctx context.Context, head processlog.Head, rebuild bool) (enqueued int, complete bool) {
	edge := r.near()
	if rebuild {
		edge = max(edge, r.Horizon)
	}
	if head.DueIn > edge {
		return 0, true
	}
	window := processlog.Window{BusinessType: head.BusinessType, State: head.State, From: -processlog.MaxDelay, To: edge, Limit: scanPage}
	if rebuild {
		return r.enqueueWindow(ctx, window, r.QueueLimit)
	}
	near := window
	near.From = 0
	enqueued, complete = r.enqueueWindow(ctx, near, math.MaxInt)
	// Of a serial type most of what is overdue may be blocked, and would be enqueued with each round. What is not the
	// processes find that run it: see pollAll.
	if _, serial := r.ordering.of(head.BusinessType); serial {
		return enqueued, complete
	}
	// Overdue after near, and also what has come due since the heads were read: between the two nothing is missed.
	if !complete || head.DueIn > time.Since(r.asked)+time.Millisecond-r.grace() {
		return enqueued, complete
	}
	// What is leased runs, or comes due again when its lease ends: the queue has forgotten nothing.
	window.To, window.Free = -r.grace(), true
	n, complete := r.enqueueWindow(ctx, window, scanPage)
	return enqueued + n, complete
}

// enqueuePage tells the queue of a page.
func (r *reconciler) enqueuePage(ctx context.Context, businessType string, page []processlog.Scheduled) error {
	items := make([]processlog.QueueEntry, len(page))
	for i, e := range page {
		items[i] = processlog.QueueEntry{BusinessType: businessType, ID: e.ID, In: e.In}
	}
	if len(items) == 0 {
		return nil
	}
	failpoint.Reach(failpoint.PageScanned)
	ctx, cancel := context.WithTimeout(ctx, queueTimeout) // for the reason of scanTimeout
	defer cancel()
	return r.enqueuer.enqueueNow(ctx, items, r.types.leaseRange().longest)
}

// enqueueWindow enqueues the window page by page, at most limit entries. Its upper edge stays where it was when the
// first page was read: it must not run ahead of a slow reader.
func (r *reconciler) enqueueWindow(ctx context.Context, w processlog.Window, limit int) (enqueued int, complete bool) {
	edge := time.Now().Add(w.To)
	for enqueued < limit {
		page, err := r.scan(ctx, w)
		if err != nil || r.enqueuePage(ctx, w.BusinessType, page) != nil {
			return enqueued, false
		}
		enqueued += len(page)
		if len(page) < w.Limit {
			return enqueued, true
		}
		w.After, w.To = page[len(page)-1], time.Until(edge)
	}
	return enqueued, true
}

func (r *reconciler) report(event observe.ReconciledEvent) {
	slices.Sort(event.UnknownTypes)
	event.UnknownTypes = slices.Compact(event.UnknownTypes)
	if len(event.UnknownTypes) > 0 && !r.Local {
		r.Log.Debug("compensator: overdue entries of types this process does not handle", "types", event.UnknownTypes)
	}
	Tell(r.Base, r.Observer.Reconciled, event)
}
