package servers

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

// A statement that the library gives up must end on the server. Otherwise such statements would use up all connections.
// Failure: F30
func TestBlockedServerHoldsFewSessionsOfOurs(t *testing.T) {
	t.Parallel()
	for name, pool := range harness.Pools {
		for what, statements := range map[string][2]string{
			"global read lock": {"FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES"},
			"table lock":       {"LOCK TABLES common_process_log WRITE", "UNLOCK TABLES"},
		} {
			t.Run(what+"/"+name, func(t *testing.T) {
				t.Parallel()
				w := harness.WorldAt(t, testservers.NewSQL(t).Database(t))
				config, err := mysql.ParseDSN(asService(w))
				require.NoError(t, err)
				cfg := w.QuickConfig()
				cfg.DB = w.Open(pool(config.FormatDSN()))
				cfg.Lease = time.Minute
				c := w.New(cfg)
				_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
				w.Run(c)
				w.InsertDue("close_order", 1, 20)
				w.WaitAllEnded()
				w.Exec("INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) " +
					"SELECT CONCAT('later-',id), business_type, content, " + harness.NowMillis + "+1500, created_at, updated_at FROM common_process_log WHERE id>10")
				most, began := 0, time.Now()
				lock, err := w.DB.Conn(t.Context())
				require.NoError(t, err)
				harness.ExecAll(t, lock, []string{statements[0]})
				// Watch for more than 20 s. The engine gives a statement up after 10 s, and then sends another one.
				w.Eventually(func() bool {
					var n int
					require.NoError(t, w.DB.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE user='service'").Scan(&n))
					most = max(most, n)
					return time.Since(began) > 22*time.Second
				}, "the server blocks for a while")
				harness.ExecAll(t, lock, []string{statements[1]})
				require.NoError(t, lock.Close())
				assert.LessOrEqual(t, most, 8)
				w.WaitAllEnded()
				assert.Equal(t, 30, ran.Total(), "nothing is lost, and nothing runs twice")
			})
		}
	}
}

// The driver's error for open rows is "bad connection", which also means a broken connection.
// Failure: F41
func TestRecordNamesRowsThatAreStillOpen(t *testing.T) {
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		const says = "rows of an earlier query are open"
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		tx := w.Begin(db)
		rows, err := tx.Query("SELECT 1 UNION SELECT 2")
		require.NoError(t, err)
		require.True(t, rows.Next())
		_, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
		require.ErrorContains(t, err, says)
		_ = rows.Close() // The driver can no longer read these rows.
		_ = tx.Rollback()

		reading := harness.HandleTransactional(t, c, compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0)}, func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry) error {
			rows, err := tx.QueryContext(ctx, "SELECT 1 UNION SELECT 2")
			if err != nil {
				return err
			}
			defer rows.Close()
			rows.Next()
			_, err = orders.Record(ctx, tx, harness.Order{}, compensator.Options{})
			return err
		})
		w.Run(c)
		id := w.RecordThrough(db, reading, 1, compensator.Options{})
		w.WaitState(id, compensator.Dead)
		e := w.Entry(c, id)
		assert.Equal(t, 2, e.ProcessCount, "the handler's mistake is a failure of the handler's")
		assert.Contains(t, e.LastError, says)
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := orders.Record(ctx, tx, harness.Order{}, compensator.Options{})
			return err
		}))
	})
}

// Each statement of the library has a time limit on the server, which is shorter than the client's timeout.
// Failure: F30
func TestStatementOfOursEndsOnABlockedServerByItself(t *testing.T) {
	t.Parallel()
	for name, pool := range harness.Pools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			store, err := compensator.OpenStore(t.Context(), w.Open(pool(w.DSN)), compensator.DefaultTable)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, store.Close()) })
			lock, err := w.DB.Conn(t.Context())
			require.NoError(t, err)
			harness.ExecAll(t, lock, []string{"LOCK TABLES common_process_log WRITE"})
			ctx, cancel := context.WithTimeout(t.Context(), harness.Timeout)
			defer cancel()
			_, err = store.Due(ctx, "close_order", 10)
			harness.ExecAll(t, lock, []string{"UNLOCK TABLES"})
			require.NoError(t, lock.Close())
			w.RequireNumber(err, 1205)
		})
	}
}
