package running

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

func TestReschedulingDuringAnAttemptIsNoCrash(t *testing.T) {
	t.Parallel()
	var c *compensator.Compensator
	var runs atomic.Int64
	harness.InBubble(t, func(made *compensator.Compensator) {
		c = made
		_, err := compensator.Handle(t.Context(), c, "postponed", func(ctx context.Context, e *compensator.Entry, _ harness.Order) error {
			if runs.Add(1) > 5 {
				return nil
			}
			assert.NoError(t, c.Reschedule(ctx, e.ID, 0))
			return errors.New("dropped: the entry was moved meanwhile")
		}, nil)
		require.NoError(t, err)
	}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
		harness.RecordIn(t, c, store, compensator.NewEntry{BusinessType: "postponed", Content: []byte(`{}`)})
		<-time.After(time.Hour)
		synctest.Wait()
		row := store.Rows()[0]
		require.Equal(t, compensator.Succeeded, row.State, "ended by %s", row.EndedBy)
		require.EqualValues(t, 6, runs.Load())
	})
}

func TestCancellingOneEntryOfABatchCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	var entered chan []compensator.EntryID
	var proceed chan struct{}
	harness.InBubble(t, func(c *compensator.Compensator) {
		entered, proceed = make(chan []compensator.EntryID, 10), make(chan struct{}) // Make the channels here, so that they belong to the bubble.
		_, err := compensator.HandleBatch(t.Context(), c, "batch", func(ctx context.Context, items []compensator.Item[harness.Order]) []error {
			ids := make([]compensator.EntryID, len(items))
			verdicts := make([]error, len(items))
			for i := range items {
				ids[i] = items[i].Entry.ID
			}
			entered <- ids
			<-proceed
			for i := range verdicts {
				verdicts[i] = ctx.Err()
			}
			return verdicts
		}, nil)
		require.NoError(t, err)
	}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
		entry := compensator.NewEntry{BusinessType: "batch", Content: []byte(`{}`), Options: compensator.Options{Delay: time.Second}}
		harness.RecordIn(t, c, store, entry, entry, entry)
		batch := <-entered
		require.Len(t, batch, 3)
		_, err := c.Cancel(t.Context(), batch[0])
		require.NoError(t, err)
		close(proceed)
		<-time.After(time.Minute)
		synctest.Wait()
		for _, row := range store.Rows() {
			assert.Zero(t, row.ProcessCount)
			if row.ID == batch[0] {
				assert.Equal(t, compensator.Cancelled, row.State)
			} else {
				assert.Equal(t, compensator.Succeeded, row.State)
			}
		}
	})
}

// After a batch handler has panicked, the library runs each entry of the batch again alone. A cancelled entry must be
// left out.
func TestCancelledEntryOfAFailedBatchIsNotRunAgain(t *testing.T) {
	t.Parallel()
	var entered chan []compensator.EntryID
	var proceed chan struct{}
	var alone harness.Calls
	harness.InBubble(t, func(c *compensator.Compensator) {
		entered, proceed = make(chan []compensator.EntryID, 10), make(chan struct{})
		_, err := compensator.HandleBatch(t.Context(), c, "batch", func(_ context.Context, items []compensator.Item[harness.Order]) []error {
			if len(items) == 1 {
				alone.Add(items[0].Entry.ID)
				return nil
			}
			entered <- []compensator.EntryID{items[0].Entry.ID, items[1].Entry.ID}
			<-proceed
			panic("no verdict")
		}, nil)
		require.NoError(t, err)
	}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
		entry := compensator.NewEntry{BusinessType: "batch", Content: []byte(`{}`), Options: compensator.Options{Delay: time.Second}}
		harness.RecordIn(t, c, store, entry, entry)
		batch := <-entered
		_, err := c.Cancel(t.Context(), batch[0])
		require.NoError(t, err)
		close(proceed)
		<-time.After(time.Minute)
		synctest.Wait()
		require.Zero(t, alone.Of(batch[0]))
		require.Equal(t, 1, alone.Of(batch[1]))
	})
}

