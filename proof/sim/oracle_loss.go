package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

// After a loss only lossPromise is asserted, because most other promises assume that the database keeps what it has
// acknowledged.
const lossPromise = "G19"

const lossModeStream = 1934

func (w *world) drawLoss() {
	w.plan.config.StopOnLoss = rand.New(rand.NewPCG(w.seed, lossModeStream)).IntN(2) == 0
	rng := rand.New(rand.NewPCG(w.seed, 4))
	if w.plan.calm || rng.IntN(8) > 0 {
		return
	}
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Int64N(int64(most-least)))
	}
	for range 1 + rng.IntN(2) {
		e := event{at: w.began.Add(between(4*time.Second, w.plan.chaos)), fault: storeBack, span: between(time.Second, 6*time.Second)}
		lag := between(50*time.Millisecond, 8*time.Second)
		w.schedule(event{at: e.at.Add(-min(lag, e.at.Sub(w.began))), after: func() { w.lagging = w.store.Snapshot() }})
		w.schedule(e)
		if rng.IntN(2) == 0 {
			w.schedule(event{at: e.at.Add(e.span + between(0, 10*time.Second)), after: func() {
				if !w.healed.Load() {
					w.act(w.acceptLoss)
				}
			}})
		}
	}
}

func (w *world) goBack() {
	w.store.Restore(w.lagging)
	living, forgotten := w.living(), w.forgotten()
	w.oracle.readCounts(func(o *oracle) {
		o.losses = append(o.losses, time.Now())
		for _, n := range living {
			if n.runs && !o.mustStopLocked(n) && forgotten(n.newest) {
				n.pendingRelease = n.newest
			}
			if n.runs && !o.mustStopLocked(n) && forgotten(n.ran) {
				n.lost = n.ran
			}
		}
	})
}

// If the row has reached the same version number again, but with another token, the version counts as lost.
func (w *world) forgotten() func(processlog.Row) bool {
	rows := make(map[compensator.EntryID]processlog.Row)
	for _, row := range w.store.Rows() {
		rows[row.ID] = row
	}
	return func(was processlog.Row) bool {
		now, exists := rows[was.ID]
		same := exists && now.IdempotencyKey == was.IdempotencyKey && (now.Version > was.Version || now.Version == was.Version && now.Token == was.Token)
		return !was.ID.IsZero() && !same
	}
}

func (o *oracle) noteClaimAnswer(n *instance, mine []processlog.Row, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, row := range mine {
		n.newest, n.claims[row.ID] = row, claimed{row, at}
	}
}

// If the database's clock has jumped and young entries were purged, an instance may report a loss, because it cannot
// tell whether the purge explains the missing entries.
func (o *oracle) checkLossNoticedLocked(n *instance, loss *processlog.LossError) {
	switch {
	case len(o.losses) > 0:
	case o.w.plan.active[storeJump] && o.sights[sawPurged] > 0:
		o.losses = append(o.losses, time.Now())
	default:
		o.failLocked("G19: instance %d reports %v, but the database has lost nothing", n.number, loss)
	}
	if loss.Stopped != o.w.plan.config.StopOnLoss {
		o.failLocked("G19: instance %d reports that it has stopped: %v, want %v", n.number, loss.Stopped, o.w.plan.config.StopOnLoss)
	}
	if loss.Stopped {
		o.sights[sawLoss]++
	} else {
		o.sights[sawLossReported]++
		n.newest, n.ran = processlog.Row{}, processlog.Row{}
	}
	// The instance noticed the loss in the latest answer to Versions, which came at n.compared. This answer does not show
	// a loss that happened later.
	n.lossSeen, n.pendingRelease, n.lost = n.compared, processlog.Row{}, processlog.Row{}
}

func (o *oracle) noteLogAction(action processlog.Action) {
	o.readCounts(func(o *oracle) {
		switch action {
		case processlog.ActionAcceptLoss:
			o.goOn = time.Now()
		case processlog.ActionPurge:
			o.purged = true
		}
	})
}

// If a person accepts a loss before the instance notices it, the instance need not stop.
func (o *oracle) mustStopLocked(n *instance) bool {
	return o.w.plan.config.StopOnLoss && slices.ContainsFunc(o.losses, func(at time.Time) bool { return at.After(o.goOn) && !at.After(n.lossSeen) })
}

