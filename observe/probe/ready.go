// Package probe serves the readiness and the health of a process over HTTP. It is a separate package so that programs
// without it do not link net/http.
package probe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Log is a log whose Health this package serves. *compensator.Compensator implements it. If a Log also has a method
// Name() string, as a Compensator does, the answer for several logs names the log.
type Log interface {
	// Health returns at the latest when the context ends, even if a server does not answer. It is called concurrently.
	Health(context.Context) observe.Health
}

// Ready returns a handler for a readiness probe. If Health.Ready returns nil for each of logs, the handler answers 200
// and {"ready":true}. Otherwise it answers 503 and {"ready":false}, with a reason in the field "because":
//
//   - "database": the database does not answer.
//   - "history": the database was rolled back, and the process has stopped (ErrHistoryLost, Config.StopOnLoss).
//   - "run": Run is not running.
//
// With several logs, "because" names each log that is not ready, for example "stock: database, orders: run". The name
// is Config.Name. A log without a name, or with the name of an earlier log, is called by its position, for example "log
// 2".
//
// The answer holds nothing else, so it may be public.
//
// timeout is how long the databases may take to answer. All logs are asked at the same time, and share the timeout. The
// queue of a log has half of this time. Each request sends one or two statements to the servers of each log. If a
// database has not answered when the timeout ends, the process is not ready. 0 means one second. Choose a timeout
// shorter than the timeout of the prober. Do not use Ready as a liveness probe, because a restart solves none of these
// problems.
//
// Ready panics if it gets no log, or a nil log. The handler may be called concurrently.
func Ready(timeout time.Duration, logs ...Log) http.Handler {
	type answer struct {
		Ready   bool   `json:"ready"`
		Because string `json:"because,omitempty"`
	}
	names := uniqueNames(logs)
	return newHandler(timeout, logs, func(results []observe.Health, ready bool) any {
		if len(results) == 1 {
			return answer{ready, notReadyReason(results[0])}
		}
		var reasons []string
		for i, health := range results {
			if reason := notReadyReason(health); reason != "" {
				reasons = append(reasons, names[i]+": "+reason)
			}
		}
		return answer{ready, strings.Join(reasons, ", ")}
	})
}

// Health returns a handler that works like Ready, with the whole Health as JSON in the body. With several logs the body
// has the fields "ready" and "logs". logs holds the Health of each log under its name.
//
// The body names business types and errors, and errors contain addresses and texts of handlers. So do not make it
// public.
func Health(timeout time.Duration, logs ...Log) http.Handler {
	type answer struct {
		Ready bool                      `json:"ready"`
		Logs  map[string]observe.Health `json:"logs"`
	}
	names := uniqueNames(logs)
	return newHandler(timeout, logs, func(results []observe.Health, ready bool) any {
		if len(results) == 1 {
			return results[0]
		}
		byName := make(map[string]observe.Health, len(results))
		for i, health := range results {
			byName[names[i]] = health
		}
		return answer{ready, byName}
	})
}

// uniqueNames panics if there is no log to ask.
func uniqueNames(logs []Log) []string {
	if len(logs) == 0 || slices.Contains(logs, nil) {
		panic("probe: no log is given, or a log is nil")
	}
	names := make([]string, len(logs))
	for i, log := range logs {
		if namedLog, ok := log.(interface{ Name() string }); ok {
			names[i] = namedLog.Name()
		}
		if names[i] == "" || slices.Contains(names[:i], names[i]) {
			names[i] = fmt.Sprintf("log %d", i+1)
		}
	}
	return names
}

func notReadyReason(health observe.Health) string {
	switch {
	case health.Ready() == nil:
		return ""
	case health.Database != nil:
		return "database"
	case errors.Is(health.Ready(), processlog.ErrHistoryLost):
		return "history"
	}
	return "run"
}

// lingerTime is how long a client may still send the body of a request after the handler has sent the answer.
const lingerTime = time.Second

// newHandler returns a handler that reports the health of logs. If a request has a body, the handler sends the answer
// and then closes the connection. If the connection stayed open, net/http would read the whole body, however slowly the
// body arrives.
func newHandler(timeout time.Duration, logs []Log, buildBody func(results []observe.Health, ready bool) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
			defer func() {
				control := http.NewResponseController(w)
				_ = control.Flush()
				_ = control.SetReadDeadline(time.Now().Add(lingerTime)) // Limit the time for which net/http still reads before it closes the connection.
			}()
		}
		ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(timeout, time.Second))
		defer cancel()
		results := readHealth(ctx, logs)
		ready := !slices.ContainsFunc(results, func(health observe.Health) bool { return health.Ready() != nil })
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(buildBody(results, ready)) // Ignore the error: the client may have disconnected.
	})
}

// readHealth asks all logs at the same time.
func readHealth(ctx context.Context, logs []Log) []observe.Health {
	results := make([]observe.Health, len(logs))
	panics := make([]any, len(logs))
	var reads sync.WaitGroup
	for i, log := range logs[1:] {
		reads.Go(func() {
			defer func() { panics[i+1] = recover() }()
			results[i+1] = log.Health(ctx)
		})
	}
	results[0] = logs[0].Health(ctx)
	reads.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p) // Panic in the goroutine of the request, where net/http recovers.
		}
	}
	return results
}
