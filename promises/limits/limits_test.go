package limits

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/grants"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// Triggers record each grant, so that the tests need not trust the library's reports.
func watchGrants(w *harness.World) {
	w.T.Helper()
	for _, statement := range grants.Schema {
		w.Exec(statement)
	}
}

// requireBound asserts that, in every window, the limit granted at most as many starts as the interval and the burst
// allow.
func requireBound(w *harness.World, name string, interval time.Duration, burst int) (total int) {
	w.T.Helper()
	return requireBounds(w, name, admin.LimitValues{Interval: interval, Burst: burst})
}

func requireBounds(w *harness.World, name string, values ...admin.LimitValues) (total int) {
	w.T.Helper()
	found, err := grants.Check(w.T.Context(), w.DB, name, values...)
	require.NoError(w.T, err)
	return found.Total()
}

type running struct {
	mu      sync.Mutex
	now     map[string]int
	highest map[string]int
	reached chan struct{} // closed when as many calls run at once as awaitAtOnce asks for
	awaited int
}

// From now on, each call of wait blocks until n calls with one key have run at the same time.
func (r *running) awaitAtOnce(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now, r.highest = nil, nil
	r.awaited, r.reached = n, make(chan struct{})
}

func (r *running) wait() {
	r.mu.Lock()
	reached := r.reached
	r.mu.Unlock()
	if reached != nil {
		<-reached
	}
}

func (r *running) enter(key string) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == nil {
		r.now, r.highest = make(map[string]int), make(map[string]int)
	}
	r.now[key]++
	if r.now[key] > r.highest[key] {
		r.highest[key] = r.now[key]
		if r.highest[key] == r.awaited {
			close(r.reached)
		}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.now[key]--
	}
}

func TestNoWindowHasMoreStartsThanTheRateAndTheBurstAllow(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		watchGrants(w)
		limited := compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Rate: compensator.PerSecond(50), Burst: 4}}}
		here, there := w.New(cfg), w.New(cfg)
		charges, ran := harness.HandleCounted(t, here, "charge", limited, nil)
		_, ranThere := harness.HandleCounted(t, there, "charge", limited, nil)
		w.RecordMany(here, charges, 80, compensator.Options{})
		began := time.Now()
		w.Run(here)
		w.Run(there)
		w.WaitAllEnded()
		assert.GreaterOrEqual(t, time.Since(began), 76*20*time.Millisecond-time.Millisecond, "not before the rate allows it")
		t.Logf("80 entries at 50/s took %v", time.Since(began))
		require.Equal(t, 80, w.CountEnded(compensator.Succeeded, 0))
		require.Equal(t, 80, ran.Total()+ranThere.Total())
		require.Equal(t, 80, w.Count("common_process_log WHERE delivery_count=0 AND process_count=0"))
		require.Equal(t, 80, requireBound(w, "charge", 20*time.Millisecond, 4), "each start has one grant, and none is lost")
	})
}

func TestNoMoreEntriesRunAtOnceThanConcurrentAllows(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		var at running
		limited := compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Concurrent: 3}}}
		here, there := w.New(cfg), w.New(cfg)
		work := func(*compensator.Entry, int) error {
			defer at.enter("")()
			at.wait() // If a permit stayed unused, this wait would never end.
			<-time.After(10 * time.Millisecond)
			return nil
		}
		at.awaitAtOnce(3)
		charges, ran := harness.HandleCounted(t, here, "charge", limited, work)
		_, ranThere := harness.HandleCounted(t, there, "charge", limited, work)
		w.RecordMany(here, charges, 60, compensator.Options{})
		w.Run(here)
		w.Run(there)
		w.Eventually(func() bool {
			require.LessOrEqual(t, w.Count("common_process_log WHERE lease_until>"+harness.NowMillis), 3)
			return w.Count("common_process_log WHERE state=0") == 0
		}, "every entry ends")
		require.Equal(t, 60, ran.Total()+ranThere.Total())
		require.Equal(t, 3, at.highest[""])
		require.Equal(t, 60, w.Count("common_process_log WHERE state=1 AND delivery_count=0 AND process_count=0"))
	})
}

