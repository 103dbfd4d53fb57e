package queueloss

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
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

func TestEntryTheQueueForgotIsEnqueuedAgain(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	id := w.RecordDelayed(c, time.Minute)
	w.WaitInQueue(id)
	keys, err := w.Redis.Keys(t.Context(), "{"+w.Name+":*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	require.NoError(t, w.Redis.Del(t.Context(), keys...).Err())
	w.WaitInQueue(id)
}

// Failure: F45
func TestProcessStartsWithoutRedisAndFindsItLater(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	proxy := w.ThroughProxy(&cfg)
	proxy.Refuse()
	up := make(chan struct{}, 1)
	cfg.Observer.QueueUp = func() {
		select {
		case up <- struct{}{}:
		default:
		}
	}
	lines := harness.CaptureLog(&cfg)
	c := w.New(cfg)
	lines.Contains(w, "level=WARN", "the queue cannot be used")
	_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	w.InsertDue("close_order", 1000, 10)
	w.RecordDelayed(c, 50*time.Millisecond)
	w.WaitAllEnded()
	assert.Equal(t, 11, ran.Total())
	assert.Error(t, c.Health(t.Context()).Queue)
	proxy.Heal()
	w.Wait(up, "Redis is found")
	lines.Contains(w, "level=INFO", "the queue answers again")
	w.WaitInQueue(w.RecordDelayed(c, time.Minute))
	assert.NoError(t, c.Health(t.Context()).Queue)
}

// Failure: F45
func TestRecordOnlyProcessEnqueuesAgainOnceRedisIsBack(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	proxy := w.ThroughProxy(&cfg)
	down := make(chan struct{}, 1)
	cfg.Observer.QueueDown = func(error) {
		select {
		case down <- struct{}{}:
		default:
		}
	}
	c := w.New(cfg) // This instance never runs.
	w.WaitInQueue(w.RecordDelayed(c, time.Minute))
	proxy.Refuse()
	missed := w.RecordDelayed(c, time.Minute)
	w.Wait(down, "Redis is missed")
	proxy.Heal()
	w.Eventually(func() bool { return w.InQueue(w.RecordDelayed(c, time.Minute)) || w.Queued() > 1 }, "entries are announced again")
	assert.False(t, w.InQueue(missed), "only the reconciler does that")
	worker := w.New(w.QuickConfig())
	harness.HandleCounted(t, worker, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(worker)
	w.WaitInQueue(missed)
}

// Failure: F49
func TestEntriesBeyondTheQueuesLimitStayOutOfRedis(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	cfg.QueueLimit, cfg.Horizon = 1000, 2*time.Hour
	reconciled := make(chan struct{}, 10)
	cfg.Observer.Reconciled = func(observe.ReconciledEvent) {
		select {
		case reconciled <- struct{}{}:
		default:
		}
	}
	c := w.New(cfg)
	_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	w.InTx(w.DB, func(tx *sql.Tx) {
		entries := harness.NewUntyped(1500)
		for i := range entries {
			entries[i].Delay = time.Hour
		}
		receipt, err := c.Record(t.Context(), tx, entries...)
		require.NoError(t, err)
		receipt.Committed()
	})
	w.Eventually(func() bool { return w.Queued() == 1000 }, "the queue is full")
	for range 5 {
		w.Wait(reconciled, "another round")
	}
	require.EqualValues(t, 1000, w.Queued())
	soon := w.RecordDelayed(c, 500*time.Millisecond)
	w.WaitState(soon, compensator.Succeeded)
	require.Equal(t, 1, ran.Of(soon))
}

// Failure: F49
func TestEntriesBeyondTheHorizonStayOutOfRedisAndRunWhenDue(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	cfg.Horizon, cfg.ReconcileInterval = time.Second, 200*time.Millisecond
	c := w.New(cfg)
	_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	far, beyond := w.RecordDelayed(c, time.Hour), w.RecordDelayed(c, 2*time.Second)
	for range 5 {
		// The entry in the variable far is due beyond the horizon. If the process enqueued that entry by mistake, it
		// would do so before it enqueues the new entry below.
		w.WaitInQueue(w.RecordDelayed(c, 900*time.Millisecond))
	}
	assert.False(t, w.InQueue(far))
	w.WaitState(beyond, compensator.Succeeded)
	assert.Equal(t, 1, ran.Of(beyond))
	assert.Zero(t, ran.Of(far))
	require.NoError(t, c.Reschedule(t.Context(), far, 800*time.Millisecond))
	w.WaitInQueue(far)
	w.WaitState(far, compensator.Succeeded)
}

// The test cuts the link between a Redis master and its replica, and later kills the master. The replica still holds
// entries that have ended since the cut, and lacks the entries that were enqueued since the cut.
// Failure: F42
func TestFailoverThatForgetsLosesNoEntry(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	master, replica := testservers.NewRedis(t, "--repl-diskless-sync-delay", "0"), testservers.NewRedisReplica(t)
	link, err := faultproxy.NewTCP(master.Addr())
	require.NoError(t, err)
	defer func() { assert.NoError(t, link.Close()) }()
	host, port, err := net.SplitHostPort(link.Addr())
	require.NoError(t, err)
	second := harness.RedisClient(t, replica)
	require.NoError(t, second.SlaveOf(t.Context(), host, port).Err())
	w.Eventually(func() bool {
		return strings.Contains(second.Info(t.Context(), "replication").Val(), "master_link_status:up")
	}, "the replica follows")
	var serving atomic.Pointer[testservers.RedisServer]
	serving.Store(master)
	w.Redis = redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, serving.Load().Addr())
	}})
	t.Cleanup(func() { assert.NoError(t, w.Redis.Close()) })
	w.Name = "failover"

	cfg := w.QuickConfig()
	cfg.Lease = time.Minute
	c := w.New(cfg)
	_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	shipped := w.RecordDelayed(c, 1500*time.Millisecond)
	key := w.DueKey("close_order")
	w.Eventually(func() bool { return second.ZScore(t.Context(), key, shipped.String()).Err() == nil }, "the replica receives an entry")
	link.Refuse()
	for range 20 {
		w.RecordDelayed(c, 0)
		w.RecordDelayed(c, 1500*time.Millisecond)
	}
	unshipped := w.RecordDelayed(c, time.Minute)
	w.WaitInQueue(unshipped)
	master.Kill()
	require.NoError(t, second.SlaveOf(t.Context(), "NO", "ONE").Err())
	require.Error(t, second.ZScore(t.Context(), key, unshipped.String()).Err(), "it was acknowledged and is gone")
	serving.Store(replica)
	w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == 41 }, "every entry runs")
	assert.Equal(t, 41, ran.Total())
	require.NoError(t, c.Reschedule(t.Context(), unshipped, 0))
	w.WaitState(unshipped, compensator.Succeeded)
}

