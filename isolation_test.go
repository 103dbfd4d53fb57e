package compensator_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// innodbNews is how rarely one must ask InnoDB about transactions to be told of new ones; sooner, it repeats
// itself.
const innodbNews = 150 * time.Millisecond

// isolationOf is the level of the transaction that connection id has open.
func (w *world) isolationOf(id int64) (level string) {
	w.t.Helper()
	assert.Eventually(w.t, func() bool {
		return w.DB.QueryRow("SELECT trx_isolation_level FROM information_schema.innodb_trx WHERE trx_mysql_thread_id=?", id).Scan(&level) == nil
	}, patience, innodbNews, "connection %d has a transaction open", id)
	return level
}

// lockingTransactions waits for connections to the world's database that hold row locks.
func (w *world) lockingTransactions() (ids []int64) {
	w.t.Helper()
	assert.Eventually(w.t, func() bool {
		rows, err := w.DB.Query("SELECT trx_mysql_thread_id FROM information_schema.innodb_trx t JOIN information_schema.processlist p " +
			"ON p.id=t.trx_mysql_thread_id WHERE p.db=DATABASE() AND trx_tables_locked>0")
		if !assert.NoError(w.t, err) {
			return false
		}
		defer rows.Close()
		for rows.Next() {
			var id int64
			assert.NoError(w.t, rows.Scan(&id))
			ids = append(ids, id)
		}
		return len(ids) > 0
	}, patience, innodbNews, "a transaction holds row locks")
	return ids
}

// serversByDefault starts a server for each isolation level that is not our own.
func serversByDefault(t *testing.T, test func(t *testing.T, w *world)) {
	for _, level := range []string{"REPEATABLE-READ", "SERIALIZABLE"} {
		t.Run(level, func(t *testing.T) {
			server := testservers.NewSQL(t, "--transaction-isolation="+level)
			test(t, worldAt(t, server.Database(t)))
		})
	}
}

func TestOwnTransactionsAreReadCommittedWhateverTheServersDefault(t *testing.T) {
	serversByDefault(t, func(t *testing.T, w *world) {
		w.exec("INSERT INTO common_process_log (id, idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES (7,'k','by_hand','{}',0,NOW(),NOW())")
		for kind, pool := range pools {
			db := w.open(pool(w.DSN))
			store, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, store.Close()) })
			seen := 0
			_, err = store.Claim(t.Context(), []processlog.Wanted{{ID: processlog.RowID(7)}}, processlog.Token{1}, time.Second, func(*processlog.Row) bool {
				for _, id := range w.lockingTransactions() {
					assert.Equal(t, "READ COMMITTED", w.isolationOf(id), "a claim from a %s pool", kind)
					seen++
				}
				return false
			})
			require.NoError(t, err)
			assert.Equal(t, 1, seen)
			require.NoError(t, store.Close())
			w.transactionsGivenAreReadCommitted(db)
		}
	})
}

// transactionsGivenAreReadCommitted looks at the transactions that closures and handlers are given.
func (w *world) transactionsGivenAreReadCommitted(db *sql.DB) {
	w.t.Helper()
	cfg := w.quick()
	cfg.DB = db
	c := w.new(cfg)
	look := func(ctx context.Context, tx *compensator.ScopedTx) error {
		var id int64
		w.effect(tx, "look")
		if err := tx.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
			return err
		}
		assert.Equal(w.t, "READ COMMITTED", w.isolationOf(id))
		return nil
	}
	orders, err := compensator.HandleTx(c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ order) error {
		return look(ctx, tx)
	}, compensator.TypeConfig{})
	require.NoError(w.t, err)
	stop := w.run(c)
	var receipt *compensator.Receipt
	require.NoError(w.t, c.InTx(w.t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		receipt, err = orders.Record(ctx, tx, order{}, compensator.Options{})
		return errors.Join(err, look(ctx, tx))
	}))
	w.waitState(receipt.ID(), compensator.Succeeded)
	require.NoError(w.t, stop())
}

