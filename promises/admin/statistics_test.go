package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

func counted(cfg compensator.Config) compensator.Config {
	cfg = operated(cfg)
	cfg.Operations.Statistics = true
	return cfg
}

func sums(t *testing.T, c *compensator.Compensator) map[string]admin.StatCounts {
	t.Helper()
	stats, err := admin.Of(c).Statistics(t.Context(), admin.StatFilter{From: time.Now().Add(-100 * time.Hour), To: time.Now().Add(100 * time.Hour), Period: time.Minute})
	require.NoError(t, err)
	all := make(map[string]admin.StatCounts)
	for _, s := range stats {
		sum := all[s.BusinessType]
		sum.Add(s.StatCounts)
		all[s.BusinessType] = sum
	}
	return all
}

func total(h admin.Histogram) (n uint64) {
	for _, counted := range h {
		n += counted
	}
	return n
}

func TestStatisticsSayWhatTheProcessesDid(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(counted(cfg))
		retry := compensator.HandlerConfig[harness.Order]{MaxAttempts: 3, Retry: compensator.Fixed(50 * time.Millisecond)}
		refund, _ := harness.HandleCounted(t, c, "refund", retry, func(_ *compensator.Entry, call int) error {
			switch call {
			case 1:
				return errors.New("no")
			case 2:
				return compensator.Unavailable(errors.New("down"))
			}
			return nil
		})
		mail, _ := harness.HandleCounted(t, c, "mail", retry, harness.FailAlways)
		undo := retry
		undo.Compensate = func(context.Context, *compensator.Entry, harness.Order) error { return nil }
		transfer, _ := harness.HandleCounted(t, c, "transfer", undo, func(*compensator.Entry, int) error { return compensator.Permanent(errors.New("no such account")) })
		for i := range 2 {
			w.Record(refund, 10*i+1, compensator.Options{})
			w.Record(mail, 10*i+2, compensator.Options{})
			w.Record(transfer, 10*i+3, compensator.Options{})
		}
		stop := w.Run(c)
		w.WaitAllEnded()
		require.NoError(t, stop())
		require.NoError(t, c.Close()) // This stores the counts of the last minute.

		found := sums(t, w.New(counted(cfg)))
		for name, want := range map[string]admin.StatCounts{
			"refund":   {Started: 6, Succeeded: 2, Failed: 2},
			"mail":     {Started: 6, Failed: 6, Dead: 2},
			"transfer": {Started: 4, Failed: 2, Compensated: 2},
		} {
			got := found[name]
			assert.Equal(t, want.Started, total(got.Took), name)
			assert.Equal(t, want.Started, total(got.Late), name)
			assert.LessOrEqual(t, got.Recorded, uint64(2), name)
			got.Took, got.Late, got.Recorded = admin.Histogram{}, admin.Histogram{}, 0
			assert.Equal(t, want, got, name)
		}
	})
}

func TestRecordedEntriesCountAtTheirCommit(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(counted(w.QuickConfig()))
	orders, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Record(orders, 1, compensator.Options{})
	w.Record(orders, 2, compensator.Options{})
	failed := errors.New("rolled back")
	err := c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := orders.Record(ctx, tx, harness.Order{}, compensator.Options{IdempotencyKey: "3"})
		require.NoError(t, err)
		return failed
	})
	require.ErrorIs(t, err, failed)
	require.NoError(t, c.Close())
	assert.Equal(t, uint64(2), sums(t, w.New(counted(w.QuickConfig())))["refund"].Recorded)
}

func TestErasureOfAnEndedEntryCountsNothing(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(counted(w.QuickConfig()))
	orders, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{}, nil)
	id := w.Record(orders, 1, compensator.Options{})
	stop := w.Run(c)
	w.WaitState(id, compensator.Succeeded)
	require.NoError(t, stop())
	_, err := admin.Of(c).Erase(t.Context(), id, harness.ByMei)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	assert.EqualValues(t, 1, sums(t, w.New(counted(w.QuickConfig())))["refund"].Succeeded)
}

func TestWithoutStatisticsTheirTableIsNotTouched(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	w.Exec("DROP TABLE common_process_log_stat")
	_, err := compensator.New(t.Context(), counted(w.QuickConfig()))
	var missing *compensator.FieldError
	require.ErrorAs(t, err, &missing)
	assert.Contains(t, missing.Error(), "common_process_log_stat")
	assert.Contains(t, missing.Error(), "Operations.Statistics")

	c := w.New(operated(w.QuickConfig()))
	d := open(t, c)
	orders, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, harness.FailAlways)
	id := w.Record(orders, 1, compensator.Options{})
	w.Run(c)
	w.WaitState(id, compensator.Dead)
	assert.Empty(t, c.Health(t.Context()).Problems)
	_, err = d.Trend(t.Context(), mei, admin.TrendDay, "")
	require.ErrorAs(t, err, &missing)
	assert.Contains(t, missing.Error(), "Operations.Statistics")
}

