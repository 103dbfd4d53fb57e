package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

var errDown = Unavailable(errors.New("no route"))

// broken is an engine with a type whose breaker looks at the last four calls, and what is told of it.
type broken struct {
	*breaker
	e              *Engine
	t              *Type
	opened, closed []observe.OpenBreaker
	last           uint64
}

func newBroken(t *testing.T) *broken {
	t.Helper()
	b := &broken{}
	e := New(t.Context(), Config{Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }, Lease: time.Hour,
		Observer: observe.Observer{
			BreakerOpened: func(open observe.OpenBreaker) { b.opened = append(b.opened, open) },
			BreakerClosed: func(open observe.OpenBreaker) { b.closed = append(b.closed, open) },
		}})
	require.NoError(t, e.Register(Type{Name: "refund", Concurrency: 10, Lease: time.Hour, Breaker: Breaker{Of: 4, Share: 0.5, Pause: 8 * time.Second}}))
	require.NoError(t, e.Register(Type{Name: "mail", Concurrency: 10, Lease: time.Hour}))
	b.e, b.t = e, e.types.named("refund")
	b.breaker = b.t.breaker
	e.claimSchedule.prepare()
	return b
}

// begin is an attempt that was let in, or nil.
func (b *broken) begin() *attempt {
	b.last++
	admitted, _ := b.admit([]*attempt{{t: b.t, row: processlog.Row{ID: processlog.RowID(b.last)}}})
	if len(admitted) == 0 {
		return nil
	}
	return admitted[0]
}

// call is one that ends like that.
func (b *broken) call(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		a := b.begin()
		require.NotNil(t, a, "it was not let in")
		b.ended(a, attemptResult{err: err}, nil)
	}
}

// inBubble has its draws from a seed.
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
	b.call(t, errDown, nil, nil, nil, nil, errDown, nil, nil, nil, errDown, errors.New("sold out"), Permanent(errors.New("no such order")))
	require.Empty(t, b.opened, "one of the latest four, each time")
	b.call(t, nil, errDown, nil)
	require.Empty(t, b.opened)
	b.call(t, errDown)
	require.Len(t, b.opened, 1, "two of four")
}

// It may be the one that is never answered: by itself it keeps nobody waiting.
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
		var late []*attempt
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
		b.ended(late[0], attemptResult{}, nil)
		require.NotNil(t, b.current(), "what began before tells nothing of now")
		admitted, refused := b.admit([]*attempt{{t: b.t}, {t: b.t}, {t: b.t}})
		require.Len(t, admitted, 1)
		require.Len(t, refused, 2)
		require.Zero(t, b.room(), "one is under way")
		require.Nil(t, b.begin())
		for _, a := range late[1:] {
			b.ended(a, attemptResult{err: errDown}, nil)
		}
		require.Len(t, b.opened, 1, "four of four, but of before")
		<-time.After(3 * time.Second)
		b.ended(admitted[0], attemptResult{err: errors.New("sold out")}, nil) // it answers
		require.Nil(t, b.current())
		require.Equal(t, []observe.OpenBreaker{open}, b.closed)
		require.Equal(t, math.MaxInt, b.room())
		b.call(t, errDown, errDown, errDown)
		require.Len(t, b.opened, 1, "it begins anew")
	})
}

func TestEachProbeThatFailsDoublesThePauseUpToAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, b *broken) {
		b.call(t, errDown, errDown, errDown, errDown)
		since := b.opened[0].Since
		for i, least := range []time.Duration{16, 32, 60, 60, 60} {
			<-time.After(time.Until(b.current().ProbeAt))
			b.call(t, errDown)
			open := b.opened[i+1]
			require.Equal(t, since, open.Since, "since it opened, not since the last probe")
			require.Equal(t, i+1, open.Probes)
			require.GreaterOrEqual(t, time.Until(open.ProbeAt), least*time.Second)
			require.LessOrEqual(t, time.Until(open.ProbeAt), least*time.Second*3/2)
		}
		<-time.After(time.Until(b.current().ProbeAt))
		b.call(t, nil)
		b.call(t, errDown, errDown, errDown, errDown)
		require.LessOrEqual(t, time.Until(b.current().ProbeAt), 12*time.Second, "the first pause again")
	})
}

// Failure: F77
func TestProbeThatTellsNothingIsFollowedByAnotherAfterTheSamePause(t *testing.T) {
	inBubble(t, func(t *testing.T, b *broken) {
		b.call(t, errDown, errDown, errDown, errDown)
		for i, void := range []func(a *attempt){
			func(a *attempt) { b.ended(a, attemptResult{unstarted: true}, nil) },
			func(a *attempt) { b.ended(a, attemptResult{err: errDown}, processlog.ErrCancelled) },
			func(a *attempt) { b.ended(a, attemptResult{err: ours(errors.New("no connection"))}, nil) },
		} {
			<-time.After(time.Until(b.current().ProbeAt))
			void(b.begin())
			require.Zero(t, b.room())
			require.Zero(t, b.current().Probes)
			require.Equal(t, errDown, b.current().Err)
			require.LessOrEqual(t, time.Until(b.current().ProbeAt), 12*time.Second)
			require.Len(t, b.opened, 2+i)
		}
	})
}

