package sim

import (
	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// actions repeats the library's own rules, so that the oracle finds a mistake in them.
var actions = map[processlog.Action]struct {
	epoch uint32
	from  map[compensator.State]bool
	to    compensator.State
	by    compensator.EndedBy
}{
	processlog.ActionComplete: {from: states(compensator.Pending, compensator.Retrying, compensator.Dead),
		to: compensator.Succeeded, by: compensator.EndedByComplete},
	processlog.ActionCancel: {from: states(compensator.Pending, compensator.Retrying, compensator.Dead),
		to: compensator.Cancelled, by: compensator.EndedByCancel},
	processlog.ActionReschedule: {from: states(compensator.Pending, compensator.Retrying)},
	processlog.ActionRequeue: {epoch: 1, from: states(compensator.Dead, compensator.Succeeded, compensator.Compensated, compensator.Cancelled,
		compensator.SettledManually, compensator.Retrying), to: compensator.Pending},
	processlog.ActionErase: {epoch: 1, from: states(compensator.Dead, compensator.Succeeded, compensator.Compensated, compensator.Cancelled,
		compensator.SettledManually)},
	processlog.ActionSettleManually: {epoch: 1, from: states(compensator.Dead, compensator.Retrying, compensator.Compensating),
		to: compensator.SettledManually, by: compensator.EndedByPerson},
}

type deedOn struct {
	ref        compensator.Ref
	action     processlog.Action
	compensate bool
}

func (o *oracle) noteRequest(action processlog.Action, compensate bool, refs ...compensator.Ref) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ref := range refs {
		o.asked[deedOn{ref, action, compensate}] = true
	}
}

func (o *oracle) checkRequestedLocked(before, after processlog.Row, change processlog.Change) {
	byID, byKey := deedOn{after.ID, change.Action, change.Compensate}, deedOn{after.IdempotencyKey, change.Action, change.Compensate}
	if !o.asked[byID] && !o.asked[byKey] {
		o.failLocked("G3: %s of entry %s, %q, was not requested (compensate: %v)", change.Action, after.ID, after.IdempotencyKey, change.Compensate)
	}
	to, by := actions[change.Action].to, actions[change.Action].by
	switch {
	case change.Action == processlog.ActionReschedule, change.Action == processlog.ActionErase:
		to, by = before.State, before.EndedBy
	case change.Compensate:
		to = compensator.Compensating
	}
	if after.State != to || after.EndedBy != by {
		o.failLocked("G3: %s changed entry %s from %s to %s, ended by %q, want %s, %q", change.Action, after.ID, before.State, after.State, after.EndedBy, to, by)
	}
}

func states(list ...compensator.State) map[compensator.State]bool {
	set := make(map[compensator.State]bool)
	for _, s := range list {
		set[s] = true
	}
	return set
}

func (o *oracle) checkErasureLocked(before, after processlog.Row) {
	o.sights[sawErased]++
	kept := after.State == before.State && after.EndedBy == before.EndedBy && after.NextAt.Equal(before.NextAt) && after.ProcessCount == before.ProcessCount
	if !kept || !after.Erased || len(after.Content)+len(after.Headers)+len(after.LastError)+len(after.UserName) > 0 {
		o.failLocked("G3: an erase changed entry %s from %+v to %+v", after.ID, before, after)
	}
}

func (o *oracle) checkActionLocked(before, after processlog.Row, op *operation) {
	change, rule := op.change, actions[op.change.Action]
	o.sights[sawActions]++
	if !rule.from[before.State] || after.Epoch != before.Epoch+rule.epoch {
		o.failLocked("G3: %s changed entry %s from %s, epoch %d, to %s, epoch %d", change.Action, after.ID, before.State, before.Epoch, after.State, after.Epoch)
	}
	o.checkRequestedLocked(before, after, change)
	if after.DeliveryCount > before.DeliveryCount || change.Action != processlog.ActionReschedule && after.DeliveryCount != 0 {
		o.failLocked("G4: %s of entry %s leaves a delivery count of %d, which was %d", change.Action, after.ID, after.DeliveryCount, before.DeliveryCount)
	}
	if before.Erased && !after.State.Terminal() {
		o.failLocked("G3: %s changed entry %s to %s, although its content is erased", change.Action, after.ID, after.State)
	}
	if op.seen != nil {
		o.sights[sawManyRequeued]++
		if op.seen[after.ID] != before.Version {
			o.failLocked("G3: entry %s was requeued in version %d, but the caller saw version %d", after.ID, before.Version, op.seen[after.ID])
		}
	}
	if change.Action == processlog.ActionRequeue && (after.ProcessCount != 0 || after.CompensateCount != 0) {
		o.failLocked("G13: entry %s was requeued but keeps its counts", after.ID)
	}
}

// checkEndedAgainLocked asserts G3 (a terminal state is left only on request). A service may complete or cancel an
// ended entry only if the entry is dead, and if no compensation has begun since its last requeue. checkEndedAgainLocked
// looks for compensations in the oracle's own list of attempts, because the row may be wrong.
func (o *oracle) checkEndedAgainLocked(l *rowHistory, op *operation, before, after processlog.Row) {
	ends := op.kind == opChange && (op.change.Action == processlog.ActionComplete || op.change.Action == processlog.ActionCancel)
	if !ends || before.State != compensator.Dead || after.Epoch != before.Epoch || !after.State.Terminal() {
		o.failLocked("G3: entry %s changed from %s to %s, but no person requested this", after.ID, before.State, after.State)
	}
	for _, a := range l.attempts {
		if a.compensate && a.epoch == before.Epoch {
			o.failLocked("G3: a service changed entry %s to %s, but its compensation began in version %d", after.ID, after.State, a.version)
		}
	}
	o.sights[sawRescued]++
}