func TestEntriesOfALimitedKeyHoldUpNoOtherKey(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		watchGrants(w)
		limit := compensator.Limit{Rate: compensator.Rate{Starts: 1, Per: time.Hour}, Burst: 2, Key: func(e *compensator.Entry) string { return e.UserID }}
		limited := compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: limit}, Concurrency: 4}
		c, recorder := w.New(cfg), w.New(cfg) // Without Redis, c finds the entries of the other process in the database.
		_, ran := harness.HandleCounted(t, c, "charge", limited, nil)
		charges, err := compensator.Declare[harness.Order](t.Context(), recorder, "charge", &limited.TypeConfig)
		require.NoError(t, err)
		w.RecordMany(recorder, charges, 300, compensator.Options{UserID: "slow"}) // These entries have been due for longest.
		for n := range 20 {
			w.RecordMany(recorder, charges, 1, compensator.Options{UserID: fmt.Sprintf("k%d", n)})
		}
		w.RecordMany(recorder, charges, 5, compensator.Options{})
		w.Run(c)
		w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == 27 }, "two of the slow key, and all others")
		require.Equal(t, 27, ran.Total())
		require.Equal(t, 298, w.Count("common_process_log WHERE state=0 AND user_id='slow' AND version=0 AND delivery_count=0 AND lease_until=0"), "waiting costs nothing")
		require.Equal(t, 22, requireBound(w, "charge", time.Hour, 2))
	})
}

func TestTypesThatNameTheSameLimitShareIt(t *testing.T) {
	t.Parallel()
	harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		watchGrants(w)
		limited := compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Rate: compensator.PerSecond(50), Burst: 2, Of: "psp"}}}
		here, there := w.New(cfg), w.New(cfg)
		charges, _ := harness.HandleCounted(t, here, "charge", limited, nil)
		refunds, _ := harness.HandleCounted(t, there, "refund", limited, nil)
		w.RecordMany(here, charges, 30, compensator.Options{})
		w.RecordMany(there, refunds, 30, compensator.Options{})
		w.Run(here)
		w.Run(there)
		w.WaitAllEnded()
		require.Equal(t, 60, requireBound(w, "psp", 20*time.Millisecond, 2))
		other := limited
		other.Limit.Burst = 3
		_, err := compensator.Handle(t.Context(), here, "payout", func(context.Context, *compensator.Entry, harness.Order) error { return nil }, &other)
		var field *compensator.FieldError
		require.ErrorAs(t, err, &field)
		assert.Equal(t, "Limit", field.Field)
	})
}

// Failure: F1
func TestPermitsOfAKilledProcessComeBackWithItsLeases(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	cfg.Lease = time.Second
	c := w.New(cfg)
	var at running
	orders, ran := harness.HandleCounted(t, c, "ship_order", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Concurrent: 2}}},
		func(*compensator.Entry, int) error { defer at.enter("")(); return nil })
	w.RecordMany(c, orders, 6, compensator.Options{})
	child := w.StartChild(harness.Program{Point: harness.UntilGo, Concurrent: 2})
	child.Await("paused")
	w.Eventually(func() bool { return w.Count("common_process_log WHERE lease_until>0") == 2 }, "the child holds both permits")
	var first int64
	require.NoError(t, w.DB.QueryRow("SELECT MAX(lease_until) FROM common_process_log").Scan(&first))
	w.Run(c)
	w.Eventually(func() bool {
		return child.Times("paused") == 2 && w.Count("common_process_log WHERE lease_until>?", first) == 2
	}, "its leases are renewed")
	require.Zero(t, ran.Total(), "as long as it lives, it keeps them")
	child.Kill()
	w.WaitAllEnded()
	require.Equal(t, 6, ran.Total())
	require.LessOrEqual(t, at.highest[""], 2)
}

