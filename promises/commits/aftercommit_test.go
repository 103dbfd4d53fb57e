package commits

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// heldQueue is a queue whose enqueue calls return only when the test allows it.
type heldQueue struct {
	processlog.Queue
	called  atomic.Int64
	release chan struct{}
}

func (q *heldQueue) Enqueue(ctx context.Context, items []processlog.QueueEntry, rules processlog.EnqueueRules) (newHeads, lost []string, err error) {
	q.called.Add(1)
	<-q.release
	return q.Queue.Enqueue(context.WithoutCancel(ctx), items, rules)
}

// Failure: F6
func TestCommitReturnsWhileTheQueueIsSilent(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	queue, err := redisqueue.Open(w.Redis, w.Name)
	require.NoError(t, err)
	held := &heldQueue{Queue: queue, release: make(chan struct{})}
	cfg := w.QuickConfig()
	cfg.Redis, cfg.Queue = nil, held
	c := w.New(cfg)
	w.DB.SetMaxOpenConns(2)
	waited := w.DB.Stats().WaitCount
	const n = 100
	for range n { // If a commit waited for the queue, this loop would never end.
		w.InTx(w.DB, func(tx *sql.Tx) {
			_, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "close_order", Options: compensator.Options{Delay: time.Minute}})
			require.NoError(t, err)
		})
	}
	w.Eventually(func() bool { return held.called.Load() > 0 }, "the queue gets the outcome")
	assert.Zero(t, w.DB.Stats().InUse, "a connection waits for the queue")
	assert.Equal(t, waited, w.DB.Stats().WaitCount)
	close(held.release)
	w.Eventually(func() bool { return w.Queued() == n }, "the queue learns of every entry")
}

// Failure: F6
func TestQueueThatFailsIsNoFailureOfTheCommit(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		w.WithRedis()
		proxy, err := faultproxy.NewTCP(w.Redis.Options().Addr)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
		through := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1})
		t.Cleanup(func() { assert.NoError(t, through.Close()) })
		down := make(chan struct{})
		cfg := w.QuickConfig()
		cfg.DB, cfg.Redis = db, through
		cfg.Observer.QueueDown = func(error) {
			close(down)
			panic("observer") // The commit must succeed even if the observer panics.
		}
		c := w.New(cfg)
		orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		proxy.Refuse()
		var receipts []*compensator.Receipt
		for i := range 10 {
			tx := w.Begin(db)
			receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: time.Duration(i) * 10 * time.Millisecond})
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			receipt.Committed()
			receipts = append(receipts, receipt)
		}
		w.Wait(down, "the queue is found to be down")
		w.WaitAllEnded()
		for _, r := range receipts {
			assert.Equal(t, 1, ran.Of(r.ID()))
		}
	})
}

// Failure: F7
func TestAbandonedTransactionsKeepNoSlots(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg, ready := w.HooksOnlyConfig(w.QuickConfig())
	c := w.New(cfg)
	// A reservation of a slot expires after a third of the lease. The long lease keeps it until the end of the test.
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 2, Lease: time.Hour}, nil)
	w.Run(c)
	ready()
	insertedWithLease := func(tx *sql.Tx) bool {
		receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
		require.NoError(t, err)
		var lease int64
		require.NoError(t, tx.QueryRow("SELECT lease_until FROM common_process_log WHERE id=?", receipt.ID().Row()).Scan(&lease))
		return lease > 0
	}
	for i := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := w.DB.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.True(t, insertedWithLease(tx), "after %d transactions the slot is still reserved", i)
		cancel() // The caller's context ends, so the caller never learns the result.
		w.Eventually(func() bool { return w.DB.Stats().InUse == 0 }, "the pool takes the connection back")
	}
	w.InTx(w.DB, func(tx *sql.Tx) { require.True(t, insertedWithLease(tx)) })
	w.WaitAllEnded()
	assert.Equal(t, 1, ran.Total())
}