// Failure: F77
func TestProbeThatMakesNoCallGivesWayAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *broken) {
		b.call(t, errDown, errDown, errDown, errDown)
		<-time.After(time.Until(b.current().ProbeAt))
		b.call(t, Free(Unavailable(errors.New("content of a newer version"))), Free(Snooze(time.Minute)))
		require.Len(t, b.opened, 1)
		require.Empty(t, b.closed)
		b.call(t, nil)
		require.Len(t, b.closed, 1)
	})
}

// Deaf to its context, it may never return: without a word of its own the type would never be tried again.
// Failure: F77
func TestProbeThatHangsHasFailed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *broken) {
		b.call(t, errDown, errDown, errDown, errDown)
		<-time.After(time.Until(b.current().ProbeAt))
		a := b.begin()
		b.stuck(a, a.call.Load())
		require.Equal(t, 1, b.current().Probes)
		require.Equal(t, processlog.ErrTimeout, b.current().Err)
		b.ended(a, attemptResult{}, nil)
		require.NotNil(t, b.current(), "its word is old by now")
		<-time.After(time.Until(b.current().ProbeAt))
		b.call(t, nil)
		require.Nil(t, b.current())
	})
}

func TestRunBeginsWithEveryBreakerClosed(t *testing.T) {
	b := newBroken(t)
	a := b.begin()
	b.call(t, errDown, errDown, errDown, errDown)
	require.Equal(t, "refund", b.e.types.openBreakers()[0].BusinessType)
	require.NoError(t, b.e.Start(t.Context()))
	defer b.e.End()
	require.Empty(t, b.e.types.openBreakers())
	require.Empty(t, b.closed, "nobody has tried")
	b.ended(a, attemptResult{err: errDown}, nil)
	b.call(t, errDown, errDown, errDown)
	require.Len(t, b.opened, 1)
}

// Failure: F78
func TestWhatACallTellsOfWhatItNeeds(t *testing.T) {
	for _, c := range []struct {
		err, cause error
		want       breakerReport
	}{
		{nil, nil, fine},
		{nil, processlog.ErrTimeout, fine},
		{errors.New("sold out"), nil, fine},
		{Permanent(errors.New("no such order")), nil, fine},
		{RetryAfter(time.Minute, errors.New("busy")), nil, fine},
		{Snooze(time.Minute), nil, fine},
		{panicked("index out of range"), nil, fine},
		{panicky{}, nil, fine},
		{errDown, nil, down},
		{RetryAfter(time.Minute, errDown), nil, down},
		{fmt.Errorf("refund: %w", errDown), nil, down},
		{errors.New("context deadline exceeded"), processlog.ErrTimeout, down},
		{errDown, processlog.ErrTimeout, down},
		{errDown, processlog.ErrStopping, nothing},
		{errDown, processlog.ErrLeaseLost, nothing},
		{errDown, processlog.ErrCancelled, nothing},
		{errFenceLost, nil, nothing},
		{fmt.Errorf("record: %w", processlog.ErrHistoryLost), nil, nothing},
		{serversOwn(errors.New("lock wait timeout"), false), nil, nothing},
		{serversOwn(errors.New("too many connections"), true), nil, nothing},
		{soon(errors.New("commit: gone away")), nil, nothing},
		{Free(Unavailable(errors.New("content of a newer version"))), nil, uncalled},
		{Free(Snooze(time.Minute)), processlog.ErrCancelled, uncalled},
		{ours(errors.New("begin: no connection")), processlog.ErrTimeout, nothing},
	} {
		require.Equal(t, c.want, tells(c.err, c.cause), "%v, %v", c.err, c.cause)
	}
}

// An entry that has had its time, whose waits count, is not to wait for a breaker as well: its calls open none, and close it.
func TestEntryThatHasHadItsTimeOpensNoBreaker(t *testing.T) {
	synctest.Test(t, hadItsTime)
}

func hadItsTime(t *testing.T) {
	b := newBroken(t)
	b.t.MaxWait = time.Hour
	call := func(age time.Duration) {
		t.Helper()
		b.last++
		let, _ := b.admit([]*attempt{{t: b.t, row: *aged(&processlog.Row{ID: processlog.RowID(b.last)}, age)}})
		require.Len(t, let, 1)
		b.ended(let[0], attemptResult{err: errDown}, nil)
	}
	for range 8 {
		call(time.Hour)
	}
	require.Empty(t, b.opened)
	for range 2 { // of the last four
		call(time.Hour - time.Millisecond)
	}
	require.Len(t, b.opened, 1)
	time.Sleep(time.Until(b.current().ProbeAt))
	call(time.Hour)
	require.Nil(t, b.current())

	old := []*attempt{{t: b.t, row: *aged(&processlog.Row{}, time.Second)}, {t: b.t, row: *aged(&processlog.Row{}, time.Hour)}}
	require.Equal(t, fine, down.of(old...), "one of a batch is enough")
	require.Equal(t, down, down.of(old[0]))
	require.Equal(t, nothing, nothing.of(old...))
}

