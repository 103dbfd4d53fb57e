package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator"
)

// Config says how a Publisher treats the message.Publisher behind it. NewPublisher copies it, fills in the defaults
// named below, and reports everything wrong with it at once, as *compensator.FieldError.
type Config struct {
	// Timeout is how long one message, or a batch, may wait for Publish to return; see ErrNoAnswer. A handler's own
	// context may end sooner. Default 10 s.
	Timeout time.Duration

	// Concurrency is how many calls of Publish are under way at once, also those that nobody waits for any more: a broker
	// that is slow is not given more and more. Default 50, as many as a type's handlers. A call that never returns keeps its
	// place for as long as the process lives, for watermill has no way to end it: once all are taken every entry is put off with
	// ErrNoAnswer, which counts nothing, and Health's Problems say how many are under way. Only a restart helps then.
	Concurrency int

	// Judge makes a handler's outcome of an error of Publish: the error itself is a failure, tried again by the type's
	// schedule and counted by its MaxProcessCount; compensator.Permanent, RetryAfter, Unavailable say what they say; nil
	// is success. It is called concurrently. The silence of a Publish, ErrNoAnswer, is judged, too: of a batch for each of its
	// messages. A panic of Publish is not judged: it is a failure; nor is a message that no call was made for: it counts nothing.
	//
	// Default: what Publish itself says with Permanent or Snooze, and otherwise Unavailable, which spends no attempt: nothing in
	// watermill tells a broker that is away from a message that it will never take, and the one must not use up the
	// attempts of all. A message that its broker refuses waits then, with the reason as LastError; judge your broker's
	// errors, so that it gets to a person.
	Judge func(err error) error
}

func (cfg Config) withDefaults() Config {
	setDefault(&cfg.Timeout, 10*time.Second)
	setDefault(&cfg.Concurrency, 50)
	if cfg.Judge == nil {
		cfg.Judge = unavailable
	}
	return cfg
}

func (cfg Config) validate() error {
	return errors.Join(
		fieldProblem(cfg.Timeout < time.Millisecond, "Timeout", fmt.Sprintf("%v is less than 1 ms", cfg.Timeout)),
		fieldProblem(cfg.Concurrency < 1, "Concurrency", fmt.Sprintf("%d is less than 1", cfg.Concurrency)),
	)
}

// unavailable is the default of Config.Judge.
func unavailable(err error) error {
	if compensator.VerdictOf(err) != compensator.VerdictFailure {
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

func fieldProblem(bad bool, field, reason string) error {
	if !bad {
		return nil
	}
	return &compensator.FieldError{Field: field, Reason: reason}
}
