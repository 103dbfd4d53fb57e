package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
)

// Config configures a Publisher. NewPublisher copies the Config, fills in the defaults named below, and reports all
// invalid fields at once, each as a *compensator.FieldError.
type Config struct {
	// Timeout limits how long the handler waits until Publish returns, for a message or a batch. When Timeout has
	// passed, the outcome is ErrNoAnswer. The context of the handler may end before Timeout has passed. The default is
	// 10 s.
	Timeout time.Duration

	// Concurrency is the maximum number of concurrent calls of Publish. The default is 50, like that of
	// compensator.HandlerConfig.Concurrency.
	//
	// A call of Publish occupies a slot until it returns, even after its timeout, because watermill cannot cancel a
	// call. A call that never returns keeps its slot until the process ends. When all slots are taken, every further
	// entry gets ErrNoAnswer and is tried later, which costs no attempt. Health reports how many calls of Publish are
	// active.
	Concurrency int

	// Judge gets an error of Publish and returns the error that the handler returns. The returned error means the same
	// as in any handler. So nil means success, and you can return Permanent, Snooze, RetryAfter and Unavailable of
	// package compensator. Any other error is a failure: the Retry of the type decides when to try again, and the
	// attempt counts towards MaxAttempts. Judge is called concurrently.
	//
	// If Publish did not return in time, Judge gets ErrNoAnswer, once for each message of a batch. Judge does not get
	// these:
	//   - a panic of Publish, which is always a failure
	//   - a message for which Publish was not called because no slot was free in time, which costs no attempt
	//
	// By default Permanent and Snooze mean the same as in a handler, and all other errors become Unavailable, which
	// costs no attempt. Watermill does not distinguish an unreachable broker from a refused message. An outage must not
	// use up the attempts of all entries. So by default a message that the broker refuses waits forever, with the
	// reason as LastError. If a person must see refused messages, set Judge, and return Permanent for them.
	Judge func(err error) error
}

func (cfg Config) withDefaults() Config {
	setDefault(&cfg.Timeout, 10*time.Second)
	setDefault(&cfg.Concurrency, 50)
	if cfg.Judge == nil {
		cfg.Judge = isUnavailable
	}
	return cfg
}

func (cfg Config) validate() error {
	return errors.Join(
		fieldProblem(cfg.Timeout < time.Millisecond, "Timeout", fmt.Sprintf("%v is less than 1 ms", cfg.Timeout)),
		fieldProblem(cfg.Concurrency < 1, "Concurrency", fmt.Sprintf("%d is less than 1", cfg.Concurrency)),
	)
}

func isUnavailable(err error) error {
	if compensator.VerdictOf(err) != observe.Failure {
		return err
	}
	return compensator.Unavailable(err)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func fieldProblem(isInvalid bool, field, reason string) error {
	if !isInvalid {
		return nil
	}
	return &compensator.FieldError{Field: field, Reason: reason}
}
