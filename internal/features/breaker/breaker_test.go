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

// broken is a type whose breaker looks at the latest four entries. It collects the events of the breaker.
type broken struct {
	*Breaker
	e              *engine.Engine
	t              *engine.Type
	opened, closed []observe.OpenBreaker
	last           uint64
}

func newBroken(t *testing.T) *broken {
	t.Helper()
	b := &broken{}
	b.e = engine.New(t.Context(), engine.Config{Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }, Lease: time.Hour,
		Observer: observe.Observer{
			BreakerOpened: func(open observe.OpenBreaker) { b.opened = append(b.opened, open) },
			BreakerClosed: func(open observe.OpenBreaker) { b.closed = append(b.closed, open) },
		}})
	require.NoError(t, b.e.Register(engine.Type{Name: "refund", Concurrency: 10, Lease: time.Hour}, func(t *engine.Type) {
		b.t = t
		b.Breaker = Attach(b.e, t, Settings{Of: 4, Share: 0.5, Pause: 8 * time.Second})
	}))
	return b
}

// begin returns an attempt that the breaker admitted, or nil.
func (b *broken) begin() *engine.Attempt {
	b.last++
	admitted, _ := b.admit([]*engine.Attempt{{Type: b.t, Row: processlog.Row{ID: processlog.RowID(b.last)}}})
	if len(admitted) == 0 {
		return nil
	}
	return admitted[0]
}

// call makes one admitted call for each of the errors, and ends the call with that error.
func (b *broken) call(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		a := b.begin()
		require.NotNil(t, a, "it was not let in")
		b.ended(a, engine.Result{Err: err})
	}
}

// inBubble runs test in a synctest bubble, with random numbers from a fixed seed.
func inBubble(t *testing.T, test func(t *testing.T, b *broken)) {
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
	require.Empty(t, b.opened, "three of three are not yet four")
	b.call(t, errDown)
	require.Len(t, b.opened, 1)
	require.Equal(t, "refund", b.opened[0].BusinessType)
	require.Equal(t, errDown, b.opened[0].Err)

	b = newBroken(t)
	b.call(t, errDown, nil, nil, nil, nil, errDown, nil, nil, nil, errDown, errors.New("sold out"), verdict.Permanent(errors.New("no such order")))
	require.Empty(t, b.opened, "one of the latest four, each time")
	b.call(t, nil, errDown, nil)
	require.Empty(t, b.opened)
	b.call(t, errDown)
	require.Len(t, b.opened, 1, "two of four")
}

// One entry fails again and again. The entry itself may be at fault, so its calls alone must not open the breaker.
// Failure: F78
func TestOneEntryByItselfOpensNoBreaker(t *testing.T) {
	b := newBroken(t)
	again := func(err error) {
		b.last = 0
		b.call(t, err)
	}
	for range 10 {
		again(errDown)
	}
	b.last = 1
	b.call(t, nil, nil, nil)
	again(errDown)
	require.Empty(t, b.opened, "one of four")
	again(nil)
	b.last = 4
	b.call(t, errDown)
	require.Empty(t, b.opened, "its last word counts")
	again(errDown)
	require.Len(t, b.opened, 1)
}

func TestOpenBreakerLetsNothingInThenOneProbeWhichClosesIt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *broken) {
		var late []*engine.Attempt
		for range 5 {
			late = append(late, b.begin())
		}
		b.call(t, errDown, errDown, errDown, errDown)
		open := b.opened[0]
		require.Equal(t, time.Now(), open.Since)
		pause := time.Until(open.ProbeAt)
		require.GreaterOrEqual(t, pause, 8*time.Second)
		require.LessOrEqual(t, pause, 12*time.Second)
		<-time.After(pause - 1)
		require.Zero(t, b.room())
		require.Nil(t, b.begin(), "claimed while it opened, it is given back")
		<-time.After(1)
		require.Equal(t, 1, b.room())
		b.ended(late[0], engine.Result{})
		require.NotNil(t, b.Current(), "what began before tells nothing of now")
		admitted, refused := b.admit([]*engine.Attempt{{Type: b.t}, {Type: b.t}, {Type: b.t}})
		require.Len(t, admitted, 1)
		require.Len(t, refused, 2)
		require.Zero(t, b.room(), "one is under way")
		require.Nil(t, b.begin())
		for _, a := range late[1:] {
			b.ended(a, engine.Result{Err: errDown})
		}
		require.Len(t, b.opened, 1, "four of four, but of before")
		<-time.After(3 * time.Second)
		b.ended(admitted[0], engine.Result{Err: errors.New("sold out")}) // The dependency answers this call with an error.
		require.Nil(t, b.Current())
		require.Equal(t, []observe.OpenBreaker{open}, b.closed)
		require.Equal(t, engine.Unlimited, b.room())
		b.call(t, errDown, errDown, errDown)
		require.Len(t, b.opened, 1, "it begins anew")
	})
}

