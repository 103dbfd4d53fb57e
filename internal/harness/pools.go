package harness

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
)

// CommitTx has the signature of Compensator.InTx, so that tests can use both.
func CommitTx(_ *compensator.Compensator, db *sql.DB, work func(tx compensator.Tx) error) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

var modes = map[string]func(t *testing.T) (*World, compensator.Config){
	"connector and redis": func(t *testing.T) (*World, compensator.Config) {
		w := NewWorld(t).WithRedis()
		return w, w.QuickConfig()
	},
	"connector, no redis": func(t *testing.T) (*World, compensator.Config) {
		w := NewWorld(t)
		return w, w.QuickConfig()
	},
	"plain pool and redis": func(t *testing.T) (*World, compensator.Config) {
		w := NewWorld(t).WithRedis()
		cfg := w.QuickConfig()
		cfg.DB = w.Open(PlainPool(w.DSN))
		return w, cfg
	},
	"plain pool, no redis": func(t *testing.T) (*World, compensator.Config) {
		w := NewWorld(t)
		cfg := w.QuickConfig()
		cfg.DB = w.Open(PlainPool(w.DSN))
		return w, cfg
	},
}

func InEveryMode(t *testing.T, test func(t *testing.T, w *World, cfg compensator.Config)) {
	for name, openPool := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cfg := openPool(t)
			test(t, w, cfg)
		})
	}
}

// InOppositeModes runs a heavy test in two modes only, in parallel: Connector with Redis, and plain pool without Redis.
func InOppositeModes(t *testing.T, test func(t *testing.T, w *World, cfg compensator.Config)) {
	for _, name := range []string{"connector and redis", "plain pool, no redis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cfg := modes[name](t)
			test(t, w, cfg)
		})
	}
}

// Traced wraps a transaction handle as a user's tracer does. The library cannot recognize its type.
type Traced struct{ Tx compensator.Tx }

func (t Traced) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return t.Tx.ExecContext(ctx, query, args...)
}

func (t Traced) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.Tx.QueryContext(ctx, query, args...)
}

// The library recognizes Known by its method Scoped, as it does an ORM's handle.
type Known struct {
	Traced
	On *compensator.ScopedTx
}

func (k Known) Scoped() *compensator.ScopedTx { return k.On }

var Pools = map[string]func(dsn string) func() (*sql.DB, error){"connector": WatchedPool, "plain": PlainPool}

// UnfitSessions returns statements that make a session unfit for Record. In such a session Record returns an error and
// writes nothing.
func UnfitSessions(t *testing.T) map[string]string {
	statements := map[string]string{
		"unique_checks": "SET unique_checks=0",
		"timestamp":     "SET timestamp=1",
		"charset":       "SET NAMES swe7",
	}
	var database string
	require.NoError(t, NewWorld(t).DB.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&database))
	statements["another database"] = "USE `" + database + "`"
	if testservers.SharedSQL(t).Flavor == "mariadb" {
		statements["empty texts"] = "SET sql_mode='EMPTY_STRING_IS_NULL,STRICT_ALL_TABLES'"
	}
	return statements
}

func (w *World) Spoil(db *sql.DB, statement string) {
	w.T.Helper()
	conn, err := db.Conn(w.T.Context())
	require.NoError(w.T, err)
	_, err = conn.ExecContext(w.T.Context(), statement)
	require.NoError(w.T, err)
	require.NoError(w.T, conn.Close())
}

func InEveryPool(t *testing.T, test func(t *testing.T, w *World, db *sql.DB)) {
	InEveryPoolInTurn(t, func(t *testing.T, w *World, db *sql.DB) {
		t.Parallel()
		test(t, w, db)
	})
}

// InEveryPoolInTurn runs test on each kind of pool, one after the other, and no other test runs at that time. Tests
// that read the shared server's counters need this.
func InEveryPoolInTurn(t *testing.T, test func(t *testing.T, w *World, db *sql.DB)) {
	for name, pool := range Pools {
		t.Run(name, func(t *testing.T) {
			w := NewWorld(t)
			test(t, w, w.Open(pool(w.DSN)))
		})
	}
}

func WithParams(t *testing.T, dsn string, params map[string]string) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	if config.Params == nil {
		config.Params = make(map[string]string)
	}
	for name, value := range params {
		config.Params[name] = value
	}
	return config.FormatDSN()
}

func WatchedPool(dsn string) func() (*sql.DB, error) {
	return func() (*sql.DB, error) { return compensator.Open("mysql", dsn) }
}

func PlainPool(dsn string) func() (*sql.DB, error) {
	return func() (*sql.DB, error) { return sql.Open("mysql", dsn) }
}

func (w *World) Open(openPool func() (*sql.DB, error)) *sql.DB {
	w.T.Helper()
	db, err := openPool()
	require.NoError(w.T, err)
	w.T.Cleanup(func() { _ = db.Close() })
	return db
}
