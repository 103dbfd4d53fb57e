package compensator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

func TestHealthTellsWhatIsOverdueAlthoughTheQueueKnowsNothing(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		c := w.new(cfg)
		require.Zero(t, c.Health(t.Context()).OldestOverdue)
		id := w.insertDue("close_order", 1, 1)[0] // Redis was never told, and nobody runs
		h := c.Health(t.Context())
		require.NoError(t, h.Database)
		require.NoError(t, h.Queue)
		require.Greater(t, h.OldestOverdue, 365*24*time.Hour)
		require.Equal(t, "close_order", h.OldestOverdueType)
		require.Equal(t, []string{"close_order"}, h.UnknownTypes)
		require.False(t, h.OK(time.Hour))
		require.Contains(t, h.String(), "oldest overdue")

		w.exec("UPDATE common_process_log SET next_at=(UNIX_TIMESTAMP()+3600)*1000 WHERE id=?", id.Row())
		require.Zero(t, c.Health(t.Context()).OldestOverdue, "what is not due is not overdue")
		require.True(t, c.Health(t.Context()).OK(0))
	})
}

func TestHealthDoesNotCountWhatRuns(t *testing.T) {
	w := newWorld(t).withRedis()
	c := w.new(w.quick())
	_, g := held(t, c, "close_order", compensator.TypeConfig{}, nil)
	w.run(c)
	w.insertDue("close_order", 1, 1)
	g.await(t)
	require.Zero(t, c.Health(t.Context()).OldestOverdue, "it was overdue, and runs now")
	g.open()
	w.waitAllEnded()
}

func TestHealthNamesTheServerThatDoesNotAnswer(t *testing.T) {
	w := newWorld(t).withRedis()
	sqlProxy, db := w.proxied(true)
	cfg := w.quick()
	cfg.DB = db
	redisProxy := w.throughProxy(&cfg)
	c := w.new(cfg)
	require.NoError(t, errors.Join(c.Health(t.Context()).Database, c.Health(t.Context()).Queue))

	redisProxy.Refuse()
	h := c.Health(t.Context())
	require.Error(t, h.Queue)
	require.True(t, h.OK(time.Minute), "without a queue the database is polled")
	require.Contains(t, h.String(), "queue: ")
	sqlProxy.Refuse()
	h = c.Health(t.Context())
	require.Error(t, h.Database)
	require.False(t, h.OK(time.Minute))
	require.Contains(t, h.String(), "database: ")
	redisProxy.Heal()
	sqlProxy.Heal()
	w.eventually(func() bool {
		h := c.Health(t.Context())
		return h.Database == nil && h.Queue == nil
	}, "both answer again")
}

// panicking is an observer all of whose functions panic.
func panicking() compensator.Observer {
	attempt := func(compensator.AttemptEvent) { panic("metrics are broken") }
	settled := func(compensator.SettledEvent) { panic("metrics are broken") }
	return compensator.Observer{
		AttemptStarted: attempt, AttemptEnded: attempt, Stuck: attempt, Settled: settled, OutcomeDropped: settled,
		QueueDown: func(error) { panic("metrics are broken") }, QueueUp: func() { panic("metrics are broken") },
		Reconciled: func(compensator.ReconciledEvent) { panic("metrics are broken") },
	}
}

func TestPanickingObserverHarmsNoEntry(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	cfg.Observer = panicking()
	proxy := w.throughProxy(&cfg)
	c := w.new(cfg)
	orders, _ := numbered(t, c, "close_order", compensator.TypeConfig{Retry: compensator.Fixed(0), MaxProcessCount: 3,
		Compensate: func(context.Context, *compensator.Entry) error { return nil }}, func(e *compensator.Entry, call int) error {
		if call == 1 || e.BusinessID == "bad" {
			return errors.New("no")
		}
		return nil
	})
	w.run(c)
	for i := range 10 {
		put(w, orders, i, compensator.Options{})
		put(w, orders, i, compensator.Options{BusinessID: "bad"})
		put(w, orders, i, compensator.Options{Delay: time.Duration(i) * 20 * time.Millisecond})
	}
	proxy.Refuse()
	w.waitAllEnded()
	proxy.Heal()
	w.eventually(func() bool { return c.Health(t.Context()).Queue == nil }, "the queue is back")
	putThrough(w, w.open(plain(w.DSN)), orders, 1, compensator.Options{})
	w.waitAllEnded()
	require.Equal(t, 21, w.ended(compensator.Succeeded, 1))
	require.Equal(t, 10, w.ended(compensator.Compensated, 3))
}

func TestObserverSeesEveryStepOfAnEntry(t *testing.T) {
	w := newWorld(t).withRedis()
	cfg := w.quick()
	type step struct {
		what         string
		attempt      int
		compensation bool
		state        compensator.State
	}
	steps := make(chan step, 100)
	cfg.Observer = compensator.Observer{
		AttemptStarted: func(e compensator.AttemptEvent) { steps <- step{"started", e.Attempt, e.Compensation, 0} },
		AttemptEnded:   func(e compensator.AttemptEvent) { steps <- step{"ended", e.Attempt, e.Compensation, 0} },
		Settled:        func(e compensator.SettledEvent) { steps <- step{"settled", e.Attempt, false, e.State} },
	}
	c := w.new(cfg)
	orders, _ := numbered(t, c, "close_order", compensator.TypeConfig{MaxProcessCount: 2, Retry: compensator.Fixed(0),
		Compensate: func(context.Context, *compensator.Entry) error { return nil }}, failing)
	w.run(c)
	w.waitState(put(w, orders, 1, compensator.Options{}), compensator.Compensated)
	for _, want := range []step{
		{"started", 1, false, 0}, {"ended", 1, false, 0}, {"settled", 1, false, compensator.Retrying},
		{"started", 2, false, 0}, {"ended", 2, false, 0}, {"settled", 2, false, compensator.Compensating},
		{"started", 1, true, 0}, {"ended", 1, true, 0}, {"settled", 1, false, compensator.Compensated},
	} {
		require.Equal(t, want, next(t, steps))
	}
}
