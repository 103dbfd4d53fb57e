package commits

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// On a plain handle, Commit returns nil although the server has rolled back.
// Failure: F2
func TestEntryThatIsNotThereAfterItsCommitIsReported(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"one entry": 1, "several": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			cfg := w.QuickConfig()
			cfg.DB = w.Open(harness.PlainPool(w.DSN))
			missing := make(chan observe.MissingEvent, 10)
			cfg.Observer.EntryMissing = func(e observe.MissingEvent) { missing <- e }
			lines := harness.CaptureLog(&cfg)
			c := w.New(cfg)
			_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			stop := w.Run(c)
			tx := w.Begin(cfg.DB)
			receipt, err := c.Record(t.Context(), tx, harness.NewUntyped(n)...)
			require.NoError(t, err)
			w.Deadlock(tx)
			require.NoError(t, tx.Commit(), "the driver's own handle cannot know")
			receipt.Committed()
			told := make(map[string]observe.MissingEvent)
			for range n {
				event := harness.Receive(t, missing)
				told[string(event.IdempotencyKey)] = event
			}
			for _, e := range receipt.Entries {
				event := told[string(e.IdempotencyKey)]
				assert.Equal(t, "close_order", event.BusinessType)
				assert.Equal(t, e.ID, event.ID)
				assert.Contains(t, event.LikelyCause, "deadlock")
				assert.Contains(t, event.LikelyCause, "savepoint")
			}
			lines.Contains(w, "level=WARN", "not there", string(receipt.Entries[0].IdempotencyKey[:8]), "close_order", "deadlock")
			require.NoError(t, stop())
			assert.Zero(t, ran.Total())
		})
	}
}

// Failure: F2
func TestEntryRolledBackToASavepointIsMissingForThatReason(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	missing := make(chan observe.MissingEvent, 10)
	cfg.Observer.EntryMissing = func(e observe.MissingEvent) { missing <- e }
	lines := harness.CaptureLog(&cfg)
	c := w.New(cfg)
	orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	stop := w.Run(c)
	tx := w.Begin(cfg.DB)
	_, err := tx.Exec("SAVEPOINT s")
	require.NoError(t, err)
	receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
	require.NoError(t, err)
	_, err = tx.Exec("ROLLBACK TO s")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	event := harness.Receive(t, missing)
	assert.Equal(t, receipt.ID(), event.ID)
	assert.Contains(t, event.LikelyCause, "savepoint")
	assert.NotContains(t, event.LikelyCause, "deadlock", "the connection would have seen it")
	require.NoError(t, stop())
	for len(lines) > 0 {
		assert.NotContains(t, <-lines, "not there", "it is no warning: the caller has given the entry up")
	}
}

// Failure: F2
func TestEntriesThatAreThereAreNeverReportedMissing(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		missing := make(chan observe.MissingEvent, 1000)
		cfg.Observer.EntryMissing = func(e observe.MissingEvent) { missing <- e }
		c := w.New(cfg)
		orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 2}, nil)
		stop := w.Run(c)
		for i := range 50 {
			id := w.RecordThrough(cfg.DB, orders, i, compensator.Options{})
			if i%2 == 0 {
				_, _ = c.Cancel(t.Context(), id) // Claims no longer see the entry.
			}
		}
		w.WaitAllEnded()
		require.NoError(t, stop())
		assert.Empty(t, missing)
	})
}

// The process does not read the entry back at once, because the entry is due later or runs in another process.
func TestEntryThatIsDueLaterAndNotThereIsReported(t *testing.T) {
	t.Parallel()
	for name, runs := range map[string]bool{"its type runs here": true, "this process only records": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			cfg := w.QuickConfig()
			cfg.DB = w.Open(harness.PlainPool(w.DSN))
			missing := make(chan observe.MissingEvent, 10)
			cfg.Observer.EntryMissing = func(e observe.MissingEvent) { missing <- e }
			c := w.New(cfg)
			orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			if runs {
				w.Run(c)
			}
			tx := w.Begin(cfg.DB)
			receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: time.Hour})
			require.NoError(t, err)
			w.Deadlock(tx)
			require.NoError(t, tx.Commit(), "the driver's own handle cannot know")
			receipt.Committed()
			require.Equal(t, receipt.ID(), harness.Receive(t, missing).ID)
		})
	}
}
