package intake

import (
	"context"
	"time"
)

// Source delivers messages at least once. One goroutine calls Next and Ack in turn. Before it calls Next again, it
// acknowledges the messages of the last call, or gives them up when Run ends.
type Source interface {
	// Name identifies the source and the consumer group. It is part of the idempotency keys and must never change.
	Name() string

	// Next waits for a short time and returns at most max messages in order, or nil and nil if there are none. After an
	// error the Intake reports the error, pauses, and calls Next again. When ctx ends, Next must return soon. The Intake
	// records also the messages that Next returns then.
	Next(ctx context.Context, max int) ([]Message, error)

	// Ack acknowledges messages of the last batch, in their order, after they were recorded in the log. Usually these
	// are all messages of the batch. They are fewer if Run was stopped before all were recorded, or if the log will
	// never take one. The source must redeliver the messages that Ack does not name, and all messages after an error.
	Ack(ctx context.Context, messages []Message) error
}

// Measurer is a Source that can measure its backlog. Measure is called concurrently with the other methods.
type Measurer interface {
	Measure(ctx context.Context) (Backlog, error)
}

// Backlog describes the messages that are not done.
type Backlog struct {
	Lag           int64         // messages that the group has not received; −1 if unknown
	Pending       int64         // messages that were delivered and not acknowledged
	OldestPending time.Duration // age of the oldest pending message; zero if there is none
}

// releaser is a Source that can give messages back, so that other consumers can take them at once.
type releaser interface {
	release(ctx context.Context, messages []Message) error
}

// leaver is a Source that is notified when Run ends.
type leaver interface {
	leave(ctx context.Context) error
}
