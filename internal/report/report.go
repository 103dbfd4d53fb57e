// Package report lets what lies beneath an interface, or beneath package sql, tell of a failure that has no caller.
// A leaf: whom it tells travels in the context.
package report

import (
	"context"
	"time"
)

// What is told.
const (
	Session = "a pooled connection was thrown away"
	Listen  = "notifications of other processes are not received"
)

// Interval is how often the same cause is logged at most.
const Interval = time.Minute

// Receiver is told what fails, and with a nil err that it works.
type Receiver interface{ Reported(what string, err error) }

type key struct{}

// To returns a context that leads reports to r.
func To(ctx context.Context, r Receiver) context.Context { return context.WithValue(ctx, key{}, r) }

// Send tells whoever ctx says; false: nobody.
func Send(ctx context.Context, what string, err error) bool {
	r, ok := ctx.Value(key{}).(Receiver)
	if ok {
		r.Reported(what, err)
	}
	return ok
}