func TestEachProbeThatFailsDoublesThePauseUpToAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, b *broken) {
		b.call(t, errDown, errDown, errDown, errDown)
		since := b.opened[0].Since
		for i, least := range []time.Duration{16, 32, 60, 60, 60} {
			<-time.After(time.Until(b.Current().ProbeAt))
			b.call(t, errDown)
			open := b.opened[i+1]
			require.Equal(t, since, open.Since, "since it opened, not since the last probe")
			require.Equal(t, i+1, open.Probes)
			require.GreaterOrEqual(t, time.Until(open.ProbeAt), least*time.Second)
			require.LessOrEqual(t, time.Until(open.ProbeAt), least*time.Second*3/2)
		}
		<-time.After(time.Until(b.Current().ProbeAt))
		b.call(t, nil)
		b.call(t, errDown, errDown, errDown, errDown)
		require.LessOrEqual(t, time.Until(b.Current().ProbeAt), 12*time.Second, "the first pause again")
	})
}

// Failure: F77
func TestProbeThatTellsNothingIsFollowedByAnotherAfterTheSamePause(t *testing.T) {
	inBubble(t, func(t *testing.T, b *broken) {
		b.call(t, errDown, errDown, errDown, errDown)
		for i, void := range []func(a *engine.Attempt){
			func(a *engine.Attempt) { b.ended(a, engine.Result{Unstarted: true}) },
			func(a *engine.Attempt) { b.ended(a, engine.Result{Err: errDown, Cause: processlog.ErrCancelled}) },
			func(a *engine.Attempt) { b.ended(a, engine.Result{Err: processlog.ErrHistoryLost}) },
		} {
			<-time.After(time.Until(b.Current().ProbeAt))
			void(b.begin())
			require.Zero(t, b.room())
			require.Zero(t, b.Current().Probes)
			require.Equal(t, errDown, b.Current().Err)
			require.LessOrEqual(t, time.Until(b.Current().ProbeAt), 12*time.Second)
			require.Len(t, b.opened, 2+i)
		}
	})
}

// Failure: F77
func TestProbeThatMakesNoCallGivesWayAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *broken) {
		b.call(t, errDown, errDown, errDown, errDown)
		<-time.After(time.Until(b.Current().ProbeAt))
		b.call(t, verdict.Free(verdict.Unavailable(errors.New("content of a newer version"))), verdict.Free(verdict.Snooze(time.Minute)))
		require.Len(t, b.opened, 1)
		require.Empty(t, b.closed)
		b.call(t, nil)
		require.Len(t, b.closed, 1)
	})
}

// A probe that ignores its context may never return. When the engine reports the probe's handler as stuck, the breaker
// must count the probe as failed. Otherwise the type is never probed again.
// Failure: F77
func TestProbeThatHangsHasFailed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *broken) {
		b.call(t, errDown, errDown, errDown, errDown)
		<-time.After(time.Until(b.Current().ProbeAt))
		a := b.begin()
		b.stuck(a, 2)
		require.Zero(t, b.Current().Probes, "that call is another one")
		b.stuck(a, 1)
		require.Equal(t, 1, b.Current().Probes)
		require.Equal(t, processlog.ErrTimeout, b.Current().Err)
		b.ended(a, engine.Result{})
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
	require.NoError(t, b.e.Start(t.Context()))
	defer b.e.End()
	require.Nil(t, b.Current())
	require.Empty(t, b.closed, "nobody has tried")
	b.ended(a, engine.Result{Err: errDown})
	b.call(t, errDown, errDown, errDown)
	require.Len(t, b.opened, 1)
}

