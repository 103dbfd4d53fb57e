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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// muteStore performs the first claim but returns an error instead of the rows. It refuses releases until the test sets
// the field takes.
type muteStore struct {
	processlog.Store

	mu      sync.Mutex // guards the fields below
	claimed []processlog.ID
	again   []processlog.ID // entries of the first claim that were claimed again before their release
	takes   bool            // whether releases are accepted
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

func (s *muteStore) Release(ctx context.Context, ids []processlog.ID, token processlog.Token) (processlog.Unreleased, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.takes {
		return processlog.Unreleased{}, errGone
	}
	return s.Store.Release(ctx, ids, token)
}

// A second claim would write a new token. The release with the old token would then fail and count a lost lease.
// Failure: F59
func TestEntryWithAPendingReleaseIsNotAskedForMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &muteStore{Store: compensatortest.NewMemoryStore()}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Lease: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		ran := new(harness.Calls)
		_, err = compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
			ran.Add(e.ID)
			return nil
		}, nil)
		require.NoError(t, err)
		for range 3 {
			harness.RecordLater(t, c, time.Second)
		}
		time.Sleep(2 * time.Second) // By now all entries are due.
		stop := compensatortest.Run(t, c)
		time.Sleep(time.Minute) // A minute is longer than many leases.
		synctest.Wait()
		require.Len(t, store.claimed, 3)
		require.Empty(t, store.again, "their releases are pending")
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

// unanswered is a Compensator whose store performs some claims but answers with an error.
type unanswered struct {
	processlog.Store

	c      *compensator.Compensator
	memory *compensatortest.MemoryStore
	ran    *harness.Calls

	mu    sync.Mutex // guards the fields below it
	loses int        // number of the next claims whose answers are lost
	lost  []int      // for each claim with a lost answer: number of entries that it had leased
	fails int        // number of the next calls of Release with several entries that fail
}

func (s *unanswered) Claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	found, err := s.Store.Claim(ctx, want, token, lease, accept)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.loses > 0 && len(found.Mine) > 0 {
		s.loses--
		s.lost = append(s.lost, len(found.Mine))
		return processlog.Claimed{}, errGone
	}
	return found, err
}

func (s *unanswered) Release(ctx context.Context, ids []processlog.ID, token processlog.Token) (processlog.Unreleased, error) {
	s.mu.Lock()
	fails := s.fails > 0 && len(ids) > 1
	if fails {
		s.fails--
	}
	s.mu.Unlock()
	if fails {
		return processlog.Unreleased{}, errGone
	}
	return s.Store.Release(ctx, ids, token)
}

// newUnanswered returns a Compensator with its store. The lease is an hour, so that no lease expires during the test.
func newUnanswered(t *testing.T) *unanswered {
	s := &unanswered{memory: compensatortest.NewMemoryStore(), ran: new(harness.Calls)}
	s.Store = s.memory
	var err error
	s.c, err = compensator.New(t.Context(), compensator.Config{Store: s, Lease: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = compensator.Handle(t.Context(), s.c, "close_order", func(_ context.Context, e *compensator.Entry, _ harness.Order) error {
		assert.Equal(t, 1, e.DeliveryCount, "no lease counts as lost")
		s.ran.Add(e.ID)
		return nil
	}, &compensator.HandlerConfig[harness.Order]{Concurrency: 50})
	require.NoError(t, err)
	return s
}

// record records n entries that are due in a second. If the parameter locked is true, an open transaction of a caller
// locks the row of the last entry. The result release is then a function that ends this transaction, and otherwise nil.
func (s *unanswered) record(t *testing.T, n int, locked bool) (release func()) {
	entries := make([]compensator.NewEntry, n)
	for i := range entries {
		entries[i] = compensator.NewEntry{BusinessType: "close_order", Content: []byte("{}"), Options: compensator.Options{Delay: time.Second}}
	}
	receipt := harness.RecordIn(t, s.c, s.memory, entries...)
	if !locked {
		return nil
	}
	tx, err := s.memory.BeginTx(t.Context())
	require.NoError(t, err)
	_, err = s.c.CancelTx(t.Context(), tx, receipt.Entries[n-1].ID)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback()) }
}

// Failure: F59
func TestOneLockedRowKeepsNoOtherFromBeingGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newUnanswered(t)
		s.loses = 1
		release := s.record(t, 30, true)
		time.Sleep(2 * time.Second) // By now all entries are due.
		stop := compensatortest.Run(t, s.c)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []int{29}, s.lost)
		require.Equal(t, 29, s.ran.Total(), "the row is locked still")
		release()
		time.Sleep(time.Minute)
		stop()
		require.Equal(t, 30, s.ran.Total())
		require.NoError(t, s.c.Close())
	})
}

// Failure: F59
func TestPendingReleaseIsWrittenWhileARowOfAnotherIsLocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newUnanswered(t)
		s.loses = 1
		release := s.record(t, 2, true)
		time.Sleep(2 * time.Second)
		stop := compensatortest.Run(t, s.c)
		time.Sleep(time.Minute)
		s.mu.Lock()
		s.loses, s.fails = 1, 1
		s.mu.Unlock()
		s.record(t, 5, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []int{1, 5}, s.lost)
		require.Zero(t, s.fails)
		require.Equal(t, 6, s.ran.Total(), "one row is locked still")
		release()
		time.Sleep(time.Minute)
		stop()
		require.Equal(t, 7, s.ran.Total())
		require.NoError(t, s.c.Close())
	})
}
