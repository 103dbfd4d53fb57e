package compensator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// The type asks for the compensation of what has lost three leases. What has lost them is still at it, here, and nobody else
// is there.
func TestNothingIsUndoneBesideAHandlerThatIsStuckOnIt(t *testing.T) {
	for name, returns := range map[string]bool{"it never returns": false, "it returns meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			inOppositeModes(t, func(t *testing.T, w *world, cfg compensator.Config) {
				cfg.Lease = time.Second
				c := w.new(cfg)
				g, ran, undone := newGate(), new(calls), new(calls)
				g.openAtEnd(t)
				_, err := compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, _ order) error {
					ran.add(e.ID)
					return g.passDeaf(e)
				}, compensator.TypeConfig{Timeout: 50 * time.Millisecond, CompensateCrashed: true, Compensate: func(_ context.Context, e *compensator.Entry) error {
					undone.add(e.ID)
					return nil
				}})
				require.NoError(t, err)
				w.backlog("close_order", 1)
				w.run(c)
				id := g.await(t)
				w.waitState(id, compensator.Compensating)
				if returns {
					require.Zero(t, undone.of(id))
					g.open()
					w.waitState(id, compensator.Compensated)
					require.Equal(t, 1, undone.of(id))
				} else {
					w.waitState(id, compensator.Dead)
					require.Zero(t, undone.of(id))
					require.Contains(t, w.entry(c, id).LastError, "has not returned since")
					g.open() // Run would wait for it
				}
				require.Equal(t, 1, ran.of(id))
			})
		})
	}
}
