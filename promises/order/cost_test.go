package order

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

type counted struct {
	*memory.Store
	join, lines, firsts, block, advance atomic.Int64
}

func (s *counted) Join(ctx context.Context, tx processlog.Tx, positions []processlog.Position) error {
	s.join.Add(1)
	return s.Store.Join(ctx, tx, positions)
}

func (s *counted) KeyStates(ctx context.Context, businessType string, positions []processlog.Position, token processlog.Token, dead bool) (map[string]processlog.KeyState, error) {
	s.lines.Add(1)
	return s.Store.KeyStates(ctx, businessType, positions, token, dead)
}

func (s *counted) Firsts(ctx context.Context, businessType string, positions []processlog.Position, dead bool) (map[string]processlog.KeyState, error) {
	s.firsts.Add(1)
	return s.Store.Firsts(ctx, businessType, positions, dead)
}

func (s *counted) Block(ctx context.Context, blocked []processlog.BlockedEntry, token processlog.Token) error {
	s.block.Add(1)
	return s.Store.Block(ctx, blocked, token)
}

func (s *counted) Advance(ctx context.Context, businessType string, left []processlog.Position, dead bool) ([]processlog.ID, error) {
	s.advance.Add(1)
	return s.Store.Advance(ctx, businessType, left, dead)
}

func (s *counted) asked() [5]int64 {
	return [5]int64{s.join.Swap(0), s.lines.Swap(0), s.firsts.Swap(0), s.block.Swap(0), s.advance.Swap(0)}
}

// docs/reference/cost.md names the calls that ordering keys cost.
// Failure: F117
func TestWhatOrderingCosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Store: memory.NewStore()}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store})
		require.NoError(t, err)
		orders := serial(t, c, newWatch(t), compensator.HandlerConfig[harness.Order]{}, nil)
		plain, _ := harness.HandleCounted(t, c, "plain", compensator.HandlerConfig[harness.Order]{}, nil)
		store.asked() // Forget the calls that the registration made.
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- c.Run(ctx) }()
		put := func(orders *compensator.Type[harness.Order], keys ...string) {
			for _, key := range keys {
				require.NoError(t, c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
					_, err := orders.Record(ctx, tx, harness.Order{}, withKey(key))
					return err
				}))
				time.Sleep(time.Second)
			}
			synctest.Wait()
		}
		put(plain, "ann", "bob")
		require.Zero(t, store.asked())
		put(orders, "")
		require.Zero(t, store.asked(), "without a key there are no positions")
		put(orders, "ann", "ann")
		require.Equal(t, [5]int64{2, 2, 0, 0, 2}, store.asked(), "join, key states, firsts, block and advance for two entries of different keys")
		require.NoError(t, c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := c.Record(ctx, tx, batch(orders, 30, steps["drawn"], "ann")...)
			return err
		}))
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, row := range store.Rows() {
			if row.BusinessType != "book" {
				continue
			}
			require.Equal(t, compensator.Succeeded, row.State)
			require.EqualValues(t, 2, row.Version, "one claim, and one outcome")
		}
		require.Equal(t, [5]int64{1, 1, 29, 0, 1}, store.asked(), "of many of one key all are read once, and blocked ones are not claimed")
		stop()
		require.NoError(t, <-ran)
		require.NoError(t, c.Close())
	})
}
