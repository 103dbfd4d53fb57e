// Package probe serves the readiness and the health of a process over HTTP. It is a separate package so that programs
// without it do not link net/http.
package probe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Asked returns the Health that this package serves. *compensator.Compensator implements it.
type Asked interface {
	Health(context.Context) observe.Health
}

// Ready returns a handler for a readiness probe. If Health.Ready returns nil, the handler answers 200 and
// {"ready":true}. Otherwise it answers 503 and {"ready":false}, with a reason in the field "because":
//
//   - "database": the database does not answer.
//   - "history": the database was rolled back, and the process has stopped (ErrHistoryLost, Config.StopOnLoss).
//   - "run": Run is not running.
//
// The answer holds nothing else, so it may be public.
//
// timeout is how long the database may take to answer. The queue has half of this time. Choose a timeout shorter than
// the timeout of the prober. 0 means one second. If the database has not answered by then, the process is not ready.
// Each request sends one or two statements to the servers. Do not use Ready as a liveness probe, because a restart
// solves none of these problems.
func Ready(of Asked, timeout time.Duration) http.Handler {
	type answer struct {
		Ready   bool   `json:"ready"`
		Because string `json:"because,omitempty"`
	}
	return handler(of, timeout, func(health observe.Health) any { return answer{health.Ready() == nil, because(health)} })
}

// Health returns a handler that works like Ready, with the whole Health as JSON in the body. The body names business
// types and errors, and errors contain addresses and texts of handlers. So do not make it public.
func Health(of Asked, timeout time.Duration) http.Handler {
	return handler(of, timeout, func(health observe.Health) any { return health })
}

// because returns one word for the reason why Health.Ready is not nil.
func because(health observe.Health) string {
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

// lingerTime is how long a client may continue to send a body after the answer was sent.
const lingerTime = time.Second

// handler returns a handler that answers at once and reads no body. If the request has a body, the handler closes the
// connection after the answer. Otherwise net/http would first read the body, however slowly it arrives.
func handler(of Asked, timeout time.Duration, body func(observe.Health) any) http.Handler {
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
		health := of.Health(ctx)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if health.Ready() != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(body(health)) // Ignore the error: the client may have disconnected.
	})
}
