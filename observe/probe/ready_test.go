package probe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/observe/probe"
	"github.com/compensator-go/compensator/processlog"
)

type health func(ctx context.Context) observe.Health

func (h health) Health(ctx context.Context) observe.Health { return h(ctx) }

// ask sends a probe and returns the status and the body.
func ask(t *testing.T, h http.Handler, method string) (status int, body map[string]any) {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, "/readyz", nil))
	require.Equal(t, "application/json", answer.Header().Get("Content-Type"))
	require.Equal(t, "no-store", answer.Header().Get("Cache-Control"))
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &body))
	return answer.Code, body
}

// Failure: F85
func TestProbeSaysWhetherAProcessCanDoItsPart(t *testing.T) {
	t.Parallel()
	c, err := compensator.New(t.Context(), compensator.Config{Store: compensatortest.NewMemoryStore(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	ready, whole := probe.Ready(c, time.Minute), probe.Health(c, time.Minute)

	status, body := ask(t, ready, http.MethodGet)
	assert.Equal(t, http.StatusOK, status, "it only records")
	assert.Equal(t, map[string]any{"ready": true}, body)
	status, body = ask(t, whole, http.MethodGet)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, map[string]any{"ready": true, "handlers": 0.0, "running": false, "oldest_overdue_seconds": 0.0}, body)

	_, err = compensator.Handle(t.Context(), c, "mail", func(context.Context, *compensator.Entry, string) error { return nil }, nil)
	require.NoError(t, err)
	status, body = ask(t, ready, http.MethodGet)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, map[string]any{"ready": false, "because": "run"}, body)
	status, body = ask(t, whole, http.MethodGet)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, "handlers are registered, and Run is not at work", body["not_ready"])

	stop := compensatortest.Run(t, c)
	require.Eventually(t, func() bool { return c.Health(t.Context()).Running }, time.Minute, time.Millisecond)
	status, _ = ask(t, ready, http.MethodGet)
	assert.Equal(t, http.StatusOK, status)
	stop()
	status, _ = ask(t, ready, http.MethodGet)
	assert.Equal(t, http.StatusServiceUnavailable, status, "it is being stopped")
}

// Failure: F85
func TestProbeIsNotReadyForWhatKeepsAProcessFromItsPartAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		health observe.Health
		status int
		ready  map[string]any // the whole body; it must name no type and no error
	}{
		"no database":        {observe.Health{Database: errors.New("no route")}, http.StatusServiceUnavailable, map[string]any{"ready": false, "because": "database"}},
		"a loss that stops":  {observe.Health{History: &processlog.LossError{Stopped: true}}, http.StatusServiceUnavailable, map[string]any{"ready": false, "because": "history"}},
		"a reported loss":    {observe.Health{History: &processlog.LossError{}}, http.StatusOK, map[string]any{"ready": true}},
		"a loss, and no Run": {observe.Health{History: &processlog.LossError{}, Handlers: 1}, http.StatusServiceUnavailable, map[string]any{"ready": false, "because": "run"}},
		"no Redis":           {observe.Health{Queue: errors.New("refused")}, http.StatusOK, map[string]any{"ready": true}},
		"a backlog":          {observe.Health{OldestOverdue: time.Hour}, http.StatusOK, map[string]any{"ready": true}},
		"an open breaker":    {observe.Health{OpenBreakers: []observe.OpenBreaker{{BusinessType: "mail", Err: errors.New("down")}}}, http.StatusOK, map[string]any{"ready": true}},
	} {
		of := health(func(context.Context) observe.Health { return c.health })
		status, body := ask(t, probe.Ready(of, 0), http.MethodGet)
		assert.Equal(t, c.status, status, name)
		assert.Equal(t, c.ready, body, name)
		status, body = ask(t, probe.Health(of, 0), http.MethodGet)
		assert.Equal(t, c.status, status, name)
		assert.Equal(t, c.status == http.StatusOK, body["ready"], name)
		assert.Contains(t, body, "oldest_overdue_seconds", name)
	}
}

// TestProbeWaitsNoLongerThanItsTimeout asks a database that never answers, under a context that ends.
// Failure: F85
func TestProbeWaitsNoLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	silent := health(func(ctx context.Context) observe.Health {
		<-ctx.Done()
		return observe.Health{Database: ctx.Err()}
	})
	for _, timeout := range []time.Duration{0, time.Millisecond} {
		status, body := ask(t, probe.Ready(silent, timeout), http.MethodGet)
		assert.Equal(t, http.StatusServiceUnavailable, status)
		assert.Equal(t, "database", body["because"])
		_, body = ask(t, probe.Health(silent, timeout), http.MethodGet)
		assert.Equal(t, "database: context deadline exceeded", body["not_ready"])
	}
}

// A readiness probe of Kubernetes with timeoutSeconds: 2 is answered in time, even if the database does not answer.
func ExampleReady() {
	c, err := compensator.New(context.Background(), compensator.Config{Store: compensatortest.NewMemoryStore()})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", probe.Ready(c, 1500*time.Millisecond))
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 200 {"ready":true}
}

// TestProbeWaitsForNoBody sends the head of a request with a body, and never sends the body. The answer must come at
// once, and the connection must be closed after it.
// Failure: F133
func TestProbeWaitsForNoBody(t *testing.T) {
	t.Parallel()
	well := health(func(context.Context) observe.Health { return observe.Health{} })
	for name, handler := range map[string]http.Handler{"ready": probe.Ready(well, 0), "health": probe.Health(well, 0)} {
		server := httptest.NewServer(handler)
		defer server.Close()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nslowly..")
		require.NoError(t, err)
		all, err := io.ReadAll(conn)
		require.NoError(t, err, name)
		assert.Contains(t, string(all), "HTTP/1.1 200 OK", name)
		assert.Contains(t, string(all), `"ready":true`, name)
	}
}
