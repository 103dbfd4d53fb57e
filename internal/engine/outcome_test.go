package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/processlog"
)

var errDownstream = errors.New("downstream said no")

func outcomeType(compensates bool) *Type {
	t := &Type{Name: "close_order", MaxAttempts: 3, MaxCompensateAttempts: 2, Retry: fixed(time.Minute), Timeout: 30 * time.Second}
	if compensates {
		t.Undo = func(*Attempt) Result { return Result{} }
	}
	return t
}

func fixed(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func attempted(state processlog.State, failures, undone int) *processlog.Row {
	return &processlog.Row{
		ID: processlog.RowID(7), State: state, ProcessCount: failures, CompensateCount: undone, Version: 41, Epoch: 3, DeliveryCount: 1, LastError: "the failure before",
	}
}

func faulted(row *processlog.Row, n int) *processlog.Row {
	changed := *row
	changed.Faults = row.Faults.In(row)
	changed.Faults.ServerFaults = n
	return &changed
}

func downed(row *processlog.Row, n int) *processlog.Row {
	changed := *row
	changed.Faults = row.Faults.In(row)
	changed.Faults.ServerDowns = n
	return &changed
}

type outcomeCase struct {
	name        string
	compensates bool
	row         *processlog.Row
	err, cause  error
	want        processlog.Outcome
}

func outcomeCases() []outcomeCase {
	fresh, last := attempted(processlog.Pending, 0, 0), attempted(processlog.Retrying, 2, 0)
	undo, lastUndo := attempted(processlog.Compensating, 3, 0), attempted(processlog.Compensating, 3, 1)
	failed := errDownstream.Error()
	return []outcomeCase{
		{"success", false, fresh, nil, nil, processlog.Outcome{To: processlog.Succeeded, EndedBy: processlog.EndedByHandler}},
		{"success of the last attempt", true, last, nil, nil, processlog.Outcome{To: processlog.Succeeded, EndedBy: processlog.EndedByHandler, ProcessCount: 2}},
		{"success after the timeout", false, fresh, nil, processlog.ErrTimeout, processlog.Outcome{To: processlog.Succeeded, EndedBy: processlog.EndedByHandler}},
		{"success after the lease", false, fresh, nil, processlog.ErrLeaseLost, processlog.Outcome{To: processlog.Succeeded, EndedBy: processlog.EndedByHandler}},
		{"compensation's success", true, undo, nil, nil, processlog.Outcome{To: processlog.Compensated, EndedBy: processlog.EndedByHandler, ProcessCount: 3}},

		{"server's fault", false, fresh, verdict.ServerCaused(errDownstream, false), nil, processlog.Outcome{To: processlog.Pending, After: time.Minute, LastError: "1 in a row, the server's condition: " + failed}},
		{"as many as it has attempts", false, faulted(fresh, 2), verdict.ServerCaused(errDownstream, false), nil, processlog.Outcome{To: processlog.Pending, After: time.Minute, LastError: "3 in a row, the server's condition: " + failed}},
		{"more of them count", false, faulted(fresh, 3), verdict.ServerCaused(errDownstream, false), nil, processlog.Outcome{To: processlog.Retrying, ProcessCount: 1, After: time.Minute, LastError: "4 in a row, the server's condition: " + failed}},
		{"the last that counts", false, faulted(last, 5), verdict.ServerCaused(errDownstream, false), nil, processlog.Outcome{To: processlog.Dead, ProcessCount: 3, EndedBy: processlog.EndedByExhausted, LastError: "6 in a row, the server's condition: " + failed}},
		{"compensation's server's fault", true, faulted(undo, 2), verdict.ServerCaused(errDownstream, false), nil, processlog.Outcome{To: processlog.Compensating, ProcessCount: 3, CompensateCount: 1, After: time.Minute, LastError: "3 in a row, the server's condition: " + failed}},
		{"another epoch's do not count", false, &processlog.Row{ID: fresh.ID, Version: fresh.Version, Epoch: fresh.Epoch, State: fresh.State, DeliveryCount: 1, LastError: "9 in a row, the server's condition: Error 1205", Faults: processlog.Faults{Epoch: 2, ServerFaults: 9}}, verdict.ServerCaused(errDownstream, false), nil, processlog.Outcome{To: processlog.Pending, After: time.Minute, LastError: "1 in a row, the server's condition: " + failed}},
		{"the whole server's condition", false, fresh, verdict.ServerCaused(errDownstream, true), nil, processlog.Outcome{To: processlog.Pending, After: time.Minute, LastError: "1 in a row, a condition of the whole server: " + failed}},
		{"the whole server's condition never counts", false, downed(last, 500), verdict.ServerCaused(errDownstream, true), nil, processlog.Outcome{To: processlog.Retrying, ProcessCount: 2, After: time.Minute, LastError: "501 in a row, a condition of the whole server: " + failed}},
		{"the whole server's condition while compensating", true, downed(undo, 500), verdict.ServerCaused(errDownstream, true), nil, processlog.Outcome{To: processlog.Compensating, ProcessCount: 3, CompensateCount: 0, After: time.Minute, LastError: "501 in a row, a condition of the whole server: " + failed}},
		{"one condition is not counted as the other", false, downed(fresh, 500), verdict.ServerCaused(errDownstream, false), nil, processlog.Outcome{To: processlog.Pending, After: time.Minute, LastError: "1 in a row, the server's condition: " + failed}},
		{"a server's fault that the handler has judged", false, fresh, verdict.ServerCaused(verdict.Permanent(errDownstream), false), nil, processlog.Outcome{To: processlog.Dead, ProcessCount: 1, EndedBy: processlog.EndedByPermanent, LastError: failed}},

		{"first failure", false, fresh, errDownstream, nil, processlog.Outcome{To: processlog.Retrying, ProcessCount: 1, After: time.Minute, LastError: failed}},
		{"last failure", false, last, errDownstream, nil, processlog.Outcome{To: processlog.Dead, ProcessCount: 3, EndedBy: processlog.EndedByExhausted, LastError: failed}},
		{"last failure, compensated", true, last, errDownstream, nil, processlog.Outcome{To: processlog.Compensating, ProcessCount: 3, LastError: failed}},
		{"failure beyond a lowered budget", false, attempted(processlog.Retrying, 9, 0), errDownstream, nil, processlog.Outcome{To: processlog.Dead, ProcessCount: 10, EndedBy: processlog.EndedByExhausted, LastError: failed}},
		{"compensation's failure", true, undo, errDownstream, nil, processlog.Outcome{To: processlog.Compensating, ProcessCount: 3, CompensateCount: 1, After: time.Minute, LastError: failed}},
		{"compensation's last failure", true, lastUndo, errDownstream, nil, processlog.Outcome{To: processlog.Dead, ProcessCount: 3, CompensateCount: 2, EndedBy: processlog.EndedByExhausted, LastError: failed}},

		{"permanent", false, fresh, verdict.Permanent(errDownstream), nil, processlog.Outcome{To: processlog.Dead, ProcessCount: 1, EndedBy: processlog.EndedByPermanent, LastError: failed}},
		{"permanent, compensated", true, fresh, verdict.Permanent(errDownstream), nil, processlog.Outcome{To: processlog.Compensating, ProcessCount: 1, LastError: failed}},
		{"permanent, wrapped", true, last, fmt.Errorf("send: %w", verdict.Permanent(errDownstream)), nil, processlog.Outcome{To: processlog.Compensating, ProcessCount: 3, LastError: "send: " + failed}},
		{"permanent in the compensation", true, undo, verdict.Permanent(errDownstream), nil, processlog.Outcome{To: processlog.Dead, ProcessCount: 3, CompensateCount: 1, EndedBy: processlog.EndedByPermanent, LastError: failed}},

		{"retry after", false, fresh, verdict.RetryAfter(time.Second, errDownstream), nil, processlog.Outcome{To: processlog.Retrying, ProcessCount: 1, After: time.Second, LastError: failed}},
		{"retry after, exhausted", false, last, verdict.RetryAfter(time.Second, errDownstream), nil, processlog.Outcome{To: processlog.Dead, ProcessCount: 3, EndedBy: processlog.EndedByExhausted, LastError: failed}},
		{"retry before", false, fresh, verdict.RetryAfter(-time.Hour, errDownstream), nil, processlog.Outcome{To: processlog.Retrying, ProcessCount: 1, After: time.Minute, LastError: failed}},
		{"retry never", false, fresh, verdict.RetryAfter(math.MaxInt64, errDownstream), nil, processlog.Outcome{To: processlog.Retrying, ProcessCount: 1, After: processlog.MaxDelay, LastError: failed}},
		{"retry in 90 days", false, fresh, verdict.RetryAfter(90*24*time.Hour, errDownstream), nil, processlog.Outcome{To: processlog.Retrying, ProcessCount: 1, After: 90 * 24 * time.Hour, LastError: failed}},
		{"retry in no time", false, fresh, verdict.RetryAfter(1, errDownstream), nil, processlog.Outcome{To: processlog.Retrying, ProcessCount: 1, After: minBackoff, LastError: failed}},
		{"retry after in the compensation", true, undo, verdict.RetryAfter(time.Second, errDownstream), nil, processlog.Outcome{To: processlog.Compensating, ProcessCount: 3, CompensateCount: 1, After: time.Second, LastError: failed}},

		{"snooze", false, last, verdict.Snooze(time.Hour), nil, processlog.Outcome{To: processlog.Retrying, ProcessCount: 2, After: time.Hour, LastError: "the failure before"}},
		{"snooze for 90 days", false, fresh, verdict.Snooze(90 * 24 * time.Hour), nil, processlog.Outcome{To: processlog.Pending, After: 90 * 24 * time.Hour, LastError: "the failure before"}},
		{"snooze for no time", false, fresh, verdict.Snooze(1), nil, processlog.Outcome{To: processlog.Pending, After: minBackoff, LastError: "the failure before"}},
		{"snooze of nothing", false, fresh, verdict.Snooze(0), nil, processlog.Outcome{To: processlog.Pending, After: time.Minute, LastError: "the failure before"}},
		{"snooze backwards", false, fresh, verdict.Snooze(-1), nil, processlog.Outcome{To: processlog.Pending, After: time.Minute, LastError: "the failure before"}},
		{"snooze for ever", false, fresh, verdict.Snooze(math.MaxInt64), nil, processlog.Outcome{To: processlog.Pending, After: processlog.MaxDelay, LastError: "the failure before"}},
		{"snooze in the compensation", true, lastUndo, verdict.Snooze(time.Hour), nil, processlog.Outcome{To: processlog.Compensating, ProcessCount: 3, CompensateCount: 1, After: time.Hour, LastError: "the failure before"}},
		{"unavailable", false, last, verdict.Unavailable(errDownstream), nil, processlog.Outcome{To: processlog.Retrying, ProcessCount: 2, After: time.Minute, LastError: failed}},
		{"unavailable in the compensation", true, lastUndo, verdict.Unavailable(errDownstream), nil, processlog.Outcome{To: processlog.Compensating, ProcessCount: 3, CompensateCount: 1, After: time.Minute, LastError: failed}},

		{"unavailable until then", false, last, verdict.RetryAfter(time.Hour, verdict.Unavailable(errDownstream)), nil, processlog.Outcome{To: processlog.Retrying, ProcessCount: 2, After: time.Hour, LastError: failed}},
		{"unavailable until then, wrapped", false, last, fmt.Errorf("pay: %w", verdict.RetryAfter(time.Hour, fmt.Errorf("bank: %w", verdict.Unavailable(errDownstream)))), nil, processlog.Outcome{To: processlog.Retrying, ProcessCount: 2, After: time.Hour, LastError: "pay: bank: " + failed}},
		{"unavailable around a time is unavailable", false, last, verdict.Unavailable(verdict.RetryAfter(time.Hour, errDownstream)), nil, processlog.Outcome{To: processlog.Retrying, ProcessCount: 2, After: time.Minute, LastError: failed}},

		{"stopped", false, last, context.Canceled, processlog.ErrStopping, processlog.Outcome{To: processlog.Retrying, ProcessCount: 2, LastError: "the failure before"}},
		{"stopped, wrapped", false, fresh, fmt.Errorf("call: %w", context.Canceled), processlog.ErrStopping, processlog.Outcome{To: processlog.Pending, LastError: "the failure before"}},
		{"stopped in the compensation", true, lastUndo, processlog.ErrStopping, processlog.ErrStopping, processlog.Outcome{To: processlog.Compensating, ProcessCount: 3, CompensateCount: 1, LastError: "the failure before"}},
		{"lease lost", false, last, processlog.ErrLeaseLost, processlog.ErrLeaseLost, processlog.Outcome{To: processlog.Retrying, ProcessCount: 2, LastError: "the failure before"}},
		{"a failure of its own while stopping", false, last, errDownstream, processlog.ErrStopping, processlog.Outcome{To: processlog.Dead, ProcessCount: 3, EndedBy: processlog.EndedByExhausted, LastError: failed}},
		{"a cancelled call of its own", false, last, context.Canceled, nil, processlog.Outcome{To: processlog.Dead, ProcessCount: 3, EndedBy: processlog.EndedByExhausted, LastError: "context canceled"}},
		{"cancelled by somebody", false, fresh, context.Canceled, processlog.ErrCancelled, processlog.Outcome{To: processlog.Pending, LastError: "the failure before"}},
	}
}

// Failure: F54, F64
func TestOutcomeFollowsTheContract(t *testing.T) {
	for _, c := range outcomeCases() {
		t.Run(c.name, func(t *testing.T) {
			before := *c.row
			got := outcomeType(c.compensates).outcomeOf(c.row, c.err, c.cause)
			c.want.ID, c.want.Version, c.want.Epoch = processlog.RowID(7), 41, 3
			got.Faults = nil // see TestFaultsFollowTheErrors
			require.Equal(t, c.want, got)
			require.Equal(t, before, *c.row, "the row as claimed stays as it was")
		})
	}
}

func aged(row *processlog.Row, age time.Duration) *processlog.Row {
	old := *row
	old.CreatedAt = time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)
	old.NextAt = old.CreatedAt.Add(age - time.Second)
	old.DueIn = -time.Second
	old.UpdatedAt = old.NextAt // due at once after its last outcome
	return &old
}

