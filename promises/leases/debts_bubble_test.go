package leases

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// muteStore does the first claim and does not say so, and takes no lease back until it is told to.
type muteStore struct {
	processlog.Store

	mu      sync.Mutex // guards the fields below
	claimed []processlog.ID
	again   []processlog.ID // of them, those that were asked for before their leases were given back
	takes   bool            // leases back
}

var errGone = errors.New("gone away")

func (s *muteStore) Claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range want {
		if slices.Contains(s.claimed, w.ID) && !s.takes {
			s.again = append(s.again, w.ID)
		}
	}
	found, err := s.Store.Claim(ctx, want, token, lease, accept)
	if err == nil && s.claimed == nil && len(found.Mine) > 0 {
		for _, row := range found.Mine {
			s.claimed = append(s.claimed, row.ID)
		}
		return processlog.Claimed{}, errGone
	}
	return found, err
}

func (s *muteStore) Release(ctx context.Context, ids []processlog.ID, token processlog.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.takes {
		return errGone
	}
	return s.Store.Release(ctx, ids, token)
}

// Claimed anew, an entry would carry another token, under which the lease that is owed can be given back no more: it would
// count as lost.
func TestWhatIsOwedIsNotAskedForMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &muteStore{Store: compensatortest.NewMemoryStore()}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Lease: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		ran := new(harness.Calls)
		_, err = compensator.Handle(c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
			ran.Add(e.ID)
			return nil
		}, compensator.TypeConfig{})
		require.NoError(t, err)
		for range 3 {
			harness.RecordLater(t, c, time.Second)
		}
		time.Sleep(2 * time.Second) // all are due
		stop := compensatortest.Run(t, c)
		time.Sleep(time.Minute) // many leases
		synctest.Wait()
		require.Len(t, store.claimed, 3)
		require.Empty(t, store.again, "they are owed")
		require.Zero(t, ran.Total())
		store.mu.Lock()
		store.takes = true
		store.mu.Unlock()
		time.Sleep(time.Minute)
		stop()
		require.Equal(t, 3, ran.Total())
		require.NoError(t, c.Close())
	})
}
