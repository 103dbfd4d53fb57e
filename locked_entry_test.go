package compensator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// A payment that holds an entry's row when it comes due, and then rolls back, must not cost the entry more
// than the next look at a locked row: nothing but the claim that met the lock knows that it is due.
func TestEntryLockedAtItsDueTimeRunsOnceReleased(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	cfg.Grace, cfg.ReconcileInterval = time.Minute, time.Minute // the reconciler would find it, too
	c := w.new(cfg)
	closed, later := make(chan struct{}), make(chan struct{})
	orders, err := compensator.Handle(c, "close_order", func(context.Context, *compensator.Entry, order) error {
		close(closed)
		return nil
	}, compensator.TypeConfig{})
	require.NoError(t, err)
	reminders, err := compensator.Handle(c, "remind", func(context.Context, *compensator.Entry, order) error {
		defer close(later)
		select {
		case <-closed:
		default:
			assert.Fail(t, "an entry due two seconds after the release came first")
		}
		return nil
	}, compensator.TypeConfig{})
	require.NoError(t, err)
	w.run(c)

	tx, err := cfg.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	receipt, err := orders.Record(t.Context(), tx, order{}, compensator.Options{Delay: 500 * time.Millisecond})
	require.NoError(t, err)
	_, err = reminders.Record(t.Context(), tx, order{}, compensator.Options{Delay: 3 * time.Second})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	payment, err := cfg.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = c.CancelTx(t.Context(), payment, receipt.ID())
	require.NoError(t, err)
	overdue := "next_at < TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(3)) DIV 1000 - 200"
	w.eventually(func() bool { return w.count("common_process_log WHERE business_type='close_order' AND "+overdue) == 1 }, "the entry is overdue")
	require.NoError(t, payment.Rollback())
	<-closed
	<-later
	w.waitAllEnded()
}
