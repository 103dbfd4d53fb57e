package people

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/observe/probe"
	"github.com/compensator-go/compensator/processlog"
)

func ready(t *testing.T, h http.Handler) (status int, body string) {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	return answer.Code, answer.Body.String()
}

// waitTimeout is shorter than the 2 s that a command waits for Redis, so that a probe that asks Redis first would fail.
const waitTimeout = 1900 * time.Millisecond

// Redis is stopped with SIGSTOP, so it accepts connections and answers nothing.
// Failure: F85
func TestProcessIsReadyWhileRedisIsSilent(t *testing.T) {
	t.Parallel()
	for name, runs := range map[string]bool{"a process that only records": false, "a process that runs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			server := testservers.NewRedis(t)
			w.Redis, w.Name = redis.NewClient(&redis.Options{Addr: server.Addr()}), server.Prefix(t)
			t.Cleanup(func() { assert.NoError(t, w.Redis.Close()) })
			c := w.New(w.QuickConfig())
			if runs {
				harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
				w.Run(c)
				w.Eventually(func() bool { return c.Health(t.Context()).Running }, "Run is at work")
			}
			server.Pause()
			for range 3 {
				status, body := ready(t, probe.Ready(waitTimeout, c))
				require.Equal(t, http.StatusOK, status, "%s", body)
				status, body = ready(t, probe.Health(waitTimeout, c))
				require.Equal(t, http.StatusOK, status, "%s", body)
				var told struct{ Database, Queue string }
				require.NoError(t, json.Unmarshal([]byte(body), &told))
				require.Empty(t, told.Database)
				require.NotEmpty(t, told.Queue, "Redis is named as the trouble")
			}
			server.Resume()
			w.Eventually(func() bool { return c.Health(t.Context()).Queue == nil }, "Redis answers again")
		})
	}
}

// A process that records nothing more has no reconciler and no enqueue that would notice that the queue works again.
// Failure: F85
func TestHealthOfAProcessThatOnlyRecordsSeesTheQueueComeBack(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	proxy := w.ThroughProxy(&cfg)
	lines := harness.CaptureLog(&cfg)
	c := w.New(cfg)
	proxy.Refuse()
	w.RecordDelayed(c, time.Second)
	lines.Contains(w, "the queue cannot be used")
	require.Error(t, c.Health(t.Context()).Queue)
	proxy.Heal()
	w.Eventually(func() bool { return c.Health(t.Context()).Queue == nil }, "Redis answers again")
	require.NoError(t, c.Health(t.Context()).Ready())
}

// silentQueue is a queue whose server stops answering, before or after New.
type silentQueue struct {
	processlog.Queue
	afterNew bool
}

func (q silentQueue) Check(ctx context.Context, fingerprint string) error {
	if q.afterNew {
		return q.Queue.Check(ctx, fingerprint)
	}
	<-ctx.Done()
	return ctx.Err()
}

func (silentQueue) Peek(ctx context.Context, _ []string) ([]time.Duration, []string, error) {
	<-ctx.Done()
	return nil, nil, ctx.Err()
}

// One deadline covers New's check of the queue and its reads of the database.
// Failure: F85
func TestNewLeavesTheDatabaseItsTimeWhileTheQueueIsSilent(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Queue = silentQueue{compensatortest.NewMemoryQueue().Client(), false}
	cfg.Keep = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	c, err := compensator.New(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	h := c.Health(ctx) // Health must leave enough time for the database, too.
	require.NoError(t, h.Database)
	require.ErrorIs(t, h.Queue, context.DeadlineExceeded)
}

// The bubble's clock moves only when every goroutine is blocked, so the result does not depend on the machine's speed.
// Failure: F85
func TestProcessIsReadyInEachTryWhileTheQueueIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := compensator.New(t.Context(), compensator.Config{
			Store: compensatortest.NewMemoryStore(), Queue: silentQueue{compensatortest.NewMemoryQueue().Client(), true},
			Operations: new(compensator.Operations), Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		pages, err := admin.New(c, admin.Options{Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })})
		require.NoError(t, err)
		for range 20 {
			asked := time.Now()
			status, body := ready(t, probe.Ready(1500*time.Millisecond, c))
			require.Equal(t, http.StatusOK, status, "%s", body)
			require.Less(t, time.Since(asked), 1500*time.Millisecond, "of the bubble's clock")
			seen, err := pages.Overview(t.Context(), admin.Actor{ID: "mei"})
			require.NoError(t, err)
			require.Empty(t, seen.Health.Database, "the pages do not take the database for silent")
			require.NotEmpty(t, seen.Health.Queue)
			time.Sleep(time.Until(asked.Add(2 * time.Second)))
		}
		require.NoError(t, c.Close())
	})
}

func TestQueueThatNewFoundDownIsToldToAnswerAgainAfterTheTimeSinceNew(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg := w.QuickConfig()
	proxy := w.ThroughProxy(&cfg)
	proxy.Refuse()
	lines := harness.CaptureLog(&cfg)
	c := w.New(cfg)
	lines.Contains(w, "the queue cannot be used")
	harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	proxy.Heal()
	line := lines.Contains(w, "the queue answers again", "after=")
	require.NotContains(t, line, "after=2562047h", "it was not away since the year 1")
}
