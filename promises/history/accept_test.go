package history

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Failure: F21
func TestLossCanBeAcceptedInsideItsCallback(t *testing.T) {
	t.Parallel()
	for name, stops := range map[string]bool{"work goes on": false, "the loss stops the process": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			cfg := w.QuickConfig()
			cfg.StopOnLoss = stops
			var c *compensator.Compensator
			accepted := make(chan error, 100)
			cfg.Observer.HistoryLost = func(*processlog.LossError) { accepted <- acceptLoss(c) }
			c = w.New(cfg)
			orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			w.Run(c)
			id := w.Record(orders, 1, compensator.Options{})
			w.WaitState(id, compensator.Succeeded)
			w.Exec("UPDATE common_process_log SET version=version+1, token=UNHEX('0123456789abcdef0123456789abcdef')")
			require.NoError(t, harness.Receive(t, accepted))
			w.Eventually(func() bool { return c.Health(t.Context()).History == nil }, "the report ends")
			w.WaitState(w.Record(orders, 2, compensator.Options{}), compensator.Succeeded)
		})
	}
}

func TestLossCanBeAcceptedWhereAnEntryIsReportedMissing(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.DB = w.Open(harness.PlainPool(w.DSN))
	var c *compensator.Compensator
	accepted := make(chan error, 100)
	cfg.Observer.EntryMissing = func(observe.MissingEvent) { accepted <- acceptLoss(c) }
	c = w.New(cfg)
	orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	tx := w.Begin(cfg.DB)
	receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: time.Hour})
	require.NoError(t, err)
	w.Deadlock(tx)
	require.NoError(t, tx.Commit(), "the driver's own handle cannot know")
	receipt.Committed()
	require.NoError(t, harness.Receive(t, accepted))
}

// The deadline passes only if AcceptLoss waits for something that never happens.
func acceptLoss(c *compensator.Compensator) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	_, err := admin.Of(c).AcceptLoss(ctx, admin.AuditInfo{Actor: "the service", Reason: "its books are complete"})
	return err
}
