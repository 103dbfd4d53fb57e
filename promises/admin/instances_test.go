package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

func listed(cfg compensator.Config, name string) compensator.Config {
	cfg = operated(cfg)
	cfg.Operations.Instances, cfg.Operations.InstanceName = true, name
	return cfg
}

func named(t *testing.T, c *compensator.Compensator) map[string]admin.Instance {
	t.Helper()
	all, err := admin.Of(c).Instances(t.Context())
	require.NoError(t, err)
	byName := make(map[string]admin.Instance, len(all))
	for _, i := range all {
		byName[i.Name] = i
	}
	return byName
}

func TestEachProcessSaysWhatItIs(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		recorder := w.New(listed(cfg, "recorder"))
		orders, err := compensator.Declare[harness.Order](t.Context(), recorder, "refund", nil)
		require.NoError(t, err)
		cfg.StopTimeout = 50 * time.Millisecond
		worker := w.New(listed(cfg, ""))
		started, end := make(chan struct{}), make(chan struct{})
		defer close(end)
		_, err = compensator.Handle(t.Context(), worker, "refund", func(context.Context, *compensator.Entry, harness.Order) error {
			close(started)
			<-end
			return nil
		}, &compensator.HandlerConfig[harness.Order]{Concurrency: 7})
		require.NoError(t, err)
		host, err := os.Hostname()
		require.NoError(t, err)
		self := fmt.Sprintf("%s:%d", host, os.Getpid())
		require.Empty(t, named(t, recorder)[self].Types, "before Run")
		stop := w.Run(worker)
		w.Eventually(func() bool { return len(named(t, recorder)[self].Types) > 0 }, "the process says what it runs")
		runs := named(t, recorder)[self]
		assert.True(t, runs.Running)
		assert.Equal(t, admin.InstanceLive, runs.State())
		require.Len(t, runs.Types, 1)
		assert.Equal(t, "refund", runs.Types[0].Name)
		assert.Equal(t, 7, runs.Types[0].Slots)
		if cfg.Redis != nil {
			assert.Equal(t, processlog.InstanceQueueReached, runs.Queue)
		} else {
			assert.Equal(t, processlog.InstanceQueueNone, runs.Queue)
		}
		id := w.Record(orders, 1, compensator.Options{})
		<-started
		var token processlog.Token
		var raw []byte
		require.NoError(t, w.DB.QueryRow("SELECT token FROM common_process_log WHERE id=?", id.Row()).Scan(&raw))
		copy(token[:], raw)
		all := named(t, recorder)
		assert.True(t, token.MarkedBy(all[self].ID), "the lease says whose it is")
		assert.False(t, token.MarkedBy(all["recorder"].ID))

		var stuck *compensator.StuckError
		require.ErrorAs(t, stop(), &stuck)
		require.NoError(t, worker.Close())
		all = named(t, recorder)
		assert.Equal(t, admin.InstanceEnded, all[self].State())
		assert.Equal(t, []admin.InstanceType{{Name: "refund", Slots: 7, Running: 1, Stuck: 1}}, all[self].Types)
		assert.False(t, all[self].Running)
		assert.Equal(t, admin.InstanceLive, all["recorder"].State())
		assert.False(t, all["recorder"].Running)
	})
}

// TestKilledProcessIsGone makes rows old, as if their processes had been killed.
func TestKilledProcessIsGone(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(listed(w.QuickConfig(), "live"))
	for name, seconds := range map[string]int{"late": 170, "gone": 190, "old": 86000, "older": 87000} {
		w.Exec("INSERT INTO common_process_log_instance (id, name, `library`, build, started_at, seen_at, queue, types) VALUES (?, ?, 'v0.1.0', 'v7', 0, UNIX_TIMESTAMP()*1000-?, '', '[]')",
			[]byte(name + "        ")[:8], name, seconds*1000)
	}
	states := make(map[string]admin.InstanceState)
	for name, i := range named(t, c) {
		states[name] = i.State()
	}
	assert.Equal(t, map[string]admin.InstanceState{"live": admin.InstanceLive, "late": admin.InstanceLive, "gone": admin.InstanceGone, "old": admin.InstanceGone, "older": admin.InstanceGone}, states)
	w.Exec("UPDATE common_process_log_slots SET slot=slot-7200000 WHERE business_type=' instances'") // A round is due now.
	w.Run(c)
	w.Eventually(func() bool { return w.Count("common_process_log_instance WHERE name='older'") == 0 }, "the oldest row is deleted")
	assert.Len(t, named(t, c), 4)
	assert.Empty(t, c.Health(t.Context()).Problems)
}

