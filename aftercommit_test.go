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
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/processlog"
)

// heldQueue is a queue whose announcements do not return until the test lets them.
type heldQueue struct {
	processlog.Queue
	called  atomic.Int64
	release chan struct{}
}

func (q *heldQueue) Announce(ctx context.Context, items []processlog.Announcement, rules processlog.AnnounceRules) (newHeads, lost []string, err error) {
	q.called.Add(1)
	<-q.release
	return q.Queue.Announce(context.WithoutCancel(ctx), items, rules)
}

func TestCommitReturnsWhileTheQueueIsSilent(t *testing.T) {
	w := newWorld(t).withRedis()
	queue, err := redisqueue.Open(w.Redis, w.Name)
	require.NoError(t, err)
	held := &heldQueue{Queue: queue, release: make(chan struct{})}
	cfg := w.quick()
	cfg.Redis, cfg.Queue = nil, held
	c := w.new(cfg)
	w.DB.SetMaxOpenConns(2)
	waited := w.DB.Stats().WaitCount
	const n = 100
	for range n { // each would wait for ever if it waited for the queue
		w.inTx(w.DB, func(tx *sql.Tx) {
			_, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "close_order", Options: compensator.Options{Delay: time.Minute}})
			require.NoError(t, err)
		})
	}
	w.eventually(func() bool { return held.called.Load() > 0 }, "the queue is told")
	assert.Zero(t, w.DB.Stats().InUse, "a connection waits for the queue")
	assert.Equal(t, waited, w.DB.Stats().WaitCount)
	close(held.release)
	w.eventually(func() bool { return w.queued() == n }, "the queue learns of every entry")
}

func TestQueueThatFailsIsNoFailureOfTheCommit(t *testing.T) {
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		w.withRedis()
		proxy, err := faultproxy.NewTCP(w.Redis.Options().Addr)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
		through := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1})
		t.Cleanup(func() { assert.NoError(t, through.Close()) })
		down := make(chan struct{})
		cfg := w.quick()
		cfg.DB, cfg.Redis = db, through
		cfg.Observer.QueueDown = func(error) {
			close(down)
			panic("observer") // nor is this
		}
		c := w.new(cfg)
		orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
		w.run(c)
		proxy.Refuse()
		var receipts []*compensator.Receipt
		for i := range 10 {
			tx := w.begin(db)
			receipt, err := orders.Record(t.Context(), tx, order{}, compensator.Options{Delay: time.Duration(i) * 10 * time.Millisecond})
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			receipt.Committed()
			receipts = append(receipts, receipt)
		}
		w.wait(down, "the queue is found to be down")
		w.waitAllEnded()
		for _, r := range receipts {
			assert.Equal(t, 1, ran.of(r.ID()))
		}
	})
}

func TestAbandonedTransactionsKeepNoSlots(t *testing.T) {
	w := newWorld(t)
	cfg, ready := w.hooksOnly(w.quick())
	c := w.new(cfg)
	orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{Concurrency: 2, Lease: time.Hour}, nil) // a credit lapses after a third
	w.run(c)
	ready()
	bornClaimed := func(tx *sql.Tx) bool {
		receipt, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
		require.NoError(t, err)
		var lease int64
		require.NoError(t, tx.QueryRow("SELECT lease_until FROM common_process_log WHERE id=?", receipt.ID().Row()).Scan(&lease))
		return lease > 0
	}
	for i := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := w.DB.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.True(t, bornClaimed(tx), "after %d transactions the slot is still reserved", i)
		cancel() // and never look back
		w.eventually(func() bool { return w.DB.Stats().InUse == 0 }, "the pool takes the connection back")
	}
	w.inTx(w.DB, func(tx *sql.Tx) { require.True(t, bornClaimed(tx)) })
	w.waitAllEnded()
	assert.Equal(t, 1, ran.total())
}