// Failure: F60
func TestHandlersWaitsAreFailuresOnceMaxWaitIsOver(t *testing.T) {
	fresh, undo := attempted(processlog.Pending, 0, 0), attempted(processlog.Compensating, 3, 0)
	failed := errDownstream.Error()
	over := "waits for longer than MaxWait, 1h0m0s: "
	counted := func(after time.Duration, text string) processlog.Outcome {
		return processlog.Outcome{To: processlog.Retrying, ProcessCount: 1, After: after, LastError: over + text}
	}
	waits := func(after time.Duration, text string) processlog.Outcome {
		return processlog.Outcome{To: processlog.Pending, After: after, LastError: text}
	}
	for _, c := range []struct {
		name string
		row  *processlog.Row
		err  error
		want processlog.Outcome
	}{
		{"in time", aged(fresh, time.Hour-time.Millisecond), verdict.Unavailable(errDownstream), waits(time.Minute, failed)},
		{"over", aged(fresh, time.Hour), verdict.Unavailable(errDownstream), counted(time.Minute, failed)},
		{"until then", aged(fresh, time.Hour), verdict.RetryAfter(time.Second, verdict.Unavailable(errDownstream)), counted(time.Second, failed)},
		{"a snooze", aged(fresh, time.Hour), verdict.Snooze(time.Second), counted(time.Second, "compensator: snoozed for 1s")},
		{"in the compensation", aged(undo, time.Hour), verdict.Unavailable(errDownstream), processlog.Outcome{To: processlog.Compensating, ProcessCount: 3, CompensateCount: 1, After: time.Minute, LastError: over + failed}},
		{"another failure", aged(fresh, time.Hour), errDownstream, processlog.Outcome{To: processlog.Retrying, ProcessCount: 1, After: time.Minute, LastError: failed}},
		{"permanent", aged(fresh, time.Hour), verdict.Permanent(errDownstream), processlog.Outcome{To: processlog.Dead, ProcessCount: 1, EndedBy: processlog.EndedByPermanent, LastError: failed}},
		{"the server's condition", aged(fresh, time.Hour), verdict.ServerCaused(errDownstream, false), waits(time.Minute, "1 in a row, the server's condition: "+failed)},
		{"the database is away", aged(fresh, time.Hour), verdict.LibraryUnavailable(errDownstream), waits(time.Minute, failed)},
		{"the library waits", aged(fresh, time.Hour), verdict.LibraryWait(verdict.Snooze(time.Second)), waits(time.Second, "the failure before")},
		{"the library cannot look", aged(fresh, time.Hour), verdict.LibraryWait(verdict.Unavailable(errDownstream)), waits(time.Minute, failed)},
	} {
		t.Run(c.name, func(t *testing.T) {
			typ := outcomeType(false)
			typ.MaxWait = time.Hour
			c.want.ID, c.want.Version, c.want.Epoch = processlog.RowID(7), 41, 3
			got := typ.outcomeOf(c.row, c.err, nil)
			got.Faults = nil // see TestFaultsFollowTheErrors
			require.Equal(t, c.want, got)
		})
	}
}

