package rabbitmq

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator"
)

// Config says how a Publisher reaches its broker. Only URL is required. Open copies it, fills in the defaults named
// below, and reports everything wrong with it at once, as *compensator.FieldError.
type Config struct {
	// URL of the broker: "amqp://user:password@host:5672/vhost", or amqps. It is never logged.
	URL string

	// AMQP is what the URL cannot say: TLS, SASL, properties. Its Dial replaces how a TCP connection is made. Heartbeat:
	// default 10 s.
	AMQP amqp091.Config

	// Channels is how many messages, or batches, are under way at once: no more than the broker's channel_max. Default
	// 50, as many as a type's handlers.
	Channels int

	// Timeout is how long one message, or a batch, may wait for a connection, for a blocked one to go on, and for its
	// confirms; then it is Unavailable. A handler's own context may end sooner. Default 10 s.
	Timeout time.Duration

	// CountUnavailable makes it a failure of the entry, tried again by the type's schedule and counted by its
	// MaxProcessCount, when the broker is away, or does not confirm in time, or confirms with a nack, as a full queue
	// that rejects does. Otherwise these are compensator.Unavailable, which spends no attempt.
	CountUnavailable bool

	// Logger gets what an operator should know; content is never logged. Default slog.Default().
	Logger *slog.Logger
}

func (cfg Config) withDefaults() Config {
	setDefault(&cfg.Channels, 50)
	setDefault(&cfg.Timeout, 10*time.Second)
	setDefault(&cfg.Logger, slog.Default())
	return cfg
}

func (cfg Config) validate() error {
	problems := urlProblems(cfg.URL)
	refuse := func(bad bool, field, reason string) { problems = append(problems, fieldProblem(bad, field, reason)) }
	refuse(cfg.Channels < 1 || cfg.Channels > 2000, "Channels", fmt.Sprintf("%d: want 1 to 2,000", cfg.Channels))
	refuse(cfg.Timeout < time.Millisecond, "Timeout", fmt.Sprintf("%v is less than 1 ms", cfg.Timeout))
	return errors.Join(problems...)
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

// urlProblems repeats nothing of the URL, which holds a password.
func urlProblems(url string) []error {
	if url == "" {
		return []error{fieldProblem(true, "URL", "is missing")}
	}
	_, err := amqp091.ParseURI(url)
	return []error{fieldProblem(err != nil, "URL", "is none of the form amqp://user:password@host:port/vhost")}
}
