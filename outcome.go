package compensator

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/compensator-go/compensator/internal/jitter"
)

// Permanent says that trying again is pointless: the entry is compensated, or waits for a person.
func Permanent(err error) error { return &verdict{kind: permanent, err: orUnnamed(err)} }

// RetryAfter is a failure whose next attempt is due after d instead of what the type's schedule says. d is kept
// as given, from 100 ms to 100 years: less is raised, more is cut to that. Nothing or less is the type's schedule.
func RetryAfter(d time.Duration, err error) error {
	return &verdict{kind: retryAfter, after: d, err: orUnnamed(err)}
}

// Snooze is not a failure: the handler wants to be called again after d. It spends no attempt. d has the bounds
// of RetryAfter's; nothing or less is the type's schedule, which does not grow: as after the last failure, or as
// after a first one.
func Snooze(d time.Duration) error {
	return &verdict{kind: snooze, after: d, err: fmt.Errorf("compensator: snoozed for %v", d)}
}

// Unavailable says that something the handler needs is down. It spends no attempt, so the type's schedule
// does not grow: the next attempt comes as after Snooze(0), but not before 2 to 4 seconds have passed.
func Unavailable(err error) error { return &verdict{kind: unavailable, err: orUnnamed(err)} }

// unavailablePause spares a downstream that is down the schedule's first, short delays, again and again.
const unavailablePause = 2 * time.Second

// transient is a failure that is the database's, at the very end of a transaction: the handler is run again
// soon, and nothing is counted against the entry.
func transient(err error) error {
	return &verdict{kind: snooze, after: minBackoff + jitter.N(minBackoff), transient: true, err: err}
}

type verdictKind int

const (
	failure verdictKind = iota
	permanent
	retryAfter
	snooze
	unavailable
)

// verdict is a handler's error with what it asks for.
type verdict struct {
	kind      verdictKind
	after     time.Duration // until the next attempt; ≤ 0: the type's schedule
	transient bool          // the database's failure, not the handler's word
	err       error
}

func (v *verdict) Error() string { return v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

func orUnnamed(err error) error {
	if err == nil {
		return errors.New("compensator: no reason given")
	}
	return err
}

// crashBudget is how many leases in a row may end without an outcome before the entry is run no more. One further lease is
// left to a success that waits to be stored, and then the entry is taken out.
const crashBudget = 3

// lostLeases counts the deliveries before this one that ended with no outcome.
func lostLeases(row *Row) int { return row.DeliveryCount - 1 }

// outcomeOf is what an attempt's error means for its entry. cause is why the handler's context ended, if it
// did. Nothing here is computed from anything but the row as claimed.
func (t *handlerType) outcomeOf(row *Row, err, cause error) Outcome {
	o := Outcome{
		ID: row.ID, IdempotentID: row.IdempotentID, Epoch: row.Epoch, Version: row.Version, To: row.State,
		ProcessCount: row.ProcessCount, CompensateCount: row.CompensateCount,
	}
	if err == nil {
		return succeeded(o, row)
	}
	o.LastError = err.Error()
	if errors.Is(cause, ErrTimeout) {
		o.LastError = fmt.Sprintf("%v after %v: %v", ErrTimeout, t.cfg.Timeout, err)
	}
	v := &verdict{err: err}
	errors.As(err, &v)
	switch {
	case interrupted(err, cause), errors.Is(err, ErrHistoryLost):
		o.LastError = row.LastError
		return o // due at once, for somebody else
	case v.kind == snooze:
		o.LastError = row.LastError
		o.After = t.backoff(v, max(1, row.Attempt()-1))
		return o
	case v.kind == unavailable:
		o.After = max(t.backoff(v, max(1, row.Attempt()-1)), unavailablePause+jitter.N(unavailablePause))
		return o
	case row.State == Compensating:
		return t.compensationFailed(o, v)
	}
	return t.failed(o, row, v)
}

// safeOutcomeOf is outcomeOf where the user's code in it, the error's own methods or the type's Retry, may
// panic: that is a failure, too.
func (t *handlerType) safeOutcomeOf(row *Row, err, cause error) (o Outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = t.outcomeOf(row, RetryAfter(unavailablePause, &PanicError{Value: p, Stack: debug.Stack()}), nil)
		}
	}()
	return t.outcomeOf(row, err, cause)
}

// interrupted reports whether a handler failed only because it was told to stop: Run is ending, or the
// database could not be reached to renew the lease. That is no failure of the entry's.
func interrupted(err, cause error) bool {
	if !errors.Is(cause, ErrStopping) && !errors.Is(cause, ErrLeaseLost) {
		return false
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, ErrStopping) || errors.Is(err, ErrLeaseLost)
}

func succeeded(o Outcome, row *Row) Outcome {
	o.To, o.EndedBy, o.Absorb = Succeeded, EndedByHandler, true
	if row.State == Compensating {
		o.To = Compensated
	}
	return o
}

func (t *handlerType) failed(o Outcome, row *Row, v *verdict) Outcome {
	o.ProcessCount++
	switch {
	case v.kind == permanent:
		return t.giveUp(o, EndedByPermanent)
	case o.ProcessCount >= t.maxProcessCount(row):
		return t.giveUp(o, EndedByExhausted)
	}
	o.To = Retrying
	o.After = t.backoff(v, o.ProcessCount)
	return o
}

func (t *handlerType) compensationFailed(o Outcome, v *verdict) Outcome {
	o.CompensateCount++
	switch {
	case v.kind == permanent:
		o.To, o.EndedBy = Dead, EndedByPermanent
	case o.CompensateCount >= t.cfg.MaxCompensateCount:
		o.To, o.EndedBy = Dead, EndedByExhausted
	default:
		o.After = t.backoff(v, o.CompensateCount)
	}
	return o
}

// giveUp hands the entry to its compensation, which is due at once, or to a person.
func (t *handlerType) giveUp(o Outcome, why EndedBy) Outcome {
	if t.compensates() {
		o.To = Compensating
		return o
	}
	o.To, o.EndedBy = Dead, why
	return o
}

// crashed takes an entry out whose leases keep ending with no outcome. Whether the handler's effect happened
// is unknown, so compensating it is the type's choice. stuck is the attempt that this process still runs, or nil.
func (t *handlerType) crashed(row *Row, stuck *attempt) Outcome {
	why := "the process died, or the handler never returned"
	if stuck != nil {
		why = "the handler has not returned since " + stuck.started.UTC().Format(time.RFC3339)
	}
	o := Outcome{
		ID: row.ID, IdempotentID: row.IdempotentID, Epoch: row.Epoch, Version: row.Version, To: Dead, EndedBy: EndedByCrash,
		ProcessCount: row.ProcessCount, CompensateCount: row.CompensateCount,
		LastError: fmt.Sprintf("%d leases in a row ended with no outcome: %s", crashBudget, why),
	}
	if t.cfg.CompensateCrashed && t.compensates() && row.State != Compensating {
		o.To, o.EndedBy = Compensating, ""
	}
	return o
}

func (t *handlerType) backoff(v *verdict, failures int) time.Duration {
	if v.after > 0 {
		return boundedWait(v.after)
	}
	return t.cfg.Retry.delay(failures)
}

func (t *handlerType) maxProcessCount(row *Row) int {
	if row.MaxProcessCount > 0 {
		return row.MaxProcessCount
	}
	return t.cfg.MaxProcessCount
}
