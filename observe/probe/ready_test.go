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
	"sync"
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
	ready, whole := probe.Ready(time.Minute, c), probe.Health(time.Minute, c)

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
		status, body := ask(t, probe.Ready(0, of), http.MethodGet)
		assert.Equal(t, c.status, status, name)
		assert.Equal(t, c.ready, body, name)
		status, body = ask(t, probe.Health(0, of), http.MethodGet)
		assert.Equal(t, c.status, status, name)
		assert.Equal(t, c.status == http.StatusOK, body["ready"], name)
		assert.Contains(t, body, "oldest_overdue_seconds", name)
	}
}

// Failure: F85
func TestProbeWaitsNoLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	silent := health(func(ctx context.Context) observe.Health {
		<-ctx.Done()
		return observe.Health{Database: ctx.Err()}
	})
	for _, timeout := range []time.Duration{0, time.Millisecond} {
		status, body := ask(t, probe.Ready(timeout, silent), http.MethodGet)
		assert.Equal(t, http.StatusServiceUnavailable, status)
		assert.Equal(t, "database", body["because"])
		_, body = ask(t, probe.Health(timeout, silent), http.MethodGet)
		assert.Equal(t, "database: context deadline exceeded", body["not_ready"])
	}
}

type named struct {
	name string
	health
}

func (n named) Name() string { return n.name }

func is(h observe.Health) health { return func(context.Context) observe.Health { return h } }

// Failure: F85
func TestProbeOfSeveralLogsNamesThoseThatAreNotReady(t *testing.T) {
	t.Parallel()
	well, down := is(observe.Health{OldestOverdue: time.Minute}), is(observe.Health{Database: errors.New("no route")})
	for reasons, logs := range map[string][]probe.Log{
		"":                                  {named{"orders", well}, named{"stock", well}},
		"stock: database":                   {named{"orders", well}, named{"stock", down}},
		"orders: database, stock: run":      {named{"orders", down}, named{"stock", is(observe.Health{Handlers: 1})}},
		"log 2: database":                   {well, down},
		"orders: database, log 2: database": {named{"orders", down}, named{"orders", down}},
		"log 1: database, orders: database": {named{"", down}, named{"orders", down}},
	} {
		want, code := map[string]any{"ready": true}, http.StatusOK
		if reasons != "" {
			want, code = map[string]any{"ready": false, "because": reasons}, http.StatusServiceUnavailable
		}
		status, body := ask(t, probe.Ready(time.Minute, logs...), http.MethodGet)
		assert.Equal(t, code, status, reasons)
		assert.Equal(t, want, body, reasons)
		status, body = ask(t, probe.Health(time.Minute, logs...), http.MethodGet)
		assert.Equal(t, code, status, reasons)
		assert.Equal(t, code == http.StatusOK, body["ready"], reasons)
		assert.Len(t, body["logs"], 2, reasons)
	}
	_, body := ask(t, probe.Health(time.Minute, named{"orders", well}, named{"stock", down}), http.MethodGet)
	logs := body["logs"].(map[string]any)
	assert.Equal(t, map[string]any{"ready": true, "handlers": 0.0, "running": false, "oldest_overdue_seconds": 60.0}, logs["orders"])
	assert.Equal(t, "no route", logs["stock"].(map[string]any)["database"])
}

// Each log waits until every log has been asked.
// Failure: F85
func TestProbeAsksAllLogsAtTheSameTimeUnderOneDeadline(t *testing.T) {
	t.Parallel()
	const logs = 4
	var asked sync.WaitGroup
	asked.Add(logs)
	deadlines := make(chan time.Time, logs)
	meets := health(func(ctx context.Context) observe.Health {
		deadline, _ := ctx.Deadline()
		deadlines <- deadline
		asked.Done()
		asked.Wait()
		return observe.Health{}
	})
	status, _ := ask(t, probe.Ready(time.Minute, meets, meets, meets, meets), http.MethodGet)
	assert.Equal(t, http.StatusOK, status)
	first := <-deadlines
	for range logs - 1 {
		assert.Equal(t, first, <-deadlines)
	}
}

// The package net/http recovers only in the goroutine of the request. A panic in any other goroutine would end the
// process.
// Failure: F85
func TestLogThatPanicsFailsItsProbeAlone(t *testing.T) {
	t.Parallel()
	well, panics := is(observe.Health{}), health(func(context.Context) observe.Health { panic("broken") })
	for _, logs := range [][]probe.Log{{panics}, {panics, well}, {well, panics}} {
		assert.PanicsWithValue(t, "broken", func() { ask(t, probe.Ready(time.Minute, logs...), http.MethodGet) })
	}
	for _, logs := range [][]probe.Log{{}, {nil}, {well, nil}} {
		assert.Panics(t, func() { probe.Ready(time.Minute, logs...) })
		assert.Panics(t, func() { probe.Health(time.Minute, logs...) })
	}
}

// A readiness probe of Kubernetes with timeoutSeconds: 2 is answered in time, even if the database does not answer.
func ExampleReady() {
	c, err := compensator.New(context.Background(), compensator.Config{Store: compensatortest.NewMemoryStore()})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", probe.Ready(1500*time.Millisecond, c))
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 200 {"ready":true}
}

// A service with two databases has one probe for both.
func ExampleReady_twoDatabases() {
	var logs []probe.Log
	for _, name := range []string{"orders", "stock"} {
		c, err := compensator.New(context.Background(), compensator.Config{Name: name, Store: compensatortest.NewMemoryStore()})
		if err != nil {
			panic(err)
		}
		logs = append(logs, c)
	}
	handle := func(context.Context, *compensator.Entry, int) error { return nil }
	if _, err := compensator.Handle(context.Background(), logs[1].(*compensator.Compensator), "reserve", handle, nil); err != nil {
		panic(err)
	}
	answer := httptest.NewRecorder()
	probe.Ready(time.Second, logs...).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 503 {"ready":false,"because":"stock: run"}
}

// The head of the request announces a body that never comes.
// Failure: F133
func TestProbeWaitsForNoBody(t *testing.T) {
	t.Parallel()
	well := health(func(context.Context) observe.Health { return observe.Health{} })
	for name, handler := range map[string]http.Handler{"ready": probe.Ready(0, well), "health": probe.Health(0, well)} {
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
