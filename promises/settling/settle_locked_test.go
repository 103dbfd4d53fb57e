package settling

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
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

func storeBeside(t *testing.T, w *harness.World, db *sql.DB, entries int) (processlog.Store, *compensator.Receipt) {
	store, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	tx := w.Begin(w.DB)
	receipt, err := w.New(w.QuickConfig()).Record(t.Context(), tx, harness.NewUntyped(entries)...)
	require.NoError(t, err)
	require.NoError(t, receipt.ResolveIDs(t.Context(), tx))
	require.NoError(t, tx.Commit())
	return store, receipt
}

// A settle that waited for each entry in turn would exceed its deadline each time.
// Failure: F27
func TestSettleWaitsForLockedRowsOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	store, receipt := storeBeside(t, w, w.DB, 6)
	holder := w.Begin(w.DB)
	var outcomes []processlog.Outcome
	for i, e := range receipt.Entries {
		outcomes = append(outcomes, processlog.Outcome{ID: e.ID, IdempotencyKey: e.IdempotencyKey, To: compensator.Retrying, ProcessCount: i + 1}) // The outcomes differ, so that no two share a statement.
		_, err := holder.Exec("SELECT id FROM common_process_log WHERE id=? FOR UPDATE", e.ID.Row())
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second) // One wait for a lock takes 2 s.
	defer cancel()
	results, err := store.Settle(ctx, processlog.Token{1}, outcomes)
	require.NoError(t, err)
	for _, r := range results {
		require.Equal(t, processlog.Settled{Busy: true}, r)
	}
	require.NoError(t, holder.Rollback())
}

// The client gives up before the server reports the wait, so the library loses its connection and does not learn of the
// lock.
// Failure: F27
func TestOutcomesPassALockedRowByUnderAShortReadTimeout(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	_, db := w.OpenProxied(true, harness.ReadTimeout(time.Second)) // One wait for a lock takes 2 s.
	store, receipt := storeBeside(t, w, db, 6)
	var outcomes []processlog.Outcome
	for _, e := range receipt.Entries {
		outcomes = append(outcomes, processlog.Outcome{ID: e.ID, IdempotencyKey: e.IdempotencyKey, To: compensator.Succeeded, EndedBy: compensator.EndedByHandler})
	}
	slices.SortFunc(outcomes, func(a, b processlog.Outcome) int { return a.ID.Compare(b.ID) })
	defer w.LockRow(outcomes[0].ID)()
	var results []processlog.Settled
	for try := 1; ; try++ { // Try again if the server was slow, because a slow server is no sign of a lock.
		var err error
		if results, err = store.Settle(t.Context(), processlog.Token{1}, outcomes); err == nil {
			break
		}
		require.Less(t, try, 5, "%v", err)
	}
	require.Equal(t, processlog.Settled{Busy: true}, results[0])
	for _, r := range results[1:] {
		require.True(t, r.Applied, "%+v", r)
	}
}

// MariaDB ends a statement at max_statement_time, and an administrator's watchdog may kill it.
// Failure: F74
func TestOutcomesPassALockedRowByThoughTheServerEndsTheWait(t *testing.T) {
	t.Parallel()
	ends := map[string]map[string]string{"killed": nil}
	if testservers.SharedSQL(t).Flavor == "mariadb" {
		ends["after 1 s"] = map[string]string{"max_statement_time": "1"}
		ends["after 30 ms"] = map[string]string{"max_statement_time": "0.03"}
	}
	for name, params := range ends {
		for pool, open := range harness.Pools {
			t.Run(name+", "+pool, func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				store, receipt := storeBeside(t, w, w.Open(open(harness.WithParams(t, w.DSN, params))), 20)
				var outcomes []processlog.Outcome
				for _, e := range receipt.Entries {
					outcomes = append(outcomes, processlog.Outcome{ID: e.ID, IdempotencyKey: e.IdempotencyKey, To: compensator.Succeeded, EndedBy: compensator.EndedByHandler})
				}
				defer w.LockRow(outcomes[7].ID)()
				if params == nil {
					defer killWaiting(w)()
				}
				results, err := store.Settle(t.Context(), processlog.Token{1}, outcomes)
				require.NoError(t, err)
				for i, r := range results {
					require.Equal(t, processlog.Settled{Applied: i != 7, Busy: i == 7}, r, "%d", i)
				}
			})
		}
	}
}

func killWaiting(w *harness.World) (stop func()) {
	ctx, cancel := context.WithCancel(w.T.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			for _, id := range w.WaitingForRows() {
				_, _ = w.DB.ExecContext(ctx, "KILL QUERY "+id) // The statement may be over already.
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// The errors do not fit into one packet of the client, whose limit is a quarter of a megabyte.
// Failure: F34
func TestOutcomesWithLongErrorsFitThePacketsOfTheirClient(t *testing.T) {
	t.Parallel()
	for name, open := range harness.Pools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			db := w.Open(open(harness.WithParams(t, w.DSN, map[string]string{"maxAllowedPacket": "262144"})))
			store, receipt := storeBeside(t, w, db, 100)
			require.NoError(t, store.Check(t.Context()))
			var outcomes []processlog.Outcome
			for i, e := range receipt.Entries {
				text := fmt.Sprint(i) + strings.Repeat("💰", processlog.MaxText)
				outcomes = append(outcomes, processlog.Outcome{ID: e.ID, IdempotencyKey: e.IdempotencyKey, To: compensator.Retrying, ProcessCount: 1, LastError: text})
			}
			results, err := store.Settle(t.Context(), processlog.Token{1}, outcomes)
			require.NoError(t, err)
			for _, r := range results {
				require.Equal(t, processlog.Settled{Applied: true}, r)
			}
			require.Equal(t, 100, w.Count("common_process_log WHERE CHAR_LENGTH(last_error)=?", processlog.MaxText))
		})
	}
}

func TestEntryWantedTwiceIsClaimedOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	store, receipt := storeBeside(t, w, w.DB, 1)
	want := []processlog.Wanted{{ID: receipt.ID()}, {ID: receipt.ID()}}
	found, err := store.Claim(t.Context(), want, processlog.Token{1}, time.Minute, func(*processlog.Row) bool { return true })
	require.NoError(t, err)
	require.Len(t, found.Mine, 1)
	require.Empty(t, found.Gone)
}

// If the attempt did not count as failed, the entry would be tried forever.
func TestSwallowedErrorOfRecordIsAFailureOfTheHandler(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.DB = w.Open(harness.PlainPool(harness.WithParams(t, w.DSN, map[string]string{"innodb_lock_wait_timeout": "1"})))
	c := w.New(cfg)
	follow, err := compensator.Declare[harness.Order](t.Context(), c, "follow_up", nil)
	require.NoError(t, err)
	holder := w.Begin(w.DB)
	_, err = follow.Record(t.Context(), holder, harness.Order{}, compensator.Options{IdempotencyKey: "held"})
	require.NoError(t, err)
	orders, err := compensator.HandleTx(t.Context(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ harness.Order) error {
		_, err := follow.Record(ctx, tx, harness.Order{}, compensator.Options{IdempotencyKey: "held"})
		assert.Error(t, err)
		return nil
	}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0)})
	require.NoError(t, err)
	w.Run(c)
	id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
	w.WaitState(id, compensator.Dead)
	require.Contains(t, w.Entry(c, id).LastError, compensator.ErrNotRecorded.Error())
	require.NoError(t, holder.Rollback())
}