func TestEntriesRunWhateverTheServersDefaultIsolation(t *testing.T) {
	serversByDefault(t, func(t *testing.T, w *world) {
		for kind, pool := range pools {
			cfg := w.quick()
			cfg.DB = w.open(pool(w.DSN))
			c := w.new(cfg)
			orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{Retry: compensator.Fixed(0)}, func(_ *compensator.Entry, call int) error {
				if call == 1 {
					return errors.New("not yet")
				}
				return nil
			})
			stop := w.run(c)
			for i := range 20 {
				w.inTx(cfg.DB, func(tx *sql.Tx) {
					w.effect(tx, fmt.Sprint(kind, i))
					_, err := orders.Record(t.Context(), tx, order{Number: i}, compensator.Options{Delay: time.Duration(i) * 10 * time.Millisecond})
					require.NoError(t, err)
				})
			}
			w.waitAllEnded()
			require.NoError(t, stop())
			assert.Equal(t, 40, ran.total())
		}
		assert.Equal(t, 40, w.count("common_process_log WHERE state=1 AND process_count=1"))
	})
}

func TestFenceLostToARowChangedSinceTheSnapshotDropsTheOutcome(t *testing.T) {
	w := newWorld(t)
	dsn, aborts := w.DSN, testservers.SharedSQL(t).Flavor == "mariadb"
	if aborts {
		dsn = with(t, dsn, map[string]string{"innodb_snapshot_isolation": "1"})
	}
	store, err := compensator.OpenStore(t.Context(), w.open(plain(dsn)), compensator.DefaultTable)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	c := w.new(w.quick())
	var receipt *compensator.Receipt
	w.inTx(w.DB, func(tx *sql.Tx) {
		receipt, err = c.Record(t.Context(), tx, untyped(1)...)
		require.NoError(t, err)
	})
	tx := w.begin(w.open(plain(dsn))) // a handler's own, at the server's REPEATABLE READ
	var entries int
	require.NoError(t, tx.QueryRow("SELECT COUNT(*) FROM common_process_log").Scan(&entries))
	w.effect(tx, "handler")
	require.NoError(t, c.Reschedule(t.Context(), receipt.ID(), time.Hour))
	err = store.SettleTx(t.Context(), tx, processlog.Token{9}, processlog.Outcome{ID: receipt.ID(), IdempotentID: receipt.Entries[0].IdempotentID, Version: 0, To: compensator.Succeeded, EndedBy: compensator.EndedByHandler})
	require.ErrorIs(t, err, compensator.ErrLeaseLost)
	if aborts {
		w.requireNumber(err, 1020) // what this test is about, not just no row to change
	}
	require.NoError(t, tx.Rollback())
	assert.Equal(t, compensator.Pending, w.state(receipt.ID()))
}

func TestTransactionalHandlerThatLostItsFenceLeavesNoTrace(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		var dropped, failed atomic.Int32
		cfg.Lease = time.Second // the second attempt waits for its end
		cfg.Observer.OutcomeDropped = func(compensator.SettledEvent) { dropped.Add(1) }
		cfg.Observer.AttemptEnded = func(e compensator.AttemptEvent) {
			if e.Err != nil && !errors.Is(e.Err, compensator.ErrLeaseLost) {
				failed.Add(1)
			}
		}
		c := w.new(cfg)
		var ran calls
		orders, err := compensator.HandleTx(c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ order) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('done')"); err != nil {
				return err
			}
			if ran.add(e.ID) == 1 {
				return c.Reschedule(context.WithoutCancel(ctx), e.ID, 0) // somebody moves the deadline meanwhile
			}
			return nil
		}, compensator.TypeConfig{})
		require.NoError(t, err)
		w.run(c)
		var receipt *compensator.Receipt
		w.inTx(cfg.DB, func(tx *sql.Tx) {
			receipt, err = orders.Record(t.Context(), tx, order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.waitState(receipt.ID(), compensator.Succeeded)
		assert.Equal(t, 2, ran.of(receipt.ID()))
		assert.Equal(t, 1, w.count("effects"))
		assert.Equal(t, 1, w.count("common_process_log WHERE process_count=0 AND last_error=''"))
		assert.EqualValues(t, 1, dropped.Load())
		assert.Zero(t, failed.Load())
	})
}

