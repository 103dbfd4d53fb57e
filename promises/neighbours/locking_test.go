package neighbours

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// Each function runs its statement on existing ids and on one id far beyond them.
var inFlight = map[string]func(ctx context.Context, s processlog.Store, ids []compensator.EntryID) error{
	"claim": func(ctx context.Context, s processlog.Store, ids []compensator.EntryID) error {
		var want []processlog.Wanted
		for _, id := range ids {
			want = append(want, processlog.Wanted{ID: id})
		}
		_, err := s.Claim(ctx, want, processlog.Token{1}, time.Minute, func(*processlog.Row) bool { return true })
		return err
	},
	"renew": func(ctx context.Context, s processlog.Store, ids []compensator.EntryID) error {
		var held []processlog.Held
		for _, id := range ids {
			held = append(held, processlog.Held{ID: id})
		}
		_, err := s.Renew(ctx, held, time.Minute)
		return err
	},
	"settle": func(ctx context.Context, s processlog.Store, ids []compensator.EntryID) error {
		var done []processlog.Outcome
		for _, id := range ids {
			done = append(done, processlog.Outcome{ID: id, IdempotencyKey: compensator.IdempotencyKey("close_order" + id.String()), To: compensator.Succeeded, EndedBy: compensator.EndedByHandler})
		}
		_, err := s.Settle(ctx, processlog.Token{1}, done)
		return err
	},
	"cancel": func(ctx context.Context, s processlog.Store, ids []compensator.EntryID) error {
		_, err := s.Change(ctx, nil, false, processlog.Change{Ref: ids[0], Action: processlog.ActionCancel})
		return err
	},
	"resolve": func(ctx context.Context, s processlog.Store, ids []compensator.EntryID) error {
		_, err := s.Resolve(ctx, ids[0])
		return err
	},
	"purge": func(ctx context.Context, s processlog.Store, _ []compensator.EntryID) error {
		_, err := s.Purge(ctx, "", compensator.Dead, 0, 1000)
		return err
	},
}

// TestProducerNeverWaitsForAStatementOfOurs stops each of the library's transactions right before its COMMIT.
// Failure: F23, F26
func TestProducerNeverWaitsForAStatementOfOurs(t *testing.T) {
	for name, work := range inFlight {
		t.Run(name, func(t *testing.T) {
			w := harness.NewWorld(t)
			proxy, db := w.OpenProxied(false)
			store, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, store.Close()) })
			ids := append(w.InsertDue("close_order", 10, 5), processlog.RowID(1_000_000))
			w.InsertDue("close_order", 20, 5)
			w.Exec("UPDATE common_process_log SET state=-2, ended_by='permanent' WHERE id>=20")
			hold := proxy.Arm(faultproxy.Rule{Match: faultproxy.Commit(), Fault: faultproxy.DropRequest, Hang: true})
			held := make(chan error, 1)
			go func() { held <- work(t.Context(), store, ids) }()
			require.NoError(t, hold.Await(t.Context()))
			require.NotEmpty(t, w.LockingTransactions(), "our transaction holds its locks")
			producersGoOn(w)
			proxy.Cut()
			require.Error(t, <-held)
		})
	}
}

// producersGoOn fails if a session has to wait for a lock.
func producersGoOn(w *harness.World) {
	w.T.Helper()
	db := w.Open(harness.WatchedPool(harness.WithParams(w.T, w.DSN, map[string]string{"innodb_lock_wait_timeout": "1"})))
	cfg := w.QuickConfig()
	cfg.DB = db
	c := w.New(cfg)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		tx, err := db.BeginTx(w.T.Context(), &sql.TxOptions{Isolation: level})
		require.NoError(w.T, err)
		for _, n := range []int{1, 3} {
			_, err = c.Record(w.T.Context(), tx, harness.NewUntyped(n)...)
			require.NoError(w.T, err, "at %s", level)
		}
		require.NoError(w.T, tx.Commit())
	}
}

// InnoDB locks the gap before the duplicate key. The test puts a row directly before the key, so that no other key
// falls into the gap.
func TestThirdProducerIsNotStalledByARecordInFlight(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		entry := compensator.NewEntry{BusinessType: "close_order", Options: compensator.Options{IdempotencyKey: "order 1"}}
		w.InTx(db, func(tx *sql.Tx) {
			_, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "close_order", Options: compensator.Options{IdempotencyKey: "order 0"}})
			require.NoError(t, err)
		})
		first, second := w.Begin(db), w.Begin(db)
		_, err := c.Record(t.Context(), first, entry)
		require.NoError(t, err)
		waited := make(chan error, 1)
		go func() {
			receipt, err := c.Record(t.Context(), second, append(harness.NewUntyped(3), entry)...)
			if err == nil && !receipt.Entries[3].Duplicate {
				err = errors.New("the first one's entry was recorded twice")
			}
			waited <- err
		}()
		w.WaitLocked(1)
		producersGoOn(w)
		require.NoError(t, first.Commit())
		require.NoError(t, <-waited)
		require.NoError(t, second.Commit())
	})
}

