package recording

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

// The logs in the two databases have the same name, and one entry with the same id.
// Failure: F38
func TestTransactionOfAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	for home, open := range harness.Pools {
		for other, openOther := range harness.Pools {
			t.Run(home+", transaction of a "+other, func(t *testing.T) {
				t.Parallel()
				here, there := harness.NewWorld(t), harness.NewWorld(t)
				cfg := here.QuickConfig()
				cfg.DB = here.Open(open(here.DSN))
				c := here.New(cfg)
				orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
				ids := here.InsertDue("close_order", 1, 1)
				there.InsertDue("close_order", 1, 1)
				tx := there.Begin(there.Open(openOther(there.DSN)))
				defer func() { _ = tx.Rollback() }()
				for what, use := range map[string]func() error{
					"record": func() error {
						_, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
						return err
					},
					"together":   func() error { _, err := c.Record(t.Context(), tx, harness.NewUntyped(2)...); return err },
					"cancel":     func() error { _, err := c.CancelTx(t.Context(), tx, ids[0]); return err },
					"complete":   func() error { return harness.ErrOf(c.CompleteTx(t.Context(), tx, ids[0])) },
					"reschedule": func() error { return c.RescheduleTx(t.Context(), tx, ids[0], time.Hour) },
				} {
					var refused *compensator.FieldError
					if err := use(); assert.ErrorAs(t, err, &refused, what) {
						assert.Equal(t, "tx", refused.Field, what)
						assert.ErrorContains(t, err, "database", what)
					}
				}
				require.NoError(t, tx.Rollback())
				elsewhere := there.QuickConfig()
				elsewhere.DB = there.Open(openOther(there.DSN))
				require.ErrorIs(t, there.New(elsewhere).InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
					there.WriteEffect(tx, "business")
					_, err := orders.Record(ctx, tx, harness.Order{}, compensator.Options{})
					assert.ErrorAs(t, err, new(*compensator.FieldError))
					return nil // Ignore the error of Record. InTx must refuse the commit all the same.
				}), compensator.ErrNotRecorded, "half is not committed in the other database")
				assert.Zero(t, there.Count("effects"))
				for _, w := range []*harness.World{here, there} {
					assert.Equal(t, 1, w.Count("common_process_log WHERE state=0"))
					w.Exec("DELETE FROM common_process_log")
				}
			})
		}
	}
}

// Record's INSERT contains a check of the session's database. If the session uses another database, the INSERT computes
// a number out of range. The server refuses such a number in every sql_mode.
//
// A NULL for a NOT NULL column would not be enough. In lenient mode, the server refuses this NULL only in an INSERT of
// one row. In an INSERT of several rows it stores an empty text. So the test records one entry, and two entries at
// once.
// Failure: F38
func TestSessionThatUsesAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	for name, open := range harness.Pools {
		for _, mode := range []string{"STRICT_ALL_TABLES", ""} {
			for entries := 1; entries <= 2; entries++ {
				t.Run(fmt.Sprintf("%s, sql_mode '%s', %d", name, mode, entries), func(t *testing.T) {
					t.Parallel()
					usesAnotherDatabase(t, open, []string{"SET sql_mode='" + mode + "'"}, entries)
				})
			}
		}
	}
}

func usesAnotherDatabase(t *testing.T, open func(dsn string) func() (*sql.DB, error), before []string, entries int) {
	here, there := harness.NewWorld(t), harness.NewWorld(t)
	cfg := here.QuickConfig()
	cfg.DB = here.Open(open(here.DSN))
	c := here.New(cfg)
	var other string
	require.NoError(t, there.DB.QueryRow("SELECT DATABASE()").Scan(&other))
	recordThere := func(tx compensator.Tx) error {
		for _, statement := range append(before, "USE "+other) {
			_, err := tx.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		_, err := c.Record(t.Context(), tx, harness.NewUntyped(entries)...)
		return err
	}
	var refused *compensator.FieldError
	tx := here.Begin(cfg.DB)
	require.ErrorAs(t, recordThere(tx), &refused, "the user's transaction")
	assert.Equal(t, "tx", refused.Field)
	require.NoError(t, tx.Rollback())
	require.ErrorAs(t, c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error { return recordThere(tx) }), &refused, "InTx")
	assert.Equal(t, "tx", refused.Field)
	for _, w := range []*harness.World{here, there} {
		assert.Zero(t, w.Count("common_process_log"))
	}
}

