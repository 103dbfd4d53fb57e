package settling

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/processlog"
)

func TestRunReturnsOnlyOnceOutcomesAreStored(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg, store := w.HookStore(w.QuickConfig())
	store.OnSettle = func(settle func() ([]processlog.Settled, error)) ([]processlog.Settled, error) {
		pause := time.NewTimer(300 * time.Millisecond) // If Run did not wait, it would return before this time is over.
		defer pause.Stop()
		<-pause.C
		return settle()
	}
	c := w.New(cfg)
	_, g := harness.HandleGated(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	ids := w.InsertDue("close_order", 1, 3)
	stop := w.Run(c)
	for range ids {
		g.Await(t)
	}
	g.Open()
	require.NoError(t, stop())
	for _, id := range ids {
		require.Equal(t, compensator.Succeeded, w.State(id))
	}
}

const outcomeRetry = time.Hour

type steps struct {
	mu    sync.Mutex // guards taken
	taken []string
}

func (s *steps) take(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, step)
}

func (s *steps) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.taken)
}

// toldQueue notes when Settle tells the queue an outcome: Settle removes the entry, or delays the entry by
// outcomeRetry. A failed claim calls Settle too, to put the entry back after a short delay. toldQueue does not note
// such a call.
type toldQueue struct {
	processlog.Queue
	steps *steps
}

func (q *toldQueue) Settle(ctx context.Context, businessType string, items []processlog.QueueOutcome) error {
	if slices.ContainsFunc(items, func(o processlog.QueueOutcome) bool { return o.Remove || o.In > outcomeRetry/2 }) {
		q.steps.take("queue told")
	}
	return q.Queue.Settle(ctx, businessType, items)
}

func TestQueueKeepsAnEntryUntilTheDatabaseHasItsOutcome(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]error{"success": nil, "failure": errors.New("no")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			cfg, store := w.HookStore(w.QuickConfig())
			queue, err := redisqueue.Open(w.Redis, w.Name)
			require.NoError(t, err)
			var sequence steps
			cfg.Redis, cfg.Queue, cfg.Grace = nil, &toldQueue{queue, &sequence}, time.Minute // With this grace period the queue must find the entry, because no poll does.
			var claims atomic.Int64
			store.OnClaim = func() error { // The first claim fails and puts the entry back.
				if claims.Add(1) == 1 {
					return errors.New("deadlock")
				}
				return nil
			}
			store.OnSettle = func(settle func() ([]processlog.Settled, error)) ([]processlog.Settled, error) {
				defer sequence.take("outcome stored")
				return settle()
			}
			c := w.New(cfg)
			_, _ = harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(outcomeRetry)}, func(*compensator.Entry, int) error { return verdict })
			w.Run(c)
			w.RecordDelayed(c, 50*time.Millisecond)
			w.Eventually(func() bool { return len(sequence.list()) >= 2 }, "the outcome is stored and the queue has it")
			require.Equal(t, []string{"outcome stored", "queue told"}, sequence.list()[:2])
		})
	}
}
