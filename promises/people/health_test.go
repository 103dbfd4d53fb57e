package people

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// Failure: F85
func TestHealthTellsWhatIsOverdueAlthoughTheQueueKnowsNothing(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		require.Zero(t, c.Health(t.Context()).OldestOverdue)
		id := w.InsertDue("close_order", 1, 1)[0] // Redis does not hold the entry, and no process runs.
		h := c.Health(t.Context())
		require.NoError(t, h.Database)
		require.NoError(t, h.Queue)
		require.Greater(t, h.OldestOverdue, 365*24*time.Hour)
		require.Equal(t, "close_order", h.OldestOverdueType)
		require.Equal(t, []string{"close_order"}, h.UnknownTypes)
		require.Equal(t, map[string]time.Duration{"close_order": h.OldestOverdue}, h.Overdue)
		require.NoError(t, h.Ready(), "a backlog, and another's at that, makes no process unready")
		require.Contains(t, h.String(), "no handler here for close_order; oldest overdue")

		w.Exec("UPDATE common_process_log SET next_at=(UNIX_TIMESTAMP()+3600)*1000 WHERE id=?", id.Row())
		require.Zero(t, c.Health(t.Context()).OldestOverdue, "what is not due is not overdue")
		require.Empty(t, c.Health(t.Context()).Overdue)
	})
}

func TestProcessWithHandlersIsReadyWhileRunIsAtWork(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	require.NoError(t, c.Health(t.Context()).Ready(), "it only records")
	harness.HandleGated(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	require.ErrorContains(t, c.Health(t.Context()).Ready(), "Run is not at work")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	w.Eventually(func() bool { return c.Health(t.Context()).Ready() == nil }, "Run is at work")
	stop()
	require.NoError(t, <-ended)
	h := c.Health(t.Context())
	require.Error(t, h.Ready())
	require.Contains(t, h.String(), "not ready: ")
}

// Failure: F85
func TestHealthDoesNotCountWhatRuns(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	c := w.New(w.QuickConfig())
	_, g := harness.HandleGated(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	w.InsertDue("close_order", 1, 1)
	g.Await(t)
	require.Zero(t, c.Health(t.Context()).OldestOverdue, "it was overdue, and runs now")
	g.Open()
	w.WaitAllEnded()
}

// Failure: F85
func TestHealthNamesTheServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	sqlProxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB = db
	redisProxy := w.ThroughProxy(&cfg)
	c := w.New(cfg)
	require.NoError(t, errors.Join(c.Health(t.Context()).Database, c.Health(t.Context()).Queue))

	redisProxy.Refuse()
	h := c.Health(t.Context())
	require.Error(t, h.Queue)
	require.NoError(t, h.Ready(), "without a queue the database is polled")
	require.Contains(t, h.String(), "queue: ")
	sqlProxy.Refuse()
	h = c.Health(t.Context())
	require.Error(t, h.Database)
	require.ErrorIs(t, h.Ready(), h.Database)
	require.Contains(t, h.String(), "database: ")
	redisProxy.Heal()
	sqlProxy.Heal()
	w.Eventually(func() bool {
		h := c.Health(t.Context())
		return h.Database == nil && h.Queue == nil
	}, "both answer again")
}

func panicking() observe.Observer {
	attempt := func(observe.AttemptEvent) { panic("metrics are broken") }
	settled := func(observe.SettledEvent) { panic("metrics are broken") }
	return observe.Observer{
		Recorded:       func(observe.RecordedEvent) { panic("metrics are broken") },
		AttemptStarted: attempt, AttemptEnded: attempt, Stuck: attempt, Settled: settled, OutcomeDropped: settled,
		QueueDown: func(error) { panic("metrics are broken") }, QueueUp: func() { panic("metrics are broken") },
		Reconciled: func(observe.ReconciledEvent) { panic("metrics are broken") },
	}
}

// Failure: F63
func TestPanickingObserverHarmsNoEntry(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	cfg.Observer = panicking()
	proxy := w.ThroughProxy(&cfg)
	c := w.New(cfg)
	orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(0), MaxAttempts: 3,
		Compensate: func(context.Context, *compensator.Entry, harness.Order) error { return nil }}, func(e *compensator.Entry, call int) error {
		if call == 1 || e.BusinessID == "bad" {
			return errors.New("no")
		}
		return nil
	})
	w.Run(c)
	for i := range 10 {
		w.Record(orders, i, compensator.Options{})
		w.Record(orders, i, compensator.Options{BusinessID: "bad"})
		w.Record(orders, i, compensator.Options{Delay: time.Duration(i) * 20 * time.Millisecond})
	}
	proxy.Refuse()
	w.WaitAllEnded()
	proxy.Heal()
	w.Eventually(func() bool { return c.Health(t.Context()).Queue == nil }, "the queue is back")
	w.RecordThrough(w.Open(harness.PlainPool(w.DSN)), orders, 1, compensator.Options{})
	w.WaitAllEnded()
	require.Equal(t, 21, w.CountEnded(compensator.Succeeded, 1))
	require.Equal(t, 10, w.CountEnded(compensator.Compensated, 3))
}

