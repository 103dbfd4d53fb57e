// Package sqlitetest gives a test a whole Compensator without a server. The process log is on SQLite in memory, beside
// the tables that the test creates. The queue is the in-process timing wheel.
//
// docs/how-to/test-handlers.md says what such a test proves and what only a test on the real server proves.
//
// Package compensatortest has the functions that work on any Compensator: Call, Attempt, Run, WaitIdle, Elapse and
// RequireRecorded.
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

// New returns a Compensator and its database, which has only the log's tables. No other test uses them, so tests may
// run in parallel. Both are closed when the test ends.
//
// db is opened on a Connector, so the Compensator notices each commit and enqueues the entries of its transaction. By
// default the Compensator polls the database every 100 ms and logs warnings to the test's output. A change function may
// set every field of the Config except DB.
//
//	c, db := sqlitetest.New(t)
//	shop := NewShop(c, db) // registers its handlers
//
// A transaction that writes blocks readers too. Other statements wait up to 5 seconds for its end, and then fail.
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

// databases numbers the databases, as a part of their names.
var databases atomic.Int64

// Open returns a new SQLite database in memory, as New does, but without tables. Use it in a test that itself calls
// compensator.Migrate and compensator.New.
func Open(tb testing.TB) *sql.DB {
	tb.Helper()
	dsn := fmt.Sprintf("file:/compensator-%d?vfs=memdb&_txlock=immediate&_pragma=busy_timeout(5000)", databases.Add(1))
	db, err := compensator.Open("sqlite", dsn)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	// SQLite deletes the database when its last connection closes, and a pool may close idle connections.
	anchor, err := db.Driver().Open(dsn)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, anchor.Close()) })
	return db
}
