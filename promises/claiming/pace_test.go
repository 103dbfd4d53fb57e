package claiming

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// transactionCounter counts claims and settles. It delays each of them by the time that a real transaction takes, so
// that further entries come due meanwhile.
type transactionCounter struct {
	processlog.Store
	claims, settles atomic.Int64
}

func (s *transactionCounter) Claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	s.claims.Add(1)
	time.Sleep(time.Millisecond)
	return s.Store.Claim(ctx, want, token, lease, accept)
}

func (s *transactionCounter) Settle(ctx context.Context, token processlog.Token, outcomes []processlog.Outcome) ([]processlog.Settled, error) {
	s.settles.Add(1)
	time.Sleep(3 * time.Millisecond)
	return s.Store.Settle(ctx, token, outcomes)
}

func TestEntriesThatComeDueOneByOneShareTheirTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := compensatortest.NewMemoryStore()
		store := &transactionCounter{Store: memory}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		_, err = compensator.Handle(t.Context(), c, "trickle", func(context.Context, *compensator.Entry, harness.Order) error { return nil }, nil)
		require.NoError(t, err)
		stop := compensatortest.Run(t, c)

		const n = 1000
		for i := range n {
			harness.RecordIn(t, c, memory, compensator.NewEntry{BusinessType: "trickle", Content: []byte(`{}`),
				Options: compensator.Options{Delay: time.Second + time.Duration(i)*time.Millisecond}})
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()

		for _, row := range memory.Rows() {
			require.Equal(t, compensator.Succeeded, row.State)
		}
		assert.LessOrEqual(t, store.claims.Load(), int64(n/2+5), "claims: one every two milliseconds")
		assert.LessOrEqual(t, store.settles.Load(), int64(n/5+5), "transactions of outcomes: one every five")
		stop()
		require.NoError(t, c.Close())
	})
}
