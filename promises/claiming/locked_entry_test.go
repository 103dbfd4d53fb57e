package claiming

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// Only the process whose claim skipped the locked row knows that the entry is due.
func TestEntryLockedAtItsDueTimeRunsOnceReleased(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	cfg.Grace, cfg.ReconcileInterval = time.Minute, time.Minute // A short interval would let the reconciler find the entry, too.
	c := w.New(cfg)
	closed, later := make(chan struct{}), make(chan struct{})
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error {
		close(closed)
		return nil
	}, nil)
	require.NoError(t, err)
	reminders, err := compensator.Handle(t.Context(), c, "remind", func(context.Context, *compensator.Entry, harness.Order) error {
		close(later)
		return nil
	}, nil)
	require.NoError(t, err)
	w.Run(c)

	tx, err := cfg.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: 500 * time.Millisecond})
	require.NoError(t, err)
	reminder, err := reminders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: 30 * time.Second})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	payment, err := cfg.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = c.CancelTx(t.Context(), payment, receipt.ID())
	require.NoError(t, err)
	overdue := "next_at < TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(3)) DIV 1000 - 200"
	w.Eventually(func() bool { return w.Count("common_process_log WHERE business_type='close_order' AND "+overdue) == 1 }, "the entry is overdue")
	require.NoError(t, payment.Rollback())
	select {
	case <-closed:
	case <-later:
		assert.Fail(t, "an entry due half a minute after the release came first")
	}
	_, err = c.Cancel(t.Context(), reminder.ID())
	require.NoError(t, err)
	w.WaitAllEnded()
}

// Failure: F27
func TestLockedHeadOfABacklogDoesNotHoldUpTheRest(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	proxy := w.ThroughProxy(&cfg)
	c := w.New(cfg)
	harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 1}, nil)
	proxy.Refuse()
	w.Backlog("close_order", 30)
	console := w.Begin(w.DB)
	_, err := console.ExecContext(t.Context(), "SELECT id FROM common_process_log ORDER BY id LIMIT 3 FOR UPDATE")
	require.NoError(t, err)
	w.Run(c)
	w.Eventually(func() bool { return w.CountEnded(compensator.Succeeded, 0) == 27 }, "what is not locked has run")
	require.NoError(t, console.Rollback())
	w.WaitAllEnded()
}