func (o *oracle) checkContinues(n *instance, action string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !n.dead.Load() && o.mustStopLocked(n) {
		o.failLocked("G19: instance %d %s; it noticed a loss %v ago, and no person has accepted the loss", n.number, action, time.Since(n.lossSeen))
	}
}

// checkAfterLossLocked asserts G19 (a loss is noticed). A row that is new to the oracle begins a history.
func (o *oracle) checkAfterLossLocked(before, after processlog.Row) {
	if before.ID.IsZero() {
		o.histories[after.ID] = &rowHistory{id: after.ID, key: string(after.IdempotencyKey), kind: after.BusinessType, content: after.Content,
			readBy: make(map[*instance]uint64), steps: []transition{{op: &operation{kind: opInsert}, row: after, at: time.Now()}}}
		return
	}
	op := o.ops[after.Token]
	if op == nil || after.ID.IsZero() || after.Token == before.Token {
		return
	}
	if before.State.Terminal() && op.kind != opChange {
		o.failLocked("G19: entry %s changed from %s to %s, but no person requested this", after.ID, before.State, after.State)
	}
	for _, out := range op.outcomes {
		if out.ID == after.ID && out.IdempotencyKey != after.IdempotencyKey {
			o.failLocked("G19: the outcome of %q was written to %q, which now has the id %s", out.IdempotencyKey, after.IdempotencyKey, after.ID)
		}
	}
}

func (o *oracle) countNotAtRestAfterLoss() (n int, back bool) {
	o.mu.Lock()
	back = len(o.losses) > 0
	o.mu.Unlock()
	if !back {
		return 0, false
	}
	for _, row := range o.w.store.Rows() {
		if row.BusinessType != strayType && !row.State.Terminal() {
			n++
		}
	}
	return n, true
}

// accept waits until every instance that claimed a lost version has noticed the loss.
func (w *world) accept() {
	o := w.oracle
	o.mu.Lock()
	back := len(o.losses) > 0
	o.mu.Unlock()
	if !back {
		return
	}
	var unaware *instance
	if !w.await(6*w.plan.config.ReconcileInterval+time.Minute, func() bool { unaware = o.instanceUnawareOfLoss(); return unaware == nil }) {
		o.fail("G19: instance %d has claimed entry %s, version %d; the database has lost this version, and the instance did not notice", unaware.number,
			unaware.pendingRelease.ID, unaware.pendingRelease.Version)
	}
	if w.plan.config.StopOnLoss {
		w.acceptLoss()
	}
}

func (w *world) acceptLate() {
	o := w.oracle
	o.mu.Lock()
	back := len(o.losses) > 0
	o.mu.Unlock()
	if !back || w.plan.config.StopOnLoss || o.failed.Load() {
		return
	}
	w.acceptLoss()
	var reporting *instance
	if !w.await(6*w.plan.config.ReconcileInterval+time.Minute, func() bool { reporting = w.reporting(); return reporting == nil }) {
		o.fail("G19: instance %d still reports a loss that a person has accepted", reporting.number)
	}
}

func (w *world) reporting() *instance {
	for _, n := range w.living() {
		if !n.runs {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		history := n.c.Health(ctx).History
		cancel()
		if history != nil {
			return n
		}
	}
	return nil
}

// instanceUnawareOfLoss returns an instance that has claimed a lost version and has not noticed the loss. It returns
// nil if there is no such instance. It also returns nil if young entries were purged, because then the purge may
// explain missing rows.
func (o *oracle) instanceUnawareOfLoss() *instance {
	living, forgotten := o.w.living(), o.w.forgotten()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range living {
		if forgotten(n.pendingRelease) && o.goOn.IsZero() && !o.purged {
			return n
		}
	}
	return nil
}

func (w *world) acceptLoss() {
	by := admin.AuditInfo{Actor: "somebody", Reason: "because"}
	w.await(2*time.Minute, func() bool {
		n := w.alive(0)
		if n == nil {
			return false
		}
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		_, err := admin.Of(n.c).AcceptLoss(ctx, by)
		return err == nil
	})
}
