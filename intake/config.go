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

// Config configures an Intake. Type and Entry are required. Open copies the Config, fills in the defaults named below,
// and reports all invalid fields at once, each as a *compensator.FieldError.
type Config struct {
	// Type is the business type of the entries that hold a raw message, because Entry or Work failed for this message.
	// Open registers the handler of Type, which tries the message again.
	Type string

	// Entry returns the entry that the Intake records for a message. The Intake overwrites IdempotencyKey and
	// FailOnDuplicate. If Entry returns an error or panics, the Intake records the message as a dead entry of Type.
	// Entry may run more than once for a message, and should return the same result each time.
	//
	// The Intake calls the method Error of an error that Entry or Work has returned. If the method Error panics, this
	// counts as a panic of Entry or Work.
	Entry func(m *Message) (compensator.NewEntry, error)

	// Work is optional. Work writes the business rows of a batch of messages in tx, the transaction that also records
	// the entries. Work gets only the messages that have no entry yet. The rows and the entries commit together or not
	// at all. Work must not end tx. If one message caused an error, Work can name the message with Fault.
	Work func(ctx context.Context, tx *compensator.ScopedTx, batch []*Message) error

	// Aside configures the handler of Type. The handler processes failed messages again, and messages whose entry a
	// person has requeued. The entry of a failed message is due after the delay Aside.Retry(1), or after 2 s if Aside.Retry
	// panics.
	Aside compensator.HandlerConfig[Message]

	Batch         int           // maximum number of messages in one transaction. Default 200, at most 1,000
	MaxDeliveries int           // maximum number of deliveries. A message that was delivered more often is set aside. Default 5, at least 3
	Timeout       time.Duration // time limit of a batch's transaction. If the transaction takes longer than Timeout, the Intake halves the batch. Default 20 s
	StopTimeout   time.Duration // how long Run may continue its current batch after its context has ended. Default 30 s
	StatsEvery    time.Duration // interval at which Observer.Measured reports the source's backlog and the numbers of messages. Default 10 s

	Observer Observer     // called for each event of the Intake
	Logger   *slog.Logger // Logger logs messages for operators, never with content. Default slog.Default()
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
	p.refuse(cfg.Aside.RefuseOtherContent, "Aside.RefuseOtherContent", "is not supported: a redelivered message has another delivery count")
	p.refuse(cfg.Batch < 1 || cfg.Batch > 1000, "Batch", fmt.Sprintf("%d: want 1 to 1,000", cfg.Batch))
	p.refuse(cfg.MaxDeliveries < 3, "MaxDeliveries", fmt.Sprintf("%d is less than 3", cfg.MaxDeliveries))
	p.atLeast("Timeout", cfg.Timeout, time.Millisecond)
	p.atLeast("StopTimeout", cfg.StopTimeout, time.Millisecond)
	p.atLeast("StatsEvery", cfg.StatsEvery, 10*time.Millisecond)
	return errors.Join(p...)
}

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
