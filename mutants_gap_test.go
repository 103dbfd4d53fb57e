package compensator_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/processlog"
)

// The tests of this file see known bugs that no other test saw; proof/mutants puts the bugs in.

// hookedStore is a store whose claims and settles pass by a test, which may replace them.
type hookedStore struct {
	processlog.Store
	claim  func() error
	settle func(settle func() ([]processlog.Settled, error)) ([]processlog.Settled, error)
}

func (s *hookedStore) Claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	if s.claim != nil {
		if err := s.claim(); err != nil {
			return processlog.Claimed{}, err
		}
	}
	return s.Store.Claim(ctx, want, token, lease, accept)
}

func (s *hookedStore) Settle(ctx context.Context, token processlog.Token, outcomes []processlog.Outcome) ([]processlog.Settled, error) {
	settle := func() ([]processlog.Settled, error) { return s.Store.Settle(ctx, token, outcomes) }
	if s.settle != nil {
		return s.settle(settle)
	}
	return settle()
}

// onHooks is a configuration on a store with hooks.
func (w *world) onHooks(cfg compensator.Config) (compensator.Config, *hookedStore) {
	w.t.Helper()
	store, err := compensator.OpenStore(w.t.Context(), cfg.DB, compensator.DefaultTable)
	require.NoError(w.t, err)
	hooked := &hookedStore{Store: store}
	w.t.Cleanup(func() { assert.NoError(w.t, store.Close()) })
	cfg.DB, cfg.Store = nil, hooked
	return cfg, hooked
}

