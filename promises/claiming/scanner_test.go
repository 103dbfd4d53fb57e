package claiming

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/observe"
)

func scriptCalls(t *testing.T, client *redis.Client) int {
	t.Helper()
	stats, err := client.InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	var calls int
	for name, value := range stats["Commandstats"] {
		if name == "cmdstat_evalsha" || name == "cmdstat_eval" {
			calls += atoiPrefix(value, "calls=")
		}
	}
	return calls
}

func atoiPrefix(s, prefix string) (n int) {
	for _, c := range s[len(prefix):] {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + int(c-'0')
	}
	return n
}

// Failure: F50
func TestIdleInstanceAsksTheQueueNoMoreThanItsRoundsNeed(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	w.Redis = redis.NewClient(&redis.Options{Addr: testservers.NewRedis(t).Addr()}) // This server counts the calls of this test only.
	t.Cleanup(func() { _ = w.Redis.Close() })
	w.Name = "idle"
	cfg := w.QuickConfig()
	rounds := make(chan struct{}, 100)
	var told atomic.Int64
	cfg.Observer.Reconciled = func(observe.ReconciledEvent) {
		told.Add(1)
		select {
		case rounds <- struct{}{}:
		default:
		}
	}
	c := w.New(cfg)
	for _, name := range []string{"one", "two", "three"} {
		_, err := compensator.Handle(t.Context(), c, name, func(context.Context, *compensator.Entry, harness.Order) error { return nil }, nil)
		require.NoError(t, err)
	}
	w.Run(c)
	harness.Receive(t, rounds) // By now the reconciler has read the whole log once.
	before, from := scriptCalls(t, w.Redis), told.Load()
	for range 10 {
		harness.Receive(t, rounds)
	}
	asked, passed := scriptCalls(t, w.Redis)-before, int(told.Load()-from)
	require.LessOrEqual(t, asked, 4*passed+10, "scripts run in %d idle rounds", passed)
}
