package neighbours

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

func deadlocks(w *harness.World) (n int) {
	w.T.Helper()
	require.NoError(w.T, w.DB.QueryRow("SELECT count FROM information_schema.innodb_metrics WHERE name='lock_deadlocks'").Scan(&n))
	return n
}

// A settle and the transaction of crossSettling wait for each other. The server ends this deadlock and rolls the settle
// back, because the other transaction has written more rows. The test does not know which outcomes share a statement.
// So the test repeats until a deadlock has happened.
// Failure: F27
func TestDeadlockedSettleIsTriedAgainWithoutTheHandler(t *testing.T) {
	t.Parallel()
	server := testservers.NewSQL(t)
	w := harness.WorldAt(t, server.Database(t))
	w.Exec("CREATE TABLE digits (d INT PRIMARY KEY)")
	w.Exec("INSERT INTO digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)")
	cfg := w.QuickConfig()
	cfg.Lease = time.Minute
	c := w.New(cfg)
	const n = 100
	var ran harness.Calls
	started, finish := make(chan struct{}, n), make(chan struct{})
	_, err := compensator.HandleBatch(t.Context(), c, "close_order", func(_ context.Context, items []compensator.Item[harness.Order]) []error {
		for _, item := range items {
			ran.Add(item.Entry.ID)
			started <- struct{}{}
		}
		<-finish
		return nil
	}, &compensator.BatchConfig[harness.Order]{Concurrency: n})
	require.NoError(t, err)
	rounds, before := 0, deadlocks(w)
	for ; deadlocks(w) == before; rounds++ {
		require.Less(t, rounds, 10, "no outcome was ever crossed")
		w.InsertDue("close_order", 1+rounds*n, n)
		stop := w.Run(c)
		for range n {
			w.Wait(started, "every handler runs")
		}
		crossSettling(w, rounds*n, n, func() { close(finish) })
		w.WaitAllEnded()
		require.NoError(t, stop())
		finish = make(chan struct{})
	}
	assert.Equal(t, rounds*n, w.Count("common_process_log WHERE state=1 AND process_count=0"))
	assert.Equal(t, rounds*n, ran.Total(), "one run of each")
	assert.Contains(t, server.ErrorLog(), "common_process_log", "the server writes down what was crossed")
}

func crossSettling(w *harness.World, after, n int, finish func()) {
	w.T.Helper()
	rival := w.Begin(w.DB)
	_, err := rival.Exec("INSERT INTO effects (what) SELECT 'weight' FROM digits a, digits b, digits c")
	require.NoError(w.T, err)
	touch := func(from, to int) error {
		_, err := rival.Exec("UPDATE common_process_log SET user_name='rival' WHERE id BETWEEN ? AND ? ORDER BY id DESC", from, to)
		return err
	}
	require.NoError(w.T, touch(after+n, after+n))
	finish()
	w.WaitLocked(1)
	require.NoError(w.T, touch(after+1, after+n-1), "the wrong transaction was rolled back")
	require.NoError(w.T, rival.Rollback())
}

// Failure: F26
func TestNoDeadlockNamesAStatementOfOurs(t *testing.T) {
	t.Parallel()
	server := testservers.NewSQL(t)
	w := harness.WorldAt(t, server.Database(t)).WithRedis()
	processes := []*compensator.Compensator{mixedProcess(w, w.DB), mixedProcess(w, w.Open(harness.PlainPool(w.DSN)))}
	store, err := compensator.OpenStore(t.Context(), w.DB, compensator.DefaultTable)
	require.NoError(t, err)
	// A process reports an entry as lost if it disappears without a note of a purge. admin's Purge would write this note,
	// but it refuses such young entries. So the test writes the note, and calls the store's Purge.
	w.Exec("INSERT INTO common_process_log_audit (entry_id, action, actor, reason, before_state, after_state, created_at) VALUES (0,?,'','','{}','{}',UTC_TIMESTAMP(3)+INTERVAL 1 HOUR)",
		processlog.ActionPurge)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var working sync.WaitGroup
	for i, c := range processes {
		for producer := range 3 {
			working.Go(func() { produce(w, ctx, c, i*3+producer) })
		}
	}
	purged := 0
	working.Go(func() {
		for ctx.Err() == nil {
			n, err := store.Purge(t.Context(), "", compensator.Succeeded, 0, 500)
			assert.NoError(t, err)
			purged += n
		}
	})
	working.Wait()
	w.WaitAllEnded()
	assert.Positive(t, purged)
	assert.NotContains(t, server.ErrorLog(), "common_process_log", "a deadlock")
	require.NoError(t, store.Close())
}