func TestTimeoutIsNamedInTheError(t *testing.T) {
	typ := outcomeType(false)
	got := typ.outcomeOf(attempted(processlog.Pending, 0, 0), context.DeadlineExceeded, processlog.ErrTimeout)
	require.Equal(t, processlog.Retrying, got.To)
	require.Equal(t, 1, got.ProcessCount)
	require.Contains(t, got.LastError, processlog.ErrTimeout.Error())
	require.Contains(t, got.LastError, typ.Timeout.String())
	require.Contains(t, got.LastError, context.DeadlineExceeded.Error())
}

// Failure: F54
func TestEntrysMaxAttemptsOverridesTheTypes(t *testing.T) {
	for _, c := range []struct {
		entrys, failures int
		want             processlog.State
	}{
		{0, 0, processlog.Retrying}, {0, 2, processlog.Dead}, // entrys 0: the entry has no maximum of its own, so the maximum of its type applies, which is 3
		{1, 0, processlog.Dead},
		{5, 2, processlog.Retrying}, {5, 4, processlog.Dead},
		{2, 9, processlog.Dead}, // the maximum was lowered below the number of failures
	} {
		row := attempted(processlog.Retrying, c.failures, 0)
		row.MaxAttempts = c.entrys
		got := outcomeType(false).outcomeOf(row, errDownstream, nil)
		require.Equal(t, c.want, got.To, "%+v", c)
		require.Equal(t, c.failures+1, got.ProcessCount)
	}
}

