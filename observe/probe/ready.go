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

// Ready answers a readiness probe: 200 where Health.Ready is nil, 503 where it is not, and Health's JSON either way, which
// names errors and business types: keep it from the public. patience is how long database and queue may take to answer, less
// than the prober waits; 0 is a second. A database that has not answered by then is not ready. Each request asks anew, in a
// statement or two. of is a *compensator.Compensator. It is no liveness probe: a restart mends nothing of this.
func Ready(of interface {
	Health(context.Context) observe.Health
}, patience time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(patience, time.Second))
		defer cancel()
		health := of.Health(ctx)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if health.Ready() != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(health) // who asked may be gone
	})
}