func TestLimitIsValidated(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	for field, limit := range map[string]compensator.Limit{
		"Limit":            {Of: "psp"},
		"Limit.Rate":       {Rate: compensator.Rate{Starts: 0, Per: time.Second}},
		"Limit.Burst":      {Concurrent: 1, Burst: 2},
		"Limit.Concurrent": {Concurrent: 1001},
		"Limit.Of":         {Concurrent: 1, Of: " psp"},
	} {
		_, err := compensator.Handle(t.Context(), c, "charge", func(context.Context, *compensator.Entry, harness.Order) error { return nil },
			&compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: limit}})
		var wrong *compensator.FieldError
		require.ErrorAs(t, err, &wrong, field)
		assert.Equal(t, field, wrong.Field)
	}
	_, err := compensator.HandleBatch(t.Context(), c, "mail", func(context.Context, []compensator.Item[harness.Order]) []error { return nil },
		&compensator.BatchConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Concurrent: 1}}})
	require.ErrorContains(t, err, "Limit")
	w.Exec("DROP TABLE common_process_log_limit")
	_, err = compensator.Handle(t.Context(), c, "charge", func(context.Context, *compensator.Entry, harness.Order) error { return nil },
		&compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Concurrent: 1}}})
	require.ErrorContains(t, err, "_limit")
}

// Without its key, no limit would apply to the entry.
func TestEntryWhoseKeyPanicsWaitsAlone(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	var calls atomic.Int64
	limit := compensator.Limit{Concurrent: 1, Key: func(e *compensator.Entry) string {
		if e.UserID == "bad" {
			calls.Add(1)
			panic("no key")
		}
		return e.UserID
	}}
	cfg := w.QuickConfig()
	lines := harness.CaptureLog(&cfg)
	c := w.New(cfg)
	charges, ran := harness.HandleCounted(t, c, "charge", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: limit}}, nil)
	bad := w.Record(charges, 0, compensator.Options{UserID: "bad"})
	w.RecordMany(c, charges, 10, compensator.Options{UserID: "good"})
	w.Run(c)
	w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == 10 && calls.Load() >= 2 }, "all others succeed")
	require.Equal(t, 10, ran.Total())
	require.Equal(t, compensator.Pending, w.State(bad))
	lines.Contains(w, "the function Key of a limit panicked")
}

// If the claimed entry started now, the starts would come closer together than the rate allows.
func TestEntryWhosePermitIsOldDoesNotStartAndTheStartIsReturned(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg, hooks := w.HookStore(w.QuickConfig())
	cfg.Lease = 10 * time.Second
	c := w.New(cfg)
	var claims atomic.Int64
	hooks.OnPermit = func() {
		if claims.Add(1) == 1 {
			<-time.After(1100 * time.Millisecond)
		}
	}
	limit := compensator.Limit{Rate: compensator.Rate{Starts: 1, Per: time.Hour}}
	charges, ran := harness.HandleCounted(t, c, "charge", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: limit}}, nil)
	id := w.Record(charges, 0, compensator.Options{})
	w.Run(c)
	w.WaitState(id, compensator.Succeeded)
	require.Equal(t, 1, ran.Total())
	require.GreaterOrEqual(t, claims.Load(), int64(2), "the first claim was given back, and the only start of the hour was returned")
	require.Equal(t, 1, w.Count("common_process_log WHERE delivery_count=0 AND process_count=0"))
}

// The process sees the commits and has free slots, so without a limit it would start each entry at once.
func TestRecordedEntriesNeedPermits(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		watchGrants(w)
		limit := compensator.Limit{Rate: compensator.Rate{Starts: 1, Per: time.Hour}, Burst: 3}
		c := w.New(cfg)
		charges, ran := harness.HandleCounted(t, c, "charge", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: limit}}, nil)
		w.Run(c)
		for n := range 10 {
			w.Record(charges, n, compensator.Options{})
		}
		w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == 3 }, "the burst")
		w.RecordMany(c, charges, 10, compensator.Options{})
		w.Eventually(func() bool { return w.Count("common_process_log") == 20 }, "all are recorded")
		require.Equal(t, 3, ran.Total())
		require.Equal(t, 17, w.Count("common_process_log WHERE state=0 AND version=0 AND delivery_count=0 AND lease_until=0"), "none was inserted with a lease")
		require.Equal(t, 3, requireBound(w, "charge", time.Hour, 3))
	})
}

