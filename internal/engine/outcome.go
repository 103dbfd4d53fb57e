package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/processlog"
)

// crashBudget is the number of consecutive lost leases after which the engine calls no handler for an entry any more.
// The next claim then leases the entry once more, but runs nothing. During this lease, a process that ran the entry can
// still store its success, for example after it has lost the database for a while. If this lease also ends without an
// outcome, the following claim dead-letters the entry.
const crashBudget = 3

// RunsNothing reports whether a claim of an entry would call no handler, because the entry has lost too many leases.
// The parameter row is the entry's row before the claim. RunsNothing does not know whether a handler of the entry is
// stuck in this process.
func RunsNothing(row *processlog.Row) bool { return row.DeliveryCount >= crashBudget }

// LostLeases returns how many consecutive leases of an entry had ended without an outcome when the entry was claimed.
// The parameter claimed is the entry's row after this claim.
func LostLeases(claimed *processlog.Row) int { return claimed.DeliveryCount - 1 }

// noOutcome is the LastError of an entry that has Faults, but whose handler has returned no error. Faults are facts
// about the errors of an entry. An entry with Faults needs a LastError, because a claim reads the Faults of a row only
// if the row has a LastError.
const noOutcome = "compensator: an attempt ended with no outcome: its process stopped or died, or lost its lease"

// Counted reports whether an outcome counts as a failure of the entry. The parameter row is the entry's row as it was
// claimed.
func Counted(row *processlog.Row, o *processlog.Outcome) bool {
	return o.ProcessCount != row.ProcessCount || o.CompensateCount != row.CompensateCount
}

// outcomeOf computes the outcome of an attempt. It calls code of the user, which may panic. The exported method
// OutcomeOf calls outcomeOf and handles the panic. If the row has changed since the claim, the database may drop
// the outcome: see Outcome.Version.
func (t *Type) outcomeOf(row *processlog.Row, err, cause error) processlog.Outcome {
	o := unchanged(row)
	if err == nil {
		return successOutcome(o, row)
	}
	v := verdict.Of(err)
	o.LastError = cmp.Or(err.Error(), verdict.NoReason)
	called := v.HandlerCalled() // An attempt that has not called the handler has had no effect.
	// If the handler's context ended, the handler may have been cut off at any point, and its effect is then unknown.
	// There is one exception: an error by which the database server itself reports a fault or an outage. The server has
	// sent this error as its answer, so the end of the context did not cut off the handler.
	mayBeCutOff := called && v.Kind != verdict.KindServerFault && v.Kind != verdict.KindServerDown
	o.TimedOut = mayBeCutOff && errors.Is(cause, processlog.ErrTimeout)
	faults := row.Faults.In(row)
	faults.OutcomeUnknown = faults.OutcomeUnknown || o.TimedOut || mayBeCutOff && isStopCause(cause) ||
		LostLeases(row) > 0 || called && verdict.IsOutcomeUnknown(err)
	switch {
	case interrupted(err, cause):
		o.LastError = row.LastError
		return WithFaults(o, row, faults) // The field o.After is 0, so another process can claim the entry at once.
	case v.Kind == verdict.KindSnooze && !t.exceedsMaxWait(row, v):
		o.After = t.backoff(v, max(1, row.Attempt()-1))
		if !o.TimedOut {
			o.LastError = row.LastError
		}
	default:
		faults.ServerFaults, faults.ServerDowns = countServerErrors(faults, v.Kind)
		o = t.countError(o, row, v, faults)
	}
	if o.TimedOut {
		o.LastError = fmt.Sprintf("%v after %v: %s", processlog.ErrTimeout, t.Timeout, o.LastError)
	}
	return WithFaults(o, row, faults)
}

func unchanged(row *processlog.Row) processlog.Outcome {
	return processlog.Outcome{
		ID: row.ID, IdempotencyKey: row.IdempotencyKey, Epoch: row.Epoch, Version: row.Version, To: row.State,
		ProcessCount: row.ProcessCount, CompensateCount: row.CompensateCount,
	}
}

// countServerErrors returns how many consecutive attempts of an entry have ended with a server fault, and how many with
// a server outage. The parameter kind is the verdict of the last attempt. Any other kind of verdict resets both numbers
// to 0.
func countServerErrors(before processlog.Faults, kind verdict.Kind) (faults, downs int) {
	switch kind {
	case verdict.KindServerFault:
		return min(before.ServerFaults+1, processlog.MaxCount), 0
	case verdict.KindServerDown:
		return 0, min(before.ServerDowns+1, processlog.MaxCount)
	}
	return 0, 0
}