// Failure: F7
func TestEntryCommittedLongAfterTheLeaseItWasInsertedWithHasOneEffect(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Lease = time.Second
		c := w.New(cfg)
		orders, err := compensator.HandleTx(t.Context(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.ID.String())
			return err
		}, nil)
		require.NoError(t, err)
		w.Run(c)
		tx := w.Begin(cfg.DB)
		var receipts []*compensator.Receipt
		for range 3 {
			receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
			require.NoError(t, err)
			receipts = append(receipts, receipt)
		}
		// Make the last entry look as if its transaction took a day.
		_, err = tx.Exec("UPDATE common_process_log SET next_at=next_at-86400000, lease_until=GREATEST(0, CAST(lease_until AS SIGNED)-86400000), created_at=created_at-INTERVAL 1 DAY WHERE id=?",
			receipts[2].ID().Row())
		require.NoError(t, err)
		_, err = tx.Exec("SELECT SLEEP(1.3)") // The lease ends on the server's clock.
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		for _, r := range receipts[:2] {
			r.Committed() // The pool is plain, so the process does not see the commit of the last entry.
		}
		w.WaitAllEnded()
		for _, r := range receipts {
			assert.Equal(t, 1, w.Count("effects WHERE what=?", r.ID().String()))
		}
		assert.Equal(t, len(receipts), w.Count("common_process_log WHERE state=1 AND process_count=0"))
	})
}

// Failure: F8
func TestFollowUpsOfATransactionalHandlerAreEnqueued(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg, ready := w.HooksOnlyConfig(cfg)
		c := w.New(cfg)
		var orders *compensator.Type[harness.Order]
		var ran harness.Calls
		orders, err := compensator.HandleTx(t.Context(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o harness.Order) error {
			if o.Number < 5 {
				if _, err := orders.Record(ctx, tx, harness.Order{Number: o.Number + 1}, compensator.Options{}); err != nil {
					return err
				}
			}
			if ran.Add(e.ID) == 1 && o.Number == 2 {
				return errors.New("after the follow-up was recorded")
			}
			return nil
		}, &compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)})
		require.NoError(t, err)
		w.Run(c)
		ready()
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := orders.Record(ctx, tx, harness.Order{Number: 1}, compensator.Options{})
			return err
		}))
		w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == 5 }, "the chain of five ends")
		assert.Equal(t, 5, w.Count("common_process_log"), "the failed attempt's follow-up was rolled back")
		assert.Equal(t, 6, ran.Total())
	})
}

// Failure: F83
func TestSmallPoolsWorkEverythingOff(t *testing.T) {
	t.Parallel()
	for size := 1; size <= 3; size++ {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
				db.SetMaxOpenConns(size)
				cfg := w.QuickConfig()
				cfg.DB = db
				c := w.New(cfg)
				orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0)}, func(_ *compensator.Entry, call int) error {
					if call == 1 {
						return errors.New("again")
					}
					return nil
				})
				effects, err := compensator.HandleTx(t.Context(), c, "take_stock", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.ID.String())
					return err
				}, nil)
				require.NoError(t, err)
				w.Run(c)
				const n = 20
				for i := range n {
					w.InTx(db, func(tx *sql.Tx) {
						_, err := orders.Record(t.Context(), tx, harness.Order{Number: i}, compensator.Options{})
						require.NoError(t, err)
						_, err = effects.Record(t.Context(), tx, harness.Order{Number: i}, compensator.Options{})
						require.NoError(t, err)
					})
				}
				w.WaitAllEnded()
				assert.Equal(t, 2*n, ran.Total())
				assert.Equal(t, n, w.Count("effects"))
			})
		})
	}
}

