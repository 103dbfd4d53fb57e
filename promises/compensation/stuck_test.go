package compensation

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// The process lost the leases, but its handler still runs the entry.
func TestNothingIsUndoneBesideAHandlerThatIsStuckOnIt(t *testing.T) {
	t.Parallel()
	for name, returns := range map[string]bool{"it never returns": false, "it returns meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InOppositeModes(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
				cfg.Lease = time.Second
				c := w.New(cfg)
				g, ran, undone := harness.NewGate(), new(harness.Calls), new(harness.Calls)
				g.OpenAtEnd(t)
				_, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
					ran.Add(e.ID)
					return g.PassIgnoringContext(e)
				}, &compensator.HandlerConfig[harness.Order]{Timeout: 50 * time.Millisecond, CompensateCrashed: true, Compensate: func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
					undone.Add(e.ID)
					return nil
				}})
				require.NoError(t, err)
				w.Backlog("close_order", 1)
				w.Run(c)
				id := g.Await(t)
				w.WaitState(id, compensator.Compensating)
				if returns {
					require.Zero(t, undone.Of(id))
					g.Open()
					w.WaitState(id, compensator.Compensated)
					require.Equal(t, 1, undone.Of(id))
				} else {
					w.WaitState(id, compensator.Dead)
					require.Zero(t, undone.Of(id))
					require.Contains(t, w.Entry(c, id).LastError, "has not returned since")
					g.Open() // Let the handler end, because Run waits for the handler at the end of the test.
				}
				require.Equal(t, 1, ran.Of(id))
			})
		})
	}
}
