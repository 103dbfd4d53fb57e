package sim

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// noteAttemptStart does not assert that the entry was due, because checkClaimLocked has done so at the claim.
func (o *oracle) noteAttemptStart(ctx context.Context, n *instance, e *compensator.Entry) *attempt {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sights[sawAttempts]++
	a := &attempt{from: n, ctx: ctx, at: time.Now(), id: e.ID, kind: e.BusinessType, version: e.Version, epoch: e.Epoch, lost: e.DeliveryCount - 1, compensate: e.State == compensator.Compensating}
	l := o.histories[e.ID]
	if l == nil {
		o.failLocked("G2: entry %s runs on instance %d, but was never committed", e.ID, n.number)
		return a
	}
	o.checkFoundationLocked(l, n, e)
	if carried, _ := ctx.Value(orderName{}).(string); carried != e.Headers["order"] {
		o.failLocked("entry %s runs with the context values of %q, but was recorded with those of %q", e.ID, carried, e.Headers["order"])
	}
	if n.ranWell.Load() {
		o.failLocked("G15: entry %s starts on instance %d, but its Run has returned", e.ID, n.number)
	}
	o.checkNotRepeatedLocked(l, a)
	o.checkRunsAloneLocked(l, a)
	o.checkOrderLocked(l, a)
	a.start = len(l.attempts)
	l.attempts = append(l.attempts, a)
	return a
}

func (o *oracle) checkFoundationLocked(l *rowHistory, n *instance, e *compensator.Entry) {
	if e.Version >= uint64(len(l.steps)) {
		o.failLocked("G2: entry %s runs as version %d, but its newest version is %d", e.ID, e.Version, len(l.steps))
		return
	}
	s := l.steps[e.Version]
	claimed := s.op.kind == opClaim || s.op.kind == opInsert && s.row.DeliveryCount == 1
	switch {
	case !claimed || s.op.from != n:
		o.failLocked("G2: entry %s runs on instance %d as version %d, but this instance did not claim that version", e.ID, n.number, e.Version)
	case l.readBy[n] < e.Version+1:
		o.failLocked("G2: entry %s runs on instance %d as version %d, but the instance did not read that version", e.ID, n.number, e.Version)
	case s.op.unknown:
		o.failLocked("G2: entry %s runs on instance %d without a claim, but the instance never learned that the transaction committed", e.ID, n.number)
	case s.row.State.Terminal():
		o.failLocked("G2: entry %s runs although it is %s", e.ID, s.row.State)
	case e.DeliveryCount > crashBudget:
		o.failLocked("G16: entry %s runs although %d leases in a row were lost", e.ID, e.DeliveryCount-1)
	case e.State != s.row.State || e.Epoch != s.row.Epoch || e.ProcessCount != s.row.ProcessCount || !bytes.Equal(e.Content, l.content):
		o.failLocked("G2: entry %s runs as %+v, but is stored as %+v", e.ID, *e, s.row)
	case l.kind == strayType:
		o.failLocked("G18: entry %s runs, but its type has no handler", e.ID)
	}
	o.checkPromptStartLocked(l, s)
	if e.State == compensator.Compensating {
		for _, t := range l.steps[:e.Version] {
			if t.row.Epoch == e.Epoch && t.row.State == compensator.Succeeded {
				o.failLocked("G12: the compensation of entry %s runs in epoch %d, but the entry succeeded in that epoch", e.ID, e.Epoch)
			}
		}
	}
}

// If the first attempt was in a batch that returned no results, a second attempt may follow.
func (o *oracle) checkNotRepeatedLocked(l *rowHistory, a *attempt) {
	most := 0
	if a.kind == batchType && !a.compensate {
		most = 1
	}
	for _, other := range l.attempts {
		if other.version == a.version {
			most--
			other.repeated = true
		}
	}
	if most < 0 {
		o.failLocked("G16: entry %s runs a second time under the claim of version %d", l.id, a.version)
	}
}

func (o *oracle) noteResult(a *attempt, how manner, after time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a.manner, a.asked, a.ended, a.endedAt = how, after, true, time.Now()
	if how == interrupted {
		o.sights[sawInterrupted]++
	}
}

