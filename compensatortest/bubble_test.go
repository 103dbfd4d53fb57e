package compensatortest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

// docs/how-to/test-handlers.md shows this test.
func TestAWeekPassesInABubble(t *testing.T) {
	remindUser := func(context.Context, *compensator.Entry, string) error { return nil }
	synctest.Test(t, func(t *testing.T) {
		c, err := compensator.New(t.Context(), compensator.Config{Store: compensatortest.NewMemoryStore(), PollInterval: 24 * time.Hour, ReconcileInterval: 24 * time.Hour})
		require.NoError(t, err)
		defer c.Close()
		remind, err := compensator.Handle(t.Context(), c, "remind", remindUser, nil)
		require.NoError(t, err)
		compensatortest.Run(t, c)
		var receipt *compensator.Receipt
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
			receipt, err = remind.Record(ctx, tx, "42", compensator.Options{Delay: 7 * 24 * time.Hour})
			return err
		}))
		time.Sleep(8 * 24 * time.Hour)
		e, err := c.Get(t.Context(), receipt.ID())
		require.NoError(t, err)
		require.Equal(t, compensator.Succeeded, e.State, e.LastError)
	})
}
