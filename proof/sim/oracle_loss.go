package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// lossPromise is the promise that is left once the database has gone back: most others hold under its keeping what it has
// acknowledged.
const lossPromise = "G19"

// drawLoss draws when the database goes back, and how far.
func (w *world) drawLoss() {
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
		if rng.IntN(2) == 0 { // somebody says go on before all have noticed
			w.schedule(event{at: e.at.Add(e.span + between(0, 10*time.Second)), after: func() {
				if !w.healed.Load() {
					w.act(w.sayGoOn)
				}
			}})
		}
	}
}

// goBack makes the database what the replica has.
func (w *world) goBack() {
	w.store.Restore(w.lagging)
	living, forgotten := w.living(), w.forgotten()
	w.oracle.note(func(o *oracle) {
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

// forgotten tells of versions whether the database shows that it has lost them: it may have got as far again.
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

// told takes note of what an instance was told it has claimed.
func (o *oracle) told(n *instance, mine []processlog.Row, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, row := range mine {
		n.newest, n.claims[row.ID] = row, claimed{row, at}
	}
}

// noticedLocked: an instance stops only if the database has gone back; or if its clock has jumped and young entries were
// purged, for then nobody can tell whether the note of the purge is younger than they were (C5).
func (o *oracle) noticedLocked(n *instance, loss *compensator.LossError) {
	switch {
	case len(o.losses) > 0:
	case o.w.plan.active[storeJump] && o.sights[sawPurged] > 0:
		o.losses = append(o.losses, time.Now())
	default:
		o.failLocked("G19: instance %d stopped: %v; the database has lost nothing", n.number, loss)
	}
	o.sights[sawLoss]++
	// What it was answered may have been long on its way: of a loss since then it says nothing.
	n.lossSeen, n.pendingRelease, n.lost = n.compared, processlog.Row{}, processlog.Row{}
}

// noted takes note of what a person says.
func (o *oracle) noted(action compensator.Action) {
	o.note(func(o *oracle) {
		switch action {
		case compensator.ActionAcceptLoss:
			o.goOn = time.Now()
		case compensator.ActionPurge:
			o.purged = true
		}
	})
}

// mustStopLocked reports whether an instance has noticed a loss that nobody has accepted. One that a person has accepted it
// may notice later still.
func (o *oracle) mustStopLocked(n *instance) bool {
	return slices.ContainsFunc(o.losses, func(at time.Time) bool { return at.After(o.goOn) && !at.After(n.lossSeen) })
}

// goesOn: an instance that has stopped goes on only once a person has said so.
func (o *oracle) goesOn(n *instance, does string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !n.dead.Load() && o.mustStopLocked(n) {
		o.failLocked("G19: instance %d %s, although it has noticed %v ago that the database has gone back, and nobody said go on", n.number, does, time.Since(n.lossSeen))
	}
}

// afterLossLocked judges a transition in a database that has gone back: an outcome is written to its own entry only, and a
// terminal state is left only by a person.
func (o *oracle) afterLossLocked(before, after processlog.Row) {
	if before.ID.IsZero() {
		o.lives[after.ID] = &life{id: after.ID, key: string(after.IdempotencyKey), kind: after.BusinessType, content: after.Content,
			readBy: make(map[*instance]uint64), steps: []transition{{op: &operation{kind: opInsert}, row: after, at: time.Now()}}}
		return
	}
	op := o.ops[after.Token]
	if op == nil || after.ID.IsZero() || after.Token == before.Token {
		return
	}
	if before.State.Terminal() && op.kind != opChange {
		o.failLocked("G19: entry %s left %s for %s with no person asking", after.ID, before.State, after.State)
	}
	for _, out := range op.outcomes {
		if out.ID == after.ID && out.IdempotencyKey != after.IdempotencyKey {
			o.failLocked("G19: the outcome of %q is written to %q, which has got its id %s", out.IdempotencyKey, after.IdempotencyKey, after.ID)
		}
	}
}

// restlessAfterLoss counts in the database itself, once it has gone back.
func (o *oracle) restlessAfterLoss() (n int, back bool) {
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

// accept waits, when all is healed, until every instance that was told of what is lost has noticed, and has a person say
// go on.
func (w *world) accept() {
	o := w.oracle
	o.mu.Lock()
	back := len(o.losses) > 0
	o.mu.Unlock()
	if !back {
		return
	}
	var unaware *instance
	if !w.await(6*w.plan.config.ReconcileInterval+time.Minute, func() bool { unaware = o.unaware(); return unaware == nil }) {
		o.fail("G19: instance %d was told that it had claimed entry %s, version %d, which the database has lost, and did not notice", unaware.number,
			unaware.pendingRelease.ID, unaware.pendingRelease.Version)
	}
	w.sayGoOn()
}

// unaware is a living instance that knows of what is lost, and goes on although nobody said so. Where young entries were
// purged nothing tells that from a loss.
func (o *oracle) unaware() *instance {
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

// sayGoOn is a person.
func (w *world) sayGoOn() {
	by := compensator.AuditInfo{Actor: "somebody", Reason: "because"}
	w.await(2*time.Minute, func() bool {
		n := w.alive(0)
		if n == nil {
			return false
		}
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		_, err := n.c.AcceptLoss(ctx, by)
		return err == nil
	})
}
