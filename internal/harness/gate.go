package harness

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// Gate blocks handlers until the test opens it.
type Gate struct {
	Entered chan compensator.EntryID
	openCh  chan struct{}
}

// NewGate returns a closed gate.
func NewGate() *Gate {
	return &Gate{Entered: make(chan compensator.EntryID, 20_000), openCh: make(chan struct{})}
}

// Pass sends the entry's id to Entered and waits until the gate is open. It returns early with the context's cause when
// ctx is cancelled.
func (g *Gate) Pass(ctx context.Context, e *compensator.Entry) error {
	g.Entered <- e.ID
	select {
	case <-g.openCh:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// PassIgnoringContext sends the entry's id to Entered and waits until the gate is open. It stands for a handler that
// ignores its context.
func (g *Gate) PassIgnoringContext(e *compensator.Entry) error {
	g.Entered <- e.ID
	<-g.openCh
	return nil
}

// Open lets all waiting and future handlers pass.
func (g *Gate) Open() { close(g.openCh) }

// OpenAtEnd opens the gate when the test ends, so that handlers that ignore their context do not outlive the test.
func (g *Gate) OpenAtEnd(t *testing.T) {
	t.Cleanup(func() {
		select {
		case <-g.openCh:
		default:
			g.Open()
		}
	})
}

// Await waits for the next handler at the gate and returns its entry's id.
func (g *Gate) Await(t *testing.T) compensator.EntryID {
	t.Helper()
	return Receive(t, g.Entered)
}

// Receive receives a value from a channel. The test fails on timeout.
func Receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	timer := time.NewTimer(Timeout)
	defer timer.Stop()
	select {
	case v := <-ch:
		return v
	case <-timer.C:
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// ErrOf returns only the error of a call.
func ErrOf[T any](_ T, err error) error { return err }
