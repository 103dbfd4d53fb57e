package uitest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/testservers"
)

// Failure: F133
func TestPagesCostAFewStatements(t *testing.T) {
	t.Parallel()
	dsn := testservers.Database(t)
	worker := openServerLog(t, dsn, nil)
	var sent atomic.Int64
	w := worldOf(t, openServerLog(t, dsn, &sent), "/ops/") // No process runs the entries.
	shop := worldOf(t, worker, "/ops/")
	shop.problem()
	refund := shop.entriesOf("refund", compensator.Dead)[0]
	alice := admin.Actor{ID: "alice"}
	require.NoError(t, shop.admin.Note(t.Context(), alice, refund.ID, admin.Why{Reason: "asked the bank"}))
	groups, _, err := shop.admin.Groups(t.Context(), alice)
	require.NoError(t, err)
	client := w.client("alice")
	take := values("type", "refund", "state", "dead", "reason", "for the auditor")
	before := sent.Load()
	require.Equal(t, 200, client.post("export", take).status)
	assert.LessOrEqual(t, sent.Load()-before, int64(6), "an export: what is read, once, and its record")
	cost := func(path string) int64 {
		before := sent.Load()
		require.Equal(t, 200, client.get(path).status, path)
		return sent.Load() - before
	}
	for _, page := range []struct {
		path string
		most int64
	}{
		{"", 11},
		// One of the four statements reads the contents of up to sixteen entries to find their amounts. Another one
		// reads the faults of failed entries.
		{"entries", 4},
		{"entries?type=refund", 3},
		{"entries?state=dead", 3},
		{"entries?type=refund&state=dead", 3},
		// Two of the statements read the type of the entry before another one reads its content. Two statements explain
		// why the entry does not run. One reads the failed attempts.
		{"entries?state=running", 1}, // one for each 100 groups. No entry runs here, so no rows are read
		{"entries/" + refund.ID.String(), 10},
		{"cases", 4},
		{"cases/due", 3}, // each case is read once
		// This page sends one statement more than cases/due, for the sums of the failure.
		{"cases/due?failure=" + groups[0].Fingerprint.String(), 4},
		{"trail", 1}, // one statement reads both tables
		{"trail?entry=" + refund.ID.String(), 1},
		{"trail?actor=alice", 1},
		{"settings", 12},
	} {
		got := cost(page.path)
		// A request reads the types of the log if the last read is more than five seconds old. That costs one statement
		// more. The next request does not read the types, so count the statements of a second request.
		if got > page.most {
			got = cost(page.path)
		}
		assert.LessOrEqual(t, got, page.most, "/%s: statements", page.path)
		t.Logf("/%s: %d statements", page.path, got)
	}
	w.until(func() bool { return cost("")+cost("") == 0 }) // A second reader must share the result of the first.
	require.NoError(t, w.admin.Pause(t.Context(), alice, "refund", admin.Why{Reason: "PSP down"}))
	assert.Positive(t, cost(""), "an action shows at once")
}

// If sent is not nil, openServerLog counts the log's statements.
func openServerLog(t *testing.T, dsn string, sent *atomic.Int64, change ...func(cfg *compensator.Config)) *compensator.Compensator {
	t.Helper()
	parsed, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	var connector driver.Connector
	connector, err = mysql.NewConnector(parsed)
	require.NoError(t, err)
	if sent != nil {
		connector = counted{connector, sent}
	}
	db := sql.OpenDB(compensator.Connector(connector))
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, compensator.Migrate(t.Context(), db))
	cfg := compensator.Config{DB: db, PollInterval: 100 * time.Millisecond}
	configure(&cfg)
	for _, set := range change {
		set(&cfg)
	}
	c, err := compensator.New(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

type counted struct {
	driver.Connector
	sent *atomic.Int64
}

func (c counted) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("counted: %w", err)
	}
	return countedConn{conn, c.sent}, nil
}

type countedConn struct {
	driver.Conn
	sent *atomic.Int64
}

func (c countedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.sent.Add(1)
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c countedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.sent.Add(1)
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c countedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.sent.Add(1)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}