func TestVerdictsWithoutAReasonStillHaveOne(t *testing.T) {
	for _, err := range []error{verdict.Permanent(nil), verdict.RetryAfter(0, nil), verdict.Unavailable(nil), verdict.Snooze(0)} {
		require.NotEmpty(t, err.Error())
		require.NotEqual(t, processlog.Succeeded, outcomeType(false).outcomeOf(attempted(processlog.Pending, 0, 0), err, nil).To)
	}
	for _, wrap := range []func(error) error{verdict.Permanent, verdict.Unavailable, func(err error) error { return verdict.RetryAfter(0, err) }} {
		require.ErrorIs(t, wrap(errDownstream), errDownstream)
	}
}

// Failure: F54, F67
func TestNoScheduleMakesAHotLoop(t *testing.T) {
	for _, c := range []struct{ schedule, least, most time.Duration }{
		{math.MinInt64, minBackoff, minBackoff}, {-1, minBackoff, minBackoff}, {0, minBackoff, minBackoff},
		{time.Hour, time.Hour, time.Hour}, {90 * 24 * time.Hour, 90 * 24 * time.Hour, 90 * 24 * time.Hour}, {math.MaxInt64, processlog.MaxDelay, processlog.MaxDelay},
	} {
		typ := outcomeType(false)
		typ.Retry = fixed(c.schedule)
		failed := typ.outcomeOf(attempted(processlog.Pending, 0, 0), errDownstream, nil).After
		require.GreaterOrEqual(t, failed, c.least)
		require.LessOrEqual(t, failed, c.most)
		snoozed := typ.outcomeOf(attempted(processlog.Pending, 0, 0), verdict.Snooze(0), nil).After
		require.GreaterOrEqual(t, snoozed, c.least)
		require.LessOrEqual(t, snoozed, c.most)
		down := typ.outcomeOf(attempted(processlog.Pending, 0, 0), verdict.Unavailable(errDownstream), nil).After
		require.GreaterOrEqual(t, down, max(c.least, unavailablePause))
		require.LessOrEqual(t, down, max(c.most, 2*unavailablePause))
	}
}

