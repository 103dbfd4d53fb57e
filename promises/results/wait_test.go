package results

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

func TestWaitReturnsTheEndOfAnEntry(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		runs := w.New(cfg)
		gate := harness.NewGate()
		pay, err := compensator.HandleResult(t.Context(), runs, "pay", func(ctx context.Context, e *compensator.Entry, o harness.Order) (Receipt, error) {
			return Receipt{o.Number, e.ID.String()}, gate.Pass(ctx, e)
		}, nil)
		require.NoError(t, err)
		elsewhere, err := compensator.DeclareResult[harness.Order, Receipt](t.Context(), w.New(cfg), "pay", nil)
		require.NoError(t, err)
		w.Run(runs)
		id := w.Record(pay.Type, 42, compensator.Options{IdempotencyKey: "pay-42"})
		var waits sync.WaitGroup
		for _, pay := range []*compensator.ResultType[harness.Order, Receipt]{pay, elsewhere} {
			for _, ref := range []compensator.Ref{id, compensator.IdempotencyKey("pay-42")} {
				waits.Go(func() {
					e, got, err := pay.Wait(t.Context(), ref)
					if assert.NoError(t, err) {
						assert.Equal(t, Receipt{42, id.String()}, got)
						assert.Equal(t, compensator.Succeeded, e.State)
						assert.Equal(t, id, e.ID)
						assert.NotEmpty(t, e.Content)
						assert.NotEmpty(t, e.Result)
					}
				})
			}
			waits.Go(func() {
				e, err := pay.Type.Wait(t.Context(), id)
				assert.NoError(t, err)
				assert.Equal(t, compensator.Succeeded, e.State)
			})
		}
		harness.Receive(t, gate.Entered)
		gate.Open()
		waits.Wait()
		_, got, err := elsewhere.Wait(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, 42, got.Number)
	})
}

func TestWaitSaysWhyAnEntryHasNotSucceeded(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	pay := paying(t, c, compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0), MaxAttempts: 2}, func(*compensator.Entry, harness.Order) error {
		return harness.ErrSoldOut
	})
	other, _ := harness.HandleCounted(t, c, "ship", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	dead := w.Record(pay.Type, 1, compensator.Options{})
	cancelled, completed := w.Record(pay.Type, 2, compensator.Options{Delay: time.Hour}), w.Record(pay.Type, 3, compensator.Options{Delay: time.Hour})
	foreign := w.Record(other, 4, compensator.Options{Delay: time.Hour})

	e, _, err := pay.Wait(t.Context(), dead)
	var state *compensator.StateError
	require.ErrorAs(t, err, &state)
	require.Equal(t, compensator.Dead, state.State)
	require.Contains(t, err.Error(), "wait for entry")
	require.Equal(t, "sold out", e.LastError)

	var wait sync.WaitGroup
	wait.Go(func() {
		_, err := pay.Type.Wait(t.Context(), cancelled)
		var state *compensator.StateError
		if assert.ErrorAs(t, err, &state) {
			assert.Equal(t, compensator.Cancelled, state.State)
		}
	})
	wait.Go(func() {
		e, _, err := pay.Wait(t.Context(), completed)
		assert.ErrorIs(t, err, compensator.ErrNoResult)
		assert.Equal(t, compensator.Succeeded, e.State)
		e, err = pay.Type.Wait(t.Context(), completed)
		assert.NoError(t, err)
		assert.Equal(t, compensator.EndedByComplete, e.EndedBy)
	})
	_, err = c.Cancel(t.Context(), cancelled)
	require.NoError(t, err)
	_, err = c.Complete(t.Context(), completed)
	require.NoError(t, err)
	wait.Wait()

	for _, ref := range []compensator.Ref{compensator.IdempotencyKey("nobody"), processlog.RowID(1_000_000), compensator.EntryID{}} {
		_, err = pay.Type.Wait(t.Context(), ref)
		require.ErrorIs(t, err, compensator.ErrNotFound)
	}
	var wrong *compensator.OtherTypeError
	_, _, err = pay.Wait(t.Context(), foreign)
	require.ErrorAs(t, err, &wrong, "the type is known before the end")
}

