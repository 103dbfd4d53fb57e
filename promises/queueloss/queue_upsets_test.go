package queueloss

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

type upset struct {
	*harness.World
	t       *testing.T
	server  *testservers.RedisServer
	proxies [2]*faultproxy.TCP // one proxy for each process
	admin   *redis.Conn        // direct connection; stays logged in
	dueKey  string
	blows   int
	dumps   []string // dumps of the due key, oldest first

	processes [2]*compensator.Compensator
	ran       harness.Calls
}

// blow causes a fault once, and mend undoes the last blow.
var upsets = map[string]struct{ blow, mend func(u *upset) }{
	"forgets everything":  {blow: func(u *upset) { u.tell(u.admin.FlushAll(u.ctx())) }},
	"loses the queue":     {blow: func(u *upset) { u.tell(u.admin.Del(u.ctx(), u.dueKey)) }},
	"forgets its scripts": {blow: func(u *upset) { u.tell(u.admin.ScriptFlush(u.ctx())) }},
	"drops subscribers":   {blow: func(u *upset) { u.tell(u.admin.ClientKillByFilter(u.ctx(), "TYPE", "pubsub")) }},
	"crashes and forgets": {blow: func(u *upset) {
		u.server.Kill()
		u.pause(100 * time.Millisecond)
		u.server.Restart(u.t)
		u.pause(300 * time.Millisecond)
	}},
	"comes and goes": {
		blow: func(u *upset) { u.bothSides((*faultproxy.TCP).Refuse, 50*time.Millisecond) },
	},
	"is seen by one process only": {
		blow: func(u *upset) { u.proxies[0].Refuse() },
		mend: func(u *upset) { u.proxies[0].Heal() },
	},
	"performs the call and does not answer": {
		blow: func(u *upset) { u.bothSides((*faultproxy.TCP).SwallowReplies, 300*time.Millisecond) },
	},
	"freezes": {blow: func(u *upset) {
		u.server.Pause()
		u.pause(300 * time.Millisecond)
		u.server.Resume()
		u.pause(100 * time.Millisecond)
	}},
	"is full": {
		blow: func(u *upset) { u.tell(u.admin.ConfigSet(u.ctx(), "maxmemory", "1")) },
		mend: func(u *upset) { u.tell(u.admin.ConfigSet(u.ctx(), "maxmemory", "0")) },
	},
	"evicts": {
		blow: func(u *upset) {
			u.tell(u.admin.ConfigSet(u.ctx(), "maxmemory-policy", "allkeys-random"))
			u.tell(u.admin.ConfigSet(u.ctx(), "maxmemory", "1"))
		},
		mend: func(u *upset) { u.tell(u.admin.ConfigSet(u.ctx(), "maxmemory", "0")) },
	},
	"changes its password": {
		blow: func(u *upset) {
			u.tell(u.admin.ConfigSet(u.ctx(), "requirepass", "changed"))
			u.tell(u.admin.ClientKillByFilter(u.ctx(), "TYPE", "normal", "SKIPME", "yes"))
			u.pause(100 * time.Millisecond)
			u.tell(u.admin.ConfigSet(u.ctx(), "requirepass", ""))
			u.pause(100 * time.Millisecond)
		},
	},
	"holds somebody else's data": {
		blow: func(u *upset) {
			u.tell(u.admin.Eval(u.ctx(), "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'foreign')", []string{u.dueKey}))
		},
		mend: func(u *upset) {
			assert.Equal(u.t, []string{"foreign"}, u.admin.LRange(u.ctx(), u.dueKey, 0, -1).Val(), "left alone")
			u.tell(u.admin.Del(u.ctx(), u.dueKey))
		},
	},
	"falls back to an older state": {blow: (*upset).fallBack},
	"leaps between past and future": {blow: func(u *upset) {
		hour := []int64{3_600_000, -7_200_000, 3_600_000}[u.blows%3]
		u.tell(u.admin.Eval(u.ctx(), "for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do redis.call('ZINCRBY', KEYS[1], ARGV[1], id) end return 1",
			[]string{u.dueKey}, hour))
		u.pause(20 * time.Millisecond)
	}},
	"invents members": {blow: func(u *upset) {
		for range 20 { // Some of the invented ids belong to entries that are not due, others to no entry.
			u.tell(u.admin.ZAdd(u.ctx(), u.dueKey, redis.Z{Score: 1, Member: fmt.Sprint(1 + rand.N(500))}))
		}
	}},
}

// Failure: F22, F42, F43, F44, F45, F46
func TestEveryEntryRunsOnceAndNeverEarlyWhileRedis(t *testing.T) {
	t.Parallel()
	for name, problem := range upsets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUpset(t)
			ended, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for open(ended) {
					problem.blow(u)
					u.blows++
					u.pause(5 * time.Millisecond)
				}
			}()
			u.recordPairs(60)
			close(ended)
			<-stopped
			if problem.mend != nil {
				problem.mend(u)
			}
			assert.Positive(t, u.blows)
			u.queueIsUsedAgain()
		})
	}
}

