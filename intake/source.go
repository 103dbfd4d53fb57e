package intake

import (
	"context"
	"time"
)

// Source delivers messages at least once. One goroutine calls Next and Ack, in turn: what Next has returned is acknowledged,
// or given up when Run ends, before it is called again.
type Source interface {
	// Name stands for the source and the group of consumers: both make the idempotency keys. It never changes.
	Name() string

	// Next waits a little for messages, and returns at most max of them, in their order, or none and nil. An error is told,
	// and Next is called again after a pause. When ctx ends it returns soon; what it returns even then is still recorded.
	Next(ctx context.Context, max int) ([]Message, error)

	// Ack says that messages of the last batch are in the log, in their order: usually all, fewer when Run was stopped too
	// hard, or when the log will never take one. Those that it does not name must come again, also after an error.
	Ack(ctx context.Context, messages []Message) error
}

// Measurer is a Source that knows how far it is behind. Measure is called concurrently with the other methods.
type Measurer interface {
	Measure(ctx context.Context) (Backlog, error)
}

// Backlog is what a source still has.
type Backlog struct {
	Lag           int64         // messages that nobody of the group has been given; −1: the source cannot tell
	Pending       int64         // messages that were given to somebody and are not acknowledged
	OldestPending time.Duration // since the oldest of those came into the source; zero: there is none
}

// releaser is a source that can give back what was not recorded, for others to take at once.
type releaser interface {
	release(ctx context.Context, messages []Message) error
}

// leaver is a source that wants to know that Run has ended.
type leaver interface {
	leave(ctx context.Context) error
}