// Failure: F78
func TestWhatACallTellsOfWhatItNeeds(t *testing.T) {
	for _, c := range []struct {
		err, cause error
		want       report
	}{
		{nil, nil, up},
		{nil, processlog.ErrTimeout, up},
		{errors.New("sold out"), nil, up},
		{verdict.Permanent(errors.New("no such order")), nil, up},
		{verdict.RetryAfter(time.Minute, errors.New("busy")), nil, up},
		{verdict.Snooze(time.Minute), nil, up},
		{panicky{}, nil, up},
		{errDown, nil, down},
		{verdict.RetryAfter(time.Minute, errDown), nil, down},
		{fmt.Errorf("refund: %w", errDown), nil, down},
		{errors.New("context deadline exceeded"), processlog.ErrTimeout, down},
		{errDown, processlog.ErrTimeout, down},
		{errDown, processlog.ErrStopping, nothing},
		{errDown, processlog.ErrLeaseLost, nothing},
		{errDown, processlog.ErrCancelled, nothing},
		{fmt.Errorf("record: %w", processlog.ErrHistoryLost), nil, nothing},
		{verdict.Free(verdict.Unavailable(errors.New("content of a newer version"))), nil, uncalled},
		{verdict.Free(verdict.Snooze(time.Minute)), processlog.ErrCancelled, uncalled},
	} {
		require.Equal(t, c.want, reportOf(c.err, c.cause), "%v, %v", c.err, c.cause)
	}
}

// The MaxWait of an entry is over, so an outage counts as a failure of the entry. The breaker must not delay the entry
// any further. The entry's calls never open the breaker, but they can close it.
func TestEntryThatHasHadItsTimeOpensNoBreaker(t *testing.T) {
	synctest.Test(t, hadItsTime)
}

func hadItsTime(t *testing.T) {
	b := newBroken(t)
	b.t.MaxWait = time.Hour
	call := func(age time.Duration) {
		t.Helper()
		b.last++
		let, _ := b.admit([]*engine.Attempt{{Type: b.t, Row: aged(b.last, age)}})
		require.Len(t, let, 1)
		b.ended(let[0], engine.Result{Err: errDown})
	}
	for range 8 {
		call(time.Hour)
	}
	require.Empty(t, b.opened)
	for range 2 { // two of the latest four verdicts
		call(time.Hour - time.Millisecond)
	}
	require.Len(t, b.opened, 1)
	time.Sleep(time.Until(b.Current().ProbeAt))
	call(time.Hour)
	require.Nil(t, b.Current())

	old := []*engine.Attempt{{Type: b.t, Row: aged(0, time.Second)}, {Type: b.t, Row: aged(0, time.Hour)}}
	require.Equal(t, up, down.about(old...), "one of a batch is enough")
	require.Equal(t, down, down.about(old[0]))
	require.Equal(t, nothing, nothing.about(old...))
}

// panicky is a user's error whose methods panic.
type panicky struct{}

func (panicky) Error() string { return "panicky" }
func (panicky) As(any) bool   { panic("bug") }

// Failure: F77
func TestABatchIsOneCall(t *testing.T) {
	soldOut := errors.New("sold out")
	for _, c := range []struct {
		verdicts []error
		whole    bool
		cause    error
		want     report
	}{
		{nil, true, nil, up},
		{[]error{errDown, errDown}, true, nil, down},
		{[]error{errDown, nil}, true, nil, up},
		{[]error{soldOut, errDown}, true, nil, up},
		{[]error{errDown, processlog.ErrHistoryLost}, true, nil, down},
		{[]error{errDown, errDown}, true, processlog.ErrStopping, nothing},
		{[]error{soldOut, nil}, false, processlog.ErrTimeout, down},
		{[]error{errDown}, false, nil, nothing}, // a wrong number of errors
		{nil, false, nil, nothing},              // a panic
	} {
		got, _ := batchReport(c.verdicts, c.whole, c.cause)
		require.Equal(t, c.want, got, "%v", c)
	}
	b := newBroken(t)
	for range 4 {
		require.Empty(t, b.opened)
		b.last += 3
		batch, _ := b.admit([]*engine.Attempt{{Type: b.t, Row: processlog.Row{ID: processlog.RowID(b.last)}}, {Type: b.t}, {Type: b.t}})
		b.joined(batch)
		b.callEnded(batch, []error{errDown, errDown, errDown}, true, nil)
		for _, a := range batch {
			b.ended(a, engine.Result{Err: errDown})
		}
	}
	require.Len(t, b.opened, 1)
	require.False(t, b.readmit(b.begin()), "nor do entries of a broken batch run alone")
}

// aged returns a row of an entry with the given age.
func aged(id uint64, age time.Duration) processlog.Row {
	created := time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)
	next := created.Add(age - time.Second)
	return processlog.Row{ID: processlog.RowID(id), CreatedAt: created, NextAt: next, DueIn: -time.Second, UpdatedAt: next}
}
