package admin

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
)

// slotLength is more than a year, so that no slot comes while a test runs.
const slotLength = 10_000 * time.Hour

func onlyPeriodic(t *testing.T, d *admin.Admin) admin.PeriodicType {
	t.Helper()
	found, err := d.Periodic(t.Context(), mei)
	require.NoError(t, err)
	require.Len(t, found.Types, 1)
	assert.WithinDuration(t, time.Now(), found.At, time.Minute)
	return found.Types[0]
}

func TestPeriodicTypesShowTheirSlots(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		worker, pages := w.New(listed(cfg, "worker")), w.New(listed(cfg, "pages"))
		here, elsewhere := open(t, worker), open(t, pages)
		none, err := here.Periodic(t.Context(), mei)
		require.NoError(t, err)
		require.Empty(t, none.Types)
		require.False(t, here.HasPeriodic())

		gate := harness.NewGate()
		typ, err := compensator.Handle(t.Context(), worker, "settle_day", func(ctx context.Context, e *compensator.Entry, _ time.Time) error { return gate.Pass(ctx, e) }, nil)
		require.NoError(t, err)
		require.NoError(t, compensator.Periodic(t.Context(), typ, compensator.Every(slotLength), nil))
		require.True(t, here.HasPeriodic())
		latest := time.Now().UTC().Truncate(slotLength)
		next := []time.Time{latest.Add(slotLength), latest.Add(2 * slotLength), latest.Add(3 * slotLength)}
		first := onlyPeriodic(t, here)
		assert.True(t, first.Last.IsZero(), "no slot is recorded")
		assert.WithinDuration(t, time.Now(), first.Since, time.Minute)
		assert.Equal(t, admin.PeriodicType{Type: "settle_day", Since: first.Since, Schedule: admin.ScheduleHere, Next: next}, first)
		assert.Equal(t, admin.PeriodicType{Type: "settle_day", Last: first.Since}, onlyPeriodic(t, elsewhere), "the schedule is not reported before Run")

		last := latest.Add(-4 * slotLength)
		w.Exec("UPDATE common_process_log_slots SET slot=? WHERE business_type='settle_day'", last.UnixMilli())
		assert.Equal(t, admin.PeriodicType{Type: "settle_day", Last: last, Schedule: admin.ScheduleHere, Next: next, Missed: 4, MissedAt: last.Add(slotLength)}, onlyPeriodic(t, here))

		w.Run(worker)
		id := gate.Await(t)
		runs := onlyPeriodic(t, here)
		assert.Equal(t, admin.PeriodicType{Type: "settle_day", Last: latest, Entry: id, State: runs.State, Schedule: admin.ScheduleHere, Next: next}, runs)
		gate.Open()
		w.Eventually(func() bool { return onlyPeriodic(t, here).State == compensator.Succeeded }, "the entry of the slot succeeds")
		assert.WithinDuration(t, time.Now(), onlyPeriodic(t, here).Ended, time.Minute)
		w.Eventually(func() bool { return named(t, pages)["worker"].Running }, "the process reports")
		w.Eventually(func() bool { return onlyPeriodic(t, elsewhere).Schedule == admin.ScheduleOfProcess }, "the pages have read the report")
		reported := onlyPeriodic(t, elsewhere)
		assert.Equal(t, admin.PeriodicType{Type: "settle_day", Last: latest, Entry: id, State: compensator.Succeeded, Ended: reported.Ended, Schedule: admin.ScheduleOfProcess, Process: "worker", Next: next}, reported)

		seeing := func(may func(right admin.Right, of admin.Subject) bool) *admin.Admin {
			d, err := admin.New(pages, admin.Options{Access: admin.AccessFunc(func(_ context.Context, _ admin.Actor, right admin.Right, of admin.Subject) bool {
				return may(right, of)
			})})
			require.NoError(t, err)
			return d
		}
		clerk := onlyPeriodic(t, seeing(func(right admin.Right, of admin.Subject) bool {
			return right == admin.SeeOverview && of.Type == "settle_day"
		}))
		assert.Equal(t, admin.PeriodicType{Type: "settle_day", Last: latest, Schedule: admin.ScheduleOfProcess, Next: next}, clerk, "neither entries nor processes")
		_, err = seeing(func(_ admin.Right, of admin.Subject) bool { return of.Type == "refund" }).Periodic(t.Context(), mei)
		require.ErrorIs(t, err, admin.ErrNotAllowed)
	})
}
