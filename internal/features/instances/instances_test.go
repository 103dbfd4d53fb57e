package instances

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

type table struct {
	mu     sync.Mutex // guards the fields below
	err    error
	writes []written
}

type written struct {
	i     processlog.Instance
	age   time.Duration
	ended bool
}

func (t *table) WriteInstance(_ context.Context, i processlog.Instance, age time.Duration, ended bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes = append(t.writes, written{i, age, ended})
	return t.err
}

func (t *table) all() []written {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.writes)
}

func (t *table) setError(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}

func neverHeld(*engine.Type, int) *processlog.ClaimHold { return nil }

func reporting(t *testing.T, test func(t *testing.T, e *engine.Engine, r *Reporter, to *table)) {
	synctest.Test(t, func(t *testing.T) {
		to := new(table)
		e := engine.New(t.Context(), engine.Config{Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
		r := Attach(e, to, "api-1:17", func() processlog.InstanceQueue { return processlog.InstanceQueueReached }, noSchedules, neverHeld)
		require.NoError(t, r.Begin(t.Context()))
		test(t, e, r, to)
		e.Close()
	})
}

func TestProcessReportsOnceAMinuteAndAtItsEnd(t *testing.T) {
	reporting(t, func(t *testing.T, e *engine.Engine, r *Reporter, to *table) {
		time.Sleep(30 * time.Second)
		r.Report() // Run begins.
		synctest.Wait()
		require.Len(t, to.all(), 2)
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		require.Len(t, to.all(), 4)
		e.Close()
		r.Report()
		time.Sleep(time.Hour)
		synctest.Wait()
		writes := to.all()
		require.Len(t, writes, 5, "nothing is written after Close")
		for n, w := range writes {
			assert.Equal(t, writes[0].i.ID, w.i.ID)
			assert.Equal(t, "api-1:17", w.i.Name)
			assert.Equal(t, processlog.InstanceQueueReached, w.i.Queue)
			assert.Equal(t, n == 4, w.ended)
		}
		assert.Equal(t, 151*time.Second, writes[4].age)
	})
}

func TestFailedReportIsFollowedByAnotherWithinAMinute(t *testing.T) {
	reporting(t, func(t *testing.T, e *engine.Engine, _ *Reporter, to *table) {
		to.setError(errors.New("gone away"))
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		require.Len(t, e.OpenProblems(), 1)
		to.setError(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, e.OpenProblems())
		assert.Len(t, to.all(), 3)
	})
}

func TestNothingIsReportedAfterAMissingTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := new(table)
		e := engine.New(t.Context(), engine.Config{Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
		r := Attach(e, to, "api-1:17", func() processlog.InstanceQueue { return processlog.InstanceQueueNone }, noSchedules, neverHeld)
		to.setError(errors.New("no such table"))
		require.Error(t, r.Begin(t.Context()))
		e.Close()
		assert.Len(t, to.all(), 1)
	})
}

func TestTokensOfLeasesNameTheProcess(t *testing.T) {
	reporting(t, func(t *testing.T, e *engine.Engine, _ *Reporter, to *table) {
		self, other := to.all()[0].i.ID, processlog.NewInstanceID()
		seen := make(map[processlog.Token]bool)
		for range 1000 {
			token := e.LeaseToken()
			assert.True(t, token.MarkedBy(self))
			assert.False(t, token.MarkedBy(other))
			assert.False(t, seen[token])
			seen[token] = true
		}
	})
}

func TestVersionsComeFromTheBuild(t *testing.T) {
	of := func(main, lib string, replaced bool, settings ...debug.BuildSetting) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Path: "example.com/shop", Version: main}, Settings: settings,
			Deps: []*debug.Module{{Path: "example.com/other", Version: "v9.9.9"}, {Path: library, Version: lib}}}
		if replaced {
			info.Deps[1].Replace = &debug.Module{Path: "../fork"}
		}
		return info
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef"}
	for _, c := range []struct {
		info       *debug.BuildInfo
		lib, build string
	}{
		{of("v1.4.2", "v0.1.0", false, commit), "v0.1.0", "v1.4.2"},
		{of("(devel)", "v0.1.0", false, commit), "v0.1.0", "0123456789ab"},
		{of("", "v0.1.0", true), "", ""},
		{of("(devel)", "v0.1.0", false), "v0.1.0", ""},
		{&debug.BuildInfo{Main: debug.Module{Path: library, Version: "(devel)"}}, "", ""},
		{&debug.BuildInfo{Main: debug.Module{Path: library, Version: "v0.2.0"}}, "v0.2.0", "v0.2.0"},
	} {
		lib, build := versions(c.info, true)
		assert.Equal(t, []string{c.lib, c.build}, []string{lib, build})
	}
	lib, build := versions(nil, false)
	assert.Empty(t, lib+build)
}

func noSchedules() map[string]Schedule { return nil }

func TestRowNamesTheNextSlotsOfPeriodicTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hour := time.Now().Truncate(time.Hour)
		schedules := map[string]Schedule{
			"hourly": func(after time.Time) (time.Time, error) { return after.Truncate(time.Hour).Add(time.Hour), nil },
			"once": func(after time.Time) (time.Time, error) {
				if after.After(hour.Add(time.Hour)) || after.Equal(hour.Add(time.Hour)) {
					return time.Time{}, nil
				}
				return hour.Add(time.Hour), nil
			},
			"broken": func(time.Time) (time.Time, error) { return time.Time{}, errors.New("no") },
		}
		to := new(table)
		e := engine.New(t.Context(), engine.Config{Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
		defer e.Close()
		r := Attach(e, to, "api-1:17", func() processlog.InstanceQueue { return processlog.InstanceQueueNone }, func() map[string]Schedule { return schedules }, neverHeld)
		require.NoError(t, r.Begin(t.Context()))
		next := func(hours ...int) *processlog.InstanceSchedule {
			s := new(processlog.InstanceSchedule)
			for _, n := range hours {
				s.Next = append(s.Next, hour.Add(time.Duration(n)*time.Hour))
			}
			return s
		}
		assert.Equal(t, []processlog.InstanceType{{Name: "broken", Schedule: next()}, {Name: "hourly", Schedule: next(1, 2, 3)}, {Name: "once", Schedule: next(1)}}, to.all()[0].i.Types)
	})
}
