package rabbitmq

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/compensator-go/compensator"
)

// Config configures a Publisher. Only URL is required. Open copies the Config, fills in the defaults named below, and
// reports all invalid fields at once, each as a *compensator.FieldError.
type Config struct {
	// URL is the address of the broker: "amqp://user:password@host:5672/vhost", or amqps. The library never logs it.
	URL string

	// AMQP holds the settings that the URL cannot express: TLS, SASL, client properties. AMQP.Dial replaces the function
	// that opens the TCP connection. AMQP.Heartbeat defaults to 10 s.
	AMQP amqp091.Config

	// Channels is the maximum number of messages or batches that wait for the broker's confirm at the same time. If the
	// broker's channel_max is smaller, channel_max applies. The default is 50, like that of
	// compensator.HandlerConfig.Concurrency.
	Channels int

	// Timeout limits how long the publishing of one message or batch may take. Timeout includes the waits for a
	// connection, for a broker that blocks publishers, and for the confirms. When Timeout has passed, the outcome is
	// Unavailable. The context of the handler may end before Timeout has passed. The default is 10 s.
	Timeout time.Duration

	// CountUnavailable counts failures of the broker as failed attempts of the entry. By default a failure of the
	// broker is compensator.Unavailable and costs no attempt. The broker fails if it is unreachable, does not confirm
	// in time, or answers with a nack. A full queue that rejects messages answers with a nack. With CountUnavailable,
	// such a failure counts towards MaxAttempts, and the Retry of the type decides when to try again.
	CountUnavailable bool

	// Logger receives messages for operators, never with the content of a message. Default slog.Default().
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
	refuse := func(isInvalid bool, field, reason string) {
		problems = append(problems, fieldProblem(isInvalid, field, reason))
	}
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

func fieldProblem(isInvalid bool, field, reason string) error {
	if !isInvalid {
		return nil
	}
	return &compensator.FieldError{Field: field, Reason: reason}
}

// urlProblems repeats no part of the URL, because it holds a password.
func urlProblems(url string) []error {
	if url == "" {
		return []error{fieldProblem(true, "URL", "is missing")}
	}
	_, err := amqp091.ParseURI(url)
	return []error{fieldProblem(err != nil, "URL", "must have the form amqp://user:password@host:port/vhost")}
}
