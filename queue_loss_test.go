package compensator_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// throughProxy puts a proxy between cfg and the world's Redis.
func (w *world) throughProxy(cfg *compensator.Config) *faultproxy.TCP {
	w.t.Helper()
	proxy, err := faultproxy.NewTCP(w.Redis.Options().Addr)
	require.NoError(w.t, err)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), DialTimeout: 200 * time.Millisecond, MaxRetries: -1})
	w.t.Cleanup(func() {
		assert.NoError(w.t, client.Close())
		assert.NoError(w.t, proxy.Close())
	})
	cfg.Redis = client
	return proxy
}

// recordDelayed records one entry of a type that need not run here.
func (w *world) recordDelayed(c *compensator.Compensator, delay time.Duration) compensator.EntryID {
	w.t.Helper()
	var receipt *compensator.Receipt
	require.NoError(w.t, c.InTx(w.t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
		receipt, err = c.Record(ctx, tx, compensator.NewEntry{BusinessType: "close_order", Content: []byte("{}"), Options: compensator.Options{Delay: delay}})
		return err
	}))
	return receipt.ID()
}

// inQueue reports whether Redis knows the entry.
func (w *world) inQueue(id compensator.EntryID) bool {
	return w.Redis.ZScore(w.t.Context(), sameQueue(w.t, w.Redis, w.Name).DueKey("close_order"), id.String()).Err() == nil
}

func (w *world) waitInQueue(id compensator.EntryID) {
	w.t.Helper()
	w.eventually(func() bool { return w.inQueue(id) }, "the queue knows entry %s", id)
}

func TestProcessStartsWithoutRedisAndFindsItLater(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	proxy := w.throughProxy(&cfg)
	proxy.Refuse()
	up := make(chan struct{}, 1)
	cfg.Observer.QueueUp = func() {
		select {
		case up <- struct{}{}:
		default:
		}
	}
	c := w.new(cfg)
	_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	w.insertDue("close_order", 1000, 10)
	w.recordDelayed(c, 50*time.Millisecond)
	w.waitAllEnded()
	assert.Equal(t, 11, ran.total())
	assert.Error(t, c.Health(t.Context()).Queue)
	proxy.Heal()
	w.wait(up, "Redis is found")
	w.waitInQueue(w.recordDelayed(c, time.Minute))
	assert.NoError(t, c.Health(t.Context()).Queue)
}

func TestRecordOnlyProcessAnnouncesAgainOnceRedisIsBack(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	proxy := w.throughProxy(&cfg)
	down := make(chan struct{}, 1)
	cfg.Observer.QueueDown = func(error) {
		select {
		case down <- struct{}{}:
		default:
		}
	}
	c := w.new(cfg) // never runs
	w.waitInQueue(w.recordDelayed(c, time.Minute))
	proxy.Refuse()
	missed := w.recordDelayed(c, time.Minute)
	w.wait(down, "Redis is missed")
	proxy.Heal()
	w.eventually(func() bool { return w.inQueue(w.recordDelayed(c, time.Minute)) || w.queued() > 1 }, "entries are announced again")
	assert.False(t, w.inQueue(missed), "that is for whoever reconciles")
	worker := w.new(w.quick())
	numbered(t, worker, "close_order", compensator.TypeConfig{}, nil)
	w.run(worker)
	w.waitInQueue(missed)
}

func TestEntriesBeyondTheQueuesLimitStayOutOfRedis(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	cfg.QueueLimit, cfg.Horizon = 1000, 2*time.Hour
	reconciled := make(chan struct{}, 10)
	cfg.Observer.Reconciled = func(compensator.ReconciledEvent) {
		select {
		case reconciled <- struct{}{}:
		default:
		}
	}
	c := w.new(cfg)
	_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	w.inTx(w.DB, func(tx *sql.Tx) {
		entries := untyped(1500)
		for i := range entries {
			entries[i].Delay = time.Hour
		}
		receipt, err := c.Record(t.Context(), tx, entries...)
		require.NoError(t, err)
		receipt.Committed()
	})
	w.eventually(func() bool { return w.queued() == 1000 }, "the queue is full")
	for range 5 {
		w.wait(reconciled, "another round")
	}
	require.EqualValues(t, 1000, w.queued())
	soon := w.recordDelayed(c, 500*time.Millisecond)
	w.waitState(soon, compensator.Succeeded)
	require.Equal(t, 1, ran.of(soon))
}

func TestEntriesBeyondTheHorizonStayOutOfRedisAndRunWhenDue(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	cfg.Horizon, cfg.ReconcileInterval = time.Second, 200*time.Millisecond
	c := w.new(cfg)
	_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	far, beyond := w.recordDelayed(c, time.Hour), w.recordDelayed(c, 2*time.Second)
	for range 5 {
		w.waitInQueue(w.recordDelayed(c, 900*time.Millisecond)) // announced, or found, after the far one could have been
	}
	assert.False(t, w.inQueue(far))
	w.waitState(beyond, compensator.Succeeded)
	assert.Equal(t, 1, ran.of(beyond))
	assert.Zero(t, ran.of(far))
	require.NoError(t, c.Reschedule(t.Context(), far, 800*time.Millisecond))
	w.waitInQueue(far)
	w.waitState(far, compensator.Succeeded)
}