// Failure: F38
func TestDatabaseOfTheSameNameOnAnotherServerIsAnother(t *testing.T) {
	t.Parallel()
	here, server := harness.NewWorld(t), testservers.NewSQL(t)
	var name string
	require.NoError(t, here.DB.QueryRow("SELECT DATABASE()").Scan(&name))
	_, err := here.Open(harness.PlainPool(server.DSN(""))).Exec("CREATE DATABASE " + name + " CHARACTER SET utf8mb4")
	require.NoError(t, err)
	there := harness.WorldAt(t, server.DSN(name))
	tx := there.Begin(there.DB)
	var refused *compensator.FieldError
	_, err = here.New(here.QuickConfig()).Record(t.Context(), tx, harness.NewUntyped(1)...)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "tx", refused.Field)
	require.ErrorIs(t, tx.Commit(), compensator.ErrNotRecorded)
	require.Zero(t, there.Count("common_process_log"))
}

// TestDatabasesOfAlmostTheSameNameAreApart uses two databases whose names are equal in the collation of DATABASE().
// Failure: F38
func TestDatabasesOfAlmostTheSameNameAreApart(t *testing.T) {
	t.Parallel()
	here := harness.NewWorld(t)
	cfg := here.QuickConfig()
	cfg.DB = here.Open(harness.PlainPool(here.DSN))
	c := here.New(cfg)
	config, err := mysql.ParseDSN(here.DSN)
	require.NoError(t, err)
	first := config.DBName
	for _, name := range []string{strings.Replace(first, "e", "é", 1), strings.ToUpper(first)} {
		here.Exec("CREATE DATABASE IF NOT EXISTS `" + name + "`") // On a server that ignores case, the upper-case name means the first database.
		defer here.Exec("DROP DATABASE IF EXISTS `" + name + "`")
		config.DBName = name
		there := here.Open(harness.PlainPool(config.FormatDSN()))
		require.NoError(t, compensator.Migrate(t.Context(), there))
		var folds bool
		require.NoError(t, there.QueryRow("SELECT @@lower_case_table_names>0 AND LOWER(DATABASE())=? COLLATE utf8mb4_bin", first).Scan(&folds))
		tx := here.Begin(there)
		_, err = c.Record(t.Context(), tx, harness.NewUntyped(2)...)
		require.NoError(t, tx.Rollback())
		if folds {
			require.NoError(t, err, name)
		} else {
			require.ErrorAs(t, err, new(*compensator.FieldError), name)
		}
	}
}

// Failure: F38
func TestTransactionOfAnotherPoolOfTheSameDatabaseIsTaken(t *testing.T) {
	t.Parallel()
	for home, open := range harness.Pools {
		for other, openOther := range harness.Pools {
			t.Run(home+", transaction of a "+other, func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				cfg := w.QuickConfig()
				cfg.DB = w.Open(open(w.DSN))
				c := w.New(cfg)
				db := w.Open(openOther(w.DSN))
				for range 2 {
					w.InTx(db, func(tx *sql.Tx) {
						_, err := c.Record(t.Context(), tx, harness.NewUntyped(2)...)
						require.NoError(t, err)
					})
				}
				assert.Equal(t, 4, w.Count("common_process_log"))
			})
		}
	}
}

// Failure: F38
func TestLogsOfOneDatabaseShareATransaction(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		require.NoError(t, compensator.MigrateTable(t.Context(), w.DB, "second_log"))
		cfg := w.QuickConfig()
		cfg.DB = db
		first := w.New(cfg)
		cfg.Table, cfg.Prefix = "second_log", w.Name+"2"
		second := w.New(cfg)
		elsewhere := harness.NewWorld(t)
		other := elsewhere.New(elsewhere.QuickConfig())
		for _, handle := range []func(tx *compensator.ScopedTx) compensator.Tx{
			func(tx *compensator.ScopedTx) compensator.Tx { return tx },
			func(tx *compensator.ScopedTx) compensator.Tx { return harness.Traced{Tx: tx} },
		} {
			require.NoError(t, first.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				for _, c := range []*compensator.Compensator{first, second} {
					_, err := c.Record(ctx, handle(tx), harness.NewUntyped(1)...)
					require.NoError(t, err)
				}
				return nil
			}))
			var refused *compensator.FieldError
			require.ErrorAs(t, first.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				_, err := other.Record(ctx, handle(tx), harness.NewUntyped(1)...)
				return err
			}), &refused)
			require.Equal(t, "tx", refused.Field)
		}
		require.Equal(t, 2, w.Count("common_process_log"))
		require.Equal(t, 2, w.Count("second_log"))
		require.Zero(t, elsewhere.Count("common_process_log"))
	})
}

func TestOtherConnectorIsAskedForItsLogOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	proxy, db := w.OpenProxied(true)
	asked := proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("'fingerprint'"), Fault: faultproxy.Count})
	for range 3 {
		w.InTx(db, func(tx *sql.Tx) {
			_, err := c.Record(t.Context(), tx, harness.NewUntyped(1)...)
			require.NoError(t, err)
		})
	}
	assert.Equal(t, 3, w.Count("common_process_log"))
	assert.Equal(t, 1, asked.Matched())
}
