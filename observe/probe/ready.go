// Package probe answers who asks over HTTP how a process is. It is a room of its own so that nobody else links net/http.
package probe

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/compensator-go/compensator/observe"
)

// Asked is what is asked: a *compensator.Compensator.
type Asked interface {
	Health(context.Context) observe.Health
}

// Ready answers a readiness probe: 200 and {"ready":true} where Health.Ready is nil, otherwise 503 and {"ready":false} with a word
// for why under "because": "database" does not answer, "history" is lost (ErrHistoryLost), or "run" is not at work. It names
// nothing else, so it may stand where the public reaches it. patience is how long the database may take to answer, and the queue half as
// long: less than the prober waits; 0 is a second. A process whose database has not answered by then is not ready. Each request
// asks anew, in a statement or two. It is no liveness probe: a restart mends nothing of this.
func Ready(of Asked, patience time.Duration) http.Handler {
	type answer struct {
		Ready   bool   `json:"ready"`
		Because string `json:"because,omitempty"`
	}
	return handler(of, patience, func(health observe.Health) any { return answer{health.Ready() == nil, because(health)} })
}

// Health is Ready with all of the Health as its body, in JSON. That names business types and errors, which hold addresses
// and whatever handlers say: keep it from the public.
func Health(of Asked, patience time.Duration) http.Handler {
	return handler(of, patience, func(health observe.Health) any { return health })
}

// because is a word for why Health.Ready is not nil.
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

// lingerTime is how long a client may go on sending a body that nobody reads, once the answer is out.
const lingerTime = time.Second

// handler reads no body. It answers at once, and closes the connection of a request that has one: net/http would read the body
// before the answer, however slowly it arrives.
func handler(of Asked, patience time.Duration, body func(observe.Health) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
			defer func() {
				control := http.NewResponseController(w)
				_ = control.Flush()
				_ = control.SetReadDeadline(time.Now().Add(lingerTime)) // net/http reads on before it closes
			}()
		}
		ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(patience, time.Second))
		defer cancel()
		health := of.Health(ctx)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if health.Ready() != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(body(health)) // who asked may be gone
	})
}
