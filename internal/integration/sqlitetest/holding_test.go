package sqlitetest

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
)

// The transaction blocks every other writer.
func writer(t *testing.T, dsn string) (begin, end func()) {
	t.Helper()
	conn, err := open(t, dsn).Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	run := func(statement string) func() {
		return func() {
			_, err := conn.ExecContext(context.Background(), statement)
			require.NoError(t, err)
		}
	}
	return run("BEGIN IMMEDIATE"), run("ROLLBACK")
}

func passes(d time.Duration) { <-time.After(d) }

// Failure: F58
func TestBusyWriterCostsNoOutcome(t *testing.T) {
	t.Parallel()
	for _, deliveries := range []int{0, 2} {
		t.Run(fmt.Sprint(deliveries, " lost leases"), func(t *testing.T) {
			t.Parallel()
			dsn := newFile(t, "journal_mode(WAL)", "busy_timeout(1000)")
			db := open(t, dsn)
			require.NoError(t, compensator.Migrate(t.Context(), db))
			entries := 20
			if deliveries > 1 {
				entries = 1 // An entry that has lost two leases runs alone, so a second entry would not start.
			}
			returns := make(chan struct{})
			var started sync.WaitGroup
			var ran atomic.Int64
			started.Add(entries)
			c := onSQLite(t, db, func(context.Context, *compensator.Entry, int) error {
				if ran.Add(1) <= int64(entries) {
					started.Done()
				}
				<-returns
				return nil
			}, nil)
			backlog(t, db, entries, deliveries)
			stop := running(t, c)
			started.Wait()
			begin, end := writer(t, dsn)
			begin()
			close(returns)
			passes(2500 * time.Millisecond)
			end()
			want := []string{fmt.Sprintf("close_order 1 %d", entries)}
			require.Eventually(t, func() bool { return assert.ObjectsAreEqual(want, states(t, db)) || int(ran.Load()) > entries }, waitTimeout, 20*time.Millisecond)
			stop()
			assert.Equal(t, want, states(t, db))
			assert.Equal(t, entries, int(ran.Load()), "each ran once")
		})
	}
}

// A trigger refuses all outcomes and renewals of leases, but accepts claims.
// Failure: F58
func TestOutcomeThatWaitsComesBeforeAClaimOfItsOwnProcess(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t, wal...))
	require.NoError(t, compensator.Migrate(t.Context(), db))
	exec := func(statement string) {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	var rounds, ran atomic.Int64
	c := onSQLite(t, db, func(context.Context, *compensator.Entry, int) error {
		ran.Add(1)
		return nil
	}, func(observe.ReconciledEvent) { rounds.Add(1) })
	backlog(t, db, 3, 0)
	exec("UPDATE common_process_log SET delivery_count=id%2") // Some entries have lost a lease.
	exec("CREATE TRIGGER no_outcomes BEFORE UPDATE ON common_process_log WHEN NEW.delivery_count=0 OR NEW.version=OLD.version BEGIN SELECT RAISE(ABORT, 'not now'); END")
	running(t, c)
	ended := func() (n int) {
		const now = "CAST((julianday('now')-2440587.5)*86400000 AS INTEGER)"
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM common_process_log WHERE lease_until>0 AND lease_until<"+now).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return ended() == 3 || ran.Load() > 3 }, waitTimeout, 20*time.Millisecond, "three leases end")
	polled := rounds.Load() + 10
	require.Eventually(t, func() bool { return rounds.Load() > polled }, waitTimeout, 20*time.Millisecond, "the process polls")
	exec("DROP TRIGGER no_outcomes")
	want := []string{"close_order 1 3"}
	require.Eventually(t, func() bool { return assert.ObjectsAreEqual(want, states(t, db)) || ran.Load() > 3 }, waitTimeout, 20*time.Millisecond)
	require.Equal(t, 3, int(ran.Load()), "each ran once")
}

func onSQLite(t *testing.T, db *sql.DB, handler func(context.Context, *compensator.Entry, int) error, reconciled func(observe.ReconciledEvent)) *compensator.Compensator {
	t.Helper()
	c, err := compensator.New(t.Context(), compensator.Config{
		DB: db, Lease: time.Second, PollInterval: 200 * time.Millisecond, ReconcileInterval: 300 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Observer: observe.Observer{Reconciled: reconciled},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	_, err = compensator.Handle(t.Context(), c, "close_order", handler, &compensator.HandlerConfig[int]{Concurrency: 100})
	require.NoError(t, err)
	return c
}

func running(t *testing.T, c *compensator.Compensator) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

func backlog(t *testing.T, db *sql.DB, n, deliveries int) {
	t.Helper()
	for i := range n {
		_, err := db.ExecContext(t.Context(), "INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, delivery_count, created_at, updated_at) "+
			"VALUES (?, 'close_order', '1', 1, ?, 0, 0)", fmt.Sprint("late-", i), deliveries)
		require.NoError(t, err)
	}
}

// A pool of one connection has none left for the renewal. On a pool of several connections, the handler's own lock
// blocks the renewal.
func handlerPools(t *testing.T, test func(t *testing.T, db *sql.DB)) {
	t.Helper()
	for name, by := range map[string]func(driver, dsn string) (*sql.DB, error){"connector": compensator.Open, "plain": sql.Open} {
		for _, conns := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, %d", name, conns), func(t *testing.T) {
				t.Parallel()
				db, err := by("sqlite", newFile(t, "journal_mode(WAL)", "busy_timeout(1000)"))
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, db.Close()) })
				db.SetMaxOpenConns(conns)
				require.NoError(t, compensator.Migrate(t.Context(), db))
				test(t, db)
			})
		}
	}
}

