package commits

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// leftOpen holds statements that leave a pooled session inside a transaction.
var leftOpen = map[string][]string{
	"begin":           {"BEGIN", "SELECT COUNT(*) FROM common_process_log"},
	"completion type": {"SET SESSION completion_type=1", "START TRANSACTION", "SELECT COUNT(*) FROM common_process_log", "COMMIT", "SELECT COUNT(*) FROM common_process_log"},
	"autocommit":      {"SET SESSION autocommit=0", "SELECT COUNT(*) FROM common_process_log"},
}

func spoilPool(w *harness.World, db *sql.DB, n int, statements []string) {
	w.T.Helper()
	var conns []*sql.Conn
	for range n {
		conn, err := db.Conn(w.T.Context())
		require.NoError(w.T, err)
		for _, statement := range statements {
			_, err := conn.ExecContext(w.T.Context(), statement)
			require.NoError(w.T, err, statement)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		require.NoError(w.T, conn.Close())
	}
}

// Failure: F39
func TestSessionsLeftInsideATransactionHoldNothingUp(t *testing.T) {
	t.Parallel()
	for name, statements := range leftOpen {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
				db.SetMaxOpenConns(5)
				db.SetMaxIdleConns(5)
				cfg := w.QuickConfig()
				cfg.DB = db
				lines := harness.CaptureLog(&cfg)
				c := w.New(cfg)
				effects := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error { return nil })
				plainly, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
				spoilPool(w, db, 5, statements)
				paid := w.RecordThrough(w.DB, effects, 1, compensator.Options{}) // The pool is plain, so the commit is not reported to this process.
				closed := w.RecordThrough(w.DB, plainly, 1, compensator.Options{})
				w.Run(c)
				w.WaitState(closed, compensator.Succeeded)
				w.WaitState(paid, compensator.Succeeded)
				require.Zero(t, w.Entry(c, paid).ProcessCount)
				require.NoError(t, c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error {
					w.WriteEffect(tx, "closure")
					return nil
				}))
				require.Equal(t, 2, w.Count("effects"))
				lines.Contains(w, "level=WARN", "left inside a transaction", "1568")
			})
		})
	}
}

// Without a discard, the pool would return the session again and again.
func TestSessionLeftInAnotherDatabaseCostsOneAttempt(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"USE mysql", "SET SESSION TRANSACTION READ ONLY"} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			cfg := w.QuickConfig()
			cfg.DB = w.Open(harness.WatchedPool(w.DSN))
			cfg.DB.SetMaxOpenConns(1)
			c := w.New(cfg)
			effects := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0)}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error { return nil })
			spoilPool(w, cfg.DB, 1, []string{statement})
			paid := w.RecordThrough(w.DB, effects, 1, compensator.Options{})
			w.Run(c)
			w.WaitState(paid, compensator.Succeeded)
			require.Equal(t, 1, w.Count("effects"))
		})
	}
}

// The pool holds ten broken sessions. Package sql tries only three sessions before it returns an error.
// Failure: F39
func TestClosureOutlastsAnyNumberOfSessionsLeftInsideATransaction(t *testing.T) {
	t.Parallel()
	for name, statements := range leftOpen {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
				db.SetMaxIdleConns(10)
				cfg := w.QuickConfig()
				cfg.DB = db
				c := w.New(cfg)
				spoilPool(w, db, 10, statements)
				require.NoError(t, c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error {
					w.WriteEffect(tx, "closure")
					return nil
				}))
				require.Equal(t, 1, w.Count("effects"))
			})
		})
	}
}

// Failure: F39
func TestHealthSeesPastASnapshotThatSomebodyLeftOpen(t *testing.T) {
	t.Parallel()
	for name, statements := range leftOpen {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
				cfg := w.QuickConfig()
				cfg.DB = db
				c := w.New(cfg)
				db.SetMaxIdleConns(3)
				spoilPool(w, db, 3, statements)
				w.InsertDue("close_order", 1, 1)
				w.Exec("UPDATE common_process_log SET next_at=next_at-60000")
				assert.GreaterOrEqual(t, c.Health(t.Context()).OldestOverdue, time.Minute)
			})
		})
	}
}