func TestInstancesAreShownByRights(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(listed(w.QuickConfig(), "api-1"))
	opened, err := compensator.OpenStore(t.Context(), w.DB, compensator.DefaultTable)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, opened.Close()) })
	store := opened.(processlog.Operations)
	require.NoError(t, store.WriteInstance(t.Context(), processlog.Instance{ID: processlog.NewInstanceID(), Name: "api-2", Library: "v9", Build: "v2",
		Types: []processlog.InstanceType{{Name: "mail"}, {Name: "refund"}}}, time.Hour, false))
	require.NoError(t, store.WriteInstance(t.Context(), processlog.Instance{ID: processlog.NewInstanceID(), Name: "api-3", Library: "v8", Build: "v1"}, time.Hour, true))
	require.NoError(t, store.WriteInstance(t.Context(), processlog.Instance{ID: processlog.NewInstanceID(), Name: "api-4"}, time.Hour, false))
	d, err := admin.New(c, admin.Options{Access: admin.AccessFunc(func(_ context.Context, a admin.Actor, right admin.Right, on admin.Subject) bool {
		return right == admin.SeeOverview && (on.Type == "mail" || on.Type == "" && a == mei)
	})})
	require.NoError(t, err)
	found, err := d.Instances(t.Context(), mei)
	require.NoError(t, err)
	require.Len(t, found.List, 4)
	assert.Equal(t, []admin.InstanceType{{Name: "mail"}}, found.List[1].Types)
	assert.Contains(t, found.Libraries, "v9")
	assert.NotContains(t, found.Libraries, "v8", "versions of processes that have ended do not matter")
	assert.Contains(t, found.Builds, "v2")
	assert.NotContains(t, append(found.Builds, found.Libraries...), "", "an unknown version differs from none")
	_, err = d.Instances(t.Context(), admin.Actor{ID: "li"})
	require.ErrorIs(t, err, admin.ErrNotAllowed)
}

func TestDeployIsTheFirstStartOfAVersion(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(listed(w.QuickConfig(), "api-1"))
	opened, err := compensator.OpenStore(t.Context(), w.DB, compensator.DefaultTable)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, opened.Close()) })
	for _, process := range []struct {
		build string
		age   time.Duration
		ended bool
	}{{"v2", time.Hour, false}, {"v1", 30 * time.Hour, false}, {"v2", 2 * time.Hour, true}, {"v1", time.Minute, false}, {"", 3 * time.Hour, false}} {
		require.NoError(t, opened.(processlog.Operations).WriteInstance(t.Context(), processlog.Instance{ID: processlog.NewInstanceID(), Name: "x", Build: process.build}, process.age, process.ended))
	}
	found, err := open(t, c).Instances(t.Context(), mei)
	require.NoError(t, err)
	first := make(map[string]time.Time)
	for _, i := range found.List {
		if at, isKnown := first[i.Build]; !isKnown || i.StartedAt.Before(at) {
			first[i.Build] = i.StartedAt
		}
	}
	assert.Equal(t, []admin.Deploy{{At: first["v1"], Build: "v1"}, {At: first["v2"], Build: "v2"}}, found.Deploys)
	assert.Greater(t, found.Deploys[1].At.Sub(found.Deploys[0].At), 27*time.Hour)
}

func TestWithoutInstancesTheirTableIsNotTouched(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	w.Exec("DROP TABLE common_process_log_instance")
	_, err := compensator.New(t.Context(), listed(w.QuickConfig(), ""))
	var missing *compensator.FieldError
	require.ErrorAs(t, err, &missing)
	assert.Contains(t, missing.Error(), "common_process_log_instance")
	assert.Contains(t, missing.Error(), "Operations.Instances")

	c := w.New(operated(w.QuickConfig()))
	d := open(t, c)
	orders, _ := harness.HandleCounted(t, c, "refund", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, func(*compensator.Entry, int) error { return errors.New("no") })
	id := w.Record(orders, 1, compensator.Options{})
	w.Run(c)
	w.WaitState(id, compensator.Dead)
	assert.Empty(t, c.Health(t.Context()).Problems)
	_, err = d.Instances(t.Context(), mei)
	require.ErrorAs(t, err, &missing)
	assert.Contains(t, missing.Error(), "Operations.Instances")
}