func TestPoolThatTransactionalTypesMayTakeAltogetherIsTold(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		run := func(t *testing.T, size, concurrency int, types ...string) string {
			cfg := w.QuickConfig()
			cfg.DB = db
			cfg.DB.SetMaxOpenConns(size)
			lines := harness.CaptureLog(&cfg)
			c := w.New(cfg)
			register := func(businessType string, calls int) error {
				_, err := compensator.HandleTx(t.Context(), c, businessType, func(context.Context, *compensator.ScopedTx, *compensator.Entry, harness.Order) error { return nil },
					&compensator.HandlerConfig[harness.Order]{Concurrency: calls})
				return err
			}
			undone := compensator.HandlerConfig[harness.Order]{CompensateTx: func(context.Context, *compensator.ScopedTx, *compensator.Entry, harness.Order) error { return nil }}
			_, err := compensator.Handle(t.Context(), c, "undone", func(context.Context, *compensator.Entry, harness.Order) error { return nil }, &undone)
			require.NoError(t, err)
			require.NoError(t, register("one", 0))
			require.Error(t, register("one", 0), "a type that was refused has no share")
			for _, name := range types {
				require.NoError(t, register(name, concurrency))
			}
			ctx, stop := context.WithCancel(t.Context())
			stop()
			require.NoError(t, c.Run(ctx))
			require.NoError(t, c.Run(ctx), "once")
			var told []string
			for len(lines) > 0 {
				if line := <-lines; strings.Contains(line, "max_open_conns") {
					told = append(told, line)
				}
			}
			return strings.Join(told, "\n")
		}
		const several = "may hold the whole pool"
		for _, size := range []int{1, 2, 3} {
			assert.NotContains(t, run(t, size, 5, "two", "three"), several, "%d", size)
		}
		log := run(t, 20, 5, "two", "three")
		assert.Contains(t, log, `type=one concurrency=18 max_open_conns=20 set="SetMaxOpenConns to 52 and more for Concurrency 50"`)
		assert.Contains(t, log, `calls=28 max_open_conns=20 types="one 18, two 5, three 5" compensations_beside_them="undone 18" calls_beside_them="" `+
			`set="Concurrency of these types to 18 in all, or SetMaxOpenConns to 62 and more"`)
		assert.Equal(t, 1, strings.Count(log, several))
		assert.Contains(t, run(t, 4, 5, "two", "three"), `set="SetMaxOpenConns to 62 and more"`, "three types cannot share two connections")
		assert.Contains(t, run(t, 61, 5, "two", "three"), several)
		assert.Empty(t, run(t, 62, 5, "two", "three"), "the pool that was advised")
		assert.Empty(t, run(t, 0, 5, "two", "three"), "a pool without a limit")
		assert.NotContains(t, run(t, 20, 5), several, "one type")
	})
}

func TestPoolWarningCountsWhatHandlersCanHold(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		start := func(size int) (c *compensator.Compensator, told func() string) {
			cfg := w.QuickConfig()
			cfg.DB = db
			db.SetMaxOpenConns(size)
			lines := harness.CaptureLog(&cfg)
			c = w.New(cfg)
			return c, func() string {
				ctx, stop := context.WithCancel(t.Context())
				stop()
				require.NoError(t, c.Run(ctx))
				var found []string
				for len(lines) > 0 {
					if line := <-lines; strings.Contains(line, "may hold the whole pool") {
						found = append(found, line)
					}
				}
				return strings.Join(found, "\n")
			}
		}
		nothing := func(context.Context, *compensator.ScopedTx, *compensator.Entry, harness.Order) error { return nil }
		register := func(c *compensator.Compensator, businessType string, concurrency int, limit compensator.Limit) {
			_, err := compensator.HandleTx(t.Context(), c, businessType, nothing,
				&compensator.HandlerConfig[harness.Order]{Concurrency: concurrency, TypeConfig: compensator.TypeConfig{Limit: limit}})
			require.NoError(t, err)
		}
		oneKey := func(*compensator.Entry) string { return "k" }

		c, told := start(20)
		register(c, "one", 0, compensator.Limit{Concurrent: 4})
		register(c, "two", 0, compensator.Limit{Concurrent: 14})
		assert.Empty(t, told(), "the limits allow 18 at once")
		register(c, "three", 7, compensator.Limit{Concurrent: 9, Key: oneKey})
		_, err := compensator.HandleCall(t.Context(), c, "paid", func(context.Context, *compensator.Entry, harness.Order) (int, error) { return 0, nil },
			func(context.Context, *compensator.ScopedTx, *compensator.Entry, harness.Order, int) error { return nil }, nil)
		require.NoError(t, err)
		assert.Contains(t, told(), `calls=25 max_open_conns=20 types="one 4, two 14, three 7" compensations_beside_them="" calls_beside_them="paid 50" `+
			`set="Concurrency of these types to 18 in all, or SetMaxOpenConns to 27 and more"`, "a later Run")
		assert.Empty(t, told(), "nothing has changed")

		for _, size := range []int{2, 3, 12} {
			c, told = start(0)
			register(c, "one", 30, compensator.Limit{})
			db.SetMaxOpenConns(size)
			assert.Contains(t, told(), `SetMaxOpenConns to 32 and more, before the types are registered"`, "a pool that has become smaller")
		}
	})
}