func TestWaitEndsWithItsContextAndWithClose(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	pay := paying(t, c, compensator.HandlerConfig[harness.Order]{}, nil)
	id := w.Record(pay.Type, 1, compensator.Options{Delay: time.Hour})
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the browser has gone")
	ended := make(chan error, 2)
	go func() { _, _, err := pay.Wait(ctx, id); ended <- err }()
	cancel(reason)
	require.ErrorIs(t, harness.Receive(t, ended), reason)
	_, _, err := pay.Wait(ctx, compensator.IdempotencyKey("any"))
	require.ErrorIs(t, err, reason)
	go func() { _, _, err := pay.Wait(t.Context(), id); ended <- err }()
	require.NoError(t, c.Close())
	require.ErrorIs(t, harness.Receive(t, ended), compensator.ErrClosed)
	_, _, err = pay.Wait(t.Context(), id)
	require.ErrorIs(t, err, compensator.ErrClosed)
}

// countingStore counts the calls of Ends and their statements. The library calls the store's method Ends to read the
// entries for which callers of Wait wait.
type countingStore struct {
	*memory.Store
	calls, statements, most atomic.Int64
	fails                   atomic.Bool
	// If the channel late is set, the next call of Ends reads the rows, and returns the rows when late is closed.
	late chan struct{}
}

var errAway = errors.New("the server is away")

func (s *countingStore) Ends(ctx context.Context, ids []processlog.ID) ([]processlog.Row, error) {
	if s.fails.Load() {
		return nil, errAway
	}
	s.calls.Add(1)
	s.statements.Add(int64(len(ids)+processlog.MaxRows-1) / processlog.MaxRows)
	s.most.Store(max(s.most.Load(), int64(len(ids))))
	rows, err := s.Store.Ends(ctx, ids)
	if late := s.late; late != nil {
		s.late = nil
		<-late
	}
	return rows, err
}

func bubble(t *testing.T) (*compensator.Compensator, *countingStore) {
	t.Helper()
	store := &countingStore{Store: memory.NewStore()}
	c, err := compensator.New(t.Context(), compensator.Config{Store: store})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() }) // A test that fails must leave no goroutine in its bubble.
	return c, store
}

func put(t *testing.T, c *compensator.Compensator, entries ...compensator.NewEntry) (ids []compensator.EntryID) {
	t.Helper()
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		receipt, err := c.Record(ctx, tx, entries...)
		for _, recorded := range receipt.Entries {
			ids = append(ids, recorded.ID)
		}
		return err
	}))
	return ids
}

func TestThousandWaitsCostTwoStatementsARound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, store := bubble(t)
		pay, err := compensator.DeclareResult[harness.Order, Receipt](t.Context(), c, "pay", nil)
		require.NoError(t, err)
		var entries []compensator.NewEntry
		for n := range 1000 {
			entries = append(entries, pay.Entry(harness.Order{Number: n}, compensator.Options{Delay: 24 * time.Hour}))
		}
		ids := put(t, c, entries...)
		var waits sync.WaitGroup
		var cancelled atomic.Int64
		for n, id := range ids {
			waits.Go(func() {
				time.Sleep(time.Duration(n) * 40 * time.Microsecond) // Begin at different times.
				_, err := pay.Type.Wait(t.Context(), id)
				if errors.As(err, new(*compensator.StateError)) {
					cancelled.Add(1)
				}
			})
		}
		time.Sleep(75 * time.Millisecond)
		synctest.Wait()
		const second = time.Second
		for _, phase := range []struct {
			lasts  time.Duration
			rounds int64
		}{{second, 20}, {second / 2, 10}, {30 * second, 175}, {60 * second, 72}} {
			store.statements.Store(0)
			time.Sleep(phase.lasts)
			synctest.Wait()
			require.LessOrEqual(t, store.statements.Load(), 2*phase.rounds, "in %v", phase.lasts)
			require.NotZero(t, store.statements.Load())
		}
		require.EqualValues(t, 1000, store.most.Load())
		for _, id := range ids { // The Compensator c does not see these changes of the store before its next read.
			_, err := store.Change(t.Context(), nil, false, processlog.Change{Ref: id, Action: processlog.ActionCancel, Token: processlog.NewToken()})
			require.NoError(t, err)
		}
		began := time.Now()
		waits.Wait()
		require.EqualValues(t, 1000, cancelled.Load())
		require.LessOrEqual(t, time.Since(began), time.Second)
		require.NoError(t, c.Close())
	})
}