func TestHealthTellsWhichEntriesWaitForALimit(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		hour := compensator.Rate{Starts: 1, Per: time.Hour}
		typed := func(limit compensator.Limit) compensator.HandlerConfig[harness.Order] {
			return compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: limit}}
		}
		gate := harness.NewGate()
		gate.OpenAtEnd(t)
		c := w.New(cfg)
		charges, _ := harness.HandleCounted(t, c, "charge", typed(compensator.Limit{Rate: hour, Of: "psp"}), nil)
		tenants, _ := harness.HandleCounted(t, c, "tenant", typed(compensator.Limit{Rate: hour, Key: func(e *compensator.Entry) string { return e.UserID }}), nil)
		alone, _ := harness.HandleCounted(t, c, "alone", typed(compensator.Limit{Concurrent: 1}), func(e *compensator.Entry, _ int) error { return gate.PassIgnoringContext(e) })
		free, _ := harness.HandleCounted(t, c, "free", typed(compensator.Limit{Concurrent: 10}), nil)
		require.Empty(t, c.Health(t.Context()).Limited)
		began := time.Now()
		w.RecordMany(c, charges, 3, compensator.Options{})
		w.RecordMany(c, tenants, 4, compensator.Options{UserID: "slow"})
		w.RecordMany(c, alone, 2, compensator.Options{})
		w.RecordMany(c, free, 2, compensator.Options{})
		w.Run(c)
		var found []observe.LimitedType
		w.Eventually(func() bool {
			found = c.Health(t.Context()).Limited
			return len(found) == 3 && found[2].Waiting == 3
		}, "entries wait for psp, for the tenant, and for the entry that runs")
		for i := range found {
			if found[i].BusinessType == "alone" {
				require.Zero(t, found[i].NextAt, "nobody knows when the other entry ends")
				continue
			}
			require.WithinRange(t, found[i].NextAt, began.Add(59*time.Minute), time.Now().Add(time.Hour+time.Second))
			found[i].NextAt = time.Time{}
		}
		require.Positive(t, found[1].Waiting)
		found[1].Waiting = 0
		require.Equal(t, []observe.LimitedType{{BusinessType: "alone", Limit: "alone", Waiting: 1}, {BusinessType: "charge", Limit: "psp"},
			{BusinessType: "tenant", Limit: "tenant", Waiting: 3}}, found)
		gate.Open()
		w.Eventually(func() bool { return len(c.Health(t.Context()).Limited) == 2 }, "the other entry has ended")
	})
}

func TestLimitThatAPersonChangesHoldsInAllProcesses(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg.Operations = &compensator.Operations{}
		var at running
		limited := compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: compensator.Limit{Concurrent: 4, Of: "psp"}}}
		work := func(*compensator.Entry, int) error {
			defer at.enter("")()
			at.wait()
			<-time.After(5 * time.Millisecond)
			return nil
		}
		at.awaitAtOnce(2)
		here, there := w.New(cfg), w.New(cfg)
		charges, ran := harness.HandleCounted(t, here, "charge", limited, work)
		_, ranThere := harness.HandleCounted(t, there, "charge", limited, work)
		d, err := admin.New(here, admin.Options{Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })})
		require.NoError(t, err)
		change := func(values admin.LimitValues) {
			limits, err := d.Limits(t.Context(), admin.Actor{ID: "mei"})
			require.NoError(t, err)
			require.Len(t, limits, 1)
			require.NoError(t, d.ChangeLimit(t.Context(), admin.Actor{ID: "mei"}, limits[0], values, admin.Why{Reason: "the PSP is slow"}))
		}
		w.Run(here)
		w.Run(there)
		w.RecordMany(here, charges, 40, compensator.Options{})
		w.WaitAllEnded()
		change(admin.LimitValues{Concurrent: 1})
		at.awaitAtOnce(1) // Reset the counts of running handlers. No handler runs now.
		w.RecordMany(here, charges, 20, compensator.Options{})
		w.WaitAllEnded()
		require.Equal(t, 1, at.highest[""], "one at a time, in both processes")
		change(admin.LimitValues{Interval: time.Hour, Burst: 3})
		w.RecordMany(here, charges, 10, compensator.Options{})
		w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == 63 }, "the burst of the new rate")
		require.Equal(t, 63, ran.Total()+ranThere.Total())
		require.Equal(t, 7, w.Count("common_process_log WHERE state=0 AND version=0 AND delivery_count=0"), "waiting costs nothing")
		change(admin.LimitValues{})
		w.WaitAllEnded()
		require.Equal(t, 70, ran.Total()+ranThere.Total())
		require.Equal(t, 3, w.Count("common_process_log_operation WHERE action='change limit' AND actor='mei' AND business_type='charge' AND reason='the PSP is slow'"))
	})
}