func TestEntriesLiveThroughARedisCluster(t *testing.T) {
	cluster := testservers.NewRedisCluster(t)
	w := newWorld(t)
	w.Name = cluster.Prefix(t)
	cfg := w.quick()
	cfg.Redis = clusterClient(t, cluster)
	t.Run("life", func(t *testing.T) { liveThrough(t, w, cfg) })

	c := w.new(cfg)
	var types []*compensator.Type[order]
	var ran []*calls
	for i := range 12 { // on all nodes
		orders, calls := numbered(t, c, fmt.Sprint("type ", i), compensator.TypeConfig{}, nil)
		types, ran = append(types, orders), append(ran, calls)
	}
	w.run(c)
	cluster.Nodes[1].Kill()
	for range 5 {
		for _, orders := range types {
			w.inTx(w.DB, func(tx *sql.Tx) {
				_, err := orders.Record(t.Context(), tx, order{}, compensator.Options{Delay: 100 * time.Millisecond})
				require.NoError(t, err)
			})
		}
	}
	w.waitAllEnded()
	for _, calls := range ran {
		assert.Equal(t, 5, calls.total())
	}
	cluster.Nodes[1].Restart(t)
	w.eventually(func() bool { return c.Health(t.Context()).Queue == nil }, "the cluster is whole again")
}

// TestFailoverThatForgetsLosesNoEntry promotes a replica that had been cut off: it knows entries that have ended
// since, and none of those announced since.
func TestFailoverThatForgetsLosesNoEntry(t *testing.T) {
	w := newWorld(t)
	master, replica := testservers.NewRedis(t, "--repl-diskless-sync-delay", "0"), testservers.NewRedisReplica(t)
	link, err := faultproxy.NewTCP(master.Addr())
	require.NoError(t, err)
	defer func() { assert.NoError(t, link.Close()) }()
	host, port, err := net.SplitHostPort(link.Addr())
	require.NoError(t, err)
	second := redisClient(t, replica)
	require.NoError(t, second.SlaveOf(t.Context(), host, port).Err())
	w.eventually(func() bool {
		return strings.Contains(second.Info(t.Context(), "replication").Val(), "master_link_status:up")
	}, "the replica follows")
	var serving atomic.Pointer[testservers.RedisServer]
	serving.Store(master)
	w.Redis = redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, serving.Load().Addr())
	}})
	t.Cleanup(func() { assert.NoError(t, w.Redis.Close()) })
	w.Name = "failover"

	cfg := w.quick()
	cfg.Lease = time.Minute
	c := w.new(cfg)
	_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	shipped := w.recordDelayed(c, 1500*time.Millisecond)
	key := sameQueue(t, w.Redis, w.Name).DueKey("close_order")
	w.eventually(func() bool { return second.ZScore(t.Context(), key, shipped.String()).Err() == nil }, "the replica hears of an entry")
	link.Refuse()
	for range 20 {
		w.recordDelayed(c, 0)
		w.recordDelayed(c, 1500*time.Millisecond)
	}
	unshipped := w.recordDelayed(c, time.Minute)
	w.waitInQueue(unshipped)
	master.Kill()
	require.NoError(t, second.SlaveOf(t.Context(), "NO", "ONE").Err())
	require.Error(t, second.ZScore(t.Context(), key, unshipped.String()).Err(), "it was acknowledged and is gone")
	serving.Store(replica)
	w.eventually(func() bool { return w.count("common_process_log WHERE state=1") == 41 }, "every entry runs")
	assert.Equal(t, 41, ran.total())
	require.NoError(t, c.Reschedule(t.Context(), unshipped, 0))
	w.waitState(unshipped, compensator.Succeeded)
}

func TestManyReconcilersAtOnceRunEachEntryOnce(t *testing.T) {
	w := newWorld(t).withRedis()
	var ran calls
	for range 5 {
		cfg := w.quick()
		cfg.Lease, cfg.Grace, cfg.ReconcileInterval = time.Minute, 100*time.Millisecond, 100*time.Millisecond
		c := w.new(cfg)
		_, err := compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, _ order) error {
			ran.add(e.ID)
			return nil
		}, compensator.TypeConfig{})
		require.NoError(t, err)
		w.run(c)
	}
	for round := range 10 { // nobody is told of them
		w.insertDue("close_order", 1+100*round, 50)
	}
	w.waitAllEnded()
	assert.Equal(t, 500, ran.total())
	assert.Equal(t, 500, w.count("common_process_log WHERE state=1 AND version=2"), "one claim and one outcome each")
}

