package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/usererr"
)

// Config says what becomes of messages. Type and Entry are required. Open copies it, fills in the defaults named below, and
// reports everything wrong with it at once, as *compensator.FieldError.
type Config struct {
	// Type is the business type of the entries of messages that were set aside. Open registers its handler.
	Type string

	// Entry says which entry a message becomes. Its IdempotencyKey and FailOnDuplicate are set by the Intake, whatever they
	// are. An error, or a panic, says that the message cannot be decoded: it is set aside. It may run more than once for a
	// message, and should give the same each time. An error whose Error panics is a panic, here and of Work.
	Entry func(m *Message) (compensator.NewEntry, error)

	// Work, if given, writes the business rows of a batch through tx, in which the entries are recorded: it is called for
	// messages that have no entry yet, and what it writes commits with them, or not at all. It must not end tx. An error
	// that is one message's can name it: see Fault.
	Work func(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error

	// Aside is how entries of Type are run: messages that failed, and those that a person has requeued. A failed message comes due
	// after Aside.Retry(1), or 2 s where that panics.
	Aside compensator.TypeConfig

	Batch         int           // how many messages one transaction takes at most. Default 200; at most 1,000
	MaxDeliveries int           // a message that comes more often is set aside. Default 5; at least 3
	Timeout       time.Duration // of a batch's transaction; one that takes longer is halved. Default 20 s
	StopTimeout   time.Duration // how long Run goes on with its batch once its context has ended. Default 30 s
	StatsEvery    time.Duration // between two Observer.Measured. Default 10 s

	Observer Observer
	Logger   *slog.Logger // gets what an operator should know; content is never logged. Default slog.Default()
}

func (cfg Config) withDefaults() Config {
	setDefault(&cfg.Batch, 200)
	setDefault(&cfg.MaxDeliveries, 5)
	setDefault(&cfg.Timeout, 20*time.Second)
	setDefault(&cfg.StopTimeout, 30*time.Second)
	setDefault(&cfg.StatsEvery, 10*time.Second)
	setDefault(&cfg.Logger, slog.Default())
	cfg.Logger = usererr.Logger(cfg.Logger)
	if cfg.Aside.Retry == nil {
		cfg.Aside.Retry = compensator.Exponential(time.Second, 10*time.Minute)
	}
	if cfg.Aside.Codec == nil {
		cfg.Aside.Codec = compensator.JSON
	}
	return cfg
}

func (cfg Config) validate() error {
	var p problems
	p.refuse(cfg.Type == "", "Type", "is missing")
	p.refuse(cfg.Entry == nil, "Entry", "is missing")
	p.refuse(cfg.Aside.RefuseOtherContent, "Aside.RefuseOtherContent", "cannot be kept: a message that comes again was delivered more often")
	p.refuse(cfg.Batch < 1 || cfg.Batch > 1000, "Batch", fmt.Sprintf("%d: want 1 to 1,000", cfg.Batch))
	p.refuse(cfg.MaxDeliveries < 3, "MaxDeliveries", fmt.Sprintf("%d is less than 3", cfg.MaxDeliveries))
	p.atLeast("Timeout", cfg.Timeout, time.Millisecond)
	p.atLeast("StopTimeout", cfg.StopTimeout, time.Millisecond)
	p.atLeast("StatsEvery", cfg.StatsEvery, 10*time.Millisecond)
	return errors.Join(p...)
}

// problems are all that is wrong with a configuration.
type problems []error

func (p *problems) refuse(bad bool, field, reason string) {
	if bad {
		*p = append(*p, &compensator.FieldError{Field: field, Reason: reason})
	}
}

func (p *problems) atLeast(field string, d, least time.Duration) {
	p.refuse(d < least, field, fmt.Sprintf("%v is less than %v", d, least))
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
