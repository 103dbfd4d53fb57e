// Package probe serves the readiness and the health of a process over HTTP. It is a separate package so that programs
// without it do not link net/http.
package probe

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/compensator-go/compensator/observe"
)

// Asked returns the Health to serve. *compensator.Compensator implements it.
type Asked interface {
	Health(context.Context) observe.Health
}

// Ready answers a readiness probe. If Health.Ready is nil it answers 200 and {"ready":true}. Otherwise it answers 503
// and {"ready":false} with a reason under "because": "database" does not answer, "history" is lost (ErrHistoryLost), or
// "run" is not running. The answer holds nothing else, so Ready may be public.
//
// timeout is how long the database may take to answer. The queue has half of it. Choose it shorter than the timeout of
// the prober. 0 means one second. A process whose database has not answered by then is not ready. Each request asks the
// servers again, with one or two statements. Do not use Ready as a liveness probe: a restart mends none of these
// problems.
func Ready(of Asked, timeout time.Duration) http.Handler {
	type answer struct {
		Ready   bool   `json:"ready"`
		Because string `json:"because,omitempty"`
	}
	return handler(of, timeout, func(health observe.Health) any { return answer{health.Ready() == nil, because(health)} })
}

// Health works as Ready, with the whole Health as JSON in the body. The body names business types and errors, and
// errors hold addresses and texts of handlers. Keep it from the public.
func Health(of Asked, timeout time.Duration) http.Handler {
	return handler(of, timeout, func(health observe.Health) any { return health })
}

// because returns the reason why Health.Ready is not nil, in one word.
func because(health observe.Health) string {
	switch {
	case health.Ready() == nil:
		return ""
	case health.Database != nil:
		return "database"
	case health.History != nil:
		return "history"
	}
	return "run"
}

// lingerTime is how long a client may go on sending a body after the answer was sent.
const lingerTime = time.Second

// handler reads no body. It answers at once. If the request has a body, it closes the connection. Otherwise net/http
// would read the body before it sends the answer, however slowly the body arrives.
func handler(of Asked, timeout time.Duration, body func(observe.Health) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
			defer func() {
				control := http.NewResponseController(w)
				_ = control.Flush()
				_ = control.SetReadDeadline(time.Now().Add(lingerTime)) // net/http reads on before it closes
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
		_ = json.NewEncoder(w).Encode(body(health)) // the client may have gone
	})
}
