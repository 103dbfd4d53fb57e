// Package sqlitetest gives tests a whole Compensator with no server: the process log on SQLite in memory, the queue the
// timing wheel, beside whatever tables the test makes. What it does is what runs in production, transactional handlers
// included; what it proves, and what only the real server does, is said in docs/testing-your-handlers.md.
//
// What works on any Compensator stands in package compensatortest: Call, Attempt, Run, WaitIdle, Elapse, RequireRecorded.
package sqlitetest

import (
	"database/sql"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver

	"github.com/compensator-go/compensator"
)

// New returns a Compensator and its database, which is empty but for the log's tables. Both are the test's own, and are
// closed when it ends; tests may run in parallel. db is opened on a Connector: a commit enqueues what was recorded.
//
// Each of change may set what New is given, but for DB. By default the database is polled every 100 ms, and warnings go
// to the test's output.
//
//	c, db := sqlitetest.New(t)
//	shop := NewShop(c, db) // registers its handlers
//
// A writer shuts out readers, too: while a transaction holds the database, whoever asks outside it waits for up to 5
// seconds, and is refused then.
func New(tb testing.TB, change ...func(*compensator.Config)) (*compensator.Compensator, *sql.DB) {
	tb.Helper()
	db := Open(tb)
	require.NoError(tb, compensator.Migrate(tb.Context(), db))
	cfg := compensator.Config{
		PollInterval: 100 * time.Millisecond,
		Logger:       slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	for _, set := range change {
		set(&cfg)
	}
	cfg.DB = db
	c, err := compensator.New(tb.Context(), cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, c.Close()) })
	return c, db
}

// databases counts those opened by this process: each has a name of its own.
var databases atomic.Int64

// Open returns New's database alone, without any table, for a test that migrates and configures by itself.
func Open(tb testing.TB) *sql.DB {
	tb.Helper()
	dsn := fmt.Sprintf("file:/compensator-%d?vfs=memdb&_txlock=immediate&_pragma=busy_timeout(5000)", databases.Add(1))
	db, err := compensator.Open("sqlite", dsn)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	// The database is there for as long as somebody is connected to it, and a pool may close what is idle.
	anchor, err := db.Driver().Open(dsn)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, anchor.Close()) })
	return db
}
