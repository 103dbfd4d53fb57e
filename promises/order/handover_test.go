package order

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// slow is a memory.Store whose method Settle waits one second before it stores outcomes.
type slow struct {
	*memory.Store
	refuse func(outcomes []processlog.Outcome) ([]processlog.Settled, error) // may return a result instead of the store's; nil: the store decides
	leased map[processlog.ID]bool                                            // whether the next entry had a lease when the outcome of the entry with this id was stored
}

func (s *slow) Settle(ctx context.Context, token processlog.Token, outcomes []processlog.Outcome) ([]processlog.Settled, error) {
	time.Sleep(time.Second)
	for _, o := range outcomes {
		s.leased[o.ID] = s.leased[o.ID] || s.rowAfter(o.ID).LeaseLeft > 0
	}
	if s.refuse != nil {
		if results, err := s.refuse(outcomes); results != nil || err != nil {
			return results, err
		}
	}
	return s.Store.Settle(ctx, token, outcomes)
}

func (s *slow) rowAfter(id processlog.ID) processlog.Row {
	rows := s.Rows()
	for i := range rows[:len(rows)-1] {
		if rows[i].ID == id {
			return rows[i+1]
		}
	}
	return processlog.Row{}
}

// runSlow runs five entries of one ordering key on the given store. When the handler of an entry is called, the
// outcomes of all earlier entries must be stored. The handler then returns fail(row), where row is its entry.
func runSlow(t *testing.T, store *slow, fail func(row processlog.Row) error) {
	t.Helper()
	store.Store, store.leased = memory.NewStore(), make(map[processlog.ID]bool)
	c, err := compensator.New(t.Context(), compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	orders := serial(t, c, newWatch(t), compensator.HandlerConfig[harness.Order]{}, func(_ context.Context, e *compensator.Entry) error {
		for _, row := range store.Rows() {
			if row.ID == e.ID {
				return fail(row)
			}
			require.Equal(t, compensator.Succeeded, row.State, "%s runs before the outcome of %s is stored", e.ID, row.ID)
		}
		return nil
	})
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := c.Record(ctx, tx, batch(orders, 5, steps["counted"], "ann")...)
		return err
	}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	time.Sleep(time.Hour)
	synctest.Wait()
	for _, row := range store.Rows() {
		require.Equal(t, compensator.Succeeded, row.State)
		require.Zero(t, row.DeliveryCount, "no lease is lost")
	}
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, c.Close())
}

func TestNextOfAKeyIsClaimedWhileTheOutcomeInFrontIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store slow
		runSlow(t, &store, func(processlog.Row) error { return nil })
		rows := store.Rows()
		for i, row := range rows {
			require.Equal(t, i < len(rows)-1, store.leased[row.ID], "entry %d", i)
			require.EqualValues(t, 2, row.Version, "one claim, and one outcome")
		}
	})
}

func TestEntryThatIsRetriedLetsNoneBeClaimed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store slow
		store.refuse = func([]processlog.Outcome) ([]processlog.Settled, error) {
			for _, row := range store.Rows() {
				require.False(t, row.ProcessCount == 0 && row.State == processlog.Pending && store.rowAfter(row.ID).LeaseLeft > 0, "behind one that has failed")
			}
			return nil, nil
		}
		runSlow(t, &store, func(row processlog.Row) error {
			if row.ProcessCount == 0 {
				return errors.New("not yet")
			}
			return nil
		})
	})
}

// While the store works on the outcome of an entry, the process claims the next entry of the key.
func TestNextOfAKeyWaitsForAnOutcomeThatIsNotStored(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(outcomes []processlog.Outcome) ([]processlog.Settled, error){
		"error": func([]processlog.Outcome) ([]processlog.Settled, error) { return nil, errRefused },
		"busy": func(outcomes []processlog.Outcome) ([]processlog.Settled, error) {
			return make([]processlog.Settled, len(outcomes)), nil
		},
		"refused": func(outcomes []processlog.Outcome) ([]processlog.Settled, error) {
			return make([]processlog.Settled, len(outcomes)), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				var store slow
				store.refuse = func(outcomes []processlog.Outcome) ([]processlog.Settled, error) {
					if tries++; tries%4 == 0 {
						return nil, nil
					}
					for _, o := range outcomes {
						require.False(t, tries%4 == 3 && store.rowAfter(o.ID).LeaseLeft > 0, "the next one waits without a lease")
					}
					results, err := answer(outcomes)
					for i := range results {
						results[i].Busy = name == "busy"
						if name == "refused" {
							results[i].Refused = errRefused
						}
					}
					return results, err
				}
				runSlow(t, &store, func(processlog.Row) error { return nil })
			})
		})
	}
}
