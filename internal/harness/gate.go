package harness

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

type Gate struct {
	Entered chan compensator.EntryID
	openCh  chan struct{}
}

func NewGate() *Gate {
	return &Gate{Entered: make(chan compensator.EntryID, 20_000), openCh: make(chan struct{})}
}

// Pass returns early with the context's cause when ctx is cancelled.
func (g *Gate) Pass(ctx context.Context, e *compensator.Entry) error {
	g.Entered <- e.ID
	select {
	case <-g.openCh:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// PassIgnoringContext stands for a handler that ignores its context.
func (g *Gate) PassIgnoringContext(e *compensator.Entry) error {
	g.Entered <- e.ID
	<-g.openCh
	return nil
}

func (g *Gate) Open() { close(g.openCh) }

func (g *Gate) OpenAtEnd(t *testing.T) {
	t.Cleanup(func() {
		select {
		case <-g.openCh:
		default:
			g.Open()
		}
	})
}

func (g *Gate) Await(t *testing.T) compensator.EntryID {
	t.Helper()
	return Receive(t, g.Entered)
}

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

func ErrOf[T any](_ T, err error) error { return err }
