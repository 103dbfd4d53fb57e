package settling

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

// Failure: F23
func TestTransactionalHandlerThatLostItsFenceLeavesNoTrace(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		var dropped, failed atomic.Int32
		cfg.Lease = time.Second // The second attempt begins when this lease ends.
		cfg.Observer.OutcomeDropped = func(observe.SettledEvent) { dropped.Add(1) }
		cfg.Observer.AttemptEnded = func(e observe.AttemptEvent) {
			if e.Err != nil && !errors.Is(e.Err, compensator.ErrLeaseLost) {
				failed.Add(1)
			}
		}
		c := w.New(cfg)
		var ran harness.Calls
		orders, err := compensator.HandleTx(t.Context(), c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ harness.Order) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES ('done')"); err != nil {
				return err
			}
			if ran.Add(e.ID) == 1 {
				return c.Reschedule(context.WithoutCancel(ctx), e.ID, 0)
			}
			return nil
		}, nil)
		require.NoError(t, err)
		w.Run(c)
		var receipt *compensator.Receipt
		w.InTx(cfg.DB, func(tx *sql.Tx) {
			receipt, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.WaitState(receipt.ID(), compensator.Succeeded)
		assert.Equal(t, 2, ran.Of(receipt.ID()))
		assert.Equal(t, 1, w.Count("effects"))
		assert.Equal(t, 1, w.Count("common_process_log WHERE process_count=0 AND last_error=''"))
		assert.EqualValues(t, 1, dropped.Load())
		assert.Zero(t, failed.Load())
	})
}
