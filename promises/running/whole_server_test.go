package running

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

// Another application on the server uses up max_prepared_stmt_count while handlers run.
// Failure: F74
func TestPreparedStatementsUsedUpByANeighbourSpendNoAttempt(t *testing.T) {
	t.Parallel()
	server := testservers.NewSQL(t)
	for _, undo := range []bool{false, true} {
		t.Run(fmt.Sprintf("undo=%v", undo), func(t *testing.T) {
			w := harness.WorldAt(t, server.Database(t))
			c := w.New(w.QuickConfig())
			const entries = 10
			var begun, met atomic.Int64
			usedUp := make(chan struct{})
			work := func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
				begun.Add(1)
				<-usedUp
				if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.ID.String()); err != nil {
					met.Add(1)
					return fmt.Errorf("pay: %w", errors.Join(errors.New("insert"), err))
				}
				return nil
			}
			run, want := work, compensator.Succeeded
			cfg := compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, MaxCompensateAttempts: 1, Retry: compensator.Fixed(0), Concurrency: entries}
			if undo {
				want, cfg.CompensateTx = compensator.Compensated, work
				run = func(context.Context, *compensator.ScopedTx, *compensator.Entry, harness.Order) error {
					return compensator.Permanent(errors.New("no such order"))
				}
			}
			orders, err := compensator.HandleTx(t.Context(), c, "pay_order", run, &cfg)
			require.NoError(t, err)
			w.Run(c)
			var ids []compensator.EntryID
			for i := range entries {
				ids = append(ids, w.Record(orders, i, compensator.Options{}))
			}
			w.Eventually(func() bool { return begun.Load() == entries }, "all handlers run")
			w.Exec("SET GLOBAL max_prepared_stmt_count=0")
			giveBack := sync.OnceFunc(func() { w.Exec("SET GLOBAL max_prepared_stmt_count=16382") })
			defer giveBack()
			close(usedUp)
			// If the library took this error for a problem of one entry, the second error would use up the only attempt of the
			// entry. So wait until each entry has met the error twice.
			w.Eventually(func() bool { return met.Load() >= 2*entries }, "each entry has met it twice")
			giveBack()
			for _, id := range ids {
				w.WaitState(id, want)
				require.Zero(t, w.Entry(c, id).CompensateCount)
			}
			require.Equal(t, entries, w.Count("effects"))
		})
	}
}

// Failure: F74
func TestConditionOfTheWholeServerNeverCounts(t *testing.T) {
	t.Parallel()
	for _, answer := range []mysql.MySQLError{
		{Number: 1461, Message: "Can't create more than max_prepared_stmt_count statements"},
		{Number: 1040, Message: "Too many connections"},
		{Number: 1290, Message: "The MySQL server is running with the --super-read-only option"},
		{Number: 1030, Message: `Got error 28 "No space left on device" from storage engine InnoDB`},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := compensatortest.NewMemoryStore()
			c, err := compensator.New(t.Context(), compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			var ran atomic.Int64
			var full atomic.Bool
			full.Store(true)
			_, err = compensator.HandleTx(t.Context(), c, "order", func(context.Context, *compensator.ScopedTx, *compensator.Entry, string) error {
				ran.Add(1)
				if full.Load() {
					return fmt.Errorf("pay: %w", &answer)
				}
				return nil
			}, &compensator.HandlerConfig[string]{MaxAttempts: 1, Retry: compensator.Fixed(0), MaxWait: time.Hour})
			require.NoError(t, err)
			tx, err := store.BeginTx(t.Context())
			require.NoError(t, err)
			receipt, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "order", Content: []byte(`"x"`)})
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			receipt.Committed()
			stop := compensatortest.Run(t, c)
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			require.Equal(t, compensator.Pending, store.Rows()[0].State)
			require.Zero(t, store.Rows()[0].ProcessCount)
			require.Contains(t, store.Rows()[0].LastError, fmt.Sprint(ran.Load(), " in a row, a condition of the whole server: pay: "))
			require.Greater(t, ran.Load(), int64(24*60), "at least once a minute")
			require.Less(t, ran.Load(), int64(2*24*60+10), "at most twice a minute, after the first few")
			problems := c.Health(t.Context()).Problems
			require.Len(t, problems, 1)
			require.True(t, strings.HasPrefix(problems[0].What, "attempts end with nothing counted"), problems[0].What)
			full.Store(false)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, compensator.Succeeded, store.Rows()[0].State)
			stop()
			require.NoError(t, c.Close())
		})
	}
}

