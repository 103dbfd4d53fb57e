// Package attempts describes failed attempts, so that they are stored together with their outcomes.
package attempts

import (
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Attach makes the engine store a failed attempt in the transaction of each outcome that is not a success. instance
// names this process. scrub removes confidential data from an error's text.
func Attach(e *engine.Engine, instance string, scrub func(text string) string) {
	e.Hooks.Failed = append(e.Hooks.Failed, func(a *engine.Attempt, result engine.Result, o processlog.Outcome) *processlog.FailedAttempt {
		v := verdictOf(&a.Row, result, &o)
		if v == "" {
			return nil
		}
		errText := o.LastError
		if v == processlog.AttemptInterrupted { // The entry keeps the error of an earlier attempt.
			errText = usererr.Text(result.Err)
		}
		return &processlog.FailedAttempt{
			Epoch: a.Row.Epoch, Number: a.Row.Attempt(), Compensating: a.Row.State == processlog.Compensating, Verdict: v, TimedOut: o.TimedOut,
			LostLeases: engine.LostLeases(&a.Row), Instance: instance, DueAt: a.Row.NextAt, StartedAt: a.Row.NextAt.Add(-a.Row.DueIn),
			Trace: traceOf(a), Took: a.Elapsed().Truncate(time.Millisecond), Error: processlog.FitError(scrub(errText)),
		}
	})
}

func traceOf(a *engine.Attempt) string {
	if a.Context() == nil {
		return "" // no handler was called
	}
	id := observe.TraceOf(a.Context())
	return id[:min(len(id), 32)]
}

// verdictOf returns "" for a handler that snoozes, unless it exceeded its timeout.
func verdictOf(row *processlog.Row, result engine.Result, o *processlog.Outcome) processlog.AttemptVerdict {
	kind := verdict.Of(result.Err).Kind
	counted := engine.Counted(row, o)
	switch {
	case result.Err == nil:
		return processlog.AttemptCrashed
	case result.Interrupted():
		return processlog.AttemptInterrupted
	case kind == verdict.KindSnooze && !counted && !o.TimedOut:
		return ""
	case !counted:
		return processlog.AttemptWaits
	case o.To != processlog.Dead && (o.To != processlog.Compensating || row.State == processlog.Compensating):
		return processlog.AttemptFailed
	case kind == verdict.KindPermanent:
		return processlog.AttemptPermanent
	}
	return processlog.AttemptExhausted
}