func TestEntryCommittedLongAfterItsBornLeaseHasOneEffect(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		t.Parallel()
		cfg.Lease = time.Second
		c := w.new(cfg)
		orders, err := compensator.HandleTx(c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ order) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.ID.String())
			return err
		}, compensator.TypeConfig{})
		require.NoError(t, err)
		w.run(c)
		tx := w.begin(cfg.DB)
		var receipts []*compensator.Receipt
		for range 3 {
			receipt, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
			require.NoError(t, err)
			receipts = append(receipts, receipt)
		}
		// The last one, as of a transaction that took a day: no scan may start later than that.
		_, err = tx.Exec("UPDATE common_process_log SET next_at=next_at-86400000, lease_until=GREATEST(0, CAST(lease_until AS SIGNED)-86400000), created_at=created_at-INTERVAL 1 DAY WHERE id=?",
			receipts[2].ID().Row())
		require.NoError(t, err)
		_, err = tx.Exec("SELECT SLEEP(1.3)") // the lease ends on the server's clock
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		for _, r := range receipts[:2] {
			r.Committed() // of the last, a plain pool's process brings no news
		}
		w.waitAllEnded()
		for _, r := range receipts {
			assert.Equal(t, 1, w.count("effects WHERE what=?", r.ID().String()))
		}
		assert.Equal(t, len(receipts), w.count("common_process_log WHERE state=1 AND process_count=0"))
	})
}

func TestFollowUpsOfATransactionalHandlerAnnounceThemselves(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		cfg, ready := w.hooksOnly(cfg)
		c := w.new(cfg)
		var orders *compensator.Type[order]
		var ran calls
		orders, err := compensator.HandleTx(c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o order) error {
			if o.Number < 5 {
				if _, err := orders.Record(ctx, tx, order{Number: o.Number + 1}, compensator.Options{}); err != nil {
					return err
				}
			}
			if ran.add(e.ID) == 1 && o.Number == 2 {
				return errors.New("after the follow-up was recorded")
			}
			return nil
		}, compensator.TypeConfig{Retry: compensator.Fixed(0)})
		require.NoError(t, err)
		w.run(c)
		ready()
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := orders.Record(ctx, tx, order{Number: 1}, compensator.Options{})
			return err
		}))
		w.eventually(func() bool { return w.count("common_process_log WHERE state=1") == 5 }, "the chain of five ends")
		assert.Equal(t, 5, w.count("common_process_log"), "the failed attempt's follow-up was rolled back")
		assert.Equal(t, 6, ran.total())
	})
}

func TestHandlerOutlivesTheRequestThatRecordedItsEntry(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		cfg.Propagator = tracing{}
		c := w.new(cfg)
		cancelled := make(chan struct{})
		orders, err := compensator.Handle(c, "close_order", func(ctx context.Context, _ *compensator.Entry, _ order) error {
			<-cancelled
			assert.NoError(t, ctx.Err())
			assert.Equal(t, "trace-1", ctx.Value(traceKey{}), "carried because the propagator says so")
			assert.Nil(t, ctx.Value(requestKey{}), "carried although nobody said so")
			return ctx.Err()
		}, compensator.TypeConfig{MaxProcessCount: 1})
		require.NoError(t, err)
		w.run(c)
		request, cancel := context.WithCancel(context.WithValue(context.WithValue(t.Context(), traceKey{}, "trace-1"), requestKey{}, "secret"))
		tx, err := cfg.DB.BeginTx(request, nil)
		require.NoError(t, err)
		receipt, err := orders.Record(request, tx, order{}, compensator.Options{})
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		receipt.Committed()
		require.NoError(t, c.InTx(request, func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := orders.Record(ctx, tx, order{}, compensator.Options{})
			return err
		}))
		cancel()
		close(cancelled)
		w.waitAllEnded()
		assert.Equal(t, 2, w.count("common_process_log WHERE state=1"))
	})
}

type traceKey struct{}
type requestKey struct{}

// tracing carries the trace and nothing else.
type tracing struct{}

func (tracing) Inject(ctx context.Context) map[string]string {
	return map[string]string{"trace": fmt.Sprint(ctx.Value(traceKey{}))}
}

func (tracing) Extract(ctx context.Context, headers map[string]string) context.Context {
	return context.WithValue(ctx, traceKey{}, headers["trace"])
}

// trippedUp is a Propagator that trips over what an entry carries.
type trippedUp struct{ tracing }

func (trippedUp) Extract(context.Context, map[string]string) context.Context {
	panic("malformed trace")
}

// emptyHanded is a Propagator that answers with no context.
type emptyHanded struct{ tracing }

func (emptyHanded) Extract(context.Context, map[string]string) context.Context { return nil }

