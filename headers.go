package compensator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"unicode/utf8"

	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Propagator carries values from the context of Record to the context of the handler. Its methods are called
// concurrently. Extract also gets Options.Headers. If Extract panics or returns nil, the library logs this, and the
// handler runs without the values.
type Propagator interface {
	// Inject returns the headers to store with an entry. nil stores none.
	Inject(ctx context.Context) map[string]string

	// Extract returns ctx with the values that it reads from the headers of an entry.
	Extract(ctx context.Context, headers map[string]string) context.Context
}

type headers struct {
	propagated map[string]string // set by the propagator
	encoded    []byte            // the headers in propagated as JSON, for all entries without Options.Headers
}

func (c *Compensator) headers(ctx context.Context) (h headers, err error) {
	defer refusePanic("headers", &err)
	if c.cfg.Propagator == nil {
		return headers{}, nil
	}
	h.propagated = c.cfg.Propagator.Inject(ctx)
	h.encoded, err = encodeHeaders(h.propagated)
	return h, err
}

func (h headers) merge(chosen map[string]string) ([]byte, error) {
	if len(chosen) == 0 {
		return h.encoded, nil
	}
	values := make(map[string]string, len(h.propagated)+len(chosen))
	for name, value := range chosen {
		if _, taken := h.propagated[name]; taken {
			return nil, refuseHeaders("%q is set by the propagator, too", name)
		}
		if name == "" || !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, refuseHeaders("%q: want a name, and valid UTF-8", name)
		}
		values[name] = value
	}
	maps.Copy(values, h.propagated)
	return encodeHeaders(values)
}

func encodeHeaders(values map[string]string) ([]byte, error) {
	if len(values) == 0 {
		return nil, nil
	}
	encoded, err := json.Marshal(values)
	if err == nil && len(encoded) > processlog.MaxHeaders {
		err = refuseHeaders("%d bytes as JSON, at most %d", len(encoded), processlog.MaxHeaders)
	}
	return encoded, err
}

func refuseHeaders(reason string, args ...any) error {
	return &FieldError{Field: "headers", Reason: fmt.Sprintf(reason, args...)}
}

// extract returns base if the propagator panics or returns no context.
func (c *Compensator) extract(base context.Context, headers map[string]string) (ctx context.Context) {
	if c.cfg.Operations != nil && c.cfg.Operations.Attempts {
		base = observe.WithTrace(base)
	}
	if c.cfg.Propagator == nil {
		return base
	}
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("compensator: propagator panicked", "panic", usererr.PanicText(p))
			ctx = base
		}
	}()
	if ctx = c.cfg.Propagator.Extract(base, headers); ctx == nil {
		c.log.Error("compensator: propagator returned no context")
		return base
	}
	return ctx
}
