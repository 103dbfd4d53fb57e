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

// Somebody's console holds the first rows of a backlog that only the database knows: the others run all the same, also
// one at a time.
func TestLockedHeadOfABacklogDoesNotHoldUpTheRest(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	proxy := w.throughProxy(&cfg)
	c := w.new(cfg)
	numbered(t, c, "close_order", compensator.TypeConfig{Concurrency: 1}, nil)
	proxy.Refuse()
	w.backlog("close_order", 30)
	console := w.begin(w.DB)
	_, err := console.ExecContext(t.Context(), "SELECT id FROM common_process_log ORDER BY id LIMIT 3 FOR UPDATE")
	require.NoError(t, err)
	w.run(c)
	w.eventually(func() bool { return w.ended(compensator.Succeeded, 0) == 27 }, "what is not locked has run")
	require.NoError(t, console.Rollback())
	w.waitAllEnded()
}