func open(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return false
	default:
		return true
	}
}

func newUpset(t *testing.T) *upset {
	u := &upset{World: harness.NewWorld(t), t: t, server: testservers.NewRedis(t)}
	u.Name = "upset"
	u.Redis = harness.RedisClient(t, u.server)
	u.admin = u.Redis.Conn()
	t.Cleanup(func() { assert.NoError(t, u.admin.Close()) })
	u.dueKey = u.DueKey("close_order")
	dbs := [2]*sql.DB{u.DB, u.Open(harness.PlainPool(u.DSN))}
	for i := range u.processes {
		proxy, err := faultproxy.NewTCP(u.server.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
		u.proxies[i] = proxy
		client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 200 * time.Millisecond, DialTimeout: 200 * time.Millisecond, MaxRetries: -1})
		t.Cleanup(func() { assert.NoError(t, client.Close()) })
		cfg := u.QuickConfig()
		// In the database, the lease is longer than any handler runs, so each entry runs once. An entry also has a
		// lease in the queue. If the answer to a claim from the queue is lost, that lease ends without an attempt. The
		// queue then offers the entry again.
		cfg.DB, cfg.Redis, cfg.Lease = dbs[i], client, 10*time.Second
		u.processes[i] = u.New(cfg)
		numberedNeverEarly(t, u, u.processes[i])
	}
	return u
}

func numberedNeverEarly(t *testing.T, u *upset, c *compensator.Compensator) {
	_, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
		u.ran.Add(e.ID)
		var early bool
		err := u.DB.QueryRowContext(ctx, "SELECT next_at > TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))/1000 FROM common_process_log WHERE id=?", e.ID.Row()).Scan(&early)
		assert.NoError(t, err)
		assert.False(t, early, "entry %s runs before it is due", e.ID)
		return nil
	}, nil)
	require.NoError(t, err)
	u.Run(c)
}

func (u *upset) recordPairs(pairs int) {
	u.t.Helper()
	dbs := [2]*sql.DB{u.DB, u.Open(harness.PlainPool(u.DSN))}
	var producers sync.WaitGroup
	for i, c := range u.processes {
		producers.Go(func() {
			for n := range pairs / 2 {
				entries := harness.NewUntyped(2)
				entries[0].Delay = time.Duration(rand.N(500)) * time.Millisecond
				entries[1].Delay = time.Duration(n%2*10) * time.Millisecond
				tx, err := dbs[i].Begin()
				if !assert.NoError(u.t, err) {
					return
				}
				receipt, err := c.Record(u.t.Context(), tx, entries...)
				assert.NoError(u.t, err)
				assert.NoError(u.t, tx.Commit())
				receipt.Committed()
			}
		})
	}
	producers.Wait()
	u.WaitAllEnded()
	assert.Equal(u.t, 2*pairs, u.Count("common_process_log WHERE state=1 AND process_count=0"))
	assert.Equal(u.t, 2*pairs, u.ran.Total(), "runs")
}

// If the recording process still takes Redis for down, another process enqueues the entry shortly before its due time.
func (u *upset) queueIsUsedAgain() {
	u.t.Helper()
	var receipt *compensator.Receipt
	require.NoError(u.t, u.processes[0].InTx(u.t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
		receipt, err = u.processes[0].Record(ctx, tx, compensator.NewEntry{BusinessType: "close_order", Options: compensator.Options{Delay: 10 * time.Second}})
		return err
	}))
	u.Eventually(func() bool { return u.Redis.ZScore(u.t.Context(), u.dueKey, receipt.ID().String()).Err() == nil }, "the queue knows the entry")
}

// fallBack replaces the queue's content with an earlier dump, as the promotion of a lagging replica does.
func (u *upset) fallBack() {
	dump, err := u.admin.Dump(u.ctx(), u.dueKey).Result()
	if err == nil {
		u.dumps = append(u.dumps, dump)
	}
	if len(u.dumps) > 5 {
		u.tell(u.admin.RestoreReplace(u.ctx(), u.dueKey, 0, u.dumps[0]))
		u.dumps = u.dumps[1:]
	}
}

func (u *upset) bothSides(fault func(*faultproxy.TCP), d time.Duration) {
	for _, p := range u.proxies {
		fault(p)
	}
	u.pause(d)
	for _, p := range u.proxies {
		p.Heal()
	}
	u.pause(d)
}

// ctx returns a context that is not cancelled at the end of the test, because the last blow may come later.
func (u *upset) ctx() context.Context { return context.WithoutCancel(u.t.Context()) }

func (u *upset) tell(cmd redis.Cmder) {
	assert.NoError(u.t, cmd.Err())
}

func (u *upset) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