func TestEntryCommittedAfterItsBornLeaseIsClaimedAnew(t *testing.T) {
	w := newWorld(t)
	cfg := w.quick()
	cfg.Lease = time.Second
	c := w.new(cfg)
	var versions sync.Map
	orders, _ := numbered(t, c, "close_order", compensator.TypeConfig{}, func(e *compensator.Entry, _ int) error {
		versions.Store(e.ID, e.Version)
		assert.Zero(t, w.count("common_process_log WHERE id=? AND lease_until < TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(3)) DIV 1000", e.ID.Row()),
			"it runs under a lease")
		return nil
	})
	w.run(c)
	w.waitState(put(w, orders, 0, compensator.Options{}), compensator.Succeeded) // from now on Run takes entries as they are born
	tx := w.begin(w.DB)
	receipt, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
	require.NoError(t, err)
	var leased bool
	require.NoError(t, tx.QueryRow("SELECT lease_until>0 FROM common_process_log WHERE id=?", receipt.ID().Row()).Scan(&leased))
	require.True(t, leased, "it is born claimed")
	_, err = tx.Exec("SELECT SLEEP(1.2)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	w.waitState(receipt.ID(), compensator.Succeeded)
	version, _ := versions.Load(receipt.ID())
	require.NotEqual(t, uint64(0), version, "a claim came before the attempt")
}

func TestEntryOfALostCommitReplyRunsWithoutTheReconciler(t *testing.T) {
	w := newWorld(t).withRedis()
	proxy, db := w.proxied(true)
	cfg, ready := w.hooksOnly(w.quick())
	worker := w.new(cfg)
	orders, _ := numbered(t, worker, "close_order", compensator.TypeConfig{}, nil)
	w.run(worker)
	ready()
	producer := w.quick()
	producer.DB = db
	c := w.new(producer) // it never runs
	trap := proxy.Arm(faultproxy.Rule{Match: faultproxy.Commit(), Nth: 1, Fault: faultproxy.DropReply})
	entry, err := orders.Entry(order{}, compensator.Options{})
	require.NoError(t, err)
	require.ErrorIs(t, commitTx(c, db, func(tx compensator.Tx) error {
		_, err := c.Record(t.Context(), tx, entry)
		return err
	}), compensator.ErrCommitUnknown)
	require.Equal(t, 1, trap.Fired())
	w.waitAllEnded()
	require.Equal(t, 1, w.ended(compensator.Succeeded, 0))
}

// notifiedQueue tells of each notification.
type notifiedQueue struct {
	processlog.Queue
	notified chan []string
}

func (q *notifiedQueue) Notify(ctx context.Context, types []string) error {
	q.notified <- slices.Clone(types)
	return q.Queue.Notify(ctx, types)
}

func TestAnnouncedEntryWakesAnotherProcess(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	queue, err := redisqueue.Open(w.Redis, w.Name)
	require.NoError(t, err)
	watched := &notifiedQueue{Queue: queue, notified: make(chan []string, 10)}
	cfg.Redis, cfg.Queue = nil, watched
	c := w.new(cfg) // it never runs
	w.recordDelayed(c, time.Minute)
	require.Equal(t, []string{"close_order"}, next(t, watched.notified))
	w.recordDelayed(c, time.Hour)
	w.recordDelayed(c, 0)
	require.Equal(t, []string{"close_order"}, next(t, watched.notified))
	require.Empty(t, watched.notified, "one that comes later than the first wakes nobody")
}

// TestStoredDueMomentIsNeverEarly stops the session's clock at the end of a millisecond.
func TestStoredDueMomentIsNeverEarly(t *testing.T) {
	inEveryPool(t, func(t *testing.T, w *world, db *sql.DB) {
		cfg := w.quick()
		cfg.DB = db
		c := w.new(cfg)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		execAll(t, conn, []string{"SET timestamp=1700000000.000900"})
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		entries := untyped(3)
		for i, delay := range []time.Duration{time.Nanosecond, time.Millisecond, 1500 * time.Microsecond} {
			entries[i].Delay = delay
		}
		receipt, err := c.Record(t.Context(), tx, entries...)
		require.NoError(t, err)
		require.NoError(t, receipt.ResolveIDs(t.Context(), tx))
		for i, want := range []int64{1_700_000_000_001, 1_700_000_000_002, 1_700_000_000_003} {
			var dueMS int64
			require.NoError(t, tx.QueryRow("SELECT next_at FROM common_process_log WHERE id=?", receipt.Entries[i].ID.Row()).Scan(&dueMS))
			assert.GreaterOrEqual(t, dueMS, want, "due %v after 0.9 ms", entries[i].Delay)
			assert.LessOrEqual(t, dueMS, want+1)
		}
		require.NoError(t, tx.Rollback())
		execAll(t, conn, []string{"SET timestamp=DEFAULT"})
	})
}

func TestFailedClaimsGiveTheirSlotsBack(t *testing.T) {
	w := newWorld(t)
	cfg, store := w.onHooks(w.quick())
	var mu sync.Mutex // guards failures
	failures := 3
	store.claim = func() error {
		mu.Lock()
		defer mu.Unlock()
		if failures--; failures >= 0 {
			return errors.New("the database has a bad moment")
		}
		return nil
	}
	c := w.new(cfg)
	_, ran := numbered(t, c, "close_order", compensator.TypeConfig{Concurrency: 2}, nil)
	w.insertDue("close_order", 1, 4)
	w.run(c)
	w.waitAllEnded()
	require.Equal(t, 4, ran.total())
	require.Negative(t, failures)
}

func TestEntryOfAClaimWhoseReplyWasLostIsFreeAgain(t *testing.T) {
	for name, watched := range map[string]bool{"connector": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			proxy, db := w.proxied(watched)
			cfg := w.quick()
			cfg.DB, cfg.Lease = db, time.Hour
			c := w.new(cfg)
			_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
			ids := w.insertDue("close_order", 1, 1)
			trap := proxy.Arm(faultproxy.Rule{Match: following(faultproxy.Contains("lease_until=(TIME"), faultproxy.Commit()), Nth: 1, Fault: faultproxy.DropReply})
			w.run(c)
			w.waitState(ids[0], compensator.Succeeded)
			require.Equal(t, 1, trap.Fired())
			require.Equal(t, 1, ran.of(ids[0]))
		})
	}
}

func TestRunReturnsOnlyOnceOutcomesAreStored(t *testing.T) {
	w := newWorld(t)
	cfg, store := w.onHooks(w.quick())
	store.settle = func(settle func() ([]processlog.Settled, error)) ([]processlog.Settled, error) {
		pause := time.NewTimer(300 * time.Millisecond) // Run would have returned by then
		defer pause.Stop()
		<-pause.C
		return settle()
	}
	c := w.new(cfg)
	_, g := held(t, c, "close_order", compensator.TypeConfig{}, nil)
	ids := w.insertDue("close_order", 1, 3)
	stop := w.run(c)
	for range ids {
		g.await(t)
	}
	g.open()
	require.NoError(t, stop())
	for _, id := range ids {
		require.Equal(t, compensator.Succeeded, w.state(id))
	}
}

