package settling

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/observe"
)

// The process must not take the ended lease for a crash, because it holds the outcome itself.
// Failure: F58
func TestOutcomeThatWaitsComesBeforeAClaimOfItsOwnProcess(t *testing.T) {
	t.Parallel()
	for name, withRedis := range map[string]bool{"redis": true, "no redis": false} {
		for _, lost := range []string{"0", "id%2", "2"} { // Entries that lost two leases run alone. Entries that lost none run without a limit beyond Concurrency.
			t.Run(name+", "+lost+" lost leases", func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				if withRedis {
					w.WithRedis()
				}
				proxy, db := w.OpenProxied(true)
				cfg := w.QuickConfig()
				cfg.DB, cfg.Lease = db, time.Second
				cfg.Observer.OutcomeDropped = func(e observe.SettledEvent) { assert.Fail(t, "dropped", e) }
				c := w.New(cfg)
				_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
				n := 3
				if lost == "2" {
					n = 1
				}
				w.Backlog("close_order", n)
				w.Exec("UPDATE common_process_log SET delivery_count=" + lost)
				harness.WithholdOutcomes(proxy)
				w.Run(c)
				w.AwaitLeasesEnded(n)
				w.AwaitMoreClaims(proxy)
				proxy.Heal()
				w.WaitAllEnded()
				require.Equal(t, n, ran.Total(), "each ran once")
				require.Equal(t, n, w.CountEnded(compensator.Succeeded, 0))
			})
		}
	}
}

// Failure: F58
func TestDatabaseThatStopsForLongerThanTheLeaseCostsNoOutcome(t *testing.T) {
	t.Parallel()
	server := testservers.NewSQL(t)
	w := harness.WorldAt(t, server.Database(t))
	cfg := w.QuickConfig()
	cfg.Lease = time.Second
	cfg.Observer.OutcomeDropped = func(e observe.SettledEvent) { assert.Fail(t, "dropped", e) }
	c := w.New(cfg)
	ran := new(harness.Calls)
	g := harness.NewGate()
	g.OpenAtEnd(t)
	_, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
		ran.Add(e.ID)
		return g.PassIgnoringContext(e)
	}, &compensator.HandlerConfig[harness.Order]{Concurrency: 40})
	require.NoError(t, err)
	w.Backlog("close_order", 30)
	w.Run(c)
	for range 30 {
		g.Await(t)
	}
	server.Pause()
	harness.Elapse(400 * time.Millisecond) // Renewals and polls are stuck now.
	g.Open()
	harness.Elapse(2500 * time.Millisecond)
	server.Resume()
	w.WaitAllEnded()
	require.Equal(t, 30, ran.Total(), "each ran once")
	require.Equal(t, 30, w.CountEnded(compensator.Succeeded, 0))
}

// The handler has succeeded, and its process cannot store the success yet. Another process sees only that the entry has
// lost all leases of the crash budget. It must wait for one more lease before it treats the entry as dead.
// Failure: F58
func TestCrashBudgetLeavesALeaseToTheSuccessOfALivingProcess(t *testing.T) {
	t.Parallel()
	for name, withRedis := range map[string]bool{"redis": true, "no redis": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			if withRedis {
				w.WithRedis()
			}
			proxy, db := w.OpenProxied(true)
			cfg := w.QuickConfig()
			cfg.DB, cfg.Lease = db, time.Second
			cfg.Observer.OutcomeDropped = func(e observe.SettledEvent) { assert.Fail(t, "dropped", e) }
			c := w.New(cfg)
			_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			cfg.DB, cfg.Lease = w.DB, 20*time.Second
			other := w.New(cfg)
			_, ranElsewhere := harness.HandleCounted(t, other, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			w.Backlog("close_order", 1)
			w.Exec("UPDATE common_process_log SET delivery_count=2")
			harness.WithholdOutcomes(proxy)
			w.Run(c)
			w.AwaitLeasesEnded(1)
			w.Run(other)
			w.Eventually(func() bool { return w.Count("common_process_log WHERE delivery_count=4") == 1 }, "the further lease is counted")
			proxy.Heal()
			w.WaitAllEnded()
			require.Equal(t, 1, ran.Total())
			require.Zero(t, ranElsewhere.Total())
			require.Equal(t, 1, w.CountEnded(compensator.Succeeded, 0))
		})
	}
}