// Failure: F60
func TestUnavailableBacksOffToMinutes(t *testing.T) {
	typ := outcomeType(false)
	typ.Retry = fixed(time.Second)
	row := attempted(processlog.Pending, 0, 0)
	row.CreatedAt = time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)
	row.UpdatedAt, row.NextAt, row.LastError = row.CreatedAt, row.CreatedAt.Add(30*24*time.Hour), ""
	var waits []time.Duration
	for range 20 {
		o := typ.outcomeOf(row, verdict.Unavailable(errDownstream), nil)
		require.Equal(t, processlog.Pending, o.To)
		waits = append(waits, o.After)
		row.UpdatedAt = row.NextAt.Add(time.Minute) // the attempt ran a minute late, which must not count as a part of the pause
		row.NextAt, row.LastError = row.UpdatedAt.Add(o.After), o.LastError
	}
	require.LessOrEqual(t, waits[0], 2*unavailablePause, "the first is no longer than that, however long the entry was delayed")
	for i, wait := range waits[1:] {
		require.LessOrEqual(t, wait, MaxUnavailableDelay)
		require.GreaterOrEqual(t, wait, min(waits[i]*3/2, MaxUnavailableDelay*3/4))
	}
	require.GreaterOrEqual(t, waits[19], MaxUnavailableDelay*3/4)
	require.Equal(t, time.Hour, typ.outcomeOf(row, verdict.RetryAfter(time.Hour, verdict.Unavailable(errDownstream)), nil).After, "a service that says until when is believed")
	require.LessOrEqual(t, typ.outcomeOf(row, verdict.RetryAfter(time.Second, verdict.Unavailable(errDownstream)), nil).After, 2*unavailablePause)
	require.LessOrEqual(t, typ.outcomeOf(row, verdict.LibraryUnavailable(errDownstream), nil).After, 2*unavailablePause, "the database's own absence")
	typ.MaxWait = row.Age() + 10*time.Second
	require.LessOrEqual(t, typ.outcomeOf(row, verdict.Unavailable(errDownstream), nil).After, 10*time.Second, "not past MaxWait")
}