// Failure: F24, F32, F84
func TestManyReconcilersAtOnceRunEachEntryOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	var ran harness.Calls
	for range 5 {
		cfg := w.QuickConfig()
		cfg.Lease, cfg.Grace, cfg.ReconcileInterval = time.Minute, 100*time.Millisecond, 100*time.Millisecond
		c := w.New(cfg)
		_, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
			ran.Add(e.ID)
			return nil
		}, nil)
		require.NoError(t, err)
		w.Run(c)
	}
	for round := range 10 { // InsertDue only writes rows, so the queue has none of these entries.
		w.InsertDue("close_order", 1+100*round, 50)
	}
	w.WaitAllEnded()
	assert.Equal(t, 500, ran.Total())
	assert.Equal(t, 500, w.Count("common_process_log WHERE state=1 AND version=2"), "one claim and one outcome each")
}

// TestProcessWhosePrefixWasTakenOverPollsItsDatabase lets another log take over the key prefix in Redis, after Redis
// has lost the owner of the prefix.
// Failure: F25
func TestProcessWhosePrefixWasTakenOverPollsItsDatabase(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	w.WaitInQueue(w.RecordDelayed(c, time.Minute))
	steal := w.Redis.TxPipeline()
	steal.Del(t.Context(), "{"+w.Name+":v1:0}:epoch")
	steal.Set(t.Context(), "{"+w.Name+":v1:0}:owner", "somebody else's", 0)
	_, err := steal.Exec(t.Context())
	require.NoError(t, err)
	w.Eventually(func() bool {
		queue := c.Health(t.Context()).Queue
		return queue != nil && strings.Contains(queue.Error(), "Prefix")
	}, "it notices")
	id := w.RecordDelayed(c, 100*time.Millisecond)
	w.WaitState(id, compensator.Succeeded)
	assert.Equal(t, 1, ran.Of(id))
	assert.Equal(t, "somebody else's", w.Redis.Get(t.Context(), "{"+w.Name+":v1:0}:owner").Val())
}