// TestProcessWhosePrefixWasTakenOverPollsItsDatabase: after Redis forgot whose the prefix was, another
// environment was faster.
func TestProcessWhosePrefixWasTakenOverPollsItsDatabase(t *testing.T) {
	w := newWorld(t).withRedis()
	q := sameQueue(t, w.Redis, w.Name)
	c := w.new(w.quick())
	_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	w.waitInQueue(w.recordDelayed(c, time.Minute))
	steal := w.Redis.TxPipeline()
	steal.Del(t.Context(), q.EpochKey())
	steal.Set(t.Context(), q.OwnerKey(0), "somebody else's", 0)
	_, err := steal.Exec(t.Context())
	require.NoError(t, err)
	w.eventually(func() bool {
		queue := c.Health(t.Context()).Queue
		return queue != nil && strings.Contains(queue.Error(), "Prefix")
	}, "it notices")
	id := w.recordDelayed(c, 100*time.Millisecond)
	w.waitState(id, compensator.Succeeded)
	assert.Equal(t, 1, ran.of(id))
	assert.Equal(t, "somebody else's", w.Redis.Get(t.Context(), q.OwnerKey(0)).Val())
}

func TestNewWarnsOfARedisThatMayEvictTheQueue(t *testing.T) {
	w := newWorld(t)
	w.Redis, w.Name = redisClient(t, testservers.NewRedis(t, "--maxmemory-policy", "allkeys-lru")), "evicted"
	var log strings.Builder
	cfg := w.quick()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	w.new(cfg)
	assert.Contains(t, log.String(), "allkeys-lru")
}

// oldRedis answers as a Redis 4 does: it knows INFO, and nothing that is newer.
func oldRedis(t *testing.T) (addr string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(func() {
		assert.NoError(t, listener.Close())
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				answerAsOldRedis(conn)
			})
		}
	})
	return listener.Addr().String()
}

func answerAsOldRedis(conn net.Conn) {
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		reply := ""
		switch strings.ToUpper(lines.Text()) { // of a command, its name; its arguments come in lines of their own
		case "HELLO", "CLIENT", "EVALSHA", "EVAL":
			reply = "-ERR unknown command\r\n"
		case "INFO":
			info := "# Server\r\nredis_version:4.0.14\r\nredis_mode:standalone\r\n"
			reply = fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

func TestRedisTooOldForOurScriptsIsRefusedAtStart(t *testing.T) {
	w := newWorld(t)
	client := redis.NewClient(&redis.Options{Addr: oldRedis(t), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	cfg := w.quick()
	cfg.Redis, cfg.Prefix = client, "old"
	_, err := compensator.New(t.Context(), cfg)
	var refused *compensator.FieldError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "Redis", refused.Field)
	assert.Contains(t, refused.Reason, "4.0.14")
}

func TestWhatAProcessCouldNotAnnounceComesToTheQueueAlthoughAnotherLeads(t *testing.T) {
	w := newWorld(t).withRedis()
	idle := w.quick()
	idle.ReconcileInterval = time.Hour // it leads, and announces nothing more
	leader := w.new(idle)
	numbered(t, leader, "close_order", compensator.TypeConfig{}, nil)
	w.run(leader)
	w.waitInQueue(w.recordDelayed(leader, time.Minute))
	w.eventually(func() bool { return w.Redis.Exists(t.Context(), "{"+w.Name+":v1:0}:lead").Val() == 1 }, "it leads")

	cfg, ready := w.quick(), make(chan struct{}, 1)
	cfg.ReconcileInterval = 3 * time.Second // announces what is due within four of them
	cfg.Observer.Reconciled = func(compensator.ReconciledEvent) {
		select {
		case ready <- struct{}{}:
		default:
		}
	}
	down := make(chan struct{})
	first := sync.OnceFunc(func() { close(down) })
	cfg.Observer.QueueDown = func(error) { first() }
	proxy := w.throughProxy(&cfg)
	other := w.new(cfg)
	numbered(t, other, "close_order", compensator.TypeConfig{}, nil)
	w.run(other)
	w.wait(ready, "what a process does at its start is done")
	proxy.Refuse()
	w.wait(down, "Redis is missed")
	missed := w.recordDelayed(other, 12*time.Second)
	proxy.Heal()
	w.waitInQueue(missed)
}

// An entry that was claimed without the queue may still be there, leased to a process that died.
func TestRetryOfAnEntryTheQueueHasLeasedAwayIsDueWhenItShouldBe(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	cfg.Lease, cfg.Grace = 10*time.Minute, 10*time.Minute // neither ends while the test waits
	c := w.new(cfg)
	orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, func(_ *compensator.Entry, call int) error {
		if call == 1 {
			return compensator.RetryAfter(0, errors.New("once more"))
		}
		return nil
	})
	id := w.insertDue("close_order", 1, 1)[0] // long overdue, so that it is polled at once
	dead, err := redisqueue.Open(w.Redis, w.Name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dead.Close() })
	_, _, err = dead.Announce(t.Context(), []processlog.Announcement{{BusinessType: orders.Name(), ID: id}}, processlog.AnnounceRules{MaxLease: cfg.Lease})
	require.NoError(t, err)
	leased, err := dead.Claim(t.Context(), orders.Name(), 1, cfg.Lease)
	require.NoError(t, err)
	require.Len(t, leased.IDs, 1)
	w.run(c)
	w.waitState(id, compensator.Succeeded)
	require.Equal(t, 2, ran.of(id))
}