// At the session's time limit, MariaDB ends any statement that waits for a row lock, and MySQL ends only SELECT
// statements.
// Failure: F74
func TestStatementEndedForItsTimeSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	params, query := map[string]string{"max_statement_time": "0.2"}, "SELECT id FROM accounts WHERE id=1 FOR UPDATE"
	if testservers.SharedSQL(t).Flavor != "mariadb" {
		params, query = map[string]string{"max_execution_time": "50"}, "SELECT COUNT(*) FROM information_schema.columns a, information_schema.columns b, information_schema.columns c"
	}
	for name, pool := range harness.Pools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			w.Exec("CREATE TABLE accounts (id INT PRIMARY KEY)")
			w.Exec("INSERT INTO accounts VALUES (1)")
			holder := w.Begin(w.DB)
			_, err := holder.ExecContext(t.Context(), "SELECT id FROM accounts WHERE id=1 FOR UPDATE")
			require.NoError(t, err)
			cfg := w.QuickConfig()
			cfg.DB = w.Open(pool(harness.WithParams(t, w.DSN, params)))
			c := w.New(cfg)
			var ended atomic.Int64
			var free atomic.Bool
			orders := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 3, Retry: compensator.Fixed(0)}, func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry) error {
				if free.Load() {
					return nil
				}
				rows, err := tx.QueryContext(ctx, query)
				if err == nil {
					defer rows.Close()
					for rows.Next() {
					}
					err = rows.Err()
				}
				if err == nil || ended.Add(1) < 3 {
					return err
				}
				free.Store(true)
				return err
			})
			w.Run(c)
			id := w.Record(orders, 1, compensator.Options{})
			w.WaitState(id, compensator.Succeeded)
			require.EqualValues(t, 3, ended.Load())
			require.Zero(t, w.Entry(c, id).ProcessCount)
			require.NoError(t, holder.Rollback())
		})
	}
}

// Without its temporary files, a server fails statements that sort on disk with error 1.
// Failure: F74
func TestServerWithoutItsTemporaryFilesSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tmp")
	require.NoError(t, os.Mkdir(dir, 0o777))
	w := harness.WorldAt(t, testservers.NewSQL(t, "--tmpdir="+dir).Database(t))
	w.Exec("CREATE TABLE payments (id INT AUTO_INCREMENT PRIMARY KEY, note VARCHAR(500))")
	w.Exec("INSERT INTO payments (note) VALUES (REPEAT('x',400)),(REPEAT('y',400))")
	for range 11 {
		w.Exec("INSERT INTO payments (note) SELECT CONCAT(SUBSTR(note,1,350),RAND()) FROM payments")
	}
	c := w.New(w.QuickConfig())
	var attempts atomic.Int64
	orders, err := compensator.HandleTx(t.Context(), c, "pay_order", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ harness.Order) error {
		if attempts.Add(1) == 1 {
			if err := os.Rename(dir, dir+".removed"); err != nil {
				return err
			}
			defer os.Rename(dir+".removed", dir)
		}
		if _, err := tx.ExecContext(ctx, "SET sort_buffer_size=32768"); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT note FROM payments ORDER BY note, id DESC LIMIT 3000, 4000")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
		}
		return rows.Err()
	}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, Retry: compensator.Fixed(0)})
	require.NoError(t, err)
	w.Run(c)
	id := w.Record(orders, 1, compensator.Options{})
	w.Eventually(func() bool { return w.State(id).Terminal() }, "the entry has ended")
	require.Equal(t, compensator.Succeeded, w.Entry(c, id).State, w.Entry(c, id).LastError)
	require.EqualValues(t, 2, attempts.Load(), "the first attempt has met the fault")
}
