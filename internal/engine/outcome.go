package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/processlog"
)

// crashBudget is how many leases in a row may end without an outcome before the entry is run no more. One further lease is
// left to a success that waits to be stored, and then the entry is dead-lettered.
const crashBudget = 3

// RunsNothing reports whether a claim of an entry only counts a lost lease, or dead-letters the entry. It leaves out entries on
// which a handler of this process is stuck. row is the row before the claim.
func RunsNothing(row *processlog.Row) bool { return row.DeliveryCount >= crashBudget }

// LostLeases counts the deliveries before this one that ended with no outcome.
func LostLeases(row *processlog.Row) int { return row.DeliveryCount - 1 }

// noOutcome is the LastError of an entry whose first attempts ended without an outcome. A LastError that is not empty makes
// the next claim read the entry's Faults.
const noOutcome = "compensator: an attempt ended with no outcome: its process died, or lost its lease"

// outcomeOf is what an attempt's error means for its entry. cause is why the handler's context ended, if it
// did. Nothing here is computed from anything but the row as claimed.
func (t *Type) outcomeOf(row *processlog.Row, err, cause error) processlog.Outcome {
	o := processlog.Outcome{
		ID: row.ID, IdempotencyKey: row.IdempotencyKey, Epoch: row.Epoch, Version: row.Version, To: row.State,
		ProcessCount: row.ProcessCount, CompensateCount: row.CompensateCount,
	}
	if err == nil {
		return succeeded(o, row)
	}
	v := verdict.Of(err)
	o.LastError = cmp.Or(err.Error(), verdict.NoReason)
	// A server's fault is told while the handler still has time: it may pass before the outcome is made.
	o.TimedOut = errors.Is(cause, processlog.ErrTimeout) && v.Kind != verdict.KindServerFault && v.Kind != verdict.KindServerDown
	faults := row.Faults.In(row)
	faults.OutcomeUnknown = faults.OutcomeUnknown || o.TimedOut || LostLeases(row) > 0
	switch {
	case interrupted(err, cause), errors.Is(err, processlog.ErrHistoryLost):
		o.LastError = row.LastError
		return WithFaults(o, row, faults) // due at once, for somebody else
	case v.Kind == verdict.KindSnooze && !t.waitedOut(row, v):
		o.After = t.backoff(v, max(1, row.Attempt()-1))
		if o.LastError = row.LastError; o.TimedOut {
			o.LastError = t.late(err.Error())
		}
		return WithFaults(o, row, faults)
	}
	faults.ServerFaults, faults.ServerDowns = serversInARow(faults, v.Kind)
	o = t.counted(o, row, v, faults)
	if o.TimedOut {
		o.LastError = t.late(o.LastError)
	}
	return WithFaults(o, row, faults)
}

// serversInARow returns how many server faults and how many server outages have come in a row, with the one of this kind.
func serversInARow(before processlog.Faults, kind verdict.Kind) (faults, downs int) {
	switch kind {
	case verdict.KindServerFault:
		return min(before.ServerFaults+1, processlog.MaxCount), 0
	case verdict.KindServerDown:
		return 0, min(before.ServerDowns+1, processlog.MaxCount)
	}
	return 0, 0
}

// counted decides whether an error spends an attempt. faults has the conditions in a row, this one included.
func (t *Type) counted(o processlog.Outcome, row *processlog.Row, v *verdict.Verdict, faults processlog.Faults) processlog.Outcome {
	switch {
	case t.waitedOut(row, v):
		o.LastError = fmt.Sprintf("waits for longer than MaxWait, %v: %s", t.MaxWait, o.LastError)
	case v.Kind == verdict.KindServerDown:
		o.LastError = inARow(row, v.Kind, faults.ServerDowns) + o.LastError
		o.After = max(t.backoff(v, max(1, row.Attempt()-1)), serverDownPause(faults.ServerDowns))
		return o
	case v.Kind == verdict.KindServerFault:
		o.LastError = inARow(row, v.Kind, faults.ServerFaults) + o.LastError
		if faults.ServerFaults <= t.budget(row) {
			o.After = t.backoff(v, faults.ServerFaults)
			return o
		}
	case v.Kind == verdict.KindUnavailable:
		o.After = t.untilAvailable(row, v)
		return o
	}
	if row.State == processlog.Compensating {
		return t.compensationFailed(o, v)
	}
	return t.failed(o, row, v)
}