// countError decides whether an error costs the entry an attempt, and completes the outcome. The counters in the
// parameter faults already include this error.
func (t *Type) countError(o processlog.Outcome, row *processlog.Row, v *verdict.Verdict, faults processlog.Faults) processlog.Outcome {
	switch {
	case t.exceedsMaxWait(row, v):
		o.LastError = fmt.Sprintf("waits for longer than MaxWait, %v: %s", t.MaxWait, o.LastError)
	case v.Kind == verdict.KindServerDown:
		o.LastError = serverErrorPrefix(v.Kind, faults.ServerDowns) + o.LastError
		o.After = max(t.backoff(v, max(1, row.Attempt()-1)), serverDownPause(faults.ServerDowns))
		return o
	case v.Kind == verdict.KindServerFault:
		o.LastError = serverErrorPrefix(v.Kind, faults.ServerFaults) + o.LastError
		if faults.ServerFaults <= t.maxFailures(row) {
			o.After = t.backoff(v, faults.ServerFaults)
			return o
		}
	case v.Kind == verdict.KindUnavailable:
		o.After = t.unavailableDelay(row, v)
		return o
	}
	return t.countFailure(o, row, v)
}

func serverErrorPrefix(kind verdict.Kind, count int) string {
	condition := "the server's condition"
	if kind == verdict.KindServerDown {
		condition = "a condition of the whole server"
	}
	return fmt.Sprintf("%d in a row, %s: ", count, condition)
}

// serverDownPause returns the pause after an attempt that met a server outage. The parameter count is the number of
// consecutive outages. The pause is random. It is between 2 and 4 s after the first outage, and doubles with each
// further outage, up to between 30 and 60 s.
func serverDownPause(count int) time.Duration {
	d := min(unavailablePause<<min(count-1, 8), 30*time.Second)
	return d + jitter.N(d)
}

// unavailablePause is the minimum delay after an attempt that ended with Unavailable. The type's Retry computes its
// delay from the number of failures, and Unavailable does not count as a failure. So Retry alone could return the same
// short delay again and again.
const unavailablePause = 2 * time.Second

// MaxUnavailableDelay is the longest delay to which unavailableDelay grows.
const MaxUnavailableDelay = 2 * time.Minute

// unavailableDelay returns the delay after an attempt that ended with Unavailable. The delay is about twice the
// previous delay, and at most MaxUnavailableDelay. The previous delay is the time from the row's UpdatedAt to its
// NextAt.
func (t *Type) unavailableDelay(row *processlog.Row, v *verdict.Verdict) time.Duration {
	wait := max(t.backoff(v, max(1, row.Attempt()-1)), unavailablePause+jitter.N(unavailablePause))
	if v.After > 0 || v.ByLibrary || row.LastError == "" {
		return wait
	}
	previous := min(max(0, row.NextAt.Sub(row.UpdatedAt)), MaxUnavailableDelay)
	grown := min(previous*3/2+jitter.N(previous+1), MaxUnavailableDelay-jitter.N(MaxUnavailableDelay/4))
	if t.MaxWait > 0 {
		// The delay must not grow beyond the moment at which MaxWait has passed. From this moment on, an attempt that
		// ends with Unavailable counts as a failure.
		grown = min(grown, t.MaxWait-row.Age())
	}
	return max(wait, grown)
}

// WithFaults returns the outcome o with the given faults, if they differ from the faults of the row. Faults need a
// LastError, so WithFaults sets LastError to noOutcome if the outcome has no error.
func WithFaults(o processlog.Outcome, row *processlog.Row, faults processlog.Faults) processlog.Outcome {
	if faults != row.Faults.In(row) {
		o.Faults = &faults
		o.LastError = cmp.Or(o.LastError, noOutcome)
	}
	return o
}

// exceedsMaxWait reports whether two conditions hold: the verdict v asks to wait again, and the entry is older than
// MaxWait. The result is false if the library itself asks to wait, because MaxWait does not limit such waits.
func (t *Type) exceedsMaxWait(row *processlog.Row, v *verdict.Verdict) bool {
	waits := (v.Kind == verdict.KindSnooze || v.Kind == verdict.KindUnavailable) && !v.ByLibrary && !v.NoMaxWait
	return waits && t.PastMaxWait(row)
}

// PastMaxWait reports whether an entry is older than its type's MaxWait.
func (t *Type) PastMaxWait(row *processlog.Row) bool { return t.MaxWait > 0 && row.Age() >= t.MaxWait }

