package admin

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// Failure: F124
func TestPausedTypeIsClaimedByNobodyUntilItIsResumed(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(operated(cfg))
		d := open(t, c)
		orders, ran := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{}, nil)
		mails, mailed := harness.HandleCounted(t, c, "mail", compensator.HandlerConfig[harness.Order]{}, nil)
		require.NoError(t, d.Pause(t.Context(), mei, "refund", why))
		require.ErrorIs(t, d.Pause(t.Context(), mei, "refund", why), admin.ErrChanged)
		old := w.InsertDue("refund", 1, 5)
		w.Run(c)
		for i := range 5 {
			w.RecordThrough(cfg.DB, orders, 10+i, compensator.Options{})
			w.RecordThrough(cfg.DB, orders, 20+i, compensator.Options{Delay: 100 * time.Millisecond})
		}
		for i := range 20 { // Run entries of another type, so that many claims happen in this time.
			w.WaitState(w.RecordThrough(cfg.DB, mails, i, compensator.Options{Delay: 50 * time.Millisecond}), compensator.Succeeded)
		}
		require.Equal(t, 20, mailed.Total())
		require.Zero(t, ran.Total(), "of the paused type nothing runs")
		require.Equal(t, 15, w.Count("common_process_log WHERE business_type='refund' AND state=0 AND delivery_count=0"))
		overview, err := d.Overview(t.Context(), mei)
		require.NoError(t, err)
		require.Equal(t, "[OPS-988] PSP is back", overview.Types[0].Paused.Reason)
		paused, err := d.Paused(t.Context(), mei)
		require.NoError(t, err)
		require.Len(t, paused, 1)
		require.NoError(t, d.Resume(t.Context(), mei, paused[0], why))
		require.ErrorIs(t, d.Resume(t.Context(), mei, paused[0], why), admin.ErrChanged)
		w.WaitAllEnded()
		require.Equal(t, 15, ran.Total())
		require.Equal(t, 1, ran.Of(old[0]))
	})
}

// Failure: F124
func TestPauseEndsByItself(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		// The process must notice the end of the pause without a round of the reconciler.
		cfg.ReconcileInterval = time.Minute
		c := w.New(operated(cfg))
		d := open(t, c)
		var started sync.Map // time of the database's clock by entry
		orders, err := compensator.Handle(t.Context(), c, "refund", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
			var now int64
			if err := cfg.DB.QueryRowContext(ctx, "SELECT "+harness.NowMillis).Scan(&now); err != nil {
				return err
			}
			started.Store(e.ID, now)
			return nil
		}, nil)
		require.NoError(t, err)
		require.NoError(t, d.PauseWith(t.Context(), mei, "refund", admin.PauseOptions{For: time.Second}, why))
		paused, err := d.Paused(t.Context(), mei)
		require.NoError(t, err)
		require.Len(t, paused, 1)
		require.Equal(t, paused[0].At.Add(time.Second), paused[0].Until)
		w.Run(c)
		w.Eventually(func() bool {
			return slices.Equal(c.Health(t.Context()).Paused, []observe.PausedType{{BusinessType: "refund", EndsAt: paused[0].Until}})
		}, "Health shows the end")
		ids := []compensator.EntryID{w.RecordThrough(cfg.DB, orders, 1, compensator.Options{}), w.RecordThrough(cfg.DB, orders, 2, compensator.Options{Delay: 100 * time.Millisecond})}
		for _, id := range ids {
			w.WaitState(id, compensator.Succeeded)
			now, _ := started.Load(id)
			require.GreaterOrEqual(t, now, paused[0].Until.UnixMilli(), "by the database's clock")
		}
		require.Empty(t, c.Health(t.Context()).Paused)
		paused, err = d.Paused(t.Context(), mei)
		require.NoError(t, err)
		require.Empty(t, paused)
		require.NoError(t, d.PauseWith(t.Context(), mei, "refund", admin.PauseOptions{For: time.Hour}, why))
		page, err := d.AuditLog(t.Context(), mei, admin.AuditLogFilter{Action: "pause"})
		require.NoError(t, err)
		require.Equal(t, []string{"for 1h0m0s", "for 1s"}, []string{page.Records[0].Subject, page.Records[1].Subject})
		var field *compensator.FieldError
		for _, length := range []time.Duration{-time.Hour, time.Millisecond, 367 * 24 * time.Hour} {
			require.ErrorAs(t, d.PauseWith(t.Context(), mei, "mail", admin.PauseOptions{For: length, Ahead: true}, why), &field)
		}
	})
}