// If the handler lost its lease, no attempt would count, and the entry would run again forever.
// Failure: F52
func TestTransactionalHandlerMayTakeLongerThanItsLease(t *testing.T) {
	t.Parallel()
	handlerPools(t, func(t *testing.T, db *sql.DB) {
		c := onSQLite(t, db, func(context.Context, *compensator.Entry, int) error { return nil }, nil)
		ended := make(chan error, 100)
		_, err := compensator.HandleTx(t.Context(), c, "settle", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ int) error {
			_, err := tx.ExecContext(ctx, "DELETE FROM common_process_log WHERE id<0") // This statement takes the write lock.
			select {
			case <-time.After(2200 * time.Millisecond):
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
			ended <- err
			return err
		}, &compensator.HandlerConfig[int]{Timeout: time.Minute, Lease: time.Second})
		require.NoError(t, err)
		recordOne(t, c, "settle")
		running(t, c)
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(waitTimeout):
			require.Fail(t, "it does not run")
		}
		require.Eventually(t, func() bool { return assert.ObjectsAreEqual([]string{"settle 1 1"}, states(t, db)) }, waitTimeout, 20*time.Millisecond)
		assert.Empty(t, ended, "it ran once")
	})
}

// The timeout must end the handler before the lease ends, so that the attempt counts as a failure.
// Failure: F52
func TestLeaseOfATransactionOnSQLiteOutlastsItsTimeout(t *testing.T) {
	t.Parallel()
	handlerPools(t, func(t *testing.T, db *sql.DB) {
		c, err := compensator.New(t.Context(), compensator.Config{DB: db, Grace: time.Minute, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		leases := make(chan time.Duration, 1)
		const remaining = "SELECT lease_until-CAST((julianday('now')-2440587.5)*86400000 AS INTEGER) FROM common_process_log WHERE id=?"
		inTx := func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ int) error {
			var left int64
			err := tx.QueryRowContext(ctx, remaining, e.ID.Row()).Scan(&left)
			leases <- time.Duration(left) * time.Millisecond
			return err
		}
		plain := func(ctx context.Context, e *compensator.Entry, _ int) error {
			var left int64
			err := db.QueryRowContext(ctx, remaining, e.ID.Row()).Scan(&left)
			leases <- time.Duration(left) * time.Millisecond
			return err
		}
		_, err = compensator.HandleTx(t.Context(), c, "in a transaction", inTx, &compensator.HandlerConfig[int]{Timeout: time.Hour, Lease: time.Hour})
		require.NoError(t, err)
		_, err = compensator.Handle(t.Context(), c, "undone in one", plain, &compensator.HandlerConfig[int]{Timeout: time.Hour, Lease: time.Minute, CompensateTx: inTx})
		require.NoError(t, err)
		_, err = compensator.Handle(t.Context(), c, "in none", plain, &compensator.HandlerConfig[int]{Timeout: time.Hour, Lease: time.Minute})
		require.NoError(t, err)
		running(t, c)
		for _, businessType := range []string{"in a transaction", "undone in one", "in none"} {
			recordOne(t, c, businessType)
			var lease time.Duration
			select {
			case lease = <-leases:
			case <-time.After(waitTimeout):
				require.Fail(t, "it does not run", businessType)
			}
			if businessType == "in none" && db.Stats().MaxOpenConnections == 0 {
				assert.Less(t, lease, time.Hour, businessType)
			} else {
				assert.Greater(t, lease, time.Hour, businessType)
			}
		}
	})
}

func recordOne(t *testing.T, c *compensator.Compensator, businessType string) {
	t.Helper()
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := c.Record(ctx, tx, compensator.NewEntry{BusinessType: businessType, Content: []byte("1")})
		return err
	}))
}