func TestEntryCancelledAfterItsBatchTimedOutIsNotRunAgain(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"here", "elsewhere"} { // A process notices a cancellation in another process when it renews the lease.
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			var alone harness.Calls
			harness.InBubble(t, func(c *compensator.Compensator) {
				_, err := compensator.HandleBatch(t.Context(), c, "batch", func(ctx context.Context, items []compensator.Item[harness.Order]) []error {
					if len(items) > 1 {
						<-time.After(1900 * time.Millisecond) // Ignore the context.
						return []error{ctx.Err(), ctx.Err()}
					}
					alone.Add(items[0].Entry.ID)
					return nil
				}, &compensator.BatchConfig[harness.Order]{Timeout: time.Second, Lease: time.Second})
				require.NoError(t, err)
			}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
				canceller := c
				if where == "elsewhere" {
					other, err := compensator.New(t.Context(), compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
					require.NoError(t, err)
					defer func() { require.NoError(t, other.Close()) }()
					canceller = other
				}
				entry := compensator.NewEntry{BusinessType: "batch", Content: []byte(`{}`), Options: compensator.Options{Delay: time.Second}}
				harness.RecordIn(t, c, store, entry, entry)
				<-time.After(2200 * time.Millisecond)
				cancelled, other := store.Rows()[0].ID, store.Rows()[1].ID
				_, err := canceller.Cancel(t.Context(), cancelled)
				require.NoError(t, err)
				<-time.After(time.Minute)
				synctest.Wait()
				require.Zero(t, alone.Of(cancelled))
				require.Equal(t, 1, alone.Of(other))
			})
		})
	}
}

func TestEntryRunAloneAfterItsBatchWasStuckIsNotTakenForStuck(t *testing.T) {
	t.Parallel()
	const timeout, lease = 20 * time.Second, 2 * time.Second
	var alone harness.Calls
	inSlowBubble(t, func(c *compensator.Compensator, store *slowlyRenewing) {
		_, err := compensator.HandleBatch(t.Context(), c, "batch", func(ctx context.Context, items []compensator.Item[harness.Order]) []error {
			if len(items) > 1 {
				<-time.After(timeout + 2*lease) // Ignore the context.
				return []error{ctx.Err(), ctx.Err()}
			}
			alone.Add(items[0].Entry.ID)
			store.takes.Store(int64(time.Hour)) // Make the renewals slow, so that the leases end during this handler.
			<-time.After(timeout - lease)       // This is long enough for four leases to end and be counted.
			store.takes.Store(0)
			return nil
		}, &compensator.BatchConfig[harness.Order]{Timeout: timeout, Lease: lease})
		require.NoError(t, err)
	}, func(t *testing.T, store *slowlyRenewing) {
		for _, row := range store.Rows() {
			require.Equal(t, compensator.Succeeded, row.State, row.LastError)
			require.Equal(t, 1, alone.Of(row.ID))
			require.EqualValues(t, 2, row.Version, "it was claimed once")
		}
	})
}

// slowlyRenewing is a store whose renewals last for the duration in the field takes.
type slowlyRenewing struct {
	*compensatortest.MemoryStore
	takes atomic.Int64
}

func (s *slowlyRenewing) Renew(ctx context.Context, held []processlog.Held, lease time.Duration) (processlog.Unrenewed, error) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(s.takes.Load())):
	}
	return s.MemoryStore.Renew(ctx, held, lease)
}

func inSlowBubble(t *testing.T, register func(c *compensator.Compensator, store *slowlyRenewing), test func(t *testing.T, store *slowlyRenewing)) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowlyRenewing{MemoryStore: compensatortest.NewMemoryStore()}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		register(c, store)
		stop := compensatortest.Run(t, c)
		entry := compensator.NewEntry{BusinessType: "batch", Content: []byte(`{}`), Options: compensator.Options{Delay: time.Second}}
		harness.RecordIn(t, c, store.MemoryStore, entry, entry)
		<-time.After(5 * time.Minute)
		synctest.Wait()
		test(t, store)
		stop()
		require.NoError(t, c.Close())
	})
}