// inARow says in LastError, for people, how many such errors came in a row. The count itself is in processlog.Faults.
func inARow(row *processlog.Row, kind verdict.Kind, times int) string {
	since := ""
	if row.Epoch > 0 {
		since = fmt.Sprintf(" in epoch %d", row.Epoch)
	}
	if row.State == processlog.Compensating {
		since += " while compensating"
	}
	of := "the server's condition"
	if kind == verdict.KindServerDown {
		of = "a condition of the whole server"
	}
	return fmt.Sprintf("%d in a row%s, %s: ", times, since, of)
}

// serverDownPause returns how long an entry waits at least after its times-th error of the whole server in a row: 2 to 4 s at
// first, twice as long each time, and 30 s to a minute in the end.
func serverDownPause(times int) time.Duration {
	d := min(unavailablePause<<min(times-1, 8), 30*time.Second)
	return d + jitter.N(d)
}

// unavailablePause is the least pause after Unavailable. The first short delays of a schedule would otherwise come again and
// again, since Unavailable counts no failure.
const unavailablePause = 2 * time.Second

// mostUnavailable is where the pauses after Unavailable stop growing.
const mostUnavailable = 2 * time.Minute

// untilAvailable is how long to wait after Unavailable. Each pause is about twice the one before, up to mostUnavailable. The one
// before is read from the row: it lies between the time of the last outcome and the time when the entry was due again.
func (t *Type) untilAvailable(row *processlog.Row, v *verdict.Verdict) time.Duration {
	wait := max(t.backoff(v, max(1, row.Attempt()-1)), unavailablePause+jitter.N(unavailablePause))
	if v.After > 0 || v.Ours || row.LastError == "" {
		return wait // the handler knows when, or the database was away, or this is the first
	}
	before := min(max(0, row.NextAt.Sub(row.UpdatedAt)), mostUnavailable)
	longer := min(before*3/2+jitter.N(before+1), mostUnavailable-jitter.N(mostUnavailable/4))
	if t.MaxWait > 0 {
		longer = min(longer, t.MaxWait-row.Age()) // it counts from then on, and is not to come late for that
	}
	return max(wait, longer)
}

// WithFaults has faults stored with the outcome if they differ from the row's.
func WithFaults(o processlog.Outcome, row *processlog.Row, faults processlog.Faults) processlog.Outcome {
	if faults != row.Faults.In(row) {
		o.Faults = &faults
		o.LastError = cmp.Or(o.LastError, noOutcome)
	}
	return o
}

// late is the LastError of an attempt whose time had passed.
func (t *Type) late(lastError string) string {
	return fmt.Sprintf("%v after %v: %s", processlog.ErrTimeout, t.Timeout, lastError)
}

// waitedOut reports whether a handler asks to wait, at no cost, although the entry's MaxWait is over. What the library itself
// waits for, a database or a batch, no handler has asked for.
func (t *Type) waitedOut(row *processlog.Row, v *verdict.Verdict) bool {
	waits := (v.Kind == verdict.KindSnooze || v.Kind == verdict.KindUnavailable) && !v.Ours && !v.Free
	return waits && t.HadItsTime(row)
}

// HadItsTime reports whether an entry's MaxWait is over.
func (t *Type) HadItsTime(row *processlog.Row) bool { return t.MaxWait > 0 && row.Age() >= t.MaxWait }

// budget is how many failures the entry may have as it stands.
func (t *Type) budget(row *processlog.Row) int {
	if row.State == processlog.Compensating {
		return t.MaxCompensateAttempts
	}
	return t.maxAttempts(row)
}

// safeOutcomeOf is outcomeOf where the user's code in it, the error's own methods or the type's Retry, may
// panic: that is a failure, too.
func (t *Type) safeOutcomeOf(row *processlog.Row, err, cause error) (o processlog.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = t.outcomeOf(row, verdict.RetryAfter(unavailablePause, panicked(p)), cause)
		}
	}()
	return t.outcomeOf(row, err, cause)
}

// interrupted reports whether a handler failed only because it was told to stop: Run is ending, the database could not
// be reached to renew the lease, or somebody has cancelled the entry, which matters where that was undone by a savepoint: what has
// happened drops any outcome. It is no failure of the entry's.
func interrupted(err, cause error) bool {
	return toldToStop(cause) && (toldToStop(err) || errors.Is(err, context.Canceled))
}

