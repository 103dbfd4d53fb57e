package intake

import (
	"context"
	"time"
)

// Source delivers messages at least once. One goroutine calls Next and Ack, never both at the same time. Between two
// calls of Next, this goroutine acknowledges the messages of the first call. When Run ends, some messages may stay
// unacknowledged.
type Source interface {
	// Name identifies the source and the consumer group. It is part of the idempotency keys and must never change.
	Name() string

	// Next waits for a short time and returns at most max messages in order. If there are none, it returns nil and nil.
	// When Next fails, the Intake reports the error, pauses, and calls Next again. When ctx ends, Next must return
	// soon. If Next returns messages after ctx has ended, the Intake still records them.
	Next(ctx context.Context, max int) ([]Message, error)

	// Ack acknowledges messages of the last batch, in their order, after they were recorded in the log. The slice
	// usually holds the whole batch. It holds fewer messages if Run was stopped before all were recorded, or if the
	// log can never accept one of them. The source must redeliver the messages that Ack does not name. If Ack returns
	// an error, the source must redeliver all messages of the batch.
	Ack(ctx context.Context, messages []Message) error
}

// Measurer is a Source that can measure its backlog. Measure is called concurrently with the other methods.
type Measurer interface {
	// Measure returns how much the source still holds.
	Measure(ctx context.Context) (Backlog, error)
}

// Backlog describes the messages of a source that are not acknowledged yet.
type Backlog struct {
	Lag           int64         // messages that the group has not received; −1 if unknown
	Pending       int64         // messages that were delivered and not acknowledged
	OldestPending time.Duration // age of the oldest pending message; zero if there is none
}

type releaser interface {
	release(ctx context.Context, messages []Message) error
}

type leaver interface {
	leaveGroup(ctx context.Context) error
}
