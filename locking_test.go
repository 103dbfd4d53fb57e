package compensator_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/processlog"
)

// insertDue writes n due entries as some other process would have, with ids from first on.
func (w *world) insertDue(businessType string, first, n int) (ids []compensator.EntryID) {
	w.t.Helper()
	for id := first; id < first+n; id++ {
		w.exec("INSERT INTO common_process_log (id, idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES (?,?,?,'{}',1,NOW(),NOW())",
			id, fmt.Sprint(businessType, id), businessType)
		ids = append(ids, processlog.RowID(uint64(id)))
	}
	return ids
}

// inFlight are our statements on entries, each on ids that exist and one far beyond them that does not.
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
			done = append(done, processlog.Outcome{ID: id, IdempotentID: "close_order" + id.String(), Absorb: true, To: compensator.Succeeded, EndedBy: compensator.EndedByHandler})
		}
		_, err := s.Settle(ctx, processlog.Token{1}, done)
		return err
	},
	"cancel": func(ctx context.Context, s processlog.Store, ids []compensator.EntryID) error {
		_, err := s.Change(ctx, nil, false, processlog.Change{Ref: ids[0], Action: compensator.ActionCancel})
		return err
	},
	"resolve": func(ctx context.Context, s processlog.Store, ids []compensator.EntryID) error {
		_, err := s.Resolve(ctx, ids[0])
		return err
	},
	"purge": func(ctx context.Context, s processlog.Store, _ []compensator.EntryID) error {
		_, err := s.Purge(ctx, compensator.Dead, 0, 1000)
		return err
	},
}

// TestProducerNeverWaitsForAStatementOfOurs stops each of our transactions right before its COMMIT.
func TestProducerNeverWaitsForAStatementOfOurs(t *testing.T) {
	for name, work := range inFlight {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			proxy, db := w.proxied(false)
			store, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, store.Close()) })
			ids := append(w.insertDue("close_order", 10, 5), processlog.RowID(1_000_000))
			w.insertDue("close_order", 20, 5)
			w.exec("UPDATE common_process_log SET state=-2, ended_by='permanent' WHERE id>=20")
			hold := proxy.Arm(faultproxy.Rule{Match: faultproxy.Commit(), Fault: faultproxy.DropRequest, Hang: true})
			held := make(chan error, 1)
			go func() { held <- work(t.Context(), store, ids) }()
			require.NoError(t, hold.Await(t.Context()))
			require.NotEmpty(t, w.lockingTransactions(), "our transaction holds its locks")
			w.producersGoOn()
			proxy.Cut()
			require.Error(t, <-held)
		})
	}
}

// producersGoOn records due entries at every isolation level, by sessions that wait for no lock.
func (w *world) producersGoOn() {
	w.t.Helper()
	db := w.open(compensatorOn(with(w.t, w.DSN, map[string]string{"innodb_lock_wait_timeout": "1"})))
	cfg := w.quick()
	cfg.DB = db
	c := w.new(cfg)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		tx, err := db.BeginTx(w.t.Context(), &sql.TxOptions{Isolation: level})
		require.NoError(w.t, err)
		for _, n := range []int{1, 3} {
			_, err = c.Record(w.t.Context(), tx, untyped(n)...)
			require.NoError(w.t, err, "at %s", level)
		}
		require.NoError(w.t, tx.Commit())
	}
}

// status reads a counter of the server.
func (w *world) status(name string) (value int) {
	w.t.Helper()
	require.NoError(w.t, w.DB.QueryRow("SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&name, &value))
	return value
}

// TestThirdProducerIsNotStalledByARecordInFlight: the second waits in the middle of its INSERT, for a key that
// the first may yet give up. InnoDB then guards the gap right before that key, so a row stands there already:
// what is asked is that nothing else is held, the auto-increment lock above all.
func TestThirdProducerIsNotStalledByARecordInFlight(t *testing.T) {
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		cfg := w.quick()
		cfg.DB = db
		c := w.new(cfg)
		entry := compensator.NewEntry{BusinessType: "close_order", Options: compensator.Options{IdempotentID: "order 1"}}
		w.inTx(db, func(tx *sql.Tx) {
			_, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "close_order", Options: compensator.Options{IdempotentID: "order 0"}})
			require.NoError(t, err)
		})
		first, second := w.begin(db), w.begin(db)
		_, err := c.Record(t.Context(), first, entry)
		require.NoError(t, err)
		waited := make(chan error, 1)
		go func() {
			receipt, err := c.Record(t.Context(), second, append(untyped(3), entry)...)
			if err == nil && !receipt.Entries[3].Duplicate {
				err = errors.New("the first one's entry was recorded twice")
			}
			waited <- err
		}()
		w.eventually(func() bool { return w.status("Innodb_row_lock_current_waits") == 1 }, "the second waits")
		w.producersGoOn()
		require.NoError(t, first.Commit())
		require.NoError(t, <-waited)
		require.NoError(t, second.Commit())
	})
}