// Failure: F124
func TestPauseGetsANewEnd(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(operated(cfg))
		d := open(t, c)
		orders, ran := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{}, nil)
		seen := func() admin.Paused {
			paused, err := d.Paused(t.Context(), mei)
			require.NoError(t, err)
			require.Len(t, paused, 1)
			return paused[0]
		}
		pause := func(length time.Duration, instead uint64) error {
			return d.PauseWith(t.Context(), mei, "refund", admin.PauseOptions{For: length, Instead: instead}, why)
		}
		endsAt := func(end time.Time) {
			w.Eventually(func() bool {
				return slices.Equal(c.Health(t.Context()).Paused, []observe.PausedType{{BusinessType: "refund", EndsAt: end}})
			}, "the process has read the pause")
		}
		require.NoError(t, d.PauseWith(t.Context(), mei, "mail", admin.PauseOptions{Ahead: true}, why))
		mail := seen()
		require.ErrorIs(t, pause(time.Hour, mail.Version), admin.ErrChanged, "the type is not paused")
		require.NoError(t, d.Resume(t.Context(), mei, mail, why))
		require.NoError(t, pause(time.Hour, 0))
		first := seen()
		w.Run(c)
		endsAt(first.Until)
		id := w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
		require.ErrorIs(t, pause(2*time.Hour, 0), admin.ErrChanged)
		require.NoError(t, pause(2*time.Hour, first.Version))
		second := seen()
		require.Equal(t, second.At.Add(2*time.Hour), second.Until)
		endsAt(second.Until)
		require.ErrorIs(t, pause(0, first.Version), admin.ErrChanged, "somebody has moved the end")
		require.ErrorIs(t, d.Resume(t.Context(), mei, first, why), admin.ErrChanged)
		require.NoError(t, pause(0, second.Version))
		third := seen()
		require.True(t, third.Until.IsZero())
		endsAt(time.Time{})
		require.Equal(t, compensator.Pending, w.State(id))
		require.Zero(t, ran.Total())
		require.NoError(t, pause(time.Second, third.Version))
		w.WaitState(id, compensator.Succeeded)
		page, err := d.AuditLog(t.Context(), mei, admin.AuditLogFilter{})
		require.NoError(t, err)
		var actions []string
		for _, r := range page.Records {
			if r.BusinessType == "refund" {
				actions = append(actions, r.Action+" "+r.Subject)
			}
		}
		require.Equal(t, []string{"change pause for 1s", "change pause until resumed", "change pause for 2h0m0s", "pause for 1h0m0s"}, actions)
	})
}

// Failure: F124
func TestRunningProcessStopsClaimingWhatIsPaused(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c, beside := w.New(operated(w.QuickConfig())), w.New(operated(w.QuickConfig()))
	d := open(t, beside)
	orders, gate := harness.HandleGated(t, c, "refund", compensator.HandlerConfig[harness.Order]{Concurrency: 5000}, nil)
	gate.OpenAtEnd(t)
	w.Run(c)
	running := w.Record(orders, 1, compensator.Options{})
	require.Equal(t, running, gate.Await(t))
	require.NoError(t, d.Pause(t.Context(), mei, "refund", why))
	held := untilUnclaimed(w, orders)
	require.Equal(t, compensator.Pending, w.State(held))
	page, err := d.AuditLog(t.Context(), mei, admin.AuditLogFilter{Action: "pause"})
	require.NoError(t, err)
	require.Len(t, page.Records, 1)
}

// untilUnclaimed records entries until the process leaves one unclaimed. The process does so once it knows that the
// type is paused.
func untilUnclaimed(w *harness.World, orders *compensator.Type[harness.Order]) (held compensator.EntryID) {
	w.Eventually(func() bool {
		held = w.Record(orders, 2, compensator.Options{})
		return w.Count("common_process_log WHERE id=? AND delivery_count>0", held.Row()) == 0
	}, "no more is claimed")
	return held
}

// Failure: F124
func TestStuckEntryOfAPausedTypeIsNotDeadLettered(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := operated(w.QuickConfig())
	cfg.Lease = time.Second
	var rounds atomic.Int32
	cfg.Observer.Reconciled = func(observe.ReconciledEvent) { rounds.Add(1) }
	c := w.New(cfg)
	d := open(t, c)
	gate := harness.NewGate()
	gate.OpenAtEnd(t)
	orders, err := compensator.Handle(t.Context(), c, "refund", func(_ context.Context, e *compensator.Entry, o harness.Order) error {
		if o.Number == 1 {
			return gate.PassIgnoringContext(e)
		}
		return nil
	}, &compensator.HandlerConfig[harness.Order]{Timeout: 50 * time.Millisecond, Concurrency: 20})
	require.NoError(t, err)
	w.Run(c)
	stuck := w.Record(orders, 1, compensator.Options{})
	require.Equal(t, stuck, gate.Await(t))
	require.NoError(t, d.Pause(t.Context(), mei, "refund", why))
	untilUnclaimed(w, orders)
	w.Eventually(func() bool {
		return w.Count("common_process_log WHERE id=? AND lease_until<"+harness.NowMillis, stuck.Row()) == 1
	}, "its lease ends")
	was, seen := w.Entry(c, stuck).Version, rounds.Load()
	w.Eventually(func() bool { return rounds.Load() > seen+5 }, "rounds that would claim it")
	require.Equal(t, was, w.Entry(c, stuck).Version)
	paused, err := d.Paused(t.Context(), mei)
	require.NoError(t, err)
	require.NoError(t, d.Resume(t.Context(), mei, paused[0], why))
	w.WaitState(stuck, compensator.Dead)
	require.Equal(t, compensator.EndedByCrash, w.Entry(c, stuck).EndedBy)
}
