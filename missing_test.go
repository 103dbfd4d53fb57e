package compensator_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// logged is a log whose lines a test can wait for.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	select {
	case l <- string(bytes.TrimSpace(line)):
	default:
	}
	return len(line), nil
}

func logInto(cfg *compensator.Config) logged {
	lines := make(logged, 1000)
	cfg.Logger = slog.New(slog.NewTextHandler(lines, nil))
	return lines
}

// contains waits for a line with all of parts.
func (l logged) contains(w *world, parts ...string) string {
	w.t.Helper()
	for {
		line := next(w.t, l)
		found := true
		for _, part := range parts {
			found = found && bytes.Contains([]byte(line), []byte(part))
		}
		if found {
			return line
		}
	}
}

// TestEntryThatIsNotThereAfterItsCommitIsReported: the server has rolled back, the error is swallowed, and on a plain
// handle Commit returns nil.
func TestEntryThatIsNotThereAfterItsCommitIsReported(t *testing.T) {
	for name, n := range map[string]int{"one entry": 1, "several": 3} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.quick()
			cfg.DB = w.open(plain(w.DSN))
			missing := make(chan compensator.MissingEvent, 10)
			cfg.Observer.EntryMissing = func(e compensator.MissingEvent) { missing <- e }
			lines := logInto(&cfg)
			c := w.new(cfg)
			_, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
			stop := w.run(c)
			tx := w.begin(cfg.DB)
			receipt, err := c.Record(t.Context(), tx, untyped(n)...)
			require.NoError(t, err)
			w.deadlock(tx)
			require.NoError(t, tx.Commit(), "the driver's own handle cannot know")
			receipt.Committed()
			told := make(map[string]compensator.MissingEvent)
			for range n {
				event := next(t, missing)
				told[event.IdempotentID] = event
			}
			for _, e := range receipt.Entries {
				event := told[e.IdempotentID]
				assert.Equal(t, "close_order", event.BusinessType)
				assert.Equal(t, e.ID, event.ID)
				assert.Contains(t, event.LikelyCause, "deadlock")
				assert.Contains(t, event.LikelyCause, "savepoint")
			}
			lines.contains(w, "level=WARN", "not there", receipt.Entries[0].IdempotentID[:8], "close_order", "deadlock")
			require.NoError(t, stop())
			assert.Zero(t, ran.total())
		})
	}
}

func TestEntryRolledBackToASavepointIsMissingForThatReason(t *testing.T) {
	w := newWorld(t)
	cfg := w.quick()
	missing := make(chan compensator.MissingEvent, 10)
	cfg.Observer.EntryMissing = func(e compensator.MissingEvent) { missing <- e }
	lines := logInto(&cfg)
	c := w.new(cfg)
	orders, _ := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
	stop := w.run(c)
	tx := w.begin(cfg.DB)
	_, err := tx.Exec("SAVEPOINT s")
	require.NoError(t, err)
	receipt, err := orders.Record(t.Context(), tx, order{}, compensator.Options{})
	require.NoError(t, err)
	_, err = tx.Exec("ROLLBACK TO s")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	event := next(t, missing)
	assert.Equal(t, receipt.ID(), event.ID)
	assert.Contains(t, event.LikelyCause, "savepoint")
	assert.NotContains(t, event.LikelyCause, "deadlock", "the connection would have seen it")
	require.NoError(t, stop())
	assert.Empty(t, lines, "it is no warning: the caller has given the entry up")
}

func TestEntriesThatAreThereAreNeverReportedMissing(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		missing := make(chan compensator.MissingEvent, 1000)
		cfg.Observer.EntryMissing = func(e compensator.MissingEvent) { missing <- e }
		c := w.new(cfg)
		orders, _ := numbered(t, c, "close_order", compensator.TypeConfig{Concurrency: 2}, nil)
		stop := w.run(c)
		for i := range 50 {
			id := putThrough(w, cfg.DB, orders, i, compensator.Options{})
			if i%2 == 0 {
				_, _ = c.Cancel(t.Context(), id) // gone from the claims' point of view
			}
		}
		w.waitAllEnded()
		require.NoError(t, stop())
		assert.Empty(t, missing)
	})
}

// Nobody reads an entry back that is due later, or runs elsewhere: the next round does.
func TestEntryThatIsDueLaterAndNotThereIsReported(t *testing.T) {
	for name, runs := range map[string]bool{"its type runs here": true, "this process only records": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.quick()
			cfg.DB = w.open(plain(w.DSN))
			missing := make(chan compensator.MissingEvent, 10)
			cfg.Observer.EntryMissing = func(e compensator.MissingEvent) { missing <- e }
			c := w.new(cfg)
			orders, _ := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
			if runs {
				w.run(c)
			}
			tx := w.begin(cfg.DB)
			receipt, err := orders.Record(t.Context(), tx, order{}, compensator.Options{Delay: time.Hour})
			require.NoError(t, err)
			w.deadlock(tx)
			require.NoError(t, tx.Commit(), "the driver's own handle cannot know")
			receipt.Committed()
			require.Equal(t, receipt.ID(), next(t, missing).ID)
		})
	}
}
