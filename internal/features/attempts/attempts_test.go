package attempts

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/processlog"
)

func TestVerdictOfAFailedAttempt(t *testing.T) {
	t.Parallel()
	failure := errors.New("no")
	for name, c := range map[string]struct {
		row    processlog.Row
		result engine.Result
		o      processlog.Outcome
		want   processlog.AttemptVerdict
	}{
		"counted":                  {result: engine.Result{Err: failure}, o: processlog.Outcome{ProcessCount: 1, To: processlog.Retrying}, want: processlog.AttemptFailed},
		"last one":                 {result: engine.Result{Err: failure}, o: processlog.Outcome{ProcessCount: 1, To: processlog.Dead}, want: processlog.AttemptExhausted},
		"last one, undone":         {result: engine.Result{Err: failure}, o: processlog.Outcome{ProcessCount: 1, To: processlog.Compensating}, want: processlog.AttemptExhausted},
		"permanent":                {result: engine.Result{Err: verdict.Permanent(failure)}, o: processlog.Outcome{ProcessCount: 1, To: processlog.Dead}, want: processlog.AttemptPermanent},
		"permanent, undone":        {result: engine.Result{Err: verdict.Permanent(failure)}, o: processlog.Outcome{ProcessCount: 1, To: processlog.Compensating}, want: processlog.AttemptPermanent},
		"compensation fails":       {row: processlog.Row{State: processlog.Compensating}, result: engine.Result{Err: failure}, o: processlog.Outcome{CompensateCount: 1, To: processlog.Compensating}, want: processlog.AttemptFailed},
		"compensation exhausted":   {row: processlog.Row{State: processlog.Compensating}, result: engine.Result{Err: failure}, o: processlog.Outcome{CompensateCount: 1, To: processlog.Dead}, want: processlog.AttemptExhausted},
		"unavailable":              {result: engine.Result{Err: verdict.Unavailable(failure)}, o: processlog.Outcome{To: processlog.Pending}, want: processlog.AttemptWaits},
		"server down":              {result: engine.Result{Err: verdict.ServerCaused(failure, true)}, o: processlog.Outcome{To: processlog.Pending}, want: processlog.AttemptWaits},
		"snooze":                   {result: engine.Result{Err: verdict.Snooze(0)}, o: processlog.Outcome{To: processlog.Pending}, want: ""},
		"snooze after its timeout": {result: engine.Result{Err: verdict.Snooze(0)}, o: processlog.Outcome{To: processlog.Pending, TimedOut: true}, want: processlog.AttemptWaits},
		"snooze after MaxWait":     {result: engine.Result{Err: verdict.Snooze(0)}, o: processlog.Outcome{ProcessCount: 1, To: processlog.Retrying}, want: processlog.AttemptFailed},
		"stopped":                  {result: engine.Result{Err: context.Canceled, Cause: processlog.ErrStopping}, o: processlog.Outcome{To: processlog.Pending}, want: processlog.AttemptInterrupted},
		"leases lost":              {o: processlog.Outcome{To: processlog.Dead, EndedBy: processlog.EndedByCrash}, want: processlog.AttemptCrashed},
	} {
		assert.Equal(t, c.want, verdictOf(&c.row, c.result, &c.o), name)
	}
}
