package sqlitetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// waitTimeout is how long a test waits for an event that must happen.
const waitTimeout = 60 * time.Second

func TestEntriesLiveOnSQLite(t *testing.T) {
	t.Parallel()
	for _, journal := range []string{"WAL", "DELETE"} {
		t.Run(journal, func(t *testing.T) {
			t.Parallel()
			db := open(t, newFile(t, "journal_mode("+journal+")", "busy_timeout(10000)"))
			require.NoError(t, compensator.Migrate(t.Context(), db))
			live(t, db)
		})
	}
}

func live(t *testing.T, db *sql.DB) {
	_, err := db.ExecContext(t.Context(), "CREATE TABLE effects (entry INTEGER)")
	require.NoError(t, err)
	c, err := compensator.New(t.Context(), compensator.Config{DB: db, PollInterval: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	plain, err := compensator.Handle(t.Context(), c, "plain", func(_ context.Context, e *compensator.Entry, n int) error {
		if e.Attempt() == 1 && n%5 == 0 {
			return errors.New("not yet")
		}
		return nil
	}, &compensator.HandlerConfig[int]{Retry: compensator.Fixed(100 * time.Millisecond)})
	require.NoError(t, err)
	failing, err := compensator.Handle(t.Context(), c, "failing", func(context.Context, *compensator.Entry, int) error {
		return compensator.Permanent(errors.New("no such account"))
	}, nil)
	require.NoError(t, err)
	writing, err := compensator.HandleTx(t.Context(), c, "writing", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ int) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?)", int64(e.ID.Row()))
		return err
	}, nil)
	require.NoError(t, err)

	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	const each = 30
	for n := range each {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		for _, kind := range []*compensator.Type[int]{plain, failing, writing} {
			_, err := kind.Record(t.Context(), tx, n, compensator.Options{})
			require.NoError(t, err)
		}
		require.NoError(t, tx.Commit())
	}
	want := []string{"failing -2 30", "plain 1 30", "writing 1 30"}
	require.Eventually(t, func() bool { return assert.ObjectsAreEqual(want, states(t, db)) }, waitTimeout, 50*time.Millisecond, "%v", want)
	stop()
	require.NoError(t, <-done)
	var effects, entries int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*), COUNT(DISTINCT entry) FROM effects").Scan(&effects, &entries))
	assert.Equal(t, each, effects)
	assert.Equal(t, each, entries)
}

func states(t *testing.T, db *sql.DB) (counts []string) {
	rows, err := db.QueryContext(t.Context(), "SELECT business_type, state, COUNT(*) FROM common_process_log GROUP BY 1, 2 ORDER BY 1, 2")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var kind string
		var state, n int
		require.NoError(t, rows.Scan(&kind, &state, &n))
		counts = append(counts, fmt.Sprintf("%s %d %d", kind, state, n))
	}
	require.NoError(t, rows.Err())
	return counts
}

// Failure: F74
func TestErrorOfTheBusinessIsNotTakenForSQLites(t *testing.T) {
	t.Parallel()
	db, s := newLog(t, "journal_mode(WAL)", "busy_timeout(1000)")
	c, err := compensator.New(t.Context(), compensator.Config{DB: db, PollInterval: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	var ran [3]atomic.Int64
	words := [len(ran)]string{"payment was interrupted by the customer", "vendor: out of memory", "the vault's database is locked"}
	settle, err := compensator.HandleTx(t.Context(), c, "settle", func(_ context.Context, _ *compensator.ScopedTx, _ *compensator.Entry, which int) error {
		ran[which].Add(1)
		return errors.New(words[which])
	}, &compensator.HandlerConfig[int]{MaxAttempts: 2, Retry: compensator.Fixed(50 * time.Millisecond)})
	require.NoError(t, err)
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		for which := range words {
			if _, err := settle.Record(ctx, tx, which, compensator.Options{}); err != nil {
				return err
			}
		}
		return nil
	}))
	running(t, c)
	require.Eventually(t, func() bool { return assert.ObjectsAreEqual([]string{"settle -2 3"}, states(t, db)) }, waitTimeout, 20*time.Millisecond)
	for which := range words {
		assert.EqualValues(t, 2, ran[which].Load(), words[which])
	}

	// A real error of SQLite does not count as an attempt, however the handler wraps it.
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "PRAGMA busy_timeout=1")
	require.NoError(t, err)
	tx, err := s.Begin(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.ErrorContains(t, err, "database is locked")
	fault := s.(interface{ ServerFault(err error) bool }).ServerFault
	assert.True(t, fault(err))
	assert.True(t, fault(fmt.Errorf("pay: %w", errors.Join(errors.New("insert"), err))))
	require.NoError(t, tx.Rollback())
	_, err = conn.ExecContext(t.Context(), "SELECT nothing")
	require.Error(t, err)
	assert.False(t, fault(err), "a statement that is wrong by itself is the handler's")
}

// Failure: F119
func TestOutcomeStaysUnknownThroughPlainFailures(t *testing.T) {
	t.Parallel()
	db := open(t, newFile(t, wal...))
	require.NoError(t, compensator.Migrate(t.Context(), db))
	c, err := compensator.New(t.Context(), compensator.Config{DB: db, PollInterval: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), Operations: &compensator.Operations{}})
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	var calls atomic.Int64
	refunds, err := compensator.Handle(t.Context(), c, "refund", func(ctx context.Context, _ *compensator.Entry, _ int) error {
		if calls.Add(1) == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return errors.New("no such account")
	}, &compensator.HandlerConfig[int]{MaxAttempts: 3, Timeout: 50 * time.Millisecond, Retry: compensator.Fixed(100 * time.Millisecond)})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	receipt, err := refunds.Record(t.Context(), tx, 1, compensator.Options{})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.Eventually(t, func() bool { return assert.ObjectsAreEqual([]string{"refund -2 1"}, states(t, db)) }, waitTimeout, 50*time.Millisecond)
	stop()
	require.NoError(t, <-done)
	d, err := admin.New(c, admin.Options{Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })})
	require.NoError(t, err)
	who := admin.Actor{ID: "mei"}
	lines, err := d.Lines(t.Context(), who, []compensator.EntryID{receipt.ID()})
	require.NoError(t, err)
	require.Len(t, lines, 1)
	var unchecked *admin.UncheckedError
	_, err = d.Change(t.Context(), who, admin.Change{Action: admin.Requeue, Entries: []admin.Seen{{ID: receipt.ID(), Version: lines[0].Entry.Version}}, Why: admin.Why{Reason: "PSP is back"}})
	require.ErrorAs(t, err, &unchecked)
	require.Equal(t, []compensator.EntryID{receipt.ID()}, unchecked.Unknown)
}
