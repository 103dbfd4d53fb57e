package sim

import (
	"context"
	"errors"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

const crashBudget = 3

func (o *oracle) checkSettleLocked(l *rowHistory, before, after processlog.Row, t *transition) {
	out, named := t.op.outcome(after.ID)
	if !named {
		o.failLocked("G4: entry %s was settled by a write that has no outcome for it", after.ID)
	}
	t.outcome = out
	if after.Epoch != before.Epoch || out.Epoch != before.Epoch {
		o.failLocked("G13: an outcome of epoch %d was applied to entry %s in epoch %d", out.Epoch, after.ID, before.Epoch)
	}
	if after.DeliveryCount != 0 || after.LeaseLeft > 0 {
		o.failLocked("G4: entry %s is settled, but has %d deliveries and a lease of %v", after.ID, after.DeliveryCount, after.LeaseLeft)
	}
	a := l.attemptOf(out.Version, t.op.from)
	if a != nil && a.epoch != out.Epoch {
		o.failLocked("G13: the outcome of entry %s has epoch %d, but its attempt has epoch %d", after.ID, out.Epoch, a.epoch)
	}
	if before.LeaseLeft <= 0 && a != nil && a.ended {
		o.sights[sawWaited]++
	}
	absorbed := (after.State == compensator.Succeeded || after.State == compensator.Compensated) && !transactional(l.kind)
	if !absorbed && before.Version != out.Version {
		o.failLocked("G4: an outcome of version %d of entry %s was applied to version %d", out.Version, after.ID, before.Version)
	}
	switch {
	case a != nil && a.manner == serverDowned && out.EndedBy != compensator.EndedByCrash:
		o.checkServerDownLocked(before, after, a)
	case a != nil && (a.manner == serverFaulted || l.refused(before, after, a)) && out.EndedBy != compensator.EndedByCrash:
		o.checkServerFaultLocked(l, before, after, a)
	case after.State == compensator.Succeeded:
		o.checkSuccessLocked(l, before, after, a)
	case after.State == compensator.Compensated:
		o.checkCompensationLocked(before, after, a)
	case after.EndedBy == compensator.EndedByCrash,
		after.State == compensator.Compensating && before.State != compensator.Compensating && after.ProcessCount == before.ProcessCount:
		o.checkCrashLocked(before, after)
	case after.State == before.State && after.ProcessCount == before.ProcessCount && after.CompensateCount == before.CompensateCount:
		o.checkNothingSpentLocked(l, after, a)
	default:
		o.checkSpentLocked(l, before, after, a)
	}
	o.checkWaitLocked(before, after, a)
	o.checkEndedByLocked(after, a)
	o.doubtLocked(before, after, out, a)
}

func (o *oracle) checkEndedByLocked(after processlog.Row, a *attempt) {
	var want compensator.EndedBy
	switch {
	case after.State == compensator.Succeeded, after.State == compensator.Compensated:
		want = compensator.EndedByHandler
	case after.State != compensator.Dead:
	case after.EndedBy == compensator.EndedByCrash:
		return
	case a != nil && a.manner == permanently:
		want = compensator.EndedByPermanent
	default:
		want = compensator.EndedByExhausted
	}
	if after.EndedBy != want {
		o.failLocked("G7: entry %s is %s and EndedBy is %q, want %q (%+v)", after.ID, after.State, after.EndedBy, want, a)
	}
}

// If a batch returns no results, each of its entries runs again alone, under the same version.
func (l *rowHistory) attemptOf(version uint64, from *instance) *attempt {
	for i := len(l.attempts) - 1; i >= 0; i-- {
		if a := l.attempts[i]; a.version == version && a.from == from {
			return a
		}
	}
	return nil
}

func (o *oracle) checkSuccessLocked(l *rowHistory, before, after processlog.Row, a *attempt) {
	if a == nil || a.manner != fine || a.compensate {
		o.failLocked("G6: entry %s succeeded, but its attempt is %+v", after.ID, a)
	}
	if before.State != compensator.Pending && before.State != compensator.Retrying {
		o.failLocked("G12: entry %s changed from %s to succeeded", after.ID, before.State)
	}
	if after.ProcessCount != before.ProcessCount {
		o.failLocked("G4: a success changed the failures of entry %s from %d to %d", after.ID, before.ProcessCount, after.ProcessCount)
	}
}

func (o *oracle) checkCompensationLocked(before, after processlog.Row, a *attempt) {
	o.sights[sawCompensated]++
	if a == nil || a.manner != fine || !a.compensate || before.State != compensator.Compensating {
		o.failLocked("G12: entry %s is compensated, but its attempt is %+v and its state was %s", after.ID, a, before.State)
	}
	if after.ProcessCount != before.ProcessCount || after.CompensateCount != before.CompensateCount {
		o.failLocked("G4: a compensation that succeeded changed the failures of entry %s from %d/%d to %d/%d", after.ID,
			before.ProcessCount, before.CompensateCount, after.ProcessCount, after.CompensateCount)
	}
}

func (o *oracle) checkCrashLocked(before, after processlog.Row) {
	o.sights[sawQuarantined]++
	lost := before.DeliveryCount - 1
	if lost <= crashBudget { // One more lost lease is allowed, because a success may still wait to be stored.
		o.failLocked("G7: entry %s was dead-lettered for crashes after only %d lost leases", after.ID, lost)
	}
	undone := 0
	if before.State == compensator.Compensating {
		undone = 1
	}
	if after.ProcessCount != before.ProcessCount || after.CompensateCount != before.CompensateCount+undone {
		o.failLocked("G4: a crash changed the failures of entry %s from %d/%d to %d/%d", after.ID,
			before.ProcessCount, before.CompensateCount, after.ProcessCount, after.CompensateCount)
	}
	if after.State == compensator.Compensating && !o.w.plan.compensateCrashed {
		o.failLocked("G12: entry %s lost too many leases and is compensated, but its type does not ask for that", after.ID)
	}
}

func (o *oracle) checkNothingSpentLocked(l *rowHistory, after processlog.Row, a *attempt) {
	switch {
	case a != nil && a.voidable():
	case a == nil:
		if !transactional(l.kind) {
			o.failLocked("G4: entry %s was put back with an outcome, but it had no attempt", after.ID)
		}
	case a.manner == failed, a.manner == permanently, a.manner == laterOn, a.manner == panicked, a.manner == goexited,
		a.manner == fine && !transactional(l.kind):
		o.failLocked("G4: attempt %+v of entry %s failed, but the entry counts no failure", *a, after.ID)
	case a.askedToWait():
		o.checkFreeWaitLocked(l, after, a)
	}
}

func (o *oracle) checkSpentLocked(l *rowHistory, before, after processlog.Row, a *attempt) {
	late := a != nil && (a.manner == fine || a.manner == called) && transactional(l.kind) && errors.Is(context.Cause(a.ctx), compensator.ErrTimeout)
	if a == nil || !a.ended || (a.manner == fine || a.manner == called) && !late && !l.refused(before, after, a) {
		o.failLocked("G7: entry %s counts a failure from version %d to %d, but its attempt is %+v", after.ID, before.Version, after.Version, a)
		return
	}
	if a.askedToWait() {
		o.checkCountedWaitLocked(before, after, a)
	}
	count, most := after.ProcessCount, o.w.plan.types.MaxAttempts
	if before.MaxAttempts > 0 {
		most = before.MaxAttempts
	}
	counted := after.ProcessCount == before.ProcessCount+1 && after.CompensateCount == before.CompensateCount
	compensates := l.kind == undoType || l.kind == undoTxType
	if before.State == compensator.Compensating {
		count, most = after.CompensateCount, o.w.plan.types.MaxCompensateAttempts
		counted = after.CompensateCount == before.CompensateCount+1 && after.ProcessCount == before.ProcessCount
		compensates = false
	}
	if !counted || count > most {
		o.failLocked("G4: a failure changed the counts of entry %s from %d/%d to %d/%d, with a maximum of %d", after.ID, before.ProcessCount, before.CompensateCount,
			after.ProcessCount, after.CompensateCount, most)
	}
	final := count == most || a.manner == permanently
	var want compensator.State
	switch {
	case !final && before.State == compensator.Compensating:
		want = compensator.Compensating
	case !final:
		want = compensator.Retrying
	case compensates:
		want = compensator.Compensating
	default:
		want = compensator.Dead
		o.sights[sawDead]++
	}
	if after.State != want {
		o.failLocked("G7: entry %s, failure %d of %d (%+v), is %s, want %s", after.ID, count, most, *a, after.State, want)
	}
}
