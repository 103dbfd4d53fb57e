package observe

import (
	"context"
	"sync/atomic"
)

type traceSlot struct{}

// WithTrace returns a context for one attempt, in which SetTrace can store the trace id of the attempt. If the attempt
// fails, the library keeps this id with the failed attempt. The library calls WithTrace if failed attempts are kept
// (Operations.Attempts).
func WithTrace(ctx context.Context) context.Context {
	return context.WithValue(ctx, traceSlot{}, new(atomic.Pointer[string]))
}

// SetTrace stores the trace id of an attempt. The function id returns the trace id, which has at most 32 characters.
// Call SetTrace from a middleware, with the context of the attempt or a context derived from it. SetTrace calls id only
// if failed attempts are kept (Operations.Attempts).
func SetTrace(ctx context.Context, id func() string) {
	if slot, ok := ctx.Value(traceSlot{}).(*atomic.Pointer[string]); ok {
		traceID := id()
		slot.Store(&traceID)
	}
}

// TraceOf returns the id that SetTrace has set, or an empty text.
func TraceOf(ctx context.Context) string {
	if slot, ok := ctx.Value(traceSlot{}).(*atomic.Pointer[string]); ok {
		if traceID := slot.Load(); traceID != nil {
			return *traceID
		}
	}
	return ""
}
