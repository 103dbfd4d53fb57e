package breaker

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

var errDown = verdict.Unavailable(errors.New("no route"))

type testBreaker struct {
	*Breaker
	e                       *engine.Engine
	t                       *engine.Type
	openEvents, closeEvents []observe.OpenBreaker
	lastID                  uint64
}

func newBroken(t *testing.T) *testBreaker {
	t.Helper()
	b := &testBreaker{}
	b.e = engine.New(t.Context(), engine.Config{Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }, Lease: time.Hour,
		Observer: observe.Observer{
			BreakerOpened: func(open observe.OpenBreaker) { b.openEvents = append(b.openEvents, open) },
			BreakerClosed: func(open observe.OpenBreaker) { b.closeEvents = append(b.closeEvents, open) },
		}})
	require.NoError(t, b.e.Register(engine.Type{Name: "refund", Concurrency: 10, Lease: time.Hour}, func(t *engine.Type) {
		b.t = t
		b.Breaker = Attach(b.e, t, Settings{Of: 4, Share: 0.5, Pause: 8 * time.Second})
	}))
	return b
}

func (b *testBreaker) begin() *engine.Attempt {
	b.lastID++
	admitted, _ := b.admit([]*engine.Attempt{{Type: b.t, Row: processlog.Row{ID: processlog.RowID(b.lastID)}}})
	if len(admitted) == 0 {
		return nil
	}
	return admitted[0]
}

func (b *testBreaker) call(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		a := b.begin()
		require.NotNil(t, a, "it was not let in")
		b.attemptEnded(a, engine.Result{Err: err})
	}
}

func inBubble(t *testing.T, test func(t *testing.T, b *testBreaker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		jitter.Seed(7)
		defer jitter.Unseed()
		test(t, newBroken(t))
	})
}

func TestBreakerOpensAtItsShareOfTheLatestCallsAndNotBefore(t *testing.T) {
	b := newBroken(t)
	b.call(t, errDown, errDown, errDown)
	require.Empty(t, b.openEvents, "three of three are not yet four")
	b.call(t, errDown)
	require.Len(t, b.openEvents, 1)
	require.Equal(t, "refund", b.openEvents[0].BusinessType)
	require.Equal(t, errDown, b.openEvents[0].Err)

	b = newBroken(t)
	b.call(t, errDown, nil, nil, nil, nil, errDown, nil, nil, nil, errDown, errors.New("sold out"), verdict.Permanent(errors.New("no such order")))
	require.Empty(t, b.openEvents, "one of the latest four, each time")
	b.call(t, nil, errDown, nil)
	require.Empty(t, b.openEvents)
	b.call(t, errDown)
	require.Len(t, b.openEvents, 1, "two of four")
}

// Failure: F78
func TestOneEntryByItselfOpensNoBreaker(t *testing.T) {
	b := newBroken(t)
	callFirst := func(err error) {
		b.lastID = 0
		b.call(t, err)
	}
	for range 10 {
		callFirst(errDown)
	}
	b.lastID = 1
	b.call(t, nil, nil, nil)
	callFirst(errDown)
	require.Empty(t, b.openEvents, "one of four")
	callFirst(nil)
	b.lastID = 4
	b.call(t, errDown)
	require.Empty(t, b.openEvents, "its last word counts")
	callFirst(errDown)
	require.Len(t, b.openEvents, 1)
}

func TestProbeThatAnotherFeatureRefusesIsFollowedByAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testBreaker) {
		b.t.AttachAdmission(func(a *engine.Admission) {
			a.Admit = func(attempts []*engine.Attempt) (admitted, skipped []*engine.Attempt) { return nil, attempts }
		})
		b.call(t, errDown, errDown, errDown, errDown)
		time.Sleep(time.Until(b.Current().ProbeAt))
		require.Equal(t, 1, b.room())
		admitted, refused := b.t.Admitted([]*engine.Attempt{{Type: b.t, Row: processlog.Row{ID: processlog.RowID(9)}}})
		require.Empty(t, admitted)
		require.Len(t, refused, 1)
		time.Sleep(time.Until(b.Current().ProbeAt))
		require.Equal(t, 1, b.room(), "the next entry is the probe")
	})
}

func TestOpenBreakerLetsNothingInThenOneProbeWhichClosesIt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testBreaker) {
		var lateAttempts []*engine.Attempt
		for range 5 {
			lateAttempts = append(lateAttempts, b.begin())
		}
		b.call(t, errDown, errDown, errDown, errDown)
		open := b.openEvents[0]
		require.Equal(t, time.Now(), open.Since)
		pause := time.Until(open.ProbeAt)
		require.GreaterOrEqual(t, pause, 8*time.Second)
		require.LessOrEqual(t, pause, 12*time.Second)
		<-time.After(pause - 1)
		require.Zero(t, b.room())
		require.Nil(t, b.begin(), "claimed while it opened, it is given back")
		<-time.After(1)
		require.Equal(t, 1, b.room())
		b.attemptEnded(lateAttempts[0], engine.Result{})
		require.NotNil(t, b.Current(), "what began before tells nothing of now")
		admitted, refused := b.admit([]*engine.Attempt{{Type: b.t}, {Type: b.t}, {Type: b.t}})
		require.Len(t, admitted, 1)
		require.Len(t, refused, 2)
		require.Zero(t, b.room(), "one is under way")
		require.Nil(t, b.begin())
		for _, a := range lateAttempts[1:] {
			b.attemptEnded(a, engine.Result{Err: errDown})
		}
		require.Len(t, b.openEvents, 1, "four of four, but of before")
		<-time.After(3 * time.Second)
		b.attemptEnded(admitted[0], engine.Result{Err: errors.New("sold out")})
		require.Nil(t, b.Current())
		require.Equal(t, []observe.OpenBreaker{open}, b.closeEvents)
		require.Equal(t, engine.Unlimited, b.room())
		b.call(t, errDown, errDown, errDown)
		require.Len(t, b.openEvents, 1, "it begins anew")
	})
}

