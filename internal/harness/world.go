package harness

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
)

// Timeout is the time after which a test fails if it still waits for an event. It is long, because the machine may be
// busy. So it does not say how fast the event should come.
const Timeout = 3 * time.Minute

type World struct {
	T     *testing.T
	DSN   string
	DB    *sql.DB
	Redis *redis.Client
	Name  string
}

// NewWorld returns a World with a database of its own. At the end of the test it checks that no row breaks the
// invariants.
func NewWorld(t *testing.T) *World {
	t.Helper()
	return WorldAt(t, testservers.Database(t))
}

func WorldAt(t *testing.T, dsn string) *World {
	t.Helper()
	w := &World{T: t, DSN: dsn}
	w.DB = w.Open(WatchedPool(dsn))
	require.NoError(t, compensator.Migrate(t.Context(), w.DB))
	_, err := w.DB.Exec("CREATE TABLE effects (id BIGINT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(191) NOT NULL) ENGINE=InnoDB")
	require.NoError(t, err)
	t.Cleanup(w.checkInvariants)
	return w
}

func (w *World) QuickConfig() compensator.Config {
	cfg := compensator.Config{
		DB: w.DB, Prefix: w.Name, Lease: 2 * time.Second, Grace: 200 * time.Millisecond,
		ReconcileInterval: 300 * time.Millisecond, PollInterval: 200 * time.Millisecond,
		StopTimeout: 20 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	if w.Redis != nil {
		cfg.Redis = w.Redis
	}
	return cfg
}

func (w *World) New(cfg compensator.Config) *compensator.Compensator {
	w.T.Helper()
	c, err := compensator.New(w.T.Context(), cfg)
	require.NoError(w.T, err)
	w.T.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *World) Run(c *compensator.Compensator) (stop func() error) {
	w.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- c.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-result
		})
		return err
	}
	w.T.Cleanup(func() { _ = stop() })
	return stop
}

func (w *World) InTx(db *sql.DB, work func(tx *sql.Tx)) {
	w.T.Helper()
	tx, err := db.Begin()
	require.NoError(w.T, err)
	work(tx)
	require.NoError(w.T, tx.Commit())
}

// Eventually polls check until it holds. check runs in the test's goroutine, so it may fail the test. The interval
// between two calls grows, because frequent polling slows a busy machine down.
func (w *World) Eventually(check func() bool, what string, args ...any) {
	w.T.Helper()
	for startedAt := time.Now(); !check(); time.Sleep(min(max(time.Since(startedAt)/20, 5*time.Millisecond), 100*time.Millisecond)) {
		require.Less(w.T, time.Since(startedAt), Timeout, append([]any{what}, args...)...)
	}
}
