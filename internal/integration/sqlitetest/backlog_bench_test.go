package sqlitetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
)

type spans struct {
	mu  sync.Mutex // guards all
	all []time.Duration
}

func (s *spans) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, d)
}

func (s *spans) report(b *testing.B, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.all)
	if len(s.all) == 0 {
		b.Fatalf("%s: none", what)
	}
	for _, p := range []struct {
		name string
		of   float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1}} {
		d := s.all[min(len(s.all)-1, int(p.of*float64(len(s.all))))]
		b.ReportMetric(float64(d.Microseconds())/1000, what+"-"+p.name+"-ms")
	}
}

// BenchmarkOutcomesOfABacklog runs a backlog of transactional and plain handlers on one SQLite file.
func BenchmarkOutcomesOfABacklog(b *testing.B) {
	for b.Loop() {
		runBacklog(b, 2000)
	}
}

func runBacklog(b *testing.B, n int) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	db := open(b, newFile(b, wal...))
	require.NoError(b, compensator.Migrate(ctx, db))
	_, err := db.ExecContext(ctx, "CREATE TABLE effects (entry INTEGER, what TEXT)")
	require.NoError(b, err)
	var returned sync.Map // time at which the handler returned, by entry and attempt
	var stored, inTx, own spans
	ended := make(chan struct{}, 2*n)
	c, err := compensator.New(ctx, compensator.Config{DB: db, Logger: slog.New(slog.DiscardHandler), Observer: observe.Observer{
		Settled: func(e observe.SettledEvent) {
			at, ok := returned.Load(fmt.Sprint(e.ID, e.Attempt))
			if took := &stored; ok {
				if e.BusinessType == "transactional" && e.State == compensator.Succeeded {
					took = &inTx
				}
				took.add(time.Since(at.(time.Time)))
			}
			if e.State.Terminal() {
				ended <- struct{}{}
			}
		},
	}})
	require.NoError(b, err)
	defer c.Close()
	work := func(ctx context.Context, e *compensator.Entry, tx interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
	}) error {
		defer func() { returned.Store(fmt.Sprint(e.ID, e.Attempt()), time.Now()) }()
		if _, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?,'x')", e.ID.Row()); err != nil {
			return err
		}
		timer := time.NewTimer(2 * time.Millisecond)
		defer timer.Stop()
		<-timer.C
		if e.Attempt() == 1 && e.ID.Row()%5 == 0 {
			return errors.New("once")
		}
		return nil
	}
	retry := compensator.Fixed(0)
	transactional, err := compensator.HandleTx(ctx, c, "transactional", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ int) error {
		return work(ctx, e, tx)
	}, &compensator.HandlerConfig[int]{Concurrency: 50, Retry: retry})
	require.NoError(b, err)
	plain, err := compensator.Handle(ctx, c, "plain", func(ctx context.Context, e *compensator.Entry, _ int) error {
		returned.Store(fmt.Sprint(e.ID, e.Attempt()), time.Now())
		return nil
	}, &compensator.HandlerConfig[int]{Concurrency: 50, Retry: retry})
	require.NoError(b, err)
	require.NoError(b, c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		for i := range n {
			if _, err := transactional.Record(ctx, tx, i, compensator.Options{}); err != nil {
				return err
			}
			if _, err := plain.Record(ctx, tx, i, compensator.Options{}); err != nil {
				return err
			}
		}
		return nil
	}))
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	running.Go(func() { ownWrites(ctx, db, &own) })
	began := time.Now()
	for range 2 * n {
		<-ended
	}
	b.ReportMetric(float64(2*n)/time.Since(began).Seconds(), "entries/s")
	cancel()
	running.Wait()
	stored.report(b, "stored")
	inTx.report(b, "in-tx")
	own.report(b, "own")
}

func ownWrites(ctx context.Context, db *sql.DB, took *spans) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		if _, err := db.ExecContext(ctx, "INSERT INTO effects VALUES (0,'own')"); ctx.Err() != nil {
			return
		} else if err != nil {
			took.add(time.Minute) // Count a failed statement as a minute, so that the failure stands out in the report.
			continue
		}
		took.add(time.Since(began))
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}