func TestEachProbeThatFailsDoublesThePauseUpToAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testBreaker) {
		b.call(t, errDown, errDown, errDown, errDown)
		since := b.openEvents[0].Since
		for i, minPause := range []time.Duration{16, 32, 60, 60, 60} {
			<-time.After(time.Until(b.Current().ProbeAt))
			b.call(t, errDown)
			open := b.openEvents[i+1]
			require.Equal(t, since, open.Since, "since it opened, not since the last probe")
			require.Equal(t, i+1, open.Probes)
			require.GreaterOrEqual(t, time.Until(open.ProbeAt), minPause*time.Second)
			require.LessOrEqual(t, time.Until(open.ProbeAt), minPause*time.Second*3/2)
		}
		<-time.After(time.Until(b.Current().ProbeAt))
		b.call(t, nil)
		b.call(t, errDown, errDown, errDown, errDown)
		require.LessOrEqual(t, time.Until(b.Current().ProbeAt), 12*time.Second, "the first pause again")
	})
}

// Failure: F77
func TestProbeThatTellsNothingIsFollowedByAnotherAfterTheSamePause(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testBreaker) {
		b.call(t, errDown, errDown, errDown, errDown)
		for i, endProbe := range []func(a *engine.Attempt){
			func(a *engine.Attempt) { b.attemptEnded(a, engine.Result{Unstarted: true}) },
			func(a *engine.Attempt) {
				b.attemptEnded(a, engine.Result{Err: errDown, Cause: processlog.ErrCancelled})
			},
			func(a *engine.Attempt) { b.attemptEnded(a, engine.Result{Err: processlog.ErrHistoryLost}) },
		} {
			<-time.After(time.Until(b.Current().ProbeAt))
			endProbe(b.begin())
			require.Zero(t, b.room())
			require.Zero(t, b.Current().Probes)
			require.Equal(t, errDown, b.Current().Err)
			require.LessOrEqual(t, time.Until(b.Current().ProbeAt), 12*time.Second)
			require.Len(t, b.openEvents, 2+i)
		}
	})
}

// Failure: F77
func TestProbeThatMakesNoCallGivesWayAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testBreaker) {
		b.call(t, errDown, errDown, errDown, errDown)
		<-time.After(time.Until(b.Current().ProbeAt))
		b.call(t, verdict.LibraryWait(verdict.Unavailable(errors.New("content of a newer version"))), verdict.LibraryWait(verdict.Snooze(time.Minute)))
		require.Len(t, b.openEvents, 1)
		require.Empty(t, b.closeEvents)
		b.call(t, nil)
		require.Len(t, b.closeEvents, 1)
	})
}

// Failure: F77
func TestProbeThatHangsHasFailed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *testBreaker) {
		b.call(t, errDown, errDown, errDown, errDown)
		<-time.After(time.Until(b.Current().ProbeAt))
		a := b.begin()
		b.handlerStuck(a, 2)
		require.Zero(t, b.Current().Probes, "that call is another one")
		b.handlerStuck(a, 1)
		require.Equal(t, 1, b.Current().Probes)
		require.Equal(t, processlog.ErrTimeout, b.Current().Err)
		b.attemptEnded(a, engine.Result{})
		require.NotNil(t, b.Current(), "its word is old by now")
		<-time.After(time.Until(b.Current().ProbeAt))
		b.call(t, nil)
		require.Nil(t, b.Current())
	})
}

func TestRunBeginsWithEveryBreakerClosed(t *testing.T) {
	b := newBroken(t)
	a := b.begin()
	b.call(t, errDown, errDown, errDown, errDown)
	require.Equal(t, "refund", b.Current().BusinessType)
	require.NoError(t, b.e.Start(t.Context(), true))
	defer b.e.RunEnded()
	require.Nil(t, b.Current())
	require.Empty(t, b.closeEvents, "nobody has tried")
	b.attemptEnded(a, engine.Result{Err: errDown})
	b.call(t, errDown, errDown, errDown)
	require.Len(t, b.openEvents, 1)
}

