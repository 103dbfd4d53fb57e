package gormtx_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/orms/gormtx"
)

// A tutorial uses no Connector and does not call Committed.
type tutorial struct {
	c       *compensator.Compensator
	db      *gorm.DB
	notify  *compensator.Type[string]
	started chan string
}

func newTutorial(tb testing.TB, cfg compensator.Config) *tutorial {
	tb.Helper()
	db, err := gorm.Open(mysql.Open(testservers.Database(tb)+"?parseTime=true"), &gorm.Config{Logger: logger.Discard})
	require.NoError(tb, err)
	pool, err := db.DB()
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, pool.Close()) })
	require.NoError(tb, db.AutoMigrate(&order{}))
	require.NoError(tb, compensator.Migrate(tb.Context(), pool))
	running := make(chan struct{})
	var once sync.Once
	cfg.DB = pool
	cfg.Observer.Reconciled = func(observe.ReconciledEvent) { once.Do(func() { close(running) }) }
	s := &tutorial{db: db, started: make(chan string, 1)}
	s.c, err = compensator.New(tb.Context(), cfg)
	require.NoError(tb, err)
	s.notify, err = compensator.Handle(tb.Context(), s.c, "notify", func(_ context.Context, _ *compensator.Entry, note string) error {
		s.started <- note
		return nil
	}, nil)
	require.NoError(tb, err)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- s.c.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		require.NoError(tb, <-stopped)
		require.NoError(tb, s.c.Close())
	})
	<-running
	return s
}

func (s *tutorial) place(tb testing.TB, note string) {
	tb.Helper()
	require.NoError(tb, s.db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&order{Note: note}).Error; err != nil {
			return err
		}
		_, err := s.notify.Record(tb.Context(), gormtx.Tx(tx), note, compensator.Options{})
		return err
	}))
}

// Every interval is an hour, so only the queue can start the entry.
// Failure: F12
func TestEntryRecordedAsInTheTutorialStarts(t *testing.T) {
	t.Parallel()
	s := newTutorial(t, compensator.Config{ReconcileInterval: time.Hour, PollInterval: time.Hour, Grace: time.Hour})
	s.place(t, "a")
	require.Equal(t, "a", <-s.started)
}

// The settings are the defaults.
func BenchmarkTutorialStart(b *testing.B) {
	s := newTutorial(b, compensator.Config{})
	var late []time.Duration
	for i := 0; b.Loop(); i++ {
		s.place(b, fmt.Sprint(i))
		committed := time.Now()
		<-s.started
		late = append(late, time.Since(committed))
	}
	slices.Sort(late)
	b.ReportMetric(float64(late[len(late)/2].Milliseconds()), "p50-ms")
	b.ReportMetric(float64(late[len(late)-1].Milliseconds()), "max-ms")
}