func TestClaimPassesByAnEntryThatAnOpenTransactionCancels(t *testing.T) {
	for name, end := range map[string]func(*sql.Tx) error{"committed": (*sql.Tx).Commit, "rolled back": (*sql.Tx).Rollback} {
		t.Run(name, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
				c := w.new(cfg)
				_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
				ids := w.insertDue("close_order", 1, 20)
				tx := w.begin(cfg.DB)
				result, err := c.CancelTx(t.Context(), tx, ids[7])
				require.NoError(t, err)
				require.False(t, result.WasRunning)
				w.run(c)
				w.eventually(func() bool { return w.count("common_process_log WHERE state=1") == 19 }, "all others end")
				require.NoError(t, end(tx))
				w.waitAllEnded()
				if name == "committed" {
					assert.Zero(t, ran.of(ids[7]))
					assert.Equal(t, compensator.Cancelled, w.state(ids[7]))
				} else {
					assert.Equal(t, 1, ran.of(ids[7]))
				}
				assert.Equal(t, 1, ran.of(ids[6]))
			})
		})
	}
}

// lockRow holds the row of an entry from a session of its own until release is called.
func (w *world) lockRow(id compensator.EntryID) (release func()) {
	w.t.Helper()
	tx := w.begin(w.DB)
	_, err := tx.Exec("UPDATE common_process_log SET user_name='held' WHERE id=?", id.Row())
	require.NoError(w.t, err)
	return func() { require.NoError(w.t, tx.Rollback()) }
}

func TestOutcomesOfFreeRowsDoNotWaitForALockedOne(t *testing.T) {
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		cfg := w.quick()
		cfg.DB, cfg.Lease = db, time.Minute
		c := w.new(cfg)
		const n = 40
		var started atomic.Int32
		finish := make(chan struct{})
		_, ran := numbered(t, c, "close_order", compensator.TypeConfig{Retry: compensator.Fixed(0)}, func(e *compensator.Entry, call int) error {
			started.Add(1)
			<-finish
			if e.ID.Row()%2 == 0 && call == 1 {
				return errors.New("once") // outcomes of both kinds
			}
			return nil
		})
		ids := w.insertDue("close_order", 1, n)
		w.run(c)
		w.eventually(func() bool { return started.Load() == n }, "all handlers run")
		releases := []func(){w.lockRow(ids[8]), w.lockRow(ids[9])}
		close(finish)
		w.eventually(func() bool { return w.count("common_process_log WHERE state=1") == n-2 }, "the others succeed")
		assert.Equal(t, 2, w.count("common_process_log WHERE state=0 AND id IN (?,?)", ids[8].Row(), ids[9].Row()))
		for _, release := range releases {
			release()
		}
		w.waitAllEnded()
		for i, id := range ids {
			assert.Equal(t, 1+i%2, ran.of(id), "runs of entry %s", id)
		}
	})
}

func TestLeasesOfFreeRowsAreRenewedWhileOneIsLocked(t *testing.T) {
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		cfg := w.quick()
		cfg.DB, cfg.Lease = db, time.Second
		c := w.new(cfg)
		var started atomic.Int32
		finish := make(chan struct{})
		_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, func(*compensator.Entry, int) error {
			started.Add(1)
			<-finish
			return nil
		})
		ids := w.insertDue("close_order", 1, 10)
		w.run(c)
		w.eventually(func() bool { return started.Load() == 10 }, "all handlers run")
		release := w.lockRow(ids[4])
		leaseEnd := func() (ms int64) {
			require.NoError(t, w.DB.QueryRow("SELECT MIN(lease_until) FROM common_process_log WHERE id<>?", ids[4].Row()).Scan(&ms))
			return ms
		}
		locked := leaseEnd()
		w.eventually(func() bool { return leaseEnd() > locked+2*cfg.Lease.Milliseconds() }, "the leases go on and on")
		release()
		close(finish)
		w.waitAllEnded()
		for _, id := range ids {
			if id != ids[4] { // nobody could renew this one
				assert.Equal(t, 1, ran.of(id), "runs of entry %s", id)
			}
		}
	})
}

func TestTransactionalHandlerHoldsNoLockOnItsEntry(t *testing.T) {
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		cfg := w.quick()
		cfg.DB = db
		c := w.new(cfg)
		orders, err := compensator.HandleTx(c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ order) error {
			w.effect(tx, "handler")
			var id uint64
			assert.NoError(t, w.DB.QueryRowContext(ctx, "SELECT id FROM common_process_log WHERE id=? FOR UPDATE NOWAIT", e.ID.Row()).Scan(&id),
				"whoever freezes here would keep the entry locked until the server gives up on him")
			return nil
		}, compensator.TypeConfig{})
		require.NoError(t, err)
		w.run(c)
		w.inTx(db, func(tx *sql.Tx) {
			_, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.waitAllEnded()
		assert.Equal(t, 1, w.count("effects"))
	})
}

// TestMigrationIsHeldUpByATransactionalHandlerNoLongerThanItsTimeout: an ALTER waits for every transaction that
// has touched the table, and all later statements on it wait for the ALTER.
func TestMigrationIsHeldUpByATransactionalHandlerNoLongerThanItsTimeout(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	inside := make(chan struct{}, 1)
	_, err := compensator.HandleTx(c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ order) error {
		w.effect(tx, "never")
		inside <- struct{}{}
		<-ctx.Done() // hangs for as long as it may
		return ctx.Err()
	}, compensator.TypeConfig{Timeout: 500 * time.Millisecond, MaxProcessCount: 1})
	require.NoError(t, err)
	w.insertDue("close_order", 1, 1)
	w.run(c)
	<-inside
	w.exec("ALTER TABLE effects ADD COLUMN more INT NULL")
	w.effect(w.DB, "somebody else's")
	w.waitAllEnded()
	assert.Equal(t, 1, w.count("effects"))
}
