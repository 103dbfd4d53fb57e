package otel

import (
	"context"
	"errors"

	"github.com/compensator-go/compensator"
)

// What error.type says; beside these, the words of Options.ErrorType.
const (
	typePanic       = "panic"
	typePermanent   = "permanent"
	typeTimeout     = "timeout"
	typeLeaseLost   = "lease_lost"
	typeCancelled   = "cancelled"
	typeStopping    = "stopping"
	typeUnavailable = "unavailable"
	typeFailed      = "failed"
)

// errorType is a word for how an attempt has failed; "": it has not, and neither has one that was snoozed.
func (t *Telemetry) errorType(ctx context.Context, err error) (word string) {
	if err == nil {
		return ""
	}
	word = typeFailed // should a method of the error panic
	defer survive()
	verdict, cause := compensator.VerdictOf(err), context.Cause(ctx)
	switch {
	case verdict == compensator.VerdictPermanent:
		word = typePermanent
	case verdict == compensator.VerdictSnooze:
		word = ""
	case isPanic(err):
		word = typePanic
	case errors.Is(cause, compensator.ErrTimeout):
		word = typeTimeout
	case errors.Is(cause, compensator.ErrLeaseLost):
		word = typeLeaseLost
	case errors.Is(cause, compensator.ErrCancelled):
		word = typeCancelled
	case errors.Is(cause, compensator.ErrStopping):
		word = typeStopping
	case verdict == compensator.VerdictUnavailable:
		word = typeUnavailable
	default:
		word = t.ownErrorType(err)
	}
	return word
}

// mostWrapped bounds how deep isPanic looks: an error of a handler's may unwrap to itself.
const mostWrapped = 100

// isPanic reports whether an error is, or wraps, a panic that somebody has recovered from.
func isPanic(err error) bool {
	for range mostWrapped {
		if _, panicked := err.(*compensator.PanicError); panicked || err == nil {
			return panicked
		}
		err = errors.Unwrap(err)
	}
	return false
}

const maxErrorType = 64 // bytes

func (t *Telemetry) ownErrorType(err error) (word string) {
	word = typeFailed
	if t.opts.ErrorType == nil {
		return word
	}
	defer survive()
	switch own := t.opts.ErrorType(err); {
	case own == "":
	case len(own) > maxErrorType:
		word = other
	default:
		word, _ = t.errorTypes.of(own)
	}
	return word
}

// errorText is what a span may say of an error.
func (t *Telemetry) errorText(err error) (text string) {
	if t.opts.ErrorText == nil || err == nil {
		return ""
	}
	defer survive()
	return t.opts.ErrorText(err.Error())
}
