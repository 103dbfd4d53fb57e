package claiming

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

func leased(w *harness.World, businessType string) int {
	w.T.Helper()
	return w.Count("common_process_log WHERE business_type=? AND lease_until>0", businessType)
}

// Failure: F65
func TestTypeOfAnotherInstanceIsLeftAloneAndReported(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		unknown := make(chan []string, 1000)
		cfg.Observer.Reconciled = func(e observe.ReconciledEvent) {
			if len(e.UnknownTypes) > 0 {
				unknown <- e.UnknownTypes
			}
		}
		c := w.New(cfg)
		ours, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		theirs, err := compensator.Declare[harness.Order](t.Context(), c, "pay_order", nil)
		require.NoError(t, err)
		w.Run(c)
		foreign := w.RecordThrough(cfg.DB, theirs, 1, compensator.Options{})
		own := w.RecordThrough(cfg.DB, ours, 2, compensator.Options{})
		for range 3 {
			require.Equal(t, []string{"pay_order"}, harness.Receive(t, unknown))
		}
		w.WaitState(own, compensator.Succeeded)
		require.Equal(t, 1, ran.Total())
		e := w.Entry(c, foreign)
		require.Equal(t, compensator.Pending, e.State)
		require.Zero(t, e.Version, "it is unchanged")
		require.Zero(t, e.DeliveryCount)
		require.Equal(t, []string{"pay_order"}, c.Health(t.Context()).UnknownTypes)
	})
}

// Failure: F65
func TestNewTypeOfARollingDeployRunsOnceItsInstanceIsThere(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		rounds := make(chan struct{}, 1000)
		old := cfg
		old.Observer.Reconciled = func(observe.ReconciledEvent) { rounds <- struct{}{} }
		before := w.New(old)
		orders, _ := harness.HandleCounted(t, before, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(before)
		after := w.New(cfg)
		bonus, ran := harness.HandleCounted(t, after, "grant_bonus", compensator.HandlerConfig[harness.Order]{}, nil)
		id := w.RecordThrough(cfg.DB, bonus, 1, compensator.Options{}) // The new instance records this entry before it calls Run.
		harness.Receive(t, rounds)
		harness.Receive(t, rounds)
		require.Equal(t, compensator.Pending, w.State(id))
		w.Run(after)
		w.WaitState(id, compensator.Succeeded)
		require.Equal(t, 1, ran.Of(id))
		w.RecordThrough(cfg.DB, orders, 1, compensator.Options{})
		w.RecordThrough(cfg.DB, bonus, 2, compensator.Options{})
		w.WaitAllEnded()
		require.Equal(t, 3, w.Count("common_process_log WHERE state=1"))
	})
}

// Failure: F67
func TestSlowTypeDoesNotStarveAFastOne(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		_, slow := harness.HandleGated(t, c, "slow", compensator.HandlerConfig[harness.Order]{Concurrency: 2}, nil)
		fast, ran := harness.HandleCounted(t, c, "fast", compensator.HandlerConfig[harness.Order]{Concurrency: 2}, nil)
		w.Backlog("slow", 600)
		w.Run(c)
		slow.Await(t)
		slow.Await(t)
		for i := range 30 {
			id := w.RecordThrough(cfg.DB, fast, i, compensator.Options{})
			w.WaitState(id, compensator.Succeeded)
		}
		require.Equal(t, 30, ran.Total())
		require.Equal(t, 600, w.Count("common_process_log WHERE business_type='slow' AND state=0"), "the slow ones have not moved")
		slow.Open()
		w.WaitAllEnded()
	})
}

// Failure: F67
func TestPoisonEntriesAtTheHeadDoNotStarveNewOnes(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
			if strings.HasPrefix(string(e.IdempotencyKey), "close_order-late") {
				return errors.New("never")
			}
			return nil
		}, &compensator.HandlerConfig[harness.Order]{Concurrency: 10, MaxAttempts: 1 << 20, Retry: compensator.Fixed(time.Second)})
		require.NoError(t, err)
		w.Backlog("close_order", 300)
		w.Run(c)
		w.Eventually(func() bool { return w.Count("common_process_log WHERE process_count>0") >= 100 }, "the poison is at work")
		for i := range 10 {
			w.WaitState(w.RecordThrough(cfg.DB, orders, i, compensator.Options{}), compensator.Succeeded)
		}
		require.Equal(t, 300, w.Count("common_process_log WHERE state IN (0,-1)"))
	})
}

// Failure: F55
func TestNoMoreEntriesAreClaimedThanCanRun(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		_, g := harness.HandleGated(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 4}, nil)
		w.Backlog("close_order", 800)
		w.Run(c)
		for range 4 {
			g.Await(t)
		}
		require.Equal(t, 4, leased(w, "close_order"))
		g.Open()
		w.WaitAllEnded()
		require.Equal(t, 800, w.Count("common_process_log WHERE state=1"))
		require.Zero(t, w.Count("common_process_log WHERE process_count>0"))
	})
}

// Failure: F55
func TestTenThousandNewEntriesWithSlowHandlersStayBounded(t *testing.T) {
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	orders, g := harness.HandleGated(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 20, Timeout: harness.Timeout}, nil)
	w.Run(c)
	for range 20 {
		w.RecordMany(c, orders, 500, compensator.Options{})
	}
	for range 10 {
		g.Await(t)
	}
	require.LessOrEqual(t, leased(w, "close_order"), 20)
	require.Less(t, runtime.NumGoroutine(), 400, "no goroutine waits for each entry")
	g.Open()
	w.WaitAllEnded()
	require.Equal(t, 10_000, w.Count("common_process_log WHERE state=1 AND process_count=0"))
}

// Failure: F67
func TestNewEntriesRunWhileABacklogIsWorkedOff(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	// A slot is reserved for a new entry until its transaction commits, but at most for a third of the lease.
	cfg.Lease = 30 * time.Second
	c := w.New(cfg)
	late := harness.NewGate()
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
		if strings.HasPrefix(string(e.IdempotencyKey), "close_order-late") {
			return late.Pass(ctx, e)
		}
		return nil
	}, &compensator.HandlerConfig[harness.Order]{Concurrency: 5, Timeout: harness.Timeout})
	require.NoError(t, err)
	w.Run(c)
	for range 2 { // After the first handler has run, Run starts new entries as they are recorded.
		w.WaitState(w.Record(orders, 0, compensator.Options{}), compensator.Succeeded)
	}
	w.Backlog("close_order", 300)
	for range 4 {
		late.Await(t)
	}
	for i := range 20 {
		w.WaitState(w.Record(orders, i, compensator.Options{}), compensator.Succeeded)
	}
	require.Equal(t, 300, w.Count("common_process_log WHERE state=0"))
	late.Open()
	w.WaitAllEnded()
}

// Failure: F72
func TestEntriesOfOneBusinessRunSideBySide(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, g := harness.HandleGated(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	first := w.Record(orders, 1, compensator.Options{BusinessID: "42"})
	second := w.Record(orders, 2, compensator.Options{BusinessID: "42"})
	met := []compensator.EntryID{g.Await(t), g.Await(t)}
	assert.ElementsMatch(t, []compensator.EntryID{first, second}, met, "a business id orders nothing")
	g.Open()
	w.WaitAllEnded()
}