func mixedProcess(w *harness.World, db *sql.DB) *compensator.Compensator {
	w.T.Helper()
	cfg := w.QuickConfig()
	cfg.DB, cfg.Lease = db, 30*time.Second
	db.SetMaxOpenConns(20)
	c := w.New(cfg)
	flaky := func(e *compensator.Entry, call int) error {
		if call == 1 && e.ID.Row()%3 == 0 {
			return errors.New("once")
		}
		return nil
	}
	harness.HandleCounted(w.T, c, "plain", compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)}, flaky)
	_, err := compensator.HandleTx(w.T.Context(), c, "transactional", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('x')")
		return errors.Join(err, flaky(e, e.Attempt()))
	}, &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)})
	require.NoError(w.T, err)
	w.Run(c)
	return c
}

func produce(w *harness.World, until context.Context, c *compensator.Compensator, producer int) {
	ctx := w.T.Context()
	for i := 0; until.Err() == nil; i++ {
		var receipt *compensator.Receipt
		err := c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
			if _, err = tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('business')"); err != nil {
				return err
			}
			receipt, err = c.Record(ctx, tx, mixedEntries(producer, i)...)
			return err
		})
		if err == nil && i%4 == 0 && !receipt.ID().IsZero() {
			_, err = c.Cancel(ctx, receipt.ID())
		}
		var late *compensator.StateError
		if err != nil && !errors.As(err, &late) && !errors.Is(err, compensator.ErrNotFound) {
			assert.NoError(w.T, err)
		}
	}
}

func mixedEntries(producer, i int) []compensator.NewEntry {
	var entries []compensator.NewEntry
	for n := range 1 + i%5 {
		businessType := "plain"
		if n%2 == 1 {
			businessType = "transactional"
		}
		entries = append(entries, compensator.NewEntry{BusinessType: businessType, Content: []byte("{}"), Options: compensator.Options{
			IdempotencyKey: compensator.IdempotencyKey(fmt.Sprintf("%d-%d-%d", (i*7919+n*104729)%1000, producer, i*10+n)), // The keys are unordered, like real business keys.
			Delay:          time.Duration(n) * 20 * time.Millisecond,
			BatchID:        fmt.Sprint(i % 10),
		}})
	}
	return entries
}

// Failure: F29
func TestDueEntryRunsBehindTheLeftoversOfAnOldSnapshot(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		old, err := w.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		defer func() { _ = old.Rollback() }()
		w.Exec("CREATE TABLE digits (d INT PRIMARY KEY)")
		w.Exec("INSERT INTO digits VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)")
		w.Exec("INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) " +
			"SELECT CONCAT(a.d,b.d,c.d,d.d), 'close_order', '{}', 1, NOW(), NOW() FROM digits a, digits b, digits c, digits d")
		var n int
		require.NoError(t, old.QueryRow("SELECT COUNT(*) FROM common_process_log").Scan(&n))
		w.Exec("UPDATE common_process_log SET state=1, ended_by='handler', next_at=2") // The index still contains the old values of these rows.
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		w.InsertDue("close_order", 1_000_000, 30)
		w.WaitAllEnded()
		assert.Equal(t, 30, ran.Total())
		require.NoError(t, old.QueryRow("SELECT COUNT(*) FROM common_process_log WHERE state=0").Scan(&n))
		assert.Equal(t, 10_000, n, "the snapshot still shows them all")
	})
}

// Failure: F24
func TestOfRacingActionsExactlyOneWins(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		for _, id := range w.InsertDue("close_order", 1, 10) {
			type answer struct {
				already bool
				err     error
			}
			results := make(chan answer)
			for range 3 {
				go func() { results <- answer{err: harness.ErrOf(c.Complete(t.Context(), id))} }()
				go func() { found, err := c.Cancel(t.Context(), id); results <- answer{found.WasAlready, err} }()
			}
			won := 0
			for range 6 {
				a := <-results
				var late *compensator.StateError
				switch {
				case a.err != nil:
					assert.ErrorAs(t, a.err, &late)
				case !a.already:
					won++
				}
			}
			assert.Equal(t, 1, won)
		}
		assert.Equal(t, 10, w.Count("common_process_log WHERE version=1 AND state IN (1,3)"))
	})
}
