package bench

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynqSettings are what asynq's users turn.
type asynqSettings struct {
	concurrency int           // 0: asynq's, one a CPU
	poll        time.Duration // of an empty queue; 0: asynq's, 1 s
	forward     time.Duration // of due tasks to the queue; 0: asynq's, 5 s
}

var (
	asynqPlain = asynqSettings{}

	// asynqTuned: one goroutine of a server takes the tasks one by one, so that more workers than keep it busy do
	// not help; from 10 to 100 the rate is the same. The intervals are short because the latencies are theirs: half
	// to one and a half of the poll, and up to one forward. Its documents warn only of the load on Redis, which
	// here has nothing else to do.
	asynqTuned = asynqSettings{concurrency: 20, poll: 10 * time.Millisecond, forward: 10 * time.Millisecond}
)

// asynqPeer is a client and a server of asynq on Redis, beside a business transaction on MariaDB. There is no
// transaction over both, and Redis is as its users have it: it keeps nothing durably.
type asynqPeer struct {
	a      *arena
	db     *sql.DB
	redis  *redis.Client
	client *asynq.Client
	server *asynq.Server

	handler func(id string)
	handled atomic.Int64
}

func (a *arena) asynq(name string, settings asynqSettings) rival {
	return rival{name, func(handler func(string)) peer {
		q := &asynqPeer{a: a, db: a.plain(producers), redis: a.client(), handler: handler}
		// Workers and producers do not wait for a connection.
		at := asynq.RedisClientOpt{Addr: a.redis.Addr(), PoolSize: max(settings.concurrency, producers) + 4}
		q.client = asynq.NewClient(at)
		q.server = asynq.NewServer(at, asynq.Config{
			Concurrency: settings.concurrency, TaskCheckInterval: settings.poll, DelayedTaskCheckInterval: settings.forward,
			LogLevel: asynq.ErrorLevel,
		})
		return q
	}}
}

func (q *asynqPeer) record(ctx context.Context, _ int, delay time.Duration) (string, time.Time, error) {
	if _, err := floorRecord(ctx, q.db, 0, "", 0); err != nil {
		return "", time.Time{}, err
	}
	committed := time.Now()
	var opts []asynq.Option
	if delay > 0 {
		opts = append(opts, asynq.ProcessIn(delay))
	}
	task, err := q.client.EnqueueContext(ctx, asynq.NewTask(benchType, content), opts...)
	if err != nil {
		return "", committed, err
	}
	return task.ID, committed.Add(delay), nil
}

func (q *asynqPeer) backlog(n int) {
	q.a.Helper()
	_, err := share(n, producers, func(int) error {
		_, err := q.client.EnqueueContext(q.a.Context(), asynq.NewTask(benchType, content))
		return err
	})
	q.a.must(err)
}

func (q *asynqPeer) run() {
	q.a.Helper()
	q.a.must(q.server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		q.handler(id)
		q.handled.Add(1)
		return nil
	})))
}

// finished asks Redis at the end only, for the counter that asynq moves with every outcome.
func (q *asynqPeer) finished(n int) int {
	q.a.Helper()
	if handled := int(q.handled.Load()); handled < n {
		return handled
	}
	processed, err := q.redis.Get(q.a.Context(), "asynq:{default}:processed").Int()
	q.a.must(err)
	return processed
}

func (q *asynqPeer) close() {
	q.a.Helper()
	q.server.Shutdown()
	q.a.must(q.client.Close())
	q.a.must(q.redis.Close())
	q.a.must(q.db.Close())
}
