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
		row  processlog.Row
		end  engine.Result
		o    processlog.Outcome
		want processlog.AttemptVerdict
	}{
		"counted":                  {end: engine.Result{Err: failure}, o: processlog.Outcome{ProcessCount: 1, To: processlog.Retrying}, want: processlog.AttemptFailed},
		"last one":                 {end: engine.Result{Err: failure}, o: processlog.Outcome{ProcessCount: 1, To: processlog.Dead}, want: processlog.AttemptExhausted},
		"last one, undone":         {end: engine.Result{Err: failure}, o: processlog.Outcome{ProcessCount: 1, To: processlog.Compensating}, want: processlog.AttemptExhausted},
		"permanent":                {end: engine.Result{Err: verdict.Permanent(failure)}, o: processlog.Outcome{ProcessCount: 1, To: processlog.Dead}, want: processlog.AttemptPermanent},
		"permanent, undone":        {end: engine.Result{Err: verdict.Permanent(failure)}, o: processlog.Outcome{ProcessCount: 1, To: processlog.Compensating}, want: processlog.AttemptPermanent},
		"compensation fails":       {row: processlog.Row{State: processlog.Compensating}, end: engine.Result{Err: failure}, o: processlog.Outcome{CompensateCount: 1, To: processlog.Compensating}, want: processlog.AttemptFailed},
		"compensation exhausted":   {row: processlog.Row{State: processlog.Compensating}, end: engine.Result{Err: failure}, o: processlog.Outcome{CompensateCount: 1, To: processlog.Dead}, want: processlog.AttemptExhausted},
		"unavailable":              {end: engine.Result{Err: verdict.Unavailable(failure)}, o: processlog.Outcome{To: processlog.Pending}, want: processlog.AttemptWaits},
		"server down":              {end: engine.Result{Err: verdict.ServersOwn(failure, true)}, o: processlog.Outcome{To: processlog.Pending}, want: processlog.AttemptWaits},
		"snooze":                   {end: engine.Result{Err: verdict.Snooze(0)}, o: processlog.Outcome{To: processlog.Pending}, want: ""},
		"snooze after its timeout": {end: engine.Result{Err: verdict.Snooze(0)}, o: processlog.Outcome{To: processlog.Pending, TimedOut: true}, want: processlog.AttemptWaits},
		"snooze after MaxWait":     {end: engine.Result{Err: verdict.Snooze(0)}, o: processlog.Outcome{ProcessCount: 1, To: processlog.Retrying}, want: processlog.AttemptFailed},
		"stopped":                  {end: engine.Result{Err: context.Canceled, Cause: processlog.ErrStopping}, o: processlog.Outcome{To: processlog.Pending}, want: processlog.AttemptInterrupted},
		"leases lost":              {o: processlog.Outcome{To: processlog.Dead, EndedBy: processlog.EndedByCrash}, want: processlog.AttemptCrashed},
	} {
		assert.Equal(t, c.want, verdictOf(&c.row, c.end, &c.o), name)
	}
}