// Failure: F78
func TestWhatACallTellsOfWhatItNeeds(t *testing.T) {
	for _, c := range []struct {
		err, cause error
		want       report
	}{
		{nil, nil, reportUp},
		{nil, processlog.ErrTimeout, reportUp},
		{errors.New("sold out"), nil, reportUp},
		{verdict.Permanent(errors.New("no such order")), nil, reportUp},
		{verdict.RetryAfter(time.Minute, errors.New("busy")), nil, reportUp},
		{verdict.Snooze(time.Minute), nil, reportUp},
		{panickingError{}, nil, reportUp},
		{errDown, nil, reportDown},
		{verdict.RetryAfter(time.Minute, errDown), nil, reportDown},
		{fmt.Errorf("refund: %w", errDown), nil, reportDown},
		{errors.New("context deadline exceeded"), processlog.ErrTimeout, reportDown},
		{errDown, processlog.ErrTimeout, reportDown},
		{errDown, processlog.ErrStopping, reportNothing},
		{errDown, processlog.ErrLeaseLost, reportNothing},
		{errDown, processlog.ErrCancelled, reportNothing},
		{fmt.Errorf("record: %w", processlog.ErrHistoryLost), nil, reportNothing},
		{verdict.LibraryWait(verdict.Unavailable(errors.New("content of a newer version"))), nil, reportUncalled},
		{verdict.LibraryWait(verdict.Snooze(time.Minute)), processlog.ErrCancelled, reportUncalled},
	} {
		require.Equal(t, c.want, reportOf(c.err, c.cause), "%v, %v", c.err, c.cause)
	}
}

// If the MaxWait of an entry is over, an outage spends the entry's attempts, so that the entry ends soon. The pause of
// an open breaker would delay this end. So such an entry must not open the breaker.
func TestEntryThatHasHadItsTimeOpensNoBreaker(t *testing.T) {
	synctest.Test(t, hadItsTime)
}

func hadItsTime(t *testing.T) {
	b := newBroken(t)
	b.t.MaxWait = time.Hour
	call := func(age time.Duration) {
		t.Helper()
		b.lastID++
		admitted, _ := b.admit([]*engine.Attempt{{Type: b.t, Row: rowOfAge(b.lastID, age)}})
		require.Len(t, admitted, 1)
		b.attemptEnded(admitted[0], engine.Result{Err: errDown})
	}
	for range 8 {
		call(time.Hour)
	}
	require.Empty(t, b.openEvents)
	for range 2 {
		call(time.Hour - time.Millisecond)
	}
	require.Len(t, b.openEvents, 1)
	time.Sleep(time.Until(b.Current().ProbeAt))
	call(time.Hour)
	require.Nil(t, b.Current())

	overdueBatch := []*engine.Attempt{{Type: b.t, Row: rowOfAge(0, time.Second)}, {Type: b.t, Row: rowOfAge(0, time.Hour)}}
	require.Equal(t, reportUp, reportDown.discountOverdue(overdueBatch...), "one of a batch is enough")
	require.Equal(t, reportDown, reportDown.discountOverdue(overdueBatch[0]))
	require.Equal(t, reportNothing, reportNothing.discountOverdue(overdueBatch...))
}

type panickingError struct{}

func (panickingError) Error() string { return "panicky" }
func (panickingError) As(any) bool   { panic("bug") }

// Failure: F77
func TestABatchIsOneCall(t *testing.T) {
	soldOut := errors.New("sold out")
	for _, c := range []struct {
		verdicts []error
		complete bool
		cause    error
		want     report
	}{
		{nil, true, nil, reportUp},
		{[]error{errDown, errDown}, true, nil, reportDown},
		{[]error{errDown, nil}, true, nil, reportUp},
		{[]error{soldOut, errDown}, true, nil, reportUp},
		{[]error{errDown, processlog.ErrHistoryLost}, true, nil, reportDown},
		{[]error{errDown, errDown}, true, processlog.ErrStopping, reportNothing},
		{[]error{soldOut, nil}, false, processlog.ErrTimeout, reportDown},
		{[]error{errDown}, false, nil, reportNothing}, // a wrong number of errors
		{nil, false, nil, reportNothing},              // a panic
	} {
		got, _ := batchReport(c.verdicts, c.complete, c.cause)
		require.Equal(t, c.want, got, "%v", c)
	}
	b := newBroken(t)
	for range 4 {
		require.Empty(t, b.openEvents)
		b.lastID += 3
		batch, _ := b.admit([]*engine.Attempt{{Type: b.t, Row: processlog.Row{ID: processlog.RowID(b.lastID)}}, {Type: b.t}, {Type: b.t}})
		b.shareCall(batch)
		b.callEnded(batch, []error{errDown, errDown, errDown}, true, nil)
		for _, a := range batch {
			b.attemptEnded(a, engine.Result{Err: errDown})
		}
	}
	require.Len(t, b.openEvents, 1)
	require.False(t, b.readmit(b.begin()), "nor do entries of a broken batch run alone")
}

func rowOfAge(id uint64, age time.Duration) processlog.Row {
	created := time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)
	next := created.Add(age - time.Second)
	return processlog.Row{ID: processlog.RowID(id), CreatedAt: created, NextAt: next, DueIn: -time.Second, UpdatedAt: next}
}