func TestPauseGrowsAlsoWhereAnErrorHasNoText(t *testing.T) {
	typ := outcomeType(false)
	typ.Retry = fixed(time.Second)
	row := attempted(processlog.Pending, 0, 0)
	row.UpdatedAt, row.NextAt, row.LastError = row.CreatedAt, row.CreatedAt, ""
	var wait time.Duration
	for range 20 {
		o := typ.outcomeOf(row, verdict.Unavailable(errors.New("")), nil)
		require.NotEmpty(t, o.LastError)
		row.UpdatedAt, row.LastError, wait = row.NextAt, o.LastError, o.After
		row.NextAt = row.UpdatedAt.Add(wait)
	}
	require.GreaterOrEqual(t, wait, MaxUnavailableDelay*3/4)
	require.NotEmpty(t, typ.outcomeOf(row, errors.New(""), nil).LastError, "a person is told something of a failure, too")
}

// Failure: F119
func TestOutcomeRemembersThatTheTimeHadPassed(t *testing.T) {
	typ := outcomeType(false)
	typ.MaxWait = time.Hour
	late := "compensator: handler timed out after 30s: "
	for name, c := range map[string]struct {
		row  *processlog.Row
		err  error
		text string
	}{
		"a failure":            {attempted(processlog.Pending, 0, 0), errDownstream, late + "downstream said no"},
		"the last":             {attempted(processlog.Pending, 2, 0), errDownstream, late + "downstream said no"},
		"permanent":            {attempted(processlog.Pending, 0, 0), verdict.Permanent(errDownstream), late + "downstream said no"},
		"unavailable":          {attempted(processlog.Pending, 0, 0), verdict.Unavailable(errDownstream), late + "downstream said no"},
		"unavailable, MaxWait": {aged(attempted(processlog.Pending, 2, 0), time.Hour), verdict.Unavailable(errDownstream), late + "waits for longer than MaxWait, 1h0m0s: downstream said no"},
		"snoozed":              {attempted(processlog.Pending, 0, 0), verdict.Snooze(time.Minute), late + "compensator: snoozed for 1m0s"},
		"snoozed, MaxWait":     {aged(attempted(processlog.Pending, 2, 0), time.Hour), verdict.Snooze(time.Minute), late + "waits for longer than MaxWait, 1h0m0s: compensator: snoozed for 1m0s"},
		"a compensation":       {attempted(processlog.Compensating, 3, 1), errDownstream, late + "downstream said no"},
		"its schedule panics":  {attempted(processlog.Pending, 0, 0), verdict.RetryAfter(0, errDownstream), ""},
	} {
		typ := *typ
		if c.text == "" {
			typ.Retry = func(int) time.Duration { panic("no schedule") }
			c.text = late + "handler panicked: no schedule"
		}
		o := typ.OutcomeOf(c.row, c.err, processlog.ErrTimeout)
		require.True(t, o.TimedOut, name)
		require.True(t, o.Faults.OutcomeUnknown, name)
		require.True(t, strings.HasPrefix(o.LastError, c.text), "%s: %s", name, o.LastError)
		inTime := typ.OutcomeOf(c.row, c.err, nil)
		require.False(t, inTime.TimedOut, name)
		require.Nil(t, inTime.Faults, name)
	}
}

type saysNo struct{}

func (saysNo) Error() string        { return "not sent" }
func (saysNo) OutcomeUnknown() bool { return false }