// Each Wait may cost one read when it begins, and one when the entry has ended.
func TestEndInThisProcessIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, store := bubble(t)
		pay := paying(t, c, compensator.HandlerConfig[harness.Order]{}, func(*compensator.Entry, harness.Order) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- c.Run(ctx) }()
		synctest.Wait()
		ids := put(t, c, pay.Entry(harness.Order{Number: 1}, compensator.Options{}))
		began := time.Now()
		_, got, err := pay.Wait(t.Context(), ids[0])
		require.NoError(t, err)
		require.Equal(t, 1, got.Number)
		require.Less(t, time.Since(began), 20*time.Millisecond, "the handler takes 10 ms, and the group commit at most 5 ms")
		require.LessOrEqual(t, store.calls.Load(), int64(2))

		ids = put(t, c, pay.Entry(harness.Order{Number: 2}, compensator.Options{Delay: time.Hour}))
		ended := make(chan time.Time, 1)
		go func() { _, _, _ = pay.Wait(t.Context(), ids[0]); ended <- time.Now() }()
		time.Sleep(17 * time.Second)
		synctest.Wait()
		_, err = c.Cancel(t.Context(), ids[0])
		require.NoError(t, err)
		require.Zero(t, time.Since(<-ended))
		stop()
		require.NoError(t, <-ran)
		require.NoError(t, c.Close())
	})
}

// The read began before the commit, so its delayed answer lacks the entry.
func TestOlderReadAnswersNoLaterWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, store := bubble(t)
		pay, err := compensator.Declare[harness.Order](t.Context(), c, "pay", nil)
		require.NoError(t, err)
		next := processlog.RowID(put(t, c, pay.Entry(harness.Order{}, compensator.Options{Delay: time.Hour}))[0].Row() + 1)
		release := make(chan struct{})
		store.late = release
		early := make(chan error, 1)
		go func() { _, err := pay.Wait(t.Context(), next); early <- err }()
		synctest.Wait()
		require.Equal(t, next, put(t, c, pay.Entry(harness.Order{}, compensator.Options{Delay: time.Hour}))[0])
		late := make(chan error, 1)
		go func() { _, err := pay.Wait(t.Context(), next); late <- err }()
		synctest.Wait()
		close(release)
		require.ErrorIs(t, <-early, compensator.ErrNotFound)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, late)
		_, err = c.Cancel(t.Context(), next)
		require.NoError(t, err)
		require.NotErrorIs(t, <-late, compensator.ErrNotFound)
		require.NoError(t, c.Close())
	})
}

func TestWaitReportsAFailedRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, store := bubble(t)
		pay, err := compensator.Declare[harness.Order](t.Context(), c, "pay", nil)
		require.NoError(t, err)
		id := put(t, c, pay.Entry(harness.Order{}, compensator.Options{Delay: time.Hour}))[0]
		ended := make(chan error, 1)
		go func() { _, err := pay.Wait(t.Context(), id); ended <- err }()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(t, ended)
		store.fails.Store(true)
		require.ErrorIs(t, <-ended, errAway)
		store.fails.Store(false)
		_, err = c.Complete(t.Context(), id)
		require.NoError(t, err)
		_, err = pay.Wait(t.Context(), id)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	})
}

func TestEndInAnotherProcessIsPublished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, queue := memory.NewStore(), memory.NewQueue()
		open := func() *compensator.Compensator {
			c, err := compensator.New(t.Context(), compensator.Config{Store: store, Queue: queue.Client()})
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		runs, waits := open(), open()
		pay := paying(t, runs, compensator.HandlerConfig[harness.Order]{}, nil)
		ship, _ := harness.HandleCounted(t, runs, "ship", compensator.HandlerConfig[harness.Order]{}, nil)
		elsewhere, err := compensator.DeclareResult[harness.Order, Receipt](t.Context(), waits, "pay", nil)
		require.NoError(t, err)
		plain, err := compensator.Declare[harness.Order](t.Context(), waits, "ship", nil)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- runs.Run(ctx) }()
		delay := 17*time.Second + 110*time.Millisecond
		ids := put(t, runs, pay.Entry(harness.Order{Number: 1}, compensator.Options{Delay: delay}), ship.Entry(harness.Order{}, compensator.Options{Delay: delay}))
		late := func(ended time.Time) time.Duration {
			e, err := runs.Get(t.Context(), ids[0])
			require.NoError(t, err)
			return ended.Sub(e.NextAt)
		}
		told, read := make(chan time.Time, 1), make(chan time.Time, 1)
		go func() { _, _, err := elsewhere.Wait(t.Context(), ids[0]); assert.NoError(t, err); told <- time.Now() }()
		go func() { _, err := plain.Wait(t.Context(), ids[1]); assert.NoError(t, err); read <- time.Now() }()
		require.LessOrEqual(t, late(<-told), 2*time.Millisecond, "the row has whole milliseconds")
		require.Greater(t, late(<-read), 50*time.Millisecond)
		stop()
		require.NoError(t, <-ran)
		require.NoError(t, waits.Close())
		require.NoError(t, runs.Close())
	})
}
