package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/failpoint"
	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/sleep"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// scanTimeout limits each read of the reconciler, so that a dead connection cannot block its rounds forever.
const scanTimeout = time.Minute

// ReadHeads reads the earliest entry of each type and state. An error appears in Health, too.
func (e *Engine) ReadHeads(ctx context.Context) (Heads, error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	sentAt := time.Now()
	list, err := e.Store.Heads(ctx)
	e.reportRead(ctx, err)
	return Heads{list, sentAt}, err
}

// ReadWindow reads entries in the order of their due times. An error appears in Health, too.
func (e *Engine) ReadWindow(ctx context.Context, w processlog.Window) ([]processlog.Scheduled, error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	found, err := e.Store.Scan(ctx, w)
	e.reportRead(ctx, err)
	return found, err
}

func (e *Engine) reportRead(ctx context.Context, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		e.NoteResult(problemRound, err)
	}
}

// Reconcile makes rounds until ctx ends. A round enqueues entries that the queue has lost or did not accept yet. It
// also claims a few overdue entries directly from the database. Each round searches from the beginning, because entries
// may commit after a round has passed their due times.
func (e *Engine) Reconcile(ctx context.Context) {
	for {
		e.round(ctx)
		if !sleep.For(ctx, e.roundInterval()) {
			return
		}
	}
}

// roundInterval is up to a fifth longer than configured, at random, so that many processes do not read at the same
// time.
func (e *Engine) roundInterval() time.Duration {
	d := e.ReconcileInterval
	if e.source.Scope() != ScopeAll {
		d = e.PollInterval
	}
	return d + jitter.N(d/5+1)
}

func (e *Engine) round(ctx context.Context) {
	if ctx.Err() != nil {
		return // ctx may have ended together with the pause
	}
	finish := e.source.Round(ctx)
	e.watcher.Round(ctx)
	heads, err := e.ReadHeads(ctx)
	if err != nil {
		return
	}
	failpoint.Reach(failpoint.HeadsRead)
	var event observe.ReconciledEvent
	e.pollHeads(ctx, heads.List, &event)
	e.countStuck()
	if finish != nil {
		finish(ctx, heads, &event)
	}
	e.reportRound(event)
}

// pollHeads claims overdue entries before the round enqueues anything, so that they do not wait longer.
func (e *Engine) pollHeads(ctx context.Context, heads []processlog.Head, event *observe.ReconciledEvent) {
	for _, head := range heads {
		t := e.TypeNamed(head.BusinessType)
		overdue := head.DueIn < -e.OverdueAfter()
		if t != nil && t.IsOrdered() && (overdue || head.DueIn <= 0 && !e.sourceReports()) {
			// The first due entries may all be blocked, so let the scanner search further.
			t.order.ContinueFind()
			e.ExpectBacklog(t.Name)
			continue
		}
		switch {
		case t == nil && overdue:
			event.UnknownTypes = append(event.UnknownTypes, head.BusinessType)
		case t != nil && !e.sourceReports():
			e.Expect(head.BusinessType, head.DueIn)
		case t != nil && overdue:
			event.Polled += e.pollOverdue(ctx, t, head.State)
		}
	}
}

// OverdueAfter returns how long an entry may be due before a round treats it as lost by the source. It returns 0 if the
// source never reports the entries of other processes.
func (e *Engine) OverdueAfter() time.Duration {
	if e.source.Scope() == ScopeOwn {
		return 0
	}
	return e.Grace
}

func (e *Engine) pollOverdue(ctx context.Context, t *Type, state processlog.State) int {
	if e.OutcomesBacklogged() || e.OutcomesRefused(t) {
		return 0
	}
	// Only count the free slots here, and take slots after the read. Slots that were taken now would stay unused during
	// the read.
	limit := t.MaxEntries(t.slots.Available())
	if limit == 0 {
		return 0
	}
	overdue, err := e.overdue(ctx, t, state, limit)
	if err != nil {
		return 0
	}
	calls := t.slots.Take(t.CallsFor(len(overdue)))
	if calls == 0 {
		return 0
	}
	n := min(len(overdue), t.MaxEntries(calls))
	found, err := e.claim(t, wantedByID(overdue[:n]), calls)
	e.slotFreed(t.Name)
	failpoint.Reach(failpoint.OverdueClaimed)
	if err != nil {
		return 0
	}
	_, err = e.startClaimed(found, 0)
	if err == nil && (len(overdue) == limit || len(found.WithoutCall) > 0) {
		e.ExpectBacklog(t.Name) // there may be more, so let the scanner continue before the next round
	}
	return len(found.Mine)
}

// overdue returns up to limit entries of a type and a state that have been due for at least the duration OverdueAfter.
// It leaves out leased entries, and entries that this process holds. If the handler of such a held entry is stuck,
// countStuck claims the entry.
func (e *Engine) overdue(ctx context.Context, t *Type, state processlog.State, limit int) ([]processlog.ID, error) {
	held := e.HeldWithEndedLease(t)
	page, err := e.ReadWindow(ctx, processlog.Window{BusinessType: t.Name, State: state, From: -processlog.MaxDelay, To: -e.OverdueAfter(), Free: true, Limit: limit + len(held)})
	page = slices.DeleteFunc(page, func(e processlog.Scheduled) bool { return held[e.ID] })
	// Due entries that do not fill one call may wait for other entries to share the call, at most for Type.Linger. So such
	// entries are overdue only when they have waited for OverdueAfter and Linger. Look at the first entry, which has waited
	// longest.
	if t.Linger() > 0 && len(page) > 0 && len(page) < t.Seats() && -page[0].In < e.OverdueAfter()+t.Linger() {
		return nil, err
	}
	ids := make([]processlog.ID, min(len(page), limit))
	for i := range ids {
		ids[i] = page[i].ID
	}
	return ids, err
}

func (e *Engine) countStuck() {
	stuck := e.Held(func(a HeldAttempt) bool { return a.Stuck })
	for t, stuckOnes := range grouped.Each(stuck, func(a HeldAttempt) *Type { return a.Type }) {
		if t.Paused() {
			continue
		}
		var ids []processlog.ID
		for _, a := range stuckOnes {
			ids = append(ids, a.ID)
		}
		// Take no slots for this claim, because the stuck handlers may hold all of them. The claim needs no slot: it
		// only counts lost leases, and starts no handler.
		found, err := e.leaseWanted(t, wantedByID(ids), len(ids), true)
		if err != nil {
			continue // the next round tries again
		}
		t.slots.Overdraw(len(found.Mine)) // This claim has taken no slots, but startClaimed releases one for each entry. So take these slots now, even if none is free.
		// An error of startClaimed means that the caller must not claim again at once. The next claim of stuck entries
		// comes with the next round, so ignore the error.
		_, _ = e.startClaimed(found, 0)
	}
}

func (e *Engine) reportRound(event observe.ReconciledEvent) {
	slices.Sort(event.UnknownTypes)
	event.UnknownTypes = slices.Compact(event.UnknownTypes)
	if len(event.UnknownTypes) > 0 && e.source.Scope() != ScopeOwn {
		e.Log.Debug("compensator: overdue entries of types this process does not handle", "types", event.UnknownTypes)
	}
	NotifyObserver(e.Base, e.Observer.Reconciled, event)
}
