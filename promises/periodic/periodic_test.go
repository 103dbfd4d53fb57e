package periodic

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

func sortTimes(times []time.Time) { slices.SortFunc(times, time.Time.Compare) }

func TestSlotsAreMadeOnEveryKindOfPool(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		require.NoError(t, harness.HandleTick(c, 50*time.Millisecond))
		stop := w.Run(c)
		w.Eventually(func() bool { return w.Count("effects") >= 10 }, "slots have their effect")
		require.NoError(t, stop())
		slots := slotsOf(w)
		for i, slot := range slots[1:] {
			require.Equal(t, slots[i].Add(50*time.Millisecond), slot)
		}
		require.Empty(t, c.Health(t.Context()).Problems)
	})
}

// Failure: F104
func TestSlotWhoseEntryIsPurgedIsNotRecordedAgain(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	round := func() []time.Time {
		c := w.New(w.QuickConfig())
		require.NoError(t, harness.HandleTick(c, 50*time.Millisecond))
		stop := w.Run(c)
		w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") >= 5 }, "slots succeed")
		require.NoError(t, stop())
		return slotsOf(w)
	}
	first := round()
	_, err := w.DB.ExecContext(t.Context(), "DELETE FROM common_process_log") // Delete like a purge, but at once.
	require.NoError(t, err)
	second := round()
	require.Equal(t, first[len(first)-1].Add(50*time.Millisecond), second[0], "it goes on where it was")
}

// Failure: F105
func TestLogWithoutTheTableOfSlotsRunsUnlessATypeIsPeriodic(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	_, err := w.DB.ExecContext(t.Context(), "DROP TABLE common_process_log_slots") // A log of an earlier version lacks this table.
	require.NoError(t, err)
	c := w.New(w.QuickConfig())
	pay, _ := harness.HandleCounted(t, c, "pay", compensator.HandlerConfig[harness.Order]{}, func(*compensator.Entry, int) error { return nil })
	err = harness.HandleTick(c, time.Second)
	var field *compensator.FieldError
	require.ErrorAs(t, err, &field)
	require.Contains(t, err.Error(), "table `common_process_log_slots`: does not exist")
	require.Contains(t, err.Error(), "Migrate")
	w.Run(c)
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := pay.Record(ctx, tx, harness.Order{}, compensator.Options{})
		return err
	}))
	w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == 1 }, "entries run as before")
	require.NoError(t, compensator.Migrate(t.Context(), w.DB))
	other := w.New(w.QuickConfig())
	require.NoError(t, harness.HandleTick(other, time.Second))
}

// An entry that a person recorded, or an unrelated entry, may already have the key of a slot.
// Failure: F104
func TestSlotWhoseIDIsTakenHoldsUpNoLaterOne(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		log := harness.CaptureLog(&cfg)
		c := w.New(cfg)
		tick, err := compensator.Handle(t.Context(), c, "tick", func(context.Context, *compensator.Entry, time.Time) error { return nil }, &compensator.HandlerConfig[time.Time]{TypeConfig: compensator.TypeConfig{RefuseOtherContent: true}})
		require.NoError(t, err)
		other, err := compensator.Declare[string](t.Context(), c, "other", nil)
		require.NoError(t, err)
		const every = 50 * time.Millisecond
		require.NoError(t, compensator.Periodic(t.Context(), tick, compensator.Every(every), &compensator.PeriodicConfig{CatchUp: 500}))
		manual := time.Now().UTC().Truncate(every).Add(2 * every)
		taken := manual.Add(every)
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := c.Record(ctx, tx, tick.Entry(manual.In(time.FixedZone("CST", 8*60*60)), compensator.Options{IdempotencyKey: compensator.SlotKey("tick", manual)}),
				other.Entry("", compensator.Options{IdempotencyKey: compensator.SlotKey("tick", taken)}))
			return err
		}))
		w.Run(c)
		w.Eventually(func() bool { return w.Count("common_process_log WHERE business_type='tick' AND state=1") >= 10 }, "slots go on")
		for slot, entries := range map[time.Time]int{manual.Add(-every): 1, manual: 1, taken: 0, taken.Add(every): 1, taken.Add(2 * every): 1} {
			require.Equal(t, entries, w.Count("common_process_log WHERE business_type='tick' AND idempotent_id=?", compensator.SlotKey("tick", slot)), slot)
		}
		line := log.Contains(w, "level=WARN", "slots of a periodic type are not made", "type=tick", "slots=1")
		require.Contains(t, line, string(compensator.SlotKey("tick", taken)))
		require.Empty(t, c.Health(t.Context()).Problems)
	})
}

