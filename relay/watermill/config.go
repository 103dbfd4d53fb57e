package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator"
)

// Config configures a Publisher. NewPublisher copies it, fills in the defaults named below, and reports all invalid
// fields at once, each as a *compensator.FieldError.
type Config struct {
	// Timeout limits how long one message or batch may wait for Publish to return. See ErrNoAnswer. A handler's own
	// context may end sooner. Default 10 s.
	Timeout time.Duration

	// Concurrency is the maximum number of concurrent calls of Publish, so that a slow broker does not get ever more
	// messages. Default 50, the default number of handlers of a type.
	//
	// A call counts until it returns, also after its timeout. watermill cannot cancel a call, so a call that never
	// returns keeps its slot until the process ends. When all slots are taken, every entry is put off with ErrNoAnswer,
	// which costs no attempt. Health reports how many calls are active. Only a restart helps then.
	Concurrency int

	// Judge converts an error of Publish into a handler's error. An error without a verdict is a failure: the type's
	// schedule decides when to try again, and MaxProcessCount counts the attempt. compensator.Permanent, RetryAfter and
	// Unavailable keep their meaning. Nil means success. Judge is called concurrently.
	//
	// Judge also gets ErrNoAnswer, once for each message of a batch. It does not get a panic of Publish, which is a
	// failure. It does not get messages for which Publish was not called, because they cost no attempt.
	//
	// By default an error that Publish returns as Permanent or Snooze keeps its meaning. All other errors become
	// Unavailable and cost no attempt. watermill does not distinguish an unreachable broker from a refused message, and
	// an outage must not use up the attempts of all entries. So a message that the broker refuses waits forever, with
	// the reason as LastError. Set Judge so that such a message gets to a person.
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