func TestClaimPassesByAnEntryThatAnOpenTransactionCancels(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*sql.Tx) error{"committed": (*sql.Tx).Commit, "rolled back": (*sql.Tx).Rollback} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
				c := w.New(cfg)
				_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
				ids := w.InsertDue("close_order", 1, 20)
				tx := w.Begin(cfg.DB)
				result, err := c.CancelTx(t.Context(), tx, ids[7])
				require.NoError(t, err)
				require.False(t, result.WasRunning)
				w.Run(c)
				w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == 19 }, "all others end")
				require.NoError(t, end(tx))
				w.WaitAllEnded()
				if name == "committed" {
					assert.Zero(t, ran.Of(ids[7]))
					assert.Equal(t, compensator.Cancelled, w.State(ids[7]))
				} else {
					assert.Equal(t, 1, ran.Of(ids[7]))
				}
				assert.Equal(t, 1, ran.Of(ids[6]))
			})
		})
	}
}

// Failure: F27
func TestOutcomesOfFreeRowsDoNotWaitForALockedOne(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB, cfg.Lease = db, time.Minute
		c := w.New(cfg)
		const n = 40
		var started atomic.Int32
		finish := make(chan struct{})
		_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)}, func(e *compensator.Entry, call int) error {
			started.Add(1)
			<-finish
			if e.ID.Row()%2 == 0 && call == 1 {
				return errors.New("once") // Fail each entry once, so that outcomes of both kinds are stored.
			}
			return nil
		})
		ids := w.InsertDue("close_order", 1, n)
		w.Run(c)
		w.Eventually(func() bool { return started.Load() == n }, "all handlers run")
		releases := []func(){w.LockRow(ids[8]), w.LockRow(ids[9])}
		close(finish)
		w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == n-2 }, "the others succeed")
		assert.Equal(t, 2, w.Count("common_process_log WHERE state=0 AND id IN (?,?)", ids[8].Row(), ids[9].Row()))
		for _, release := range releases {
			release()
		}
		w.WaitAllEnded()
		for i, id := range ids {
			assert.Equal(t, 1+i%2, ran.Of(id), "runs of entry %s", id)
		}
	})
}

// Failure: F27
func TestLeasesOfFreeRowsAreRenewedWhileOneIsLocked(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB, cfg.Lease = db, time.Second
		c := w.New(cfg)
		var started atomic.Int32
		finish := make(chan struct{})
		_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, func(*compensator.Entry, int) error {
			started.Add(1)
			<-finish
			return nil
		})
		ids := w.InsertDue("close_order", 1, 10)
		w.Run(c)
		w.Eventually(func() bool { return started.Load() == 10 }, "all handlers run")
		release := w.LockRow(ids[4])
		leaseEnd := func() (ms int64) {
			require.NoError(t, w.DB.QueryRow("SELECT MIN(lease_until) FROM common_process_log WHERE id<>?", ids[4].Row()).Scan(&ms))
			return ms
		}
		locked := leaseEnd()
		w.Eventually(func() bool { return leaseEnd() > locked+2*cfg.Lease.Milliseconds() }, "the leases go on and on")
		release()
		close(finish)
		w.WaitAllEnded()
		for _, id := range ids {
			// Leave out ids[4]. While its row was locked, its lease could not be renewed. So it may have run twice.
			if id != ids[4] {
				assert.Equal(t, 1, ran.Of(id), "runs of entry %s", id)
			}
		}
	})
}

// Failure: F28
func TestTransactionalHandlerHoldsNoLockOnItsEntry(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		orders, err := compensator.HandleTx(t.Context(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
			w.WriteEffect(tx, "handler")
			var id uint64
			assert.NoError(t, w.DB.QueryRowContext(ctx, "SELECT id FROM common_process_log WHERE id=? FOR UPDATE NOWAIT", e.ID.Row()).Scan(&id),
				"a process that freezes here would keep the entry locked until the server ends its session")
			return nil
		}, nil)
		require.NoError(t, err)
		w.Run(c)
		w.InTx(db, func(tx *sql.Tx) {
			_, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.WaitAllEnded()
		assert.Equal(t, 1, w.Count("effects"))
	})
}

// The ALTER waits for every transaction that has used the table, and all later statements on the table wait for the
// ALTER.
// Failure: F28
func TestMigrationIsHeldUpByATransactionalHandlerNoLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	inside := make(chan struct{}, 1)
	_, err := compensator.HandleTx(t.Context(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ harness.Order) error {
		w.WriteEffect(tx, "never")
		inside <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}, &compensator.HandlerConfig[harness.Order]{Timeout: 500 * time.Millisecond, MaxAttempts: 1})
	require.NoError(t, err)
	w.InsertDue("close_order", 1, 1)
	w.Run(c)
	harness.Receive(t, inside)
	w.Exec("ALTER TABLE effects ADD COLUMN more INT NULL")
	w.WriteEffect(w.DB, "somebody else's")
	w.WaitAllEnded()
	assert.Equal(t, 1, w.Count("effects"))
}