type nilError struct{ text string }

func (e *nilError) Error() string        { return e.text }
func (e *nilError) OutcomeUnknown() bool { return e.text == "" }

// In each case, the field named want holds the Faults that the outcome must have. Nil means that the outcome has no
// Faults, and that the row keeps its own Faults.
// Failure: F74, F119
func TestFaultsFollowTheErrors(t *testing.T) {
	fresh, undo := attempted(processlog.Pending, 0, 0), attempted(processlog.Compensating, 3, 0)
	lost := *fresh
	lost.DeliveryCount, lost.LastError = 2, ""
	unsure := *fresh
	unsure.Faults = processlog.Faults{Epoch: 3, OutcomeUnknown: true}
	before := *fresh
	before.Faults = processlog.Faults{Epoch: 2, ServerFaults: 9, ServerDowns: 9, OutcomeUnknown: true}
	undone := *undo
	undone.Faults = processlog.Faults{Epoch: 3, ServerFaults: 9, OutcomeUnknown: true}
	imitates := *fresh
	imitates.LastError = "7 in a row, the server's condition: compensator: handler timed out after 30s"
	fault, down := verdict.ServerCaused(errDownstream, false), verdict.ServerCaused(errDownstream, true)
	for name, c := range map[string]struct {
		row        *processlog.Row
		err, cause error
		want       *processlog.Faults
	}{
		"the first condition":                  {fresh, fault, nil, &processlog.Faults{Epoch: 3, ServerFaults: 1}},
		"the next":                             {faulted(fresh, 4), fault, nil, &processlog.Faults{Epoch: 3, ServerFaults: 5}},
		"one of the other kind":                {faulted(fresh, 4), down, nil, &processlog.Faults{Epoch: 3, ServerDowns: 1}},
		"back again":                           {downed(fresh, 4), fault, nil, &processlog.Faults{Epoch: 3, ServerFaults: 1}},
		"in another epoch":                     {&before, fault, nil, &processlog.Faults{Epoch: 3, ServerFaults: 1}},
		"while compensating":                   {&undone, fault, nil, &processlog.Faults{Epoch: 3, Compensating: true, ServerFaults: 1, OutcomeUnknown: true}},
		"after an unknown outcome":             {&unsure, fault, nil, &processlog.Faults{Epoch: 3, ServerFaults: 1, OutcomeUnknown: true}},
		"the text imitates a count":            {&imitates, fault, nil, &processlog.Faults{Epoch: 3, ServerFaults: 1}},
		"the most":                             {faulted(fresh, processlog.MaxCount), fault, nil, nil},
		"a failure ends the row":               {faulted(fresh, 4), errDownstream, nil, &processlog.Faults{Epoch: 3}},
		"so does Unavailable":                  {downed(fresh, 4), verdict.Unavailable(errDownstream), nil, &processlog.Faults{Epoch: 3}},
		"a snooze does not":                    {faulted(fresh, 4), verdict.Snooze(time.Minute), nil, nil},
		"nor does a stop":                      {faulted(fresh, 4), context.Canceled, processlog.ErrStopping, &processlog.Faults{Epoch: 3, ServerFaults: 4, OutcomeUnknown: true}},
		"a stop":                               {fresh, context.Canceled, processlog.ErrStopping, &processlog.Faults{Epoch: 3, OutcomeUnknown: true}},
		"a failure after a stop":               {fresh, errDownstream, processlog.ErrStopping, &processlog.Faults{Epoch: 3, OutcomeUnknown: true}},
		"a snooze after a lost lease is told":  {fresh, verdict.Snooze(time.Minute), processlog.ErrLeaseLost, &processlog.Faults{Epoch: 3, OutcomeUnknown: true}},
		"a stop before the handler began":      {fresh, verdict.NotCalled(processlog.ErrStopping), processlog.ErrStopping, nil},
		"a timeout before the handler began":   {fresh, verdict.NotCalled(processlog.ErrTimeout), processlog.ErrTimeout, nil},
		"a stop, and content of a new version": {fresh, verdict.Undecodable(errDownstream), processlog.ErrStopping, nil},
		"a success after a stop":               {fresh, nil, processlog.ErrStopping, nil},
		"a success":                            {faulted(fresh, 4), nil, nil, nil},
		"a plain failure":                      {fresh, errDownstream, nil, nil},
		"a timeout":                            {fresh, errDownstream, processlog.ErrTimeout, &processlog.Faults{Epoch: 3, OutcomeUnknown: true}},
		"another timeout":                      {&unsure, errDownstream, processlog.ErrTimeout, nil},
		"a plain failure after it":             {&unsure, errDownstream, nil, nil},
		"a timeout of the compensation":        {undo, errDownstream, processlog.ErrTimeout, &processlog.Faults{Epoch: 3, Compensating: true, OutcomeUnknown: true}},
		"a plain failure after a lost lease":   {&lost, errDownstream, nil, &processlog.Faults{Epoch: 3, OutcomeUnknown: true}},
		"a snooze after a lost lease":          {&lost, verdict.Snooze(time.Minute), nil, &processlog.Faults{Epoch: 3, OutcomeUnknown: true}},
		"a stop after a lost lease":            {&lost, context.Canceled, processlog.ErrStopping, &processlog.Faults{Epoch: 3, OutcomeUnknown: true}},
		"a success after a lost lease":         {&lost, nil, nil, nil},
		"an error that says so":                {fresh, fmt.Errorf("pay: %w", verdict.OutcomeUnknown(errDownstream)), nil, &processlog.Faults{Epoch: 3, OutcomeUnknown: true}},
		"a verdict around it":                  {fresh, verdict.Permanent(verdict.OutcomeUnknown(errDownstream)), nil, &processlog.Faults{Epoch: 3, OutcomeUnknown: true}},
		"it around a verdict":                  {fresh, verdict.OutcomeUnknown(verdict.Unavailable(errDownstream)), nil, &processlog.Faults{Epoch: 3, OutcomeUnknown: true}},
		"one of two errors":                    {fresh, errors.Join(saysNo{}, verdict.OutcomeUnknown(errDownstream)), nil, &processlog.Faults{Epoch: 3, OutcomeUnknown: true}},
		"an error that denies it":              {fresh, saysNo{}, nil, nil},
		"a server's fault beside it":           {fresh, verdict.ServerCaused(verdict.OutcomeUnknown(errDownstream), false), nil, &processlog.Faults{Epoch: 3, ServerFaults: 1, OutcomeUnknown: true}},
		"it without a call":                    {fresh, verdict.NotCalled(verdict.OutcomeUnknown(errDownstream)), nil, nil},
		"it in a copy":                         {fresh, usererr.Of(verdict.OutcomeUnknown(errDownstream)), nil, &processlog.Faults{Epoch: 3, OutcomeUnknown: true}},
		"a method that panics":                 {fresh, usererr.Of((*nilError)(nil)), nil, nil},
		"a timeout of the handler's own words": {fresh, fmt.Errorf("%w after 30s: x", processlog.ErrTimeout), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := outcomeType(false).outcomeOf(c.row, c.err, c.cause)
			require.Equal(t, c.want, o.Faults)
			if o.Faults != nil {
				require.NotEmpty(t, o.LastError, "an empty one would keep the next claim from reading them")
			}
		})
	}
}

