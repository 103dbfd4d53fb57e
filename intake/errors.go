package intake

import (
	"errors"
	"fmt"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/operating"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// errSlow is the cause with which a transaction's context ends after Config.Timeout.
var errSlow = errors.New("intake: the batch's transaction took too long")

// Fault returns an error that says which message of a batch failed. If Work returns it, the Intake need not halve the
// batch.
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

// workError is an error of Work in a transaction that still accepts writes, so the message is the cause.
type workError struct{ err error }

func (e *workError) Error() string { return e.err.Error() }
func (e *workError) Unwrap() error { return e.err }

// serverDown returns false if Work returned a verdict or took too long.
func serverDown(err error) bool {
	return !errors.Is(err, errSlow) && compensator.VerdictOf(err) == observe.Failure && operating.ServerDown(err)
}

// sessionRefused reports whether err says that the log refuses the database session, for example for its sql_mode. It
// returns false if Work returned err, because Work then has changed the session itself and another session does not
// help.
func sessionRefused(err error) bool {
	var work *workError
	return processlog.IsSessionError(err) && !errors.As(err, &work)
}

func failure(operation string, err error) error { return fmt.Errorf("intake: %s: %w", operation, err) }

// knownElsewhere reads an error of Record. It returns the idempotency keys that already belong to entries of another
// type.
func knownElsewhere(err error) map[compensator.IdempotencyKey]bool {
	existing := make(map[compensator.IdempotencyKey]bool)
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) {
		case *compensator.OtherTypeError:
			existing[e.IdempotencyKey] = true
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}
	walk(err)
	return existing
}
