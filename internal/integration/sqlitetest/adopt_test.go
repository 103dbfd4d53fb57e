package sqlitetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/adopt"
)

// Failure: F109
func TestRowsOfAnOldTableBecomeEntriesOnSQLite(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t, wal...))
	require.NoError(t, compensator.Migrate(t.Context(), db))
	_, err := db.ExecContext(t.Context(), "CREATE TABLE old_log (k TEXT PRIMARY KEY, state INTEGER NOT NULL DEFAULT 0)")
	require.NoError(t, err)
	for i := range 45 {
		_, err := db.ExecContext(t.Context(), "INSERT INTO old_log (k) VALUES (?)", fmt.Sprintf("row %02d", i))
		require.NoError(t, err)
	}
	c, err := compensator.New(t.Context(), compensator.Config{DB: db, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	im, err := adopt.Open(c, adopt.Config{
		Name: "old", Table: "old_log", Key: "k", Where: "state = 0", Take: "state = 9", Page: 10, Rest: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Map: func(row *adopt.Row) (compensator.NewEntry, error) {
			switch row.Key {
			case "row 07":
				return compensator.NewEntry{}, errors.New("no luck")
			case "row 08":
				return compensator.NewEntry{BusinessType: " "}, nil
			}
			return compensator.NewEntry{BusinessType: "pay", Content: []byte("{}")}, nil
		},
	})
	require.NoError(t, err)
	tried, err := im.DryRun(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 0, count(t, db))
	done, err := im.Once(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "rows            45\nrecorded        43  pay\nrefused          1  of no type\nrefused          1   ", done.String())
	assert.Equal(t, done.String(), tried.String())
	assert.Equal(t, 43, count(t, db))
	again, err := im.Once(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, again.Rows)
}

var sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")

// Failure: F111
func TestEntryRecordedByPlainSQLRunsOnSQLite(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/how-to/record-by-sql.md")
	require.NoError(t, err)
	blocks := sqlBlock.FindAllStringSubmatch(string(text), -1)
	record := blocks[len(blocks)-1][1]
	require.Contains(t, record, "julianday")
	dsn := newFile(t, wal...)
	db := open(t, dsn)
	require.NoError(t, compensator.Migrate(t.Context(), db))
	run := func(script string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), script)
		require.NoError(t, err, script)
	}
	run(record)
	var half int64
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT next_at - created_at FROM common_process_log").Scan(&half))
	assert.EqualValues(t, 1_800_001, half)
	if path, err := exec.LookPath("sqlite3"); err == nil {
		file, _, _ := strings.Cut(strings.TrimPrefix(dsn, "file:"), "?")
		client := exec.CommandContext(t.Context(), path, file)
		client.Stdin = strings.NewReader(strings.NewReplacer("close-42", "close-client", "1800000 + 1", "0").Replace(record))
		out, err := client.CombinedOutput()
		require.NoError(t, err, string(out))
	} else {
		run(strings.NewReplacer("close-42", "close-client", "1800000 + 1", "0").Replace(record))
	}
	for i, odd := range []string{
		"version='abc'", "version=-1", "epoch=-1", "epoch='x'", "delivery_count=1.5", "process_count='many'", "next_at=datetime('now')", "next_at='soon'",
		"next_at=1700000000000.5", "next_at=-9223372036854775808", "next_at=9e99", "lease_until='x'", "lease_until=9223372036854775807", "created_at=datetime('now')", "updated_at=''",
		"state='waits'", "state=9", "state=-1000", "headers='x'", "content='no JSON'", "token='long, much longer than sixteen'", "business_type=CAST(X'FFFE' AS TEXT)",
	} {
		run(strings.NewReplacer("close-42", fmt.Sprint("odd-", i), "1800000 + 1", "-60000").Replace(record))
		run(fmt.Sprintf("UPDATE common_process_log SET %s WHERE idempotent_id='odd-%d'", odd, i))
	}
	for i := range 30 {
		run(strings.NewReplacer("close-42", fmt.Sprint("good-", i), "1800000 + 1", "0").Replace(record))
	}
	c, err := compensator.New(t.Context(), compensator.Config{DB: db, PollInterval: 200 * time.Millisecond, Lease: time.Second, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	_, err = compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, _ *compensator.Entry, o struct{ ID string }) error {
		assert.Equal(t, "42", o.ID)
		return nil
	}, &compensator.HandlerConfig[struct{ ID string }]{Concurrency: 2})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	require.Eventually(t, func() bool {
		var n int
		return assert.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM common_process_log WHERE state=1 AND (idempotent_id LIKE 'good-%' OR idempotent_id='close-client')").Scan(&n)) && n == 31
	}, waitTimeout, 10*time.Millisecond, "every good entry runs")
	require.Eventually(t, func() bool {
		text := fmt.Sprint(c.Health(t.Context()).Problems)
		return strings.Contains(text, "next_at is more than") && strings.Contains(text, "no process has a lease") && strings.Contains(text, "state does not exist")
	}, waitTimeout, 10*time.Millisecond, "what does not run is named")
	_, err = admin.Of(c).List(t.Context(), admin.Filter{States: []compensator.State{compensator.Pending}, Limit: 100})
	require.NoError(t, err)
	stop()
	require.NoError(t, <-done)
}
