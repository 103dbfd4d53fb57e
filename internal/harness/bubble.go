package harness

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

// InBubble runs test in a synctest bubble, with a Compensator on in-memory doubles. The bubble's clock moves only when
// every goroutine is blocked.
func InBubble(t *testing.T, register func(c *compensator.Compensator), test func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore)) {
	InBubbleOf(t, compensator.Config{}, register, test)
}

func InBubbleOf(t *testing.T, cfg compensator.Config, register func(c *compensator.Compensator), test func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore)) {
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		cfg.Store, cfg.Logger = store, slog.New(slog.DiscardHandler)
		c, err := compensator.New(t.Context(), cfg)
		require.NoError(t, err)
		register(c)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- c.Run(ctx) }()
		test(t, c, store)
		cancel()
		require.NoError(t, <-stopped)
		require.NoError(t, c.Close())
	})
}

func RecordIn(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, entries ...compensator.NewEntry) *compensator.Receipt {
	t.Helper()
	tx, err := store.BeginTx(t.Context())
	require.NoError(t, err)
	receipt, err := c.Record(t.Context(), tx, entries...)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	receipt.Committed()
	return receipt
}

type Lateness struct {
	mu  sync.Mutex // guards all fields
	All []time.Duration
}

func (l *Lateness) Note(_ context.Context, e *compensator.Entry, _ Order) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.All = append(l.All, time.Since(e.NextAt))
	return nil
}

func (l *Lateness) RequireOnTime(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Len(t, l.All, n)
	require.Less(t, slices.Max(l.All), time.Second)
}

// RecordDelayedIn records n entries and commits them without calling Committed. The library must find the commit by
// itself.
func RecordDelayedIn(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, n int, delay time.Duration) *compensator.Receipt {
	t.Helper()
	tx, err := store.BeginTx(t.Context())
	require.NoError(t, err)
	entries := make([]compensator.NewEntry, n)
	for i := range entries {
		entries[i] = compensator.NewEntry{BusinessType: "quiet", Content: []byte(`{}`), Options: compensator.Options{Delay: delay}}
	}
	receipt, err := c.Record(t.Context(), tx, entries...)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	return receipt
}

func RecordLater(t *testing.T, c *compensator.Compensator, delay time.Duration) {
	t.Helper()
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := c.Record(ctx, tx, compensator.NewEntry{BusinessType: "close_order", Content: []byte("{}"), Options: compensator.Options{Delay: delay}})
		return err
	}))
}