// panicky is an error of a user's with a bug.
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
		want     breakerReport
	}{
		{nil, true, nil, fine},
		{[]error{errDown, errDown}, true, nil, down},
		{[]error{errDown, nil}, true, nil, fine},
		{[]error{soldOut, errDown}, true, nil, fine},
		{[]error{errDown, soon(soldOut)}, true, nil, down},
		{[]error{errDown, errDown}, true, processlog.ErrStopping, nothing},
		{[]error{soldOut, nil}, false, processlog.ErrTimeout, down},
		{[]error{errDown}, false, nil, nothing}, // the wrong length
		{nil, false, nil, nothing},              // a panic
	} {
		got, _ := batchTells(c.verdicts, c.whole, c.cause)
		require.Equal(t, c.want, got, "%v", c)
	}
	b := newBroken(t)
	for range 4 {
		require.Empty(t, b.opened)
		b.last += 3
		batch, _ := b.admit([]*attempt{{t: b.t, row: processlog.Row{ID: processlog.RowID(b.last)}}, {t: b.t}, {t: b.t}})
		b.join(batch)
		b.batchEnded(batch, []error{errDown, errDown, errDown}, true, nil)
		for _, a := range batch {
			b.ended(a, attemptResult{err: errDown}, nil)
		}
	}
	require.Len(t, b.opened, 1)
	_, admitted := b.readmit()
	require.False(t, admitted, "nor do entries of a broken batch run alone")
}

func TestOpenBreakersTypeHasNoSlots(t *testing.T) {
	inBubble(t, func(t *testing.T, b *broken) {
		s := b.t.slots
		reservation := s.reserve(1)
		require.Equal(t, 2, s.take(2))
		b.call(t, errDown, errDown, errDown, errDown)
		require.Zero(t, s.take(5))
		require.Zero(t, s.free())
		require.Nil(t, s.reserve(1), "what is recorded now waits in the queue")
		require.False(t, s.takeFresh())
		require.False(t, b.e.claimSchedule.canClaim(b.t), "others are told of what comes due")
		require.True(t, s.use(reservation, 1), "what was recorded before has its slot, until it is given back")
		<-time.After(time.Until(b.current().ProbeAt))
		require.Equal(t, 1, s.free())
		require.Nil(t, s.reserve(1), "the probe is what has waited longest")
		require.False(t, s.takeFresh())
		for range 7 {
			require.Equal(t, 1, s.take(5), "while no claim has brought one")
		}
		require.Zero(t, s.take(1), "nor more than there are")
		s.release(10)
		b.call(t, nil)
		require.NotNil(t, s.reserve(1))
	})
}

func TestScannerSleepsUntilThePauseEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *broken) {
		b.e.types.byName["mail"].slots.take(10)
		var claims sync.WaitGroup
		b.call(t, errDown, errDown, errDown, errDown)
		require.True(t, woken(b.e.claimSchedule))
		b.e.claimSchedule.peek = time.Now().Add(time.Hour)
		require.Equal(t, time.Until(b.current().ProbeAt), b.e.scanner.step(t.Context(), &claims))
		claims.Wait()
		require.Zero(t, b.e.claimSchedule.byType["refund"].claiming)
		<-time.After(time.Until(b.current().ProbeAt))
		b.call(t, nil)
		require.True(t, woken(b.e.claimSchedule), "what is due waits no longer")
	})
}

// What hangs is found by looking through a map, and all entries of a batch hang together.
func TestBatchThatHangsIsItsFirstEntrysWord(t *testing.T) {
	inBubble(t, func(t *testing.T, b *broken) {
		var want []breakerVerdict
		for range b.Of - 1 {
			batch := make([]*attempt, 8)
			for i := range batch {
				batch[i] = b.begin()
				batch[i].ctx, batch[i].cancel = context.WithCancelCause(t.Context())
				batch[i].leaseEnd = time.Now().Add(time.Hour)
				batch[i].started = time.Now()
				b.e.holdings.held[batch[i].holding()] = batch[i]
			}
			b.join(batch)
			want = append(want, breakerVerdict{batch[0].row.ID, true})
			time.Sleep(b.t.Timeout + stuckAfter + time.Second)
			b.e.renewer.needRenewal()
		}
		require.Equal(t, want, b.latest)
	})
}
