package harness

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// Gate holds handlers up until a test opens it.
type Gate struct {
	Entered chan compensator.EntryID
	opened  chan struct{}
}

// NewGate returns a closed gate.
func NewGate() *Gate {
	return &Gate{Entered: make(chan compensator.EntryID, 20_000), opened: make(chan struct{})}
}

// Pass tells that a handler is here and waits until the gate is open. It returns early, with its context's
// cause, when the handler is told to stop.
func (g *Gate) Pass(ctx context.Context, e *compensator.Entry) error {
	g.Entered <- e.ID
	select {
	case <-g.opened:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// PassDeaf is pass for a handler that does not listen to its context.
func (g *Gate) PassDeaf(e *compensator.Entry) error {
	g.Entered <- e.ID
	<-g.opened
	return nil
}

// Open lets all handlers pass, those to come as well.
func (g *Gate) Open() { close(g.opened) }

// OpenAtEnd opens the gate when the test ends, so that deaf handlers do not outlive it.
func (g *Gate) OpenAtEnd(t *testing.T) {
	t.Cleanup(func() {
		select {
		case <-g.opened:
		default:
			g.Open()
		}
	})
}

// Await waits for the next handler at the gate.
func (g *Gate) Await(t *testing.T) compensator.EntryID {
	t.Helper()
	return Next(t, g.Entered)
}

// Next waits for what comes through a channel.
func Next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	timer := time.NewTimer(Timeout)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// ErrOf is the error of a call whose result does not matter.
func ErrOf[T any](_ T, err error) error { return err }