// A process stops in the middle of its transaction, and so keeps the row of the type's last slot locked.
// Failure: F102
func TestMarkThatIsHeldIsTakenUpWhenItIsFree(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	require.NoError(t, harness.HandleTick(c, 50*time.Millisecond))
	tock, err := compensator.Handle(t.Context(), c, "tock", func(context.Context, *compensator.Entry, time.Time) error { return nil }, nil)
	require.NoError(t, err)
	require.NoError(t, compensator.Periodic(t.Context(), tock, compensator.Every(50*time.Millisecond), nil))
	tx, err := w.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT * FROM common_process_log_slots WHERE business_type='tick' FOR UPDATE")
	require.NoError(t, err)
	w.Run(c)
	w.Eventually(func() bool { return w.Count("common_process_log WHERE business_type='tock'") >= 5 }, "the other type's are made")
	require.Zero(t, w.Count("common_process_log WHERE business_type='tick'"), "it is held")
	require.NoError(t, tx.Rollback())
	w.Eventually(func() bool { return w.Count("effects") > 20 }, "and made up for")
	slots := slotsOf(w)
	for i, slot := range slots[1:] {
		require.Equal(t, slots[i].Add(50*time.Millisecond), slot)
	}
}

// Failure: F104
func TestDeletedMarkBeginsAnewAndIsTold(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	log := harness.CaptureLog(&cfg)
	c := w.New(cfg)
	require.NoError(t, harness.HandleTick(c, 50*time.Millisecond))
	w.Run(c)
	w.Eventually(func() bool { return w.Count("effects") >= 3 }, "slots have their effect")
	_, err := w.DB.ExecContext(t.Context(), "DELETE FROM common_process_log_slots")
	require.NoError(t, err)
	told := w.Count("effects")
	w.Eventually(func() bool { return w.Count("effects") >= told+5 }, "slots go on")
	log.Contains(w, "the mark of a periodic type was deleted, and begins anew", "type=tick")
	require.Less(t, time.Since(slotsOf(w)[0]), time.Hour, "none of before")
}

type schedule func(after time.Time) time.Time

func (s schedule) Next(after time.Time) time.Time { return s(after) }

// Failure: F105
func TestPeriodicRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	tick, err := compensator.Declare[time.Time](t.Context(), c, "tick", nil)
	require.NoError(t, err)
	for what, s := range map[string]compensator.Schedule{
		"is nil":           nil,
		"does not go on":   compensator.Every(0),
		"does not go on: ": schedule(func(after time.Time) time.Time { return after.Add(-time.Hour) }),
		"panicked: oh":     schedule(func(time.Time) time.Time { panic("oh") }),
	} {
		require.ErrorContains(t, compensator.Periodic(t.Context(), tick, s, nil), what)
	}
	for _, n := range []int{-1, 501} {
		require.ErrorContains(t, compensator.Periodic(t.Context(), tick, compensator.Every(time.Hour), &compensator.PeriodicConfig{CatchUp: n}), "CatchUp")
	}
	require.NoError(t, compensator.Periodic(t.Context(), tick, compensator.Every(time.Hour), nil))
	require.ErrorContains(t, compensator.Periodic(t.Context(), tick, compensator.Every(time.Hour), nil), "periodic already")
	w.Run(c)
	late, err := compensator.Declare[time.Time](t.Context(), c, "late", nil)
	require.NoError(t, err)
	w.Eventually(func() bool {
		return errors.Is(compensator.Periodic(t.Context(), late, compensator.Every(time.Hour), nil), compensator.ErrRunning)
	}, "it comes before Run") // Run may not have begun yet, but the type is registered already.
}

func TestScheduleThatNeverFiresIsLogged(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	lines := harness.CaptureLog(&cfg)
	tick, err := compensator.Declare[time.Time](t.Context(), w.New(cfg), "tick", nil)
	require.NoError(t, err)
	never := schedule(func(time.Time) time.Time { return time.Time{} })
	require.NoError(t, compensator.Periodic(t.Context(), tick, never, nil), "it may have ended")
	lines.Contains(w, "has no slot any more", "tick")
}
