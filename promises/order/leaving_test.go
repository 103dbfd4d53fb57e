package order

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// With rare rounds, an entry that the library forgets to make due waits for an hour.
func rareRounds(w *harness.World) compensator.Config {
	cfg := w.QuickConfig()
	cfg.ReconcileInterval, cfg.PollInterval = time.Hour, time.Hour
	return cfg
}

// The claim that notices the maximum of attempts ends the entry without calling a handler.
// Failure: F115
func TestEntryThatIsDeadLetteredLetsItsKeyGoOn(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(rareRounds(w))
	seen := newWatch(t)
	orders := serial(t, c, seen, compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{PassDead: true}}, nil)
	first := w.Record(orders, 1, compensator.Options{UserID: "ann", Delay: time.Hour})
	w.Exec("UPDATE common_process_log SET delivery_count=4 WHERE id=?", first.Row())
	second := w.Record(orders, 2, withKey("ann"))
	w.Run(c)
	passBy(w, w.DB, orders)
	require.NoError(t, c.Reschedule(t.Context(), first, 0))
	w.WaitState(second, compensator.Succeeded)
	require.Equal(t, compensator.Dead, w.State(first))
	require.Equal(t, []compensator.EntryID{second}, seen.order("ann"))
}

// The first entry has the lower id, but its transaction commits after the second entry has started.
// Failure: F117
func TestLateEntryRunsOnceTheOneBesideItWaits(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(rareRounds(w))
	gate := harness.NewGate()
	orders := serial(t, c, newWatch(t), compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(time.Hour)}, func(ctx context.Context, e *compensator.Entry) error {
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
	receipt, err := orders.Record(t.Context(), tx, harness.Order{}, withKey("ann"))
	require.NoError(t, err)
	slow := w.Record(orders, 1, compensator.Options{UserID: "ann", BusinessID: "slow"})
	require.Equal(t, slow, gate.Await(t))
	require.NoError(t, tx.Commit())
	receipt.Committed()
	awaitBlocked(w, receipt.ID())
	gate.Open()
	w.WaitState(receipt.ID(), compensator.Succeeded)
	require.Equal(t, compensator.Retrying, w.State(slow))
}

// Failure: F117
func TestEntryWithoutANoteRunsAtOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(rareRounds(w))
	serial(t, c, newWatch(t), compensator.HandlerConfig[harness.Order]{}, nil)
	ids := w.InsertDue("book", 1000, 3)
	w.Exec("UPDATE common_process_log SET user_id='ann'")
	w.Run(c)
	for _, id := range ids {
		w.WaitState(id, compensator.Succeeded)
	}
}

// Failure: F115
func TestNextOfAKeyWaitsForNoNoteToGo(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(rareRounds(w))
	gate := harness.NewGate()
	orders := serial(t, c, newWatch(t), compensator.HandlerConfig[harness.Order]{}, func(ctx context.Context, e *compensator.Entry) error {
		if e.BusinessID == "slow" {
			return gate.Pass(ctx, e)
		}
		return nil
	})
	w.Run(c)
	first := w.Record(orders, 1, compensator.Options{UserID: "ann", BusinessID: "slow"})
	require.Equal(t, first, gate.Await(t))
	second := w.Record(orders, 2, withKey("ann"))
	passBy(w, w.DB, orders)
	tx := w.Begin(w.DB)
	_, err := tx.Exec("UPDATE common_process_log_turns SET parked=parked+1 WHERE business_type='book' AND turn_key='ann' AND entry_id=?", first.Row())
	require.NoError(t, err)
	gate.Open()
	w.WaitState(second, compensator.Succeeded)
	require.NoError(t, tx.Rollback())
	w.Eventually(func() bool { return w.Count("common_process_log_turns") == 0 }, "no positions are left")
}
