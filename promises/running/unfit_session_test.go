package running

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// After the first refusal the library closes the session. So at most one call of a handler meets the session, and this
// call does not count as an attempt.
// Failure: F33
func TestUnfitSessionOfThePoolSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	for pool, open := range harness.Pools {
		for name, spoil := range harness.UnfitSessions(t) {
			for _, ignored := range []bool{false, true} {
				t.Run(name+", "+pool+map[bool]string{true: ", error ignored"}[ignored], func(t *testing.T) {
					t.Parallel()
					w := harness.NewWorld(t)
					cfg := w.QuickConfig()
					cfg.DB = w.Open(open(w.DSN))
					c := w.New(cfg)
					follow, err := compensator.Declare[harness.Order](t.Context(), c, "follow_up", nil)
					require.NoError(t, err)
					var calls harness.Calls
					undone := make(chan struct{}, 100)
					orders, err := compensator.HandleTx(t.Context(), c, "pay", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, o harness.Order) error {
						calls.Add(e.ID)
						_, err := follow.Record(ctx, tx, o, compensator.Options{IdempotencyKey: compensator.IdempotencyKey("after-" + e.CallKey())})
						if ignored {
							return nil
						}
						return err
					}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, Concurrency: 1, Retry: compensator.Fixed(0), Compensate: func(context.Context, *compensator.Entry, harness.Order) error {
						undone <- struct{}{}
						return nil
					}})
					require.NoError(t, err)
					ids := make([]compensator.EntryID, 10)
					for i := range ids {
						ids[i] = w.Record(orders, i, compensator.Options{})
					}
					w.Spoil(cfg.DB, spoil)
					w.Run(c)
					w.Eventually(func() bool {
						return w.Count("common_process_log WHERE business_type='pay' AND state IN (0,-1,-3)") == 0
					}, "all have ended")
					made := 0
					for _, id := range ids {
						e := w.Entry(c, id)
						require.Equal(t, compensator.Succeeded, e.State, e.LastError)
						require.Zero(t, e.ProcessCount)
						made += calls.Of(id)
					}
					require.LessOrEqual(t, made, len(ids)+1, "at most one attempt meets the session, which is then closed")
					require.Equal(t, len(ids), w.Count("common_process_log WHERE business_type='follow_up'"))
					require.Empty(t, undone)
				})
			}
		}
	}
}