// Failure: F13
func TestEntryCommittedAfterOnesWithHigherIdsIsNotMissed(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.DB = w.Open(harness.PlainPool(w.DSN)) // The test does not call Committed, so only the reconciler finds the entries.
	var rounds atomic.Int64
	cfg.Observer.Reconciled = func(observe.ReconciledEvent) { rounds.Add(1) }
	c := w.New(cfg)
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	slow := w.Begin(cfg.DB)
	low, err := orders.Record(t.Context(), slow, harness.Order{}, compensator.Options{})
	require.NoError(t, err)
	var high *compensator.Receipt
	for range 3 {
		w.InTx(cfg.DB, func(tx *sql.Tx) {
			high, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.WaitState(high.ID(), compensator.Succeeded)
	}
	seen := rounds.Load()
	w.Eventually(func() bool { return rounds.Load() >= seen+5 }, "whole rounds pass, and the process no longer polls for the commit")
	require.Less(t, low.ID().Row(), high.ID().Row())
	require.NoError(t, slow.Commit())
	w.WaitState(low.ID(), compensator.Succeeded)
	assert.Equal(t, 1, ran.Of(low.ID()))
}

// Failure: F14
func TestStaleQueueEntryNeverRunsTheRowThatGotItsId(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	c := w.New(cfg)
	early := func(e *compensator.Entry, _ int) error {
		if n := w.Count("common_process_log WHERE id=? AND next_at > TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))/1000", e.ID.Row()); n > 0 {
			return compensator.Permanent(errors.New("early"))
		}
		return nil
	}
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, early)
	_, other := harness.HandleCounted(t, c, "take_stock", compensator.HandlerConfig[harness.Order]{}, nil)

	tx := w.Begin(w.DB)
	gone, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	queue, err := redisqueue.Open(w.Redis, w.Name)
	require.NoError(t, err)
	defer queue.Close()
	for _, businessType := range []string{"close_order", "take_stock"} {
		_, _, err = queue.Enqueue(t.Context(), []processlog.QueueEntry{{BusinessType: businessType, ID: gone.ID()}}, processlog.EnqueueRules{MaxLease: time.Minute})
		require.NoError(t, err)
	}
	w.Exec(fmt.Sprintf("ALTER TABLE common_process_log AUTO_INCREMENT=%d", gone.ID().Row()))
	var heir *compensator.Receipt
	w.InTx(w.DB, func(tx *sql.Tx) {
		heir, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: 400 * time.Millisecond})
		require.NoError(t, err)
	})
	require.Equal(t, gone.ID(), heir.ID())
	stop := w.Run(c)
	w.WaitState(heir.ID(), compensator.Succeeded)
	require.NoError(t, stop())
	assert.Equal(t, 1, ran.Total())
	assert.Zero(t, other.Total(), "a type ran another type's entry")
}