func (t *Type) maxFailures(row *processlog.Row) int {
	if row.State == processlog.Compensating {
		return t.MaxCompensateAttempts
	}
	if row.MaxAttempts > 0 {
		return row.MaxAttempts
	}
	return t.MaxAttempts
}

// OutcomeOf returns the outcome of an attempt. The parameter err is the handler's error. The parameter cause says why
// the handler's context ended, or is nil. OutcomeOf calls code of the user: the methods of err, and the type's Retry.
// If this code panics or calls runtime.Goexit, the attempt counts as failed.
func (t *Type) OutcomeOf(row *processlog.Row, err, cause error) (o processlog.Outcome) {
	if err == nil { // Without an error, outcomeOf calls no code of the user, so nothing can panic.
		return t.outcomeOf(row, nil, cause)
	}
	failure := errGoexit
	usererr.Contain(func() {
		defer func() {
			if p := recover(); p != nil {
				failure = panicked(p)
			}
		}()
		o = t.outcomeOf(row, err, cause)
		failure = nil
	})
	if failure != nil {
		o = t.outcomeOf(row, verdict.RetryAfter(unavailablePause, failure), cause)
	}
	return o
}

// interrupted reports whether a handler failed only because the library ended its context, or whether the handler
// returned ErrHistoryLost, which reports a loss of data. Such a failure costs the entry no attempt.
func interrupted(err, cause error) bool {
	return isStopCause(cause) && (isStopCause(err) || errors.Is(err, context.Canceled)) || errors.Is(err, processlog.ErrHistoryLost)
}

// Interrupted reports whether the attempt failed only because the library ended the handler's context. Such a failure
// costs the entry no attempt.
func (r Result) Interrupted() bool { return interrupted(r.Err, r.Cause) }

func isStopCause(err error) bool {
	return errors.Is(err, processlog.ErrStopping) || errors.Is(err, processlog.ErrLeaseLost) || errors.Is(err, processlog.ErrCancelled)
}

func successOutcome(o processlog.Outcome, row *processlog.Row) processlog.Outcome {
	o.To, o.EndedBy, o.Result = processlog.Succeeded, processlog.EndedByHandler, row.Result
	if row.State == processlog.Compensating {
		o.To, o.Result = processlog.Compensated, nil
	}
	return o
}

func (t *Type) countFailure(o processlog.Outcome, row *processlog.Row, v *verdict.Verdict) processlog.Outcome {
	compensating, isPermanent := row.State == processlog.Compensating, v.Kind == verdict.KindPermanent
	count := &o.ProcessCount
	if compensating {
		count = &o.CompensateCount
	}
	*count = min(*count+1, processlog.MaxCount)
	switch {
	case !isPermanent && *count < t.maxFailures(row):
		o.After = t.backoff(v, *count)
		if !compensating {
			o.To = processlog.Retrying
		}
	case t.compensates() && !compensating:
		o.To = processlog.Compensating
	case isPermanent:
		o.To, o.EndedBy = processlog.Dead, processlog.EndedByPermanent
	default:
		o.To, o.EndedBy = processlog.Dead, processlog.EndedByExhausted
	}
	return o
}

// crashOutcome returns the outcome of an entry whose leases ended too often without an outcome. The entry is dead,
// because nobody knows whether the handler had an effect. If the type has CompensateCrashed, the entry is compensated
// instead. The time startedAt is when this process began the attempt that still runs here, or zero.
func (t *Type) crashOutcome(row *processlog.Row, startedAt time.Time) processlog.Outcome {
	why := "the process died, before its handler began or in it, or the handler never returned"
	if !startedAt.IsZero() {
		why = "the handler has not returned since " + startedAt.UTC().Format(time.RFC3339)
	}
	o := unchanged(row)
	o.To, o.EndedBy = processlog.Dead, processlog.EndedByCrash
	o.LastError = fmt.Sprintf("%d leases in a row ended with no outcome: %s", LostLeases(row), why)
	if row.State == processlog.Compensating {
		// A count above 0 tells processlog.Change that a compensation has begun.
		o.CompensateCount++
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
		return clampDelay(v.After)
	}
	return clampDelay(t.Retry(failures)) // Retry is code of the user, so its result may be negative.
}

const minBackoff = 100 * time.Millisecond

// clampDelay limits a delay to at least minBackoff and at most MaxDelay. The table and the queues cannot store a longer
// delay.
func clampDelay(d time.Duration) time.Duration { return min(max(d, minBackoff), processlog.MaxDelay) }