func TestEntryRunsThoughItsPropagatorFails(t *testing.T) {
	for name, propagator := range map[string]compensator.Propagator{"panics": trippedUp{}, "answers with no context": emptyHanded{}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.quick()
			cfg.Propagator = propagator
			c := w.new(cfg)
			orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
			w.run(c)
			id := put(w, orders, 1, compensator.Options{})
			w.waitState(id, compensator.Succeeded)
			require.Equal(t, 1, ran.of(id))
		})
	}
}

func TestSmallPoolsWorkEverythingOff(t *testing.T) {
	for size := 1; size <= 3; size++ {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
				db.SetMaxOpenConns(size)
				cfg := w.quick()
				cfg.DB = db
				c := w.new(cfg)
				orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{Retry: compensator.Fixed(0)}, func(_ *compensator.Entry, call int) error {
					if call == 1 {
						return errors.New("again")
					}
					return nil
				})
				effects, err := compensator.HandleTx(c, "take_stock", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ order) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.ID.String())
					return err
				}, compensator.TypeConfig{})
				require.NoError(t, err)
				w.run(c)
				const n = 20
				for i := range n {
					w.inTx(db, func(tx *sql.Tx) {
						_, err := orders.Record(t.Context(), tx, order{Number: i}, compensator.Options{})
						require.NoError(t, err)
						_, err = effects.Record(t.Context(), tx, order{Number: i}, compensator.Options{})
						require.NoError(t, err)
					})
				}
				w.waitAllEnded()
				assert.Equal(t, 2*n, ran.total())
				assert.Equal(t, n, w.count("effects"))
			})
		})
	}
}

func TestEntryCommittedAfterOnesWithHigherIdsIsNotMissed(t *testing.T) {
	w := newWorld(t)
	cfg := w.quick()
	cfg.DB = w.open(plain(w.DSN)) // and nobody calls Committed: the reconciler alone finds entries
	var rounds atomic.Int64
	cfg.Observer.Reconciled = func(compensator.ReconciledEvent) { rounds.Add(1) }
	c := w.new(cfg)
	orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	slow := w.begin(cfg.DB)
	low, err := orders.Record(t.Context(), slow, order{}, compensator.Options{})
	require.NoError(t, err)
	var high *compensator.Receipt
	for range 3 {
		w.inTx(cfg.DB, func(tx *sql.Tx) {
			high, err = orders.Record(t.Context(), tx, order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.waitState(high.ID(), compensator.Succeeded)
	}
	seen := rounds.Load()
	w.eventually(func() bool { return rounds.Load() >= seen+2 }, "whole rounds pass")
	require.Less(t, low.ID().Row(), high.ID().Row())
	require.NoError(t, slow.Commit())
	w.waitState(low.ID(), compensator.Succeeded)
	assert.Equal(t, 1, ran.of(low.ID()))
}

func TestStaleQueueEntryNeverRunsTheRowThatGotItsId(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	c := w.new(cfg)
	early := func(e *compensator.Entry, _ int) error {
		if n := w.count("common_process_log WHERE id=? AND next_at > TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))/1000", e.ID.Row()); n > 0 {
			return compensator.Permanent(errors.New("early"))
		}
		return nil
	}
	orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, early)
	_, other := numbered(t, c, "take_stock", compensator.TypeConfig{}, nil)

	tx := w.begin(w.DB)
	gone, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	queue, err := redisqueue.Open(w.Redis, w.Name)
	require.NoError(t, err)
	defer queue.Close()
	for _, businessType := range []string{"close_order", "take_stock"} {
		_, _, err = queue.Announce(t.Context(), []processlog.Announcement{{BusinessType: businessType, ID: gone.ID()}}, processlog.AnnounceRules{MaxLease: time.Minute})
		require.NoError(t, err)
	}
	w.exec(fmt.Sprintf("ALTER TABLE common_process_log AUTO_INCREMENT=%d", gone.ID().Row()))
	var heir *compensator.Receipt
	w.inTx(w.DB, func(tx *sql.Tx) {
		heir, err = orders.Record(t.Context(), tx, order{}, compensator.Options{Delay: 400 * time.Millisecond})
		require.NoError(t, err)
	})
	require.Equal(t, gone.ID(), heir.ID())
	stop := w.run(c)
	w.waitState(heir.ID(), compensator.Succeeded)
	require.NoError(t, stop())
	assert.Equal(t, 1, ran.total())
	assert.Zero(t, other.total(), "a type ran another type's entry")
}