// Failure: F43
func TestNewWarnsOfARedisThatMayEvictTheQueue(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	w.Redis, w.Name = harness.RedisClient(t, testservers.NewRedis(t, "--maxmemory-policy", "allkeys-lru")), "evicted"
	var log strings.Builder
	cfg := w.QuickConfig()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	w.New(cfg)
	assert.Contains(t, log.String(), "allkeys-lru")
}

// oldRedis starts a server that answers like Redis 4.
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
		switch strings.ToUpper(lines.Text()) { // name of the command; its arguments are on the following lines
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

// Failure: F48
func TestRedisTooOldForOurScriptsIsRefusedAtStart(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	client := redis.NewClient(&redis.Options{Addr: oldRedis(t), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	cfg := w.QuickConfig()
	cfg.Redis, cfg.Prefix = client, "old"
	_, err := compensator.New(t.Context(), cfg)
	var refused *compensator.FieldError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "Redis", refused.Field)
	assert.Contains(t, refused.Reason, "4.0.14")
}

// Failure: F45
func TestWhatAProcessCouldNotEnqueueComesToTheQueueAlthoughAnotherLeads(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	idle := w.QuickConfig()
	idle.ReconcileInterval = time.Hour // This process enqueues entries at its start, and nothing more.
	leader := w.New(idle)
	harness.HandleCounted(t, leader, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(leader)
	w.WaitInQueue(w.RecordDelayed(leader, time.Minute))
	w.Eventually(func() bool { return w.Redis.Exists(t.Context(), "{"+w.Name+":v1:0}:lead").Val() == 1 }, "it leads")

	cfg, ready := w.QuickConfig(), make(chan struct{}, 1)
	cfg.ReconcileInterval = 3 * time.Second // This process enqueues entries due within four intervals.
	cfg.Observer.Reconciled = func(observe.ReconciledEvent) {
		select {
		case ready <- struct{}{}:
		default:
		}
	}
	down := make(chan struct{})
	first := sync.OnceFunc(func() { close(down) })
	cfg.Observer.QueueDown = func(error) { first() }
	proxy := w.ThroughProxy(&cfg)
	other := w.New(cfg)
	harness.HandleCounted(t, other, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(other)
	w.Wait(ready, "what a process does at its start is done")
	proxy.Refuse()
	w.Wait(down, "Redis is missed")
	missed := w.RecordDelayed(other, 12*time.Second)
	proxy.Heal()
	w.WaitInQueue(missed)
}

// The queue may still hold the entry with the lease of a process that has died.
func TestRetryOfAnEntryTheQueueHasLeasedAwayIsDueWhenItShouldBe(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	cfg.Lease, cfg.Grace = 10*time.Minute, 10*time.Minute // Neither the lease nor the grace period ends during the test.
	c := w.New(cfg)
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, func(_ *compensator.Entry, call int) error {
		if call == 1 {
			return compensator.RetryAfter(0, errors.New("once more"))
		}
		return nil
	})
	id := w.InsertDue("close_order", 1, 1)[0] // The entry is long overdue, so a poll finds it at once.
	dead, err := redisqueue.Open(w.Redis, w.Name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dead.Close() })
	_, _, err = dead.Enqueue(t.Context(), []processlog.QueueEntry{{BusinessType: orders.Name(), ID: id}}, processlog.EnqueueRules{MaxLease: cfg.Lease})
	require.NoError(t, err)
	leased, err := dead.Claim(t.Context(), orders.Name(), 1, cfg.Lease)
	require.NoError(t, err)
	require.Len(t, leased.IDs, 1)
	w.Run(c)
	w.WaitState(id, compensator.Succeeded)
	require.Equal(t, 2, ran.Of(id))
}