func TestActionInAnOldSnapshotSeesTheEntryAsItIs(t *testing.T) {
	inEverySnapshot(t, func(t *testing.T, w *world, db *sql.DB, _, isolated bool) {
		cfg := w.quick()
		cfg.DB = db
		c := w.new(cfg)
		var receipt *compensator.Receipt
		w.inTx(db, func(tx *sql.Tx) {
			var err error
			receipt, err = c.Record(t.Context(), tx, untyped(1)...)
			require.NoError(t, err)
		})
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		read := func() (s compensator.State) {
			require.NoError(t, tx.QueryRow("SELECT state FROM common_process_log").Scan(&s))
			return s
		}
		require.Equal(t, compensator.Pending, read())
		require.NoError(t, c.Complete(t.Context(), receipt.ID()))
		require.Equal(t, compensator.Pending, read(), "the snapshot is an old one")
		_, err = c.CancelTx(t.Context(), tx, receipt.ID())
		if isolated { // the server takes the transaction away, whose snapshot the entry has left behind
			require.ErrorIs(t, err, compensator.ErrTxAborted)
			require.NoError(t, tx.Rollback())
			tx = w.begin(db) // the whole transaction again
			_, err = c.CancelTx(t.Context(), tx, receipt.ID())
		}
		var refused *compensator.StateError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, compensator.Succeeded, refused.State)
		w.effect(tx, "business goes on")
		require.NoError(t, tx.Commit())
		assert.Equal(t, compensator.Succeeded, w.state(receipt.ID()))
	})
}

func TestQueueMemberOfAnUncommittedEntryCostsNothing(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	cfg.DB = w.open(plain(w.DSN))
	c := w.new(cfg)
	orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	dueKey := sameQueue(t, w.Redis, w.Name).DueKey("close_order")
	invent := func(id uint64) {
		require.NoError(t, w.Redis.ZAdd(t.Context(), dueKey, redis.Z{Score: 1, Member: fmt.Sprint(id)}).Err())
		w.recordDelayed(c, 10*time.Millisecond) // wakes the scanner
		w.eventually(func() bool {
			return errors.Is(w.Redis.ZScore(t.Context(), dueKey, fmt.Sprint(id)).Err(), redis.Nil)
		}, "entry %d is looked for and leaves the queue", id)
	}
	invent(1_000_000) // no such row, not even a locked one
	tx := w.begin(cfg.DB)
	receipt, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
	require.NoError(t, err)
	invent(receipt.ID().Row())
	require.NoError(t, tx.Commit()) // nobody is told: the reconciler must find it
	w.waitState(receipt.ID(), compensator.Succeeded)
	assert.Equal(t, 1, ran.of(receipt.ID()))
	assert.Equal(t, 1, w.count("common_process_log WHERE id=? AND version=2 AND process_count=0", receipt.ID().Row()))
}

// laggingStore answers plain reads of rows as a replica does that has not heard of them yet.
type laggingStore struct{ processlog.Store }

func (laggingStore) Load(context.Context, []compensator.EntryID) ([]processlog.Row, error) {
	return nil, nil
}

func TestEntryRunsAlthoughPlainReadsDoNotShowItYet(t *testing.T) {
	w := newWorld(t).withRedis()
	store, err := compensator.OpenStore(t.Context(), w.DB, compensator.DefaultTable)
	require.NoError(t, err)
	cfg := w.quick()
	cfg.DB, cfg.Store, cfg.Lease = nil, laggingStore{store}, time.Second
	c := w.new(cfg)
	orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	for i := range 10 {
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := orders.Record(ctx, tx, order{Number: i}, compensator.Options{Delay: time.Duration(i%2) * 50 * time.Millisecond})
			return err
		}))
	}
	w.waitAllEnded()
	assert.Equal(t, 10, ran.total())
	assert.Equal(t, 10, w.count("common_process_log WHERE state=1"))
}
