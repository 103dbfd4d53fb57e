// Package report carries failures from code that has no caller to return them to.
package report

import (
	"context"
	"time"
)

const (
	Session = "a pooled connection was thrown away"
	Listen  = "notifications of other processes are not received"
)

// Interval is the minimum time between two log lines about the same cause.
const Interval = time.Minute

// Receiver receives reports about operations. The first argument of Reported is the name of an operation, for example
// the constant Session. The second argument is the error of the operation. A nil error says that the operation works
// again.
type Receiver interface{ Reported(what string, err error) }

type key struct{}

// To returns a context that sends reports to r.
func To(ctx context.Context, r Receiver) context.Context { return context.WithValue(ctx, key{}, r) }

// Send passes the arguments what and err to the Receiver in the context ctx. It returns false if ctx has no Receiver.
func Send(ctx context.Context, what string, err error) bool {
	r, ok := ctx.Value(key{}).(Receiver)
	if ok {
		r.Reported(what, err)
	}
	return ok
}