func TestTrendShowsTheTypesThatAnActorMaySee(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(counted(w.QuickConfig()))
	d, err := admin.New(c, admin.Options{Access: admin.AccessFunc(func(_ context.Context, a admin.Actor, _ admin.Right, on admin.Subject) bool {
		return a == mei || on.Type == "mail"
	})})
	require.NoError(t, err)
	w.Exec("INSERT INTO common_process_log_stat (instance, `at`, business_type, recorded, succeeded, failed, dead, took_20ms) SELECT i.n, t.x, b.n, 5, 4, 3, 2, 7" +
		" FROM (SELECT 'A' n UNION ALL SELECT 'B' UNION ALL SELECT '') i, (SELECT UNIX_TIMESTAMP() DIV 60 * 60000 - 60000 x UNION ALL SELECT UNIX_TIMESTAMP() DIV 60 * 60000 - 7200000) t, (SELECT 'mail' n UNION ALL SELECT 'refund') b")
	for over, points := range map[time.Duration]int{admin.TrendHours: 180, admin.TrendDay: 144, admin.TrendWeek: 168} {
		all, err := d.Trend(t.Context(), mei, over, "")
		require.NoError(t, err)
		require.Len(t, all.Points, points)
		require.Len(t, all.Types, 2)
		for _, trend := range all.Types {
			assert.Equal(t, uint64(30), trend.Sum.Recorded)
			share, ok := trend.Failing()
			assert.True(t, ok)
			assert.InDelta(t, 18.0/42, share, 1e-9)
		}
		var sum admin.TrendPoint
		for _, p := range all.Points {
			sum.Recorded, sum.Succeeded, sum.Failed, sum.Dead = sum.Recorded+p.Recorded, sum.Succeeded+p.Succeeded, sum.Failed+p.Failed, sum.Dead+p.Dead
		}
		assert.Equal(t, admin.TrendPoint{Recorded: 60, Succeeded: 48, Failed: 36, Dead: 24}, sum)
		some, err := d.Trend(t.Context(), admin.Actor{ID: "li"}, over, "")
		require.NoError(t, err)
		require.Len(t, some.Types, 1)
		assert.Equal(t, "mail", some.Types[0].Type)
		one, err := d.Trend(t.Context(), mei, over, "refund")
		require.NoError(t, err)
		require.Len(t, one.Types, 1)
		assert.Equal(t, one.Types[0].Points, one.Points)
	}
	_, err = d.Trend(t.Context(), mei, 5*time.Hour, "")
	require.ErrorAs(t, err, new(*compensator.FieldError))
	_, err = admin.Of(c).Statistics(t.Context(), processlog.StatFilter{From: time.Now(), To: time.Now().Add(time.Hour), Period: time.Second})
	require.ErrorAs(t, err, new(*compensator.FieldError))
}

func TestOldStatisticsBecomeRowsOfMinutesAndHours(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(counted(w.QuickConfig()))
	const rows = 1200
	values := make([]string, rows)
	for i := range values {
		values[i] = fmt.Sprintf("('V%d', UNIX_TIMESTAMP() DIV 60 * 60000 - 600000 * %d, 'refund', 1)", i, 2+i%1000)
	}
	w.Exec("INSERT INTO common_process_log_stat (instance, `at`, business_type, recorded) VALUES " + strings.Join(values, ","))
	w.Exec("UPDATE common_process_log_slots SET slot=slot-7200000 WHERE business_type=' statistics'") // A fold is due now.
	w.Run(c)
	require.Eventually(t, func() bool {
		return w.Count("common_process_log_stat WHERE business_type='refund' AND `at`>0 AND (instance<>'' OR `at`<UNIX_TIMESTAMP()*1000-260000000 AND `at`%3600000<>0)") == 0
	}, time.Minute, 20*time.Millisecond, "all rows are folded")
	var sum int
	require.NoError(t, w.DB.QueryRow("SELECT SUM(recorded) FROM common_process_log_stat").Scan(&sum))
	assert.Equal(t, rows, sum)
	assert.Empty(t, c.Health(t.Context()).Problems)
}
