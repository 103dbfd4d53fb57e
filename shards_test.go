package compensator_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// TestTransactionOfAnotherDatabaseIsRefused: two shards, each with a log of the same name, and one entry of the same
// id in both.
func TestTransactionOfAnotherDatabaseIsRefused(t *testing.T) {
	for home, open := range pools {
		for other, openOther := range pools {
			t.Run(home+", transaction of a "+other, func(t *testing.T) {
				t.Parallel()
				here, there := newWorld(t), newWorld(t)
				cfg := here.quick()
				cfg.DB = here.open(open(here.DSN))
				c := here.new(cfg)
				orders, _ := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
				ids := here.insertDue("close_order", 1, 1)
				there.insertDue("close_order", 1, 1)
				tx := there.begin(there.open(openOther(there.DSN)))
				defer func() { _ = tx.Rollback() }()
				for what, use := range map[string]func() error{
					"record":     func() error { _, err := orders.Record(t.Context(), tx, order{}, compensator.Options{}); return err },
					"together":   func() error { _, err := c.Record(t.Context(), tx, untyped(2)...); return err },
					"cancel":     func() error { _, err := c.CancelTx(t.Context(), tx, ids[0]); return err },
					"complete":   func() error { return c.CompleteTx(t.Context(), tx, ids[0]) },
					"reschedule": func() error { return c.RescheduleTx(t.Context(), tx, ids[0], time.Hour) },
				} {
					var refused *compensator.FieldError
					if err := use(); assert.ErrorAs(t, err, &refused, what) {
						assert.Equal(t, "tx", refused.Field, what)
						assert.ErrorContains(t, err, "database", what)
					}
				}
				require.NoError(t, tx.Rollback())
				elsewhere := there.quick()
				elsewhere.DB = there.open(openOther(there.DSN))
				require.ErrorIs(t, there.new(elsewhere).InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
					there.effect(tx, "business")
					_, err := orders.Record(ctx, tx, order{}, compensator.Options{})
					assert.ErrorAs(t, err, new(*compensator.FieldError))
					return nil // swallowed
				}), compensator.ErrNotRecorded, "half is not committed in the other database")
				assert.Zero(t, there.count("effects"))
				for _, w := range []*world{here, there} {
					assert.Equal(t, 1, w.count("common_process_log WHERE state=0"))
					w.exec("DELETE FROM common_process_log")
				}
			})
		}
	}
}

// TestDatabasesOfAlmostTheSameNameAreApart: to the collation of DATABASE() they are one.
func TestDatabasesOfAlmostTheSameNameAreApart(t *testing.T) {
	here := newWorld(t)
	cfg := here.quick()
	cfg.DB = here.open(plain(here.DSN))
	c := here.new(cfg)
	config, err := mysql.ParseDSN(here.DSN)
	require.NoError(t, err)
	first := config.DBName
	for _, name := range []string{strings.Replace(first, "e", "é", 1), strings.ToUpper(first)} {
		here.exec("CREATE DATABASE IF NOT EXISTS `" + name + "`") // a server that folds names has the last one
		defer here.exec("DROP DATABASE IF EXISTS `" + name + "`")
		config.DBName = name
		there := here.open(plain(config.FormatDSN()))
		require.NoError(t, compensator.Migrate(t.Context(), there))
		var folds bool
		require.NoError(t, there.QueryRow("SELECT @@lower_case_table_names>0 AND LOWER(DATABASE())=? COLLATE utf8mb4_bin", first).Scan(&folds))
		tx := here.begin(there)
		_, err = c.Record(t.Context(), tx, untyped(2)...)
		require.NoError(t, tx.Rollback())
		if folds {
			require.NoError(t, err, name)
		} else {
			require.ErrorAs(t, err, new(*compensator.FieldError), name)
		}
	}
}

// TestTransactionOfAnotherPoolOfTheSameDatabaseIsTaken: by its Connector, or by none.
func TestTransactionOfAnotherPoolOfTheSameDatabaseIsTaken(t *testing.T) {
	for home, open := range pools {
		for other, openOther := range pools {
			t.Run(home+", transaction of a "+other, func(t *testing.T) {
				w := newWorld(t)
				cfg := w.quick()
				cfg.DB = w.open(open(w.DSN))
				c := w.new(cfg)
				db := w.open(openOther(w.DSN))
				for range 2 {
					w.inTx(db, func(tx *sql.Tx) {
						_, err := c.Record(t.Context(), tx, untyped(2)...)
						require.NoError(t, err)
					})
				}
				assert.Equal(t, 4, w.count("common_process_log"))
			})
		}
	}
}

// TestMigrateTriesAgainWhatMetAnotherProcess: as Galera refuses what fails certification.
func TestMigrateTriesAgainWhatMetAnotherProcess(t *testing.T) {
	w := newWorld(t)
	var refused atomic.Int32
	db := w.open(lying(w.DSN, lie{fail: func(string) error {
		switch refused.Add(1) % 3 {
		case 1:
			return &mysql.MySQLError{Number: 1213, Message: "Deadlock found when trying to get lock; try restarting transaction"}
		case 2:
			return &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded; try restarting transaction"}
		}
		return nil
	}}, false))
	require.NoError(t, compensator.MigrateTable(t.Context(), db, "another"))
	assert.Equal(t, 1, w.count("another_meta WHERE name='fingerprint'"))
	assert.Greater(t, refused.Load(), int32(6))

	down := errors.New("no such right")
	db = w.open(lying(w.DSN, lie{fail: func(string) error { refused.Store(0); return down }}, false))
	require.ErrorIs(t, compensator.MigrateTable(context.Background(), db, "another"), down, "at once")
}
