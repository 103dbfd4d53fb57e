package intake

import (
	"errors"
	"fmt"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/operating"
)

// errSlow is the cause of a transaction's context that exceeded Config.Timeout.
var errSlow = errors.New("intake: the batch's transaction took too long")

// Fault returns an error that names the failed message of a batch. If Work returns it, the batch is not halved.
func Fault(m *Message, err error) error {
	if err == nil {
		err = errors.New("no reason given")
	}
	return &faultError{id: m.ID, err: err}
}

type faultError struct {
	id  string
	err error
}

func (e *faultError) Error() string { return fmt.Sprintf("message %s: %v", e.id, e.err) }
func (e *faultError) Unwrap() error { return e.err }

// workError is an error of Work in a transaction that still takes writes. The message is the cause, not the database.
type workError struct{ err error }

func (e *workError) Error() string { return e.err.Error() }
func (e *workError) Unwrap() error { return e.err }

// serverDown reports whether err says that a server serves no requests or no writes. Work may get it from any database.
// It is no fault of a message, unless Work returns a verdict or has taken too long.
func serverDown(err error) bool {
	return !errors.Is(err, errSlow) && compensator.VerdictOf(err) == compensator.VerdictFailure && operating.ServerDown(err)
}

func failure(operation string, err error) error { return fmt.Errorf("intake: %s: %w", operation, err) }

// knownElsewhere returns the idempotency keys in an error of Record that belong to entries of another type. These are
// the same messages, which were set aside before, or which are no longer set aside.
func knownElsewhere(err error) map[compensator.IdempotencyKey]bool {
	known := make(map[compensator.IdempotencyKey]bool)
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) {
		case *compensator.OtherTypeError:
			known[e.IdempotencyKey] = true
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}
	walk(err)
	return known
}
