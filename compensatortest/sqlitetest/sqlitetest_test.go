package sqlitetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		sqlitetest.New(b)
	}
}

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	t.Parallel()
	_, first := sqlitetest.New(t)
	_, second := sqlitetest.New(t)
	_, err := first.Exec("CREATE TABLE mine (n INTEGER)")
	require.NoError(t, err)
	_, err = second.Exec("CREATE TABLE mine (n INTEGER)")
	require.NoError(t, err)
}

func TestDatabaseOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t)
	_, err := db.Exec("CREATE TABLE mine (n INTEGER)")
	require.NoError(t, err)
	db.SetMaxIdleConns(-1)
	require.Zero(t, db.Stats().OpenConnections)
	_, err = db.Exec("INSERT INTO mine VALUES (1)")
	require.NoError(t, err)
	compensatortest.RequireRecorded(t, c, "any", 0)
}

func TestManyRunBesideEachOther(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t)
	_, err := db.Exec("CREATE TABLE effects (n INTEGER)")
	require.NoError(t, err)
	var told atomic.Int32
	tell, err := compensator.Handle(t.Context(), c, "tell", func(context.Context, *compensator.Entry, int) error { told.Add(1); return nil }, nil)
	require.NoError(t, err)
	work, err := compensator.HandleTx(t.Context(), c, "work", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, n int) error {
		if n%5 == 0 && e.Attempt() == 1 {
			return compensator.RetryAfter(time.Hour, errors.New("not yet"))
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?)", n); err != nil {
			return err
		}
		_, err := tell.Record(ctx, tx, n, compensator.Options{})
		return err
	}, nil)
	require.NoError(t, err)
	compensatortest.Run(t, c)
	const all = 50
	for n := range all {
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := work.Record(ctx, tx, n, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint(n))})
			return err
		}))
	}
	compensatortest.WaitIdle(t, c)
	assert.EqualValues(t, all-all/5, told.Load(), "the other entries wait for an hour")
	compensatortest.Elapse(t, c, time.Hour)
	compensatortest.WaitIdle(t, c)
	assert.EqualValues(t, all, told.Load())
	assert.Equal(t, all, read[int](t, db, "SELECT COUNT(DISTINCT n) FROM effects"))
	assert.Equal(t, all, read[int](t, db, "SELECT COUNT(*) FROM effects"))
}

func TestIdleIsWhenKeysHaveBeenWorkedOff(t *testing.T) {
	t.Parallel()
	c, _ := sqlitetest.New(t)
	var order []int
	tell, err := compensator.Handle(t.Context(), c, "tell", func(_ context.Context, _ *compensator.Entry, n int) error { order = append(order, n); return nil },
		&compensator.HandlerConfig[int]{TypeConfig: compensator.TypeConfig{Serial: func(e *compensator.Entry) string { return e.UserID }}})
	require.NoError(t, err)
	compensatortest.Run(t, c)
	var want []int
	for n := range 20 {
		want = append(want, n)
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := tell.Record(ctx, tx, n, compensator.Options{UserID: "ann"})
			return err
		}))
		if n%5 == 4 {
			compensatortest.WaitIdle(t, c)
			require.Equal(t, want, order)
		}
	}
}

func TestOrderIsKeptOneAttemptAtATime(t *testing.T) {
	t.Parallel()
	c, _ := sqlitetest.New(t)
	var order []int
	tell, err := compensator.Handle(t.Context(), c, "tell", func(_ context.Context, _ *compensator.Entry, n int) error { order = append(order, n); return nil },
		&compensator.HandlerConfig[int]{TypeConfig: compensator.TypeConfig{Serial: func(e *compensator.Entry) string { return e.UserID }}})
	require.NoError(t, err)
	for n := range 2 {
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := tell.Record(ctx, tx, n, compensator.Options{UserID: "ann", IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint("tell-", n))})
			return err
		}))
	}
	told := &refused{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		compensatortest.Attempt(told, c, compensator.IdempotencyKey("tell-1"))
	}()
	<-done
	require.Contains(t, told.said, `"tell-0"`)
	require.Empty(t, order)
	for n := range 2 {
		require.Equal(t, compensator.Succeeded, compensatortest.Attempt(t, c, compensator.IdempotencyKey(fmt.Sprint("tell-", n))).State)
	}
	require.Equal(t, []int{0, 1}, order)
}

type refused struct {
	testing.TB
	said string
}

func (r *refused) Errorf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) }
func (r *refused) FailNow()                          { runtime.Goexit() }

func TestReportOfABatchCountsInItsTransaction(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t)
	_, err := db.Exec("CREATE TABLE reports (told INTEGER)")
	require.NoError(t, err)
	line, err := compensator.Handle(t.Context(), c, "line", func(_ context.Context, _ *compensator.Entry, n int) error {
		if n == 0 {
			return compensator.Permanent(errors.New("no such article"))
		}
		return nil
	}, nil)
	require.NoError(t, err)
	report, err := compensator.HandleTx(t.Context(), c, "report", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, batch string) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO reports VALUES (0)"); err != nil {
			return err
		}
		progress, err := c.Batch(batch).ProgressTx(ctx, tx)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE reports SET told=?", 10*progress.Succeeded+progress.Dead)
		return err
	}, &compensator.HandlerConfig[string]{AfterBatch: func(e *compensator.Entry) string { return e.BusinessID }})
	require.NoError(t, err)
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		for n := range 3 {
			if _, err := line.Record(ctx, tx, n, compensator.Options{BatchID: "b"}); err != nil {
				return err
			}
		}
		_, err := report.Record(ctx, tx, "b", compensator.Options{BusinessID: "b"})
		return err
	}))
	compensatortest.Run(t, c)
	compensatortest.WaitIdle(t, c)
	compensatortest.Elapse(t, c, time.Hour)
	compensatortest.WaitIdle(t, c)
	assert.Equal(t, 21, read[int](t, db, "SELECT told FROM reports"))
}

// New opens the database on a Connector, which tells the Compensator about each commit. So an entry runs at once,
// although PollInterval is an hour.
func TestCommitIsSeen(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, func(cfg *compensator.Config) { cfg.PollInterval = time.Hour })
	ran := make(chan struct{})
	run, err := compensator.Handle(t.Context(), c, "run", func(context.Context, *compensator.Entry, int) error { close(ran); return nil }, nil)
	require.NoError(t, err)
	compensatortest.Run(t, c)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = run.Record(t.Context(), tx, 1, compensator.Options{})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	select {
	case <-ran:
	case <-time.After(time.Minute):
		t.Fatal("the commit did not enqueue the entry")
	}
}
