package order

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// untold is a configuration with rounds an hour apart: whoever is not told that its turn has come waits for that long.
func untold(w *harness.World) compensator.Config {
	cfg := w.Quick()
	cfg.ReconcileInterval, cfg.PollInterval = time.Hour, time.Hour
	return cfg
}

// One that has ended its processes is ended by the claim that finds that, with no handler, and leaves its line as any.
// Failure: F115
func TestEntryThatIsDeadLetteredLetsItsKeyGoOn(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(untold(w))
	seen := newWatch(t)
	orders := serial(t, c, seen, compensator.TypeConfig{PassDead: true}, nil)
	first := w.Put(orders, 1, compensator.Options{UserID: "ann", Delay: time.Hour})
	w.Exec("UPDATE common_process_log SET delivery_count=4 WHERE id=?", first.Row())
	second := w.Put(orders, 2, of("ann"))
	w.Run(c)
	passBy(w, w.DB, orders)
	require.NoError(t, c.Reschedule(t.Context(), first, 0))
	w.WaitState(second, compensator.Succeeded)
	require.Equal(t, compensator.Dead, w.State(first))
	require.Equal(t, []compensator.EntryID{second}, seen.order("ann"))
}

// An entry that was committed late is blocked beside one that runs. That one asks to be called again in an hour.
// Failure: F117
func TestLateEntryRunsOnceTheOneBesideItWaits(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(untold(w))
	gate := harness.NewGate()
	orders := serial(t, c, newWatch(t), compensator.TypeConfig{Retry: compensator.Fixed(time.Hour)}, func(ctx context.Context, e *compensator.Entry) error {
		if e.BusinessID != "slow" {
			return nil
		}
		if err := gate.Pass(ctx, e); err != nil {
			return err
		}
		return harness.ErrSoldOut
	})
	w.Run(c)
	tx := w.Begin(w.DB)
	receipt, err := orders.Record(t.Context(), tx, harness.Order{}, of("ann"))
	require.NoError(t, err)
	slow := w.Put(orders, 1, compensator.Options{UserID: "ann", BusinessID: "slow"})
	require.Equal(t, slow, gate.Await(t))
	require.NoError(t, tx.Commit())
	receipt.Committed()
	awaitBlocked(w, receipt.ID())
	gate.Open()
	w.WaitState(receipt.ID(), compensator.Succeeded)
	require.Equal(t, compensator.Retrying, w.State(slow))
}

// An entry with no note, as plain SQL records it, is put back once, for the note to be made. It is first, and runs at once.
// Failure: F117
func TestEntryWithoutANoteRunsAtOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(untold(w))
	serial(t, c, newWatch(t), compensator.TypeConfig{}, nil)
	ids := w.InsertDue("book", 1000, 3)
	w.Exec("UPDATE common_process_log SET user_id='ann'")
	w.Run(c)
	for _, id := range ids {
		w.WaitState(id, compensator.Succeeded)
	}
}

// Who has ended stands in his line until his note is deleted. Should that have to wait, or fail, the next one does not.
// Failure: F115
func TestNextOfAKeyWaitsForNoNoteToGo(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(untold(w))
	gate := harness.NewGate()
	orders := serial(t, c, newWatch(t), compensator.TypeConfig{}, func(ctx context.Context, e *compensator.Entry) error {
		if e.BusinessID == "slow" {
			return gate.Pass(ctx, e)
		}
		return nil
	})
	w.Run(c)
	first := w.Put(orders, 1, compensator.Options{UserID: "ann", BusinessID: "slow"})
	require.Equal(t, first, gate.Await(t))
	second := w.Put(orders, 2, of("ann"))
	passBy(w, w.DB, orders)
	tx := w.Begin(w.DB)
	_, err := tx.Exec("UPDATE common_process_log_turns SET parked=parked+1 WHERE business_type='book' AND turn_key='ann' AND entry_id=?", first.Row())
	require.NoError(t, err)
	gate.Open()
	w.WaitState(second, compensator.Succeeded)
	require.NoError(t, tx.Rollback())
	w.Eventually(func() bool { return w.Count("common_process_log_turns") == 0 }, "nobody is left in the line")
}
