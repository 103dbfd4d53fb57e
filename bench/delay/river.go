package delay

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue uses github.com/riverqueue/river as its README shows it, with MaxWorkers 100. By default River looks for
// scheduled jobs every 5 s, and makes those available that come due within the next 5 s. River polls available jobs
// every second. If a process died, River runs its jobs again after an hour.
type riverQueue struct{}

type riverJob struct {
	N int `json:"n"`
}

func (riverJob) Kind() string { return "close_order" }

const riverLeft = "SELECT (args->>'n')::int FROM river_job WHERE state NOT IN ('completed', 'cancelled')"

func (riverQueue) prepare(tb testing.TB) (place, error) {
	p, err := startPostgres(tb)
	if err != nil {
		return place{}, err
	}
	pool, err := pgxpool.New(tb.Context(), p.Postgres)
	if err != nil {
		return place{}, err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return place{}, err
	}
	_, err = migrator.Migrate(tb.Context(), rivermigrate.DirectionUp, nil)
	return p, err
}

func (riverQueue) serve(ctx context.Context, p place, fire fire) (record, error) {
	config, err := pgxpool.ParseConfig(p.Postgres)
	if err != nil {
		return nil, err
	}
	config.MaxConns = producers + 10 // With pgxpool's default of 4, producers and workers would wait for each other.
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverJob]) error {
		fire(job.Args.N, uint64(job.ID))
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		Workers: workers,
	})
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context, n int, delay time.Duration) error {
		_, err := client.Insert(ctx, riverJob{n}, &river.InsertOpts{ScheduledAt: time.Now().Add(delay)})
		return err
	}, nil
}

func (riverQueue) unfinished(ctx context.Context, p place) ([]int, error) {
	conn, err := pgx.Connect(ctx, p.Postgres)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, riverLeft)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}
