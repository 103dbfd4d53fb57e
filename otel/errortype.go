package otel

import (
	"context"
	"errors"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
)

// Options.ErrorType may add other values of error.type.
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

// errorType returns "" for a success and for a snooze.
func (t *Telemetry) errorType(ctx context.Context, err error) (errorType string) {
	if err == nil {
		return ""
	}
	errorType = typeFailed // A method of the error has panicked.
	defer survive()
	verdict, cause := compensator.VerdictOf(err), context.Cause(ctx)
	switch {
	case verdict == observe.Permanent:
		errorType = typePermanent
	case verdict == observe.Snooze:
		errorType = ""
	case isPanic(err):
		errorType = typePanic
	case errors.Is(cause, compensator.ErrTimeout):
		errorType = typeTimeout
	case errors.Is(cause, compensator.ErrLeaseLost):
		errorType = typeLeaseLost
	case errors.Is(cause, compensator.ErrCancelled):
		errorType = typeCancelled
	case errors.Is(cause, compensator.ErrStopping):
		errorType = typeStopping
	case verdict == observe.Unavailable:
		errorType = typeUnavailable
	default:
		errorType = t.ownErrorType(err)
	}
	return errorType
}

// mostWrapped is the maximum number of errors that isPanic unwraps. Without a maximum, an error that unwraps to itself
// would keep isPanic busy without end.
const mostWrapped = 100

func isPanic(err error) bool {
	for range mostWrapped {
		if _, panicked := err.(*compensator.PanicError); panicked || err == nil {
			return panicked
		}
		err = errors.Unwrap(err)
	}
	return false
}

const maxErrorType = 64 // maximum length of a word of Options.ErrorType, in bytes

func (t *Telemetry) ownErrorType(err error) (errorType string) {
	errorType = typeFailed
	if t.opts.ErrorType == nil {
		return errorType
	}
	defer survive()
	switch own := t.opts.ErrorType(err); {
	case own == "":
	case len(own) > maxErrorType:
		errorType = other
	default:
		errorType, _ = t.errorTypes.canonical(own)
	}
	return errorType
}

func (t *Telemetry) errorText(err error) (text string) {
	if t.opts.ErrorText == nil || err == nil {
		return ""
	}
	defer survive()
	return t.opts.ErrorText(err.Error())
}