// Normally the third lost lease would dead-letter the entry.
// Failure: F58
func TestCrashBudgetLeavesALeaseToTheCompensationOfALivingProcess(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB, cfg.Lease = db, time.Second
	cfg.Observer.OutcomeDropped = func(e observe.SettledEvent) { assert.Fail(t, "dropped", e) }
	c := w.New(cfg)
	undone := new(harness.Calls)
	undo := compensator.HandlerConfig[harness.Order]{Compensate: func(_ context.Context, e *compensator.Entry, _ harness.Order) error { undone.Add(e.ID); return nil }}
	harness.HandleCounted(t, c, "close_order", undo, nil)
	cfg.DB, cfg.Lease = w.DB, 20*time.Second
	other := w.New(cfg)
	harness.HandleCounted(t, other, "close_order", undo, nil)
	w.Backlog("close_order", 1)
	w.Exec("UPDATE common_process_log SET state=-3, delivery_count=2")
	harness.WithholdOutcomes(proxy)
	w.Run(c)
	w.AwaitLeasesEnded(1)
	w.Run(other)
	w.Eventually(func() bool { return w.Count("common_process_log WHERE delivery_count=4") == 1 }, "the further lease is counted")
	proxy.Heal()
	w.WaitAllEnded()
	require.Equal(t, 1, undone.Total())
	require.Equal(t, 1, w.CountEnded(compensator.Compensated, 0))
}

// Before a process dead-letters an entry, it waits for one more lease, in which another process could store an outcome.
func TestTimeInWhichNothingCanBeWrittenCountsAgainstNobody(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Lease = time.Second
	cfg.Observer.OutcomeDropped = func(e observe.SettledEvent) { assert.Fail(t, "dropped", e) }
	var proxies []*faultproxy.MySQL
	var instances []*compensator.Compensator
	ran := new(harness.Calls)
	for range 2 {
		proxy, db := w.OpenProxied(true)
		cfg.DB = db
		c := w.New(cfg)
		_, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
			ran.Add(e.ID)
			return nil
		}, nil)
		require.NoError(t, err)
		proxies, instances = append(proxies, proxy), append(instances, c)
	}
	w.Backlog("close_order", 1)
	w.Exec("UPDATE common_process_log SET delivery_count=2")
	holder, other := proxies[0], proxies[1]
	harness.WithholdOutcomes(holder)
	w.Run(instances[0])
	w.AwaitLeasesEnded(1)
	for _, p := range proxies {
		p.Arm(faultproxy.Rule{Match: faultproxy.Contains("UPDATE"), Fault: faultproxy.DropRequest, Nth: 0})
	}
	reads := other.Arm(faultproxy.Rule{Match: faultproxy.Contains("common_process_log")})
	w.Run(instances[1])
	// Three leases would pass in this time. A process that counted lost leases by time alone would dead-letter the entry.
	harness.Elapse(3 * time.Second)
	w.Eventually(func() bool { return reads.Matched() >= 4 }, "it looks")
	other.Heal()
	w.Eventually(func() bool { return w.Count("common_process_log WHERE delivery_count>3 OR state<>0") == 1 }, "the other one writes")
	holder.Heal()
	w.WaitAllEnded()
	require.Equal(t, 1, ran.Total())
	require.Equal(t, 1, w.CountEnded(compensator.Succeeded, 0))
}

// Failure: F64
func TestSuccessThatComesTooLateIsLoggedAsAWarning(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB = db
	lines := harness.CaptureLog(&cfg)
	c, person := w.New(cfg), w.New(w.QuickConfig())
	g := harness.NewGate()
	g.OpenAtEnd(t)
	_, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
		return g.PassIgnoringContext(e)
	}, nil)
	require.NoError(t, err)
	w.Backlog("close_order", 1)
	harness.WithholdOutcomes(proxy)
	w.Run(c)
	id := g.Await(t)
	g.Open()
	_, err = person.Cancel(t.Context(), id)
	require.NoError(t, err)
	proxy.Heal()
	line := harness.Receive(t, lines)
	for !strings.Contains(line, "outcome dropped") {
		line = harness.Receive(t, lines) // The next line is about the outcome that could not be stored before.
	}
	require.Contains(t, line, "level=WARN")
	require.Contains(t, line, "entry="+id.String())
	require.Contains(t, line, "state=cancelled")
}
