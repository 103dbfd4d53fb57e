package bench

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

type asynqSettings struct {
	concurrency int           // 0 means asynq's default: one worker per CPU
	poll        time.Duration // interval for polling an empty queue; 0 means asynq's default of 1 s
	forward     time.Duration // interval for moving due tasks to the queue; 0 means asynq's default of 5 s
}

var (
	asynqPlain = asynqSettings{}

	// One goroutine of an asynq server fetches all tasks, so adding workers helps only up to a point. The intervals set
	// the latency. An empty queue is polled every 0.5 to 1.5 poll intervals, and a delayed task waits up to one forward
	// interval more.
	asynqTuned = asynqSettings{concurrency: 20, poll: 10 * time.Millisecond, forward: 10 * time.Millisecond}
)

// No transaction covers asynq and the business row. Redis runs without persistence, as asynq's users run it.
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
		q := &asynqPeer{a: a, db: a.openPlain(producers), redis: a.client(), handler: handler}
		// The pool is so large that no worker or producer waits for a connection.
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

// After n tasks, finished returns the counter that asynq increments when it stores an outcome, so that the run ends
// only after the last outcome is stored.
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