// When the batch returns, the process renews the leases, which takes a quarter of a lease.
func TestNoLeaseIsCountedWhileTheLeasesOfABrokenBatchAreAskedForAnew(t *testing.T) {
	t.Parallel()
	const lease = 30 * time.Second
	var alone harness.Calls
	inSlowBubble(t, func(c *compensator.Compensator, store *slowlyRenewing) {
		_, err := compensator.HandleBatch(t.Context(), c, "batch", func(ctx context.Context, items []compensator.Item[harness.Order]) []error {
			if len(items) == 1 {
				alone.Add(items[0].Entry.ID)
				return nil
			}
			for store.Rows()[0].LeaseLeft > -lease+time.Second { // Ignore the context.
				<-time.After(100 * time.Millisecond)
			}
			store.takes.Store(int64(lease / 4))
			return []error{ctx.Err(), ctx.Err()}
		}, &compensator.BatchConfig[harness.Order]{Timeout: 10 * time.Second, Lease: lease})
		require.NoError(t, err)
	}, func(t *testing.T, store *slowlyRenewing) {
		for _, row := range store.Rows() {
			require.Equal(t, compensator.Succeeded, row.State, row.LastError)
			require.Equal(t, 1, alone.Of(row.ID))
			require.EqualValues(t, 2, row.Version, "it was claimed once")
		}
	})
}

// A handler returns a nil *hollow by mistake, which is not a nil error.
type hollow struct{ text string }

func (h *hollow) Error() string { return h.text }

func TestPanicInTheErrorOrTheScheduleIsAFailure(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]struct {
		err   error
		retry compensator.Retry
	}{
		"error":    {(*hollow)(nil), compensator.Fixed(time.Second)},
		"schedule": {errors.New("no"), func(int) time.Duration { panic("no schedule") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InBubble(t, func(c *compensator.Compensator) {
				_, err := compensator.Handle(t.Context(), c, "broken", func(context.Context, *compensator.Entry, harness.Order) error { return broken.err },
					&compensator.HandlerConfig[harness.Order]{MaxAttempts: 3, Retry: broken.retry})
				require.NoError(t, err)
			}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
				harness.RecordIn(t, c, store, compensator.NewEntry{BusinessType: "broken", Content: []byte(`{}`)})
				<-time.After(time.Minute)
				synctest.Wait()
				row := store.Rows()[0]
				require.Equal(t, compensator.Dead, row.State)
				require.Equal(t, 3, row.ProcessCount)
				require.Equal(t, compensator.EndedByExhausted, row.EndedBy)
			})
		})
	}
}

// Failure: F34
func TestEntryAdvancesWhateverItsErrorSays(t *testing.T) {
	t.Parallel()
	texts := []string{
		strings.Repeat("x", 1<<20), "\xff\xfe\x00 not a text", strings.Repeat("退款\xf0\x9f", 5000), `'"\'; DROP TABLE effects; --`, "", strings.Repeat("😀", 1001), "%s %d",
	}
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0)}, nil)
		failing, err := compensator.Handle(t.Context(), c, "failing", func(_ context.Context, _ *compensator.Entry, o harness.Order) error {
			return errors.New(texts[o.Number])
		}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 2, Retry: compensator.Fixed(0)})
		require.NoError(t, err)
		w.Run(c)
		var receipts []*compensator.Receipt
		w.InTx(db, func(tx *sql.Tx) {
			for i := range texts {
				receipt, err := failing.Record(t.Context(), tx, harness.Order{Number: i}, compensator.Options{})
				require.NoError(t, err)
				receipts = append(receipts, receipt)
			}
			_, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
			require.NoError(t, err)
		})
		w.WaitAllEnded()
		assert.Equal(t, len(texts), w.Count("common_process_log WHERE state=-2 AND process_count=2 AND ended_by='exhausted'"))
		for i, receipt := range receipts {
			entry, err := c.Get(t.Context(), receipt.ID())
			require.NoError(t, err)
			assert.True(t, utf8.ValidString(entry.LastError))
			assert.LessOrEqual(t, utf8.RuneCountInString(entry.LastError), 1000)
			start := strings.ToValidUTF8(texts[i][:min(len(texts[i]), 30)], "\uFFFD")
			assert.True(t, strings.HasPrefix(entry.LastError, strings.TrimRight(start, "\uFFFD")), "%q", entry.LastError)
		}
		w.Count("effects")
	})
}