// checkAnswers asserts G8 (a success is stored): the database refuses a success only if the entry has changed since
// the claim.
func (o *oracle) checkAnswers(n *instance, outcomes []processlog.Outcome, answers []processlog.Settled) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, out := range outcomes {
		if answers[i].Busy {
			continue
		}
		l := o.histories[out.ID]
		if answers[i].Refused != nil {
			o.sights[sawTrigger]++
			o.checkRefusedRowLocked(l, n, out.Version)
			continue
		}
		if l == nil {
			continue // noteAttemptStart has already reported that this entry was never committed.
		}
		l.answeredLocked(n, out.Version)
		for _, a := range l.attempts {
			a.stored = a.stored || a.version == out.Version && a.from == n
		}
		now := l.last()
		if now.op.kind != opPurge && absorbable(out.To, now.row.State) && !answers[i].Applied && now.row.Epoch == out.Epoch {
			o.failLocked("G8: the success of entry %s, version %d, was refused, although the entry is %s", out.ID, out.Version, now.row.State)
		}
	}
}

// checkRefusedRowLocked marks an attempt whose outcome the database refuses. checkQuarantineLocked then no longer
// counts the attempt as one that may crash its process.
func (o *oracle) checkRefusedRowLocked(l *rowHistory, n *instance, version uint64) {
	if l == nil {
		return
	}
	for _, a := range l.attempts {
		a.refused = a.refused || a.version == version && a.from == n
	}
}

func absorbable(to, state compensator.State) bool {
	switch state {
	case compensator.Pending, compensator.Retrying:
		return to == compensator.Succeeded
	case compensator.Compensating:
		return to == compensator.Compensated
	}
	return false
}

func (a *attempt) voidable() bool {
	timedOut := errors.Is(context.Cause(a.ctx), compensator.ErrTimeout)
	return a.kind == batchType && !a.compensate && (timedOut || a.manner == panicked || a.manner == goexited)
}

func (a *attempt) void() {
	o := a.from.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	a.manner, a.ended, a.endedAt = unfinished, true, time.Now()
}

func (o *oracle) observer(n *instance) observe.Observer {
	living := func(count func(*oracle)) {
		if !n.dead.Load() {
			o.readCounts(count)
		}
	}
	return observe.Observer{
		HistoryLost:   func(loss *processlog.LossError) { living(func(o *oracle) { o.checkLossNoticedLocked(n, loss) }) },
		BreakerOpened: func(open observe.OpenBreaker) { living(func(o *oracle) { o.noteBreakerOpenedLocked(n, open) }) },
		BreakerClosed: func(open observe.OpenBreaker) { living(func(o *oracle) { o.noteBreakerClosedLocked(n, open) }) },
		AttemptStarted: func(e observe.AttemptEvent) {
			living(func(o *oracle) {
				o.noteStartLocked(n, e)
				o.noteCallAdmittedLocked(n, e)
			})
		},
		OutcomeDropped: func(observe.SettledEvent) { living(func(o *oracle) { o.sights[sawDropped]++ }) },
		Settled:        func(e observe.SettledEvent) { living(func(o *oracle) { o.checkDurableLocked(e) }) },
		EntryMissing:   func(e observe.MissingEvent) { living(func(o *oracle) { o.checkMissingLocked(e) }) },
		Reconciled: func(e observe.ReconciledEvent) {
			living(func(o *oracle) {
				o.sights[sawEnqueued] += e.Enqueued
				o.sights[sawPolled] += e.Polled
				if e.Rebuilt {
					o.sights[sawRebuilt]++
				}
				o.sights[sawRestored] += len(e.RebuiltTypes)
			})
		},
	}
}

func (o *oracle) checkMissingLocked(e observe.MissingEvent) {
	o.sights[sawMissing]++
	if l := o.histories[e.ID]; l != nil && o.keys[l.key] == l {
		o.failLocked("G1: entry %s is reported as missing, but exists", e.ID)
	}
}

func (o *oracle) checkDurableLocked(e observe.SettledEvent) {
	l := o.histories[e.ID]
	if l == nil {
		o.failLocked("G2: entry %s is reported as settled, but was never committed", e.ID)
		return
	}
	for i := len(l.steps) - 1; i >= 0; i-- {
		s := l.steps[i]
		completed := e.EndedBy == compensator.EndedByComplete && s.row.EndedBy == e.EndedBy
		if (s.op.kind == opSettle || completed) && s.row.State == e.State {
			return
		}
	}
	o.failLocked("G8: entry %s is reported as settled as %s, but its history does not have this outcome", e.ID, e.State)
}