func toldToStop(err error) bool {
	return errors.Is(err, processlog.ErrStopping) || errors.Is(err, processlog.ErrLeaseLost) || errors.Is(err, processlog.ErrCancelled)
}

// Succeeded is the outcome of an attempt that has succeeded.
func (t *Type) Succeeded(row *processlog.Row) processlog.Outcome { return t.outcomeOf(row, nil, nil) }

func succeeded(o processlog.Outcome, row *processlog.Row) processlog.Outcome {
	o.To, o.EndedBy, o.Absorb, o.Result = processlog.Succeeded, processlog.EndedByHandler, true, row.Result
	if row.State == processlog.Compensating {
		o.To, o.Result = processlog.Compensated, nil
	}
	return o
}

func (t *Type) failed(o processlog.Outcome, row *processlog.Row, v *verdict.Verdict) processlog.Outcome {
	o.ProcessCount = min(o.ProcessCount+1, processlog.MaxCount)
	switch {
	case v.Kind == verdict.KindPermanent:
		return t.giveUp(o, processlog.EndedByPermanent)
	case o.ProcessCount >= t.maxAttempts(row):
		return t.giveUp(o, processlog.EndedByExhausted)
	}
	o.To = processlog.Retrying
	o.After = t.backoff(v, o.ProcessCount)
	return o
}

func (t *Type) compensationFailed(o processlog.Outcome, v *verdict.Verdict) processlog.Outcome {
	o.CompensateCount = min(o.CompensateCount+1, processlog.MaxCount)
	switch {
	case v.Kind == verdict.KindPermanent:
		o.To, o.EndedBy = processlog.Dead, processlog.EndedByPermanent
	case o.CompensateCount >= t.MaxCompensateAttempts:
		o.To, o.EndedBy = processlog.Dead, processlog.EndedByExhausted
	default:
		o.After = t.backoff(v, o.CompensateCount)
	}
	return o
}

// giveUp hands the entry to its compensation, which is due at once, or to a person.
func (t *Type) giveUp(o processlog.Outcome, why processlog.EndedBy) processlog.Outcome {
	if t.compensates() {
		o.To = processlog.Compensating
		return o
	}
	o.To, o.EndedBy = processlog.Dead, why
	return o
}

// crashed takes an entry out whose leases keep ending with no outcome. Whether the handler's effect happened
// is unknown, so compensating it is the type's choice. since is when the attempt began that this process still runs; zero: none.
func (t *Type) crashed(row *processlog.Row, since time.Time) processlog.Outcome {
	why := "the process died, before its handler began or in it, or the handler never returned"
	if !since.IsZero() {
		why = "the handler has not returned since " + since.UTC().Format(time.RFC3339)
	}
	o := processlog.Outcome{
		ID: row.ID, IdempotencyKey: row.IdempotencyKey, Epoch: row.Epoch, Version: row.Version, To: processlog.Dead, EndedBy: processlog.EndedByCrash,
		ProcessCount: row.ProcessCount, CompensateCount: row.CompensateCount,
		LastError: fmt.Sprintf("%d leases in a row ended with no outcome: %s", crashBudget, why),
	}
	if row.State == processlog.Compensating {
		o.CompensateCount++ // it has begun, and nothing else in the row tells: see processlog.Change
	}
	if t.CompensateCrashed && t.compensates() && row.State != processlog.Compensating {
		o.To, o.EndedBy = processlog.Compensating, ""
	}
	faults := row.Faults.In(row)
	faults.OutcomeUnknown = true
	return WithFaults(o, row, faults)
}

func (t *Type) backoff(v *verdict.Verdict, failures int) time.Duration {
	if v.After > 0 {
		return boundedWait(v.After)
	}
	return delay(t.Retry, failures)
}

const minBackoff = 100 * time.Millisecond

// delay is a schedule's answer within the bounds of a wait, so that no arithmetic of a schedule makes a hot loop.
func delay(retry func(failures int) time.Duration, failures int) time.Duration {
	return boundedWait(retry(failures))
}

// boundedWait is a wait that is no hot loop, and that the table and the queues can count.
func boundedWait(d time.Duration) time.Duration { return min(max(d, minBackoff), processlog.MaxDelay) }
