package smoke

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

type order struct{ Number int }

func TestEntrySucceedsAndAnotherIsCompensated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := compensator.New(t.Context(), compensator.Config{Store: compensatortest.NewMemoryStore(), Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		var mu sync.Mutex
		var ran, undone []int
		note := func(list *[]int, o order) {
			mu.Lock()
			defer mu.Unlock()
			*list = append(*list, o.Number)
		}
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, _ *compensator.Entry, o order) error {
			note(&ran, o)
			if o.Number == 2 {
				return compensator.Permanent(errors.New("no such order"))
			}
			return nil
		}, &compensator.HandlerConfig[order]{
			Compensate: func(_ context.Context, _ *compensator.Entry, o order) error {
				note(&undone, o)
				return nil
			},
		})
		require.NoError(t, err)

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		var receipt *compensator.Receipt
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
			receipt, err = c.Record(ctx, tx, orders.Entry(order{1}, compensator.Options{}), orders.Entry(order{2}, compensator.Options{}))
			return err
		}))
		state := func(i int) compensator.State {
			e, err := c.Get(t.Context(), receipt.Entries[i].IdempotencyKey)
			require.NoError(t, err)
			return e.State
		}
		deadline := time.Now().Add(time.Hour)
		for !(state(0).Terminal() && state(1).Terminal()) && time.Now().Before(deadline) {
			time.Sleep(time.Second)
		}
		stop()
		require.NoError(t, <-ended)
		require.Equal(t, compensator.Succeeded, state(0))
		require.Equal(t, compensator.Compensated, state(1))
		require.ElementsMatch(t, []int{1, 2}, ran)
		require.Equal(t, []int{2}, undone)
	})
}