func TestLostCommitOfAHandlerIsRepeatedWithinItsLease(t *testing.T) {
	w := newWorld(t)
	proxy, db := w.proxied(true)
	cfg := w.quick()
	cfg.DB, cfg.Lease = db, time.Hour
	c := w.new(cfg)
	_ = transactional(t, c, compensator.TypeConfig{Retry: compensator.Fixed(0)}, func(context.Context, *compensator.ScopedTx, *compensator.Entry) error { return nil })
	ids := w.insertDue("pay_order", 1, 1)
	trap := proxy.Arm(faultproxy.Rule{Match: following(faultproxy.Contains("SET state=1"), faultproxy.Commit()), Nth: 1, Fault: faultproxy.DropRequest})
	w.run(c)
	w.waitState(ids[0], compensator.Succeeded)
	require.Equal(t, 1, trap.Fired())
	require.Equal(t, 1, w.count("effects"))
}

// steps notes in which order things happen.
type steps struct {
	mu    sync.Mutex // guards taken
	taken []string
}

func (s *steps) take(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, step)
}

func (s *steps) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.taken)
}

// toldQueue notes when it is told of outcomes.
type toldQueue struct {
	processlog.Queue
	steps *steps
}

func (q *toldQueue) Settle(ctx context.Context, businessType string, items []processlog.QueueOutcome) error {
	q.steps.take("queue told")
	return q.Queue.Settle(ctx, businessType, items)
}

func TestQueueKeepsAnEntryUntilTheDatabaseHasItsOutcome(t *testing.T) {
	for name, verdict := range map[string]error{"success": nil, "failure": errors.New("no")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).withRedis()
			cfg, store := w.onHooks(w.quick())
			queue, err := redisqueue.Open(w.Redis, w.Name)
			require.NoError(t, err)
			var sequence steps
			cfg.Redis, cfg.Queue, cfg.Grace = nil, &toldQueue{queue, &sequence}, time.Minute // the queue's, not a poll's
			store.settle = func(settle func() ([]processlog.Settled, error)) ([]processlog.Settled, error) {
				defer sequence.take("outcome stored")
				return settle()
			}
			c := w.new(cfg)
			_, _ = numbered(t, c, "close_order", compensator.TypeConfig{Retry: compensator.Fixed(time.Hour)}, func(*compensator.Entry, int) error { return verdict })
			w.run(c)
			w.recordDelayed(c, 50*time.Millisecond)
			w.eventually(func() bool { return len(sequence.list()) >= 2 }, "the outcome is stored and the queue told")
			require.Equal(t, []string{"outcome stored", "queue told"}, sequence.list()[:2])
		})
	}
}

func TestStaleFailureOfACompensationIsDropped(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	cfg.Lease = 30 * time.Second // nothing is renewed meanwhile
	second := w.new(cfg)
	dropped := make(chan compensator.SettledEvent, 10)
	cfg.Observer.OutcomeDropped = func(e compensator.SettledEvent) { dropped <- e }
	first := w.new(cfg)
	g := newGate()
	g.openAtEnd(t)
	typ := compensator.TypeConfig{MaxCompensateCount: 5, Retry: compensator.Fixed(time.Hour), Concurrency: 1}
	typ.Compensate = func(_ context.Context, e *compensator.Entry) error {
		_ = g.passDeaf(e)
		return compensator.Permanent(errors.New("stale"))
	}
	numbered(t, first, "close_order", typ, nil)
	typ.Compensate = func(context.Context, *compensator.Entry) error { return errors.New("fresh") }
	numbered(t, second, "close_order", typ, nil)
	id := w.insertDue("close_order", 1, 1)[0]
	w.exec("UPDATE common_process_log SET state=-3, process_count=1 WHERE id=?", id.Row())
	w.run(first)
	g.await(t)
	w.run(second)
	w.endLease(id)
	w.eventually(func() bool { return w.entry(second, id).CompensateCount == 1 }, "the second instance fails to undo it")
	stored := w.row(id)
	g.open()
	require.Equal(t, compensator.Compensating, next(t, dropped).State)
	require.Equal(t, stored, w.row(id))
}

func TestEntryTheQueueForgotIsAnnouncedAgain(t *testing.T) {
	w := newWorld(t).withRedis()
	c := w.new(w.quick())
	numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	id := w.recordDelayed(c, time.Minute)
	w.waitInQueue(id)
	keys, err := w.Redis.Keys(t.Context(), "{"+w.Name+":*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	require.NoError(t, w.Redis.Del(t.Context(), keys...).Err())
	w.waitInQueue(id)
}