type tenants struct{}

type tenantKey struct{}

func (tenants) Inject(context.Context) map[string]string { return map[string]string{"tenant": "42"} }

func (tenants) Extract(base context.Context, headers map[string]string) context.Context {
	return context.WithValue(base, tenantKey{}, headers["tenant"])
}

// Failure: F63
func TestObserverSeesEveryStepOfAnEntry(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	type step struct {
		what         string
		attempt      int
		compensation bool
		state        compensator.State
	}
	steps := make(chan step, 100)
	whose := func(ctx context.Context, idempotencyKey, businessID string) {
		assert.Equal(t, "42", ctx.Value(tenantKey{}), "the context has what travelled with the entry")
		assert.Equal(t, "close-42", idempotencyKey)
		assert.Equal(t, "42", businessID)
	}
	attempt := func(what string) func(observe.AttemptEvent) {
		return func(e observe.AttemptEvent) {
			whose(e.Context, string(e.IdempotencyKey), e.BusinessID)
			steps <- step{what, e.Attempt, e.Compensation, 0}
		}
	}
	cfg.Propagator = tenants{}
	cfg.Observer = observe.Observer{
		Recorded: func(e observe.RecordedEvent) {
			assert.Equal(t, "42", e.BusinessID)
			assert.False(t, e.ID.IsZero())
			steps <- step{string("recorded "+e.IdempotencyKey+" ") + e.BusinessType, 0, false, 0}
		},
		AttemptStarted: attempt("started"),
		AttemptEnded:   attempt("ended"),
		Settled: func(e observe.SettledEvent) {
			whose(e.Context, string(e.IdempotencyKey), e.BusinessID)
			steps <- step{"settled", e.Attempt, false, e.State}
		},
	}
	c := w.New(cfg)
	orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0),
		Compensate: func(context.Context, *compensator.Entry, harness.Order) error { return nil }}, harness.FailAlways)
	w.Run(c)
	w.WaitState(w.Record(orders, 1, compensator.Options{IdempotencyKey: "close-42", BusinessID: "42"}), compensator.Compensated)
	w.Record(orders, 1, compensator.Options{IdempotencyKey: "close-42", BusinessID: "42"}) // This duplicate is not recorded.
	for _, want := range []step{
		{"recorded close-42 close_order", 0, false, 0},
		{"started", 1, false, 0}, {"ended", 1, false, 0}, {"settled", 1, false, compensator.Retrying},
		{"started", 2, false, 0}, {"ended", 2, false, 0}, {"settled", 2, false, compensator.Compensating},
		{"started", 1, true, 0}, {"ended", 1, true, 0}, {"settled", 1, false, compensator.Compensated},
	} {
		require.Equal(t, want, harness.Receive(t, steps))
	}
	require.Empty(t, steps)
}
