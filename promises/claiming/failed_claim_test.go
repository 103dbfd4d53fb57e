package claiming

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/processlog"
)

type notifiedQueue struct {
	processlog.Queue
	notified chan []string
}

func (q *notifiedQueue) Notify(ctx context.Context, types []string) error {
	q.notified <- slices.Clone(types)
	return q.Queue.Notify(ctx, types)
}

func TestEnqueuedEntryWakesAnotherProcess(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	queue, err := redisqueue.Open(w.Redis, w.Name)
	require.NoError(t, err)
	watched := &notifiedQueue{Queue: queue, notified: make(chan []string, 10)}
	cfg.Redis, cfg.Queue = nil, watched
	c := w.New(cfg) // This instance never runs.
	w.RecordDelayed(c, time.Minute)
	require.Equal(t, []string{"close_order"}, harness.Receive(t, watched.notified))
	w.RecordDelayed(c, time.Hour)
	w.RecordDelayed(c, 0)
	require.Equal(t, []string{"close_order"}, harness.Receive(t, watched.notified))
	require.Empty(t, watched.notified, "an entry due after the first one wakes no process")
}

func TestFailedClaimsGiveTheirSlotsBack(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg, store := w.HookStore(w.QuickConfig())
	var mu sync.Mutex // guards failures
	failures := 3
	store.OnClaim = func() error {
		mu.Lock()
		defer mu.Unlock()
		if failures--; failures >= 0 {
			return errors.New("the database has a bad moment")
		}
		return nil
	}
	c := w.New(cfg)
	_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 2}, nil)
	w.InsertDue("close_order", 1, 4)
	w.Run(c)
	w.WaitAllEnded()
	require.Equal(t, 4, ran.Total())
	require.Negative(t, failures)
}

func TestEntryOfAClaimWhoseReplyWasLostIsFreeAgain(t *testing.T) {
	t.Parallel()
	for name, watched := range map[string]bool{"connector": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			proxy, db := w.OpenProxied(watched)
			cfg := w.QuickConfig()
			cfg.DB, cfg.Lease = db, time.Hour
			c := w.New(cfg)
			_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
			ids := w.InsertDue("close_order", 1, 1)
			trap := proxy.Arm(faultproxy.Rule{Match: harness.MatchNext(faultproxy.Contains("lease_until=(TIME"), faultproxy.Commit()), Nth: 1, Fault: faultproxy.DropReply})
			w.Run(c)
			w.WaitState(ids[0], compensator.Succeeded)
			require.Equal(t, 1, trap.Fired())
			require.Equal(t, 1, ran.Of(ids[0]))
		})
	}
}