// Failure: F61
func TestCrashedEntryIsDeadLetteredUncounted(t *testing.T) {
	row := attempted(processlog.Retrying, 1, 0)
	// DeliveryCount is the number of claims: crashBudget claims that ran the entry, one claim that ran nothing, and the
	// claim that dead-letters the entry.
	row.DeliveryCount = crashBudget + 2
	for _, c := range []struct {
		compensates, optedIn bool
		state                processlog.State
		want                 processlog.State
	}{
		{false, false, processlog.Retrying, processlog.Dead}, {true, false, processlog.Retrying, processlog.Dead}, {false, true, processlog.Retrying, processlog.Dead},
		{true, true, processlog.Retrying, processlog.Compensating}, {true, true, processlog.Compensating, processlog.Dead},
	} {
		typ := outcomeType(c.compensates)
		typ.CompensateCrashed = c.optedIn
		row.State = c.state
		got := typ.crashOutcome(row, time.Time{})
		require.Equal(t, c.want, got.To, "%+v", c)
		require.Equal(t, 1, got.ProcessCount, "a crash is no failure of the handler's")
		require.Equal(t, c.state == processlog.Compensating, got.CompensateCount == 1, "and tells that the compensation has begun")
		require.Equal(t, c.want == processlog.Dead, got.EndedBy == processlog.EndedByCrash)
		require.True(t, strings.HasPrefix(got.LastError, "4 leases in a row"), got.LastError)
		require.True(t, got.Faults.OutcomeUnknown)
	}
}
