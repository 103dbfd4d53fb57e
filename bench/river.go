package bench

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// All other settings keep River's defaults, so River also listens for notifications.
type riverSettings struct {
	workers                  int
	fetchCooldown, fetchPoll time.Duration // 0 means River's defaults of 100 ms and 1 s
}

var (
	// riverPlain holds the settings of River's README.
	riverPlain = riverSettings{workers: 100}

	// riverTuned holds the best settings according to River's own benchmark, cmd/river/riverbench. It calls them "much
	// better than the client's default values at any rate".
	riverTuned = riverSettings{workers: 2000, fetchCooldown: 2 * time.Millisecond, fetchPoll: 20 * time.Millisecond}
)

// riverConns is the size of River's pool. Each producer has one connection. According to River's documentation,
// listening needs one more, maintenance two, and completing jobs two. The rest are for fetching. The library's pool is
// not larger.
const riverConns = producers + 8

type riverPeer struct {
	a      *arena
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	stop   func() // stops what run started

	completed atomic.Int64
}

func (a *arena) river(name string, settings riverSettings) rival {
	if a.postgres == nil {
		return rival{name: name}
	}
	return rival{name, func(handler func(string)) peer { return openRiver(a, settings, handler) }}
}

func openRiver(a *arena, settings riverSettings, handler func(string)) *riverPeer {
	a.Helper()
	r := &riverPeer{a: a, pool: a.postgres.pool(riverConns), stop: func() {}}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverArgs]) error {
		handler(strconv.FormatInt(job.ID, 10))
		return nil
	}))
	var err error
	r.client, err = river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		FetchCooldown: settings.fetchCooldown, FetchPollInterval: settings.fetchPoll,
		Logger:  slog.New(slog.DiscardHandler),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: settings.workers}},
		Workers: workers,
	})
	a.must(err)
	return r
}

// riverArgs holds the content as raw JSON, so that no figure measures more JSON encoding than River requires.
type riverArgs struct{ json.RawMessage }

func (riverArgs) Kind() string { return benchType }

func (r *riverPeer) record(ctx context.Context, n int, delay time.Duration) (string, time.Time, error) {
	began := time.Now()
	tx, err := r.pool.Begin(ctx)
	if err != nil {
		return "", began, err
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "INSERT INTO orders (buyer, amount, note) VALUES ($1,$2,$3)", int64(1), int64(100), note); err != nil {
		return "", began, err
	}
	id, err := r.insert(ctx, tx, n, delay)
	if err != nil {
		return "", began, err
	}
	err = tx.Commit(ctx)
	if delay > 0 {
		return id, began.Add(delay), err
	}
	return id, time.Now(), err
}

// For more than one job insert uses COPY, which River's documentation calls the fast way and which returns no ids.
func (r *riverPeer) insert(ctx context.Context, tx pgx.Tx, n int, delay time.Duration) (string, error) {
	opts := &river.InsertOpts{}
	if delay > 0 {
		opts.ScheduledAt = time.Now().Add(delay)
	}
	if n > 1 {
		_, err := r.client.InsertManyFastTx(ctx, tx, riverParams(n, opts))
		return "", err
	}
	result, err := r.client.InsertTx(ctx, tx, riverArgs{content}, opts)
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(result.Job.ID, 10), nil
}

func riverParams(n int, opts *river.InsertOpts) []river.InsertManyParams {
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i] = river.InsertManyParams{Args: riverArgs{content}, InsertOpts: opts}
	}
	return params
}

// backlog inserts n jobs and then analyzes the table, as autovacuum would do a minute later.
func (r *riverPeer) backlog(n int) {
	r.a.Helper()
	for left := n; left > 0; left -= 5000 {
		_, err := r.client.InsertManyFast(r.a.Context(), riverParams(min(left, 5000), nil))
		r.a.must(err)
	}
	r.a.postgres.exec("ANALYZE river_job")
}

// run counts completed jobs with River's events, as River's own benchmark does. An event arrives after its outcome is
// durable.
func (r *riverPeer) run() {
	r.a.Helper()
	events, unsubscribe := r.client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: 75_000, // the buffer of River's own benchmark; River drops events when it is full
		Kinds:    []river.EventKind{river.EventKindJobCompleted},
	})
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		for range events {
			r.completed.Add(1)
		}
	}()
	r.a.must(r.client.Start(r.a.Context()))
	r.stop = func() {
		r.a.must(r.client.Stop(context.Background()))
		unsubscribe()
		<-counted
	}
}

func (r *riverPeer) finished(int) int { return int(r.completed.Load()) }

func (r *riverPeer) close() {
	r.a.Helper()
	r.stop()
	r.pool.Close()
}

func (a *arena) migrateRiver() {
	a.Helper()
	migrator, err := rivermigrate.New(riverpgxv5.New(a.postgres.admin), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	a.must(err)
	_, err = migrator.Migrate(a.Context(), rivermigrate.DirectionUp, nil)
	a.must(err)
	a.postgres.exec("CREATE TABLE orders (id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, buyer BIGINT NOT NULL, amount BIGINT NOT NULL, note BYTEA NOT NULL)")
}

// emptyRiver truncates River's tables and writes a checkpoint, so that a run does not pay for the previous run.
func (a *arena) emptyRiver() {
	a.Helper()
	a.postgres.exec("TRUNCATE river_job, orders RESTART IDENTITY")
	a.postgres.exec("CHECKPOINT")
}
