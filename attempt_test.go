package compensator_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/processlog"
)

func TestNothingStartsOnceRunHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- c.Run(ctx) }()
		synctest.Wait()
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			if _, err := orders.Record(ctx, tx, order{}, compensator.Options{}); err != nil {
				return err
			}
			stop()
			require.NoError(t, <-stopped)
			<-time.After(15 * time.Second) // the slot set aside for the entry has lapsed
			return nil
		}))
		synctest.Wait()
		require.Zero(t, ran.total())
		row := store.Rows()[0]
		assert.LessOrEqual(t, row.LeaseLeft, time.Duration(0), "somebody else may run it at once")
		assert.Zero(t, row.DeliveryCount)
		require.NoError(t, c.Close())
	})
}

func TestReschedulingDuringAnAttemptIsNoCrash(t *testing.T) {
	var c *compensator.Compensator
	var runs atomic.Int64
	inBubble(t, func(made *compensator.Compensator) {
		c = made
		_, err := compensator.Handle(c, "postponed", func(ctx context.Context, e *compensator.Entry, _ order) error {
			if runs.Add(1) > 5 {
				return nil
			}
			assert.NoError(t, c.Reschedule(ctx, e.ID, 0))
			return errors.New("dropped: the entry was moved meanwhile")
		}, compensator.TypeConfig{})
		require.NoError(t, err)
	}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
		recordIn(t, c, store, compensator.NewEntry{BusinessType: "postponed", Content: []byte(`{}`)})
		<-time.After(time.Hour)
		synctest.Wait()
		row := store.Rows()[0]
		require.Equal(t, compensator.Succeeded, row.State, "ended by %s", row.EndedBy)
		require.EqualValues(t, 6, runs.Load())
	})
}

func TestCancellingOneEntryOfABatchCostsTheOthersNothing(t *testing.T) {
	var entered chan []compensator.EntryID
	var proceed chan struct{}
	inBubble(t, func(c *compensator.Compensator) {
		entered, proceed = make(chan []compensator.EntryID, 10), make(chan struct{}) // of the bubble
		_, err := compensator.HandleBatch(c, "batch", func(ctx context.Context, items []compensator.Item[order]) []error {
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
		}, compensator.TypeConfig{})
		require.NoError(t, err)
	}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
		entry := compensator.NewEntry{BusinessType: "batch", Content: []byte(`{}`), Options: compensator.Options{Delay: time.Second}}
		recordIn(t, c, store, entry, entry, entry)
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

// Of a batch without a verdict, an entry that somebody has cancelled is not run once more.
func TestCancelledEntryOfAFailedBatchIsNotRunAgain(t *testing.T) {
	var entered chan []compensator.EntryID
	var proceed chan struct{}
	var alone calls
	inBubble(t, func(c *compensator.Compensator) {
		entered, proceed = make(chan []compensator.EntryID, 10), make(chan struct{}) // of the bubble
		_, err := compensator.HandleBatch(c, "batch", func(_ context.Context, items []compensator.Item[order]) []error {
			if len(items) == 1 {
				alone.add(items[0].Entry.ID)
				return nil
			}
			entered <- []compensator.EntryID{items[0].Entry.ID, items[1].Entry.ID}
			<-proceed
			panic("no verdict")
		}, compensator.TypeConfig{})
		require.NoError(t, err)
	}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
		entry := compensator.NewEntry{BusinessType: "batch", Content: []byte(`{}`), Options: compensator.Options{Delay: time.Second}}
		recordIn(t, c, store, entry, entry)
		batch := <-entered
		_, err := c.Cancel(t.Context(), batch[0])
		require.NoError(t, err)
		close(proceed)
		<-time.After(time.Minute)
		synctest.Wait()
		require.Zero(t, alone.of(batch[0]))
		require.Equal(t, 1, alone.of(batch[1]))
	})
}

// The same where the batch's time was up before.
func TestEntryCancelledAfterItsBatchTimedOutIsNotRunAgain(t *testing.T) {
	for _, where := range []string{"here", "elsewhere"} { // which a renewal tells
		t.Run(where, func(t *testing.T) {
			var alone calls
			inBubble(t, func(c *compensator.Compensator) {
				_, err := compensator.HandleBatch(c, "batch", func(ctx context.Context, items []compensator.Item[order]) []error {
					if len(items) > 1 {
						<-time.After(1900 * time.Millisecond) // whatever its context says
						return []error{ctx.Err(), ctx.Err()}
					}
					alone.add(items[0].Entry.ID)
					return nil
				}, compensator.TypeConfig{Timeout: time.Second, Lease: time.Second})
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
				recordIn(t, c, store, entry, entry)
				<-time.After(2200 * time.Millisecond)
				cancelled, other := store.Rows()[0].ID, store.Rows()[1].ID
				_, err := canceller.Cancel(t.Context(), cancelled)
				require.NoError(t, err)
				<-time.After(time.Minute)
				synctest.Wait()
				require.Zero(t, alone.of(cancelled))
				require.Equal(t, 1, alone.of(other))
			})
		})
	}
}

// A batch that hung for so long that its leases have ended comes to no verdict, and each entry is run alone. That handler is
// not the one that hung: within its timeout no lease counts against the entry in its own process.
func TestEntryRunAloneAfterItsBatchWasStuckIsNotTakenForStuck(t *testing.T) {
	const timeout, lease = 20 * time.Second, 2 * time.Second
	var alone calls
	inSlowBubble(t, func(c *compensator.Compensator, store *slowlyRenewing) {
		_, err := compensator.HandleBatch(c, "batch", func(ctx context.Context, items []compensator.Item[order]) []error {
			if len(items) > 1 {
				<-time.After(timeout + 2*lease) // whatever its context says
				return []error{ctx.Err(), ctx.Err()}
			}
			alone.add(items[0].Entry.ID)
			store.takes.Store(int64(time.Hour)) // the leases end under it
			<-time.After(timeout - lease)       // long enough for four leases to be counted
			store.takes.Store(0)
			return nil
		}, compensator.TypeConfig{Timeout: timeout, Lease: lease})
		require.NoError(t, err)
	}, func(t *testing.T, store *slowlyRenewing) {
		for _, row := range store.Rows() {
			require.Equal(t, compensator.Succeeded, row.State, row.LastError)
			require.Equal(t, 1, alone.of(row.ID))
			require.EqualValues(t, 2, row.Version, "it was claimed once")
		}
	})
}

// slowlyRenewing is a store whose renewals take their time once they are told to.
type slowlyRenewing struct {
	*compensatortest.MemoryStore
	takes atomic.Int64
}

func (s *slowlyRenewing) Renew(ctx context.Context, held []processlog.Held, lease time.Duration) ([]processlog.ID, error) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(s.takes.Load())):
	}
	return s.MemoryStore.Renew(ctx, held, lease)
}

// inSlowBubble lives two entries of a batch to their end on such a store.
func inSlowBubble(t *testing.T, register func(c *compensator.Compensator, store *slowlyRenewing), test func(t *testing.T, store *slowlyRenewing)) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowlyRenewing{MemoryStore: compensatortest.NewMemoryStore()}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		register(c, store)
		stop := compensatortest.Run(t, c)
		entry := compensator.NewEntry{BusinessType: "batch", Content: []byte(`{}`), Options: compensator.Options{Delay: time.Second}}
		recordIn(t, c, store.MemoryStore, entry, entry)
		<-time.After(5 * time.Minute)
		synctest.Wait()
		test(t, store)
		stop()
		require.NoError(t, c.Close())
	})
}

// A stuck batch returns when its entries have been free for nearly a lease, and while their leases are asked for anew the
// rest of it passes.
func TestNoLeaseIsCountedWhileTheLeasesOfABrokenBatchAreAskedForAnew(t *testing.T) {
	const lease = 30 * time.Second
	var alone calls
	inSlowBubble(t, func(c *compensator.Compensator, store *slowlyRenewing) {
		_, err := compensator.HandleBatch(c, "batch", func(ctx context.Context, items []compensator.Item[order]) []error {
			if len(items) == 1 {
				alone.add(items[0].Entry.ID)
				return nil
			}
			for store.Rows()[0].LeaseLeft > -lease+time.Second { // whatever its context says
				<-time.After(100 * time.Millisecond)
			}
			store.takes.Store(int64(lease / 4))
			return []error{ctx.Err(), ctx.Err()}
		}, compensator.TypeConfig{Timeout: 10 * time.Second, Lease: lease})
		require.NoError(t, err)
	}, func(t *testing.T, store *slowlyRenewing) {
		for _, row := range store.Rows() {
			require.Equal(t, compensator.Succeeded, row.State, row.LastError)
			require.Equal(t, 1, alone.of(row.ID))
			require.EqualValues(t, 2, row.Version, "it was claimed once")
		}
	})
}

// hollow is an error as a handler returns it by mistake: a nil pointer in an interface that is not nil.
type hollow struct{ text string }

func (h *hollow) Error() string { return h.text }

func TestPanicInTheErrorOrTheScheduleIsAFailure(t *testing.T) {
	for name, broken := range map[string]struct {
		err   error
		retry compensator.Retry
	}{
		"error":    {(*hollow)(nil), compensator.Fixed(time.Second)},
		"schedule": {errors.New("no"), func(int) time.Duration { panic("no schedule") }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(c *compensator.Compensator) {
				_, err := compensator.Handle(c, "broken", func(context.Context, *compensator.Entry, order) error { return broken.err },
					compensator.TypeConfig{MaxProcessCount: 3, Retry: broken.retry})
				require.NoError(t, err)
			}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
				recordIn(t, c, store, compensator.NewEntry{BusinessType: "broken", Content: []byte(`{}`)})
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

// What a person or a service moves forward runs at its new moment, not at the one the queue knows.
func TestEntryMovedForwardDoesNotWaitForTheReconciler(t *testing.T) {
	inEveryMode(t, func(t *testing.T, w *world, cfg compensator.Config) {
		cfg, ready := w.hooksOnly(cfg)
		cfg.Lease = time.Hour // a place within it could be a lease's end
		c := w.new(cfg)
		orders, ran := numbered(t, c, "close_order", compensator.TypeConfig{}, nil)
		w.run(c)
		ready()
		id := putThrough(w, cfg.DB, orders, 1, compensator.Options{Delay: 5 * time.Minute})
		if w.Redis != nil {
			w.eventually(func() bool { return w.queued() == 1 }, "the queue knows the entry")
		}
		require.NoError(t, c.Reschedule(t.Context(), id, 100*time.Millisecond))
		w.waitState(id, compensator.Succeeded)
		require.Equal(t, 1, ran.of(id))
	})
}

func TestEntriesReadBackDecodeAsTheirTypeDoes(t *testing.T) {
	w := newWorld(t)
	c := w.new(w.quick())
	orders, err := compensator.Handle(c, "close_order", func(context.Context, *compensator.Entry, order) error { return nil },
		compensator.TypeConfig{Codec: reversed{}})
	require.NoError(t, err)
	id := put(w, orders, 7, compensator.Options{})
	got, err := c.Get(t.Context(), id)
	require.NoError(t, err)
	resolved, err := c.Resolve(t.Context(), id)
	require.NoError(t, err)
	page, err := c.List(t.Context(), compensator.Filter{})
	require.NoError(t, err)
	for name, e := range map[string]*compensator.Entry{"Get": got, "Resolve": resolved, "List": &page.Entries[0]} {
		var o order
		require.NoError(t, e.Decode(&o), name)
		require.Equal(t, 7, o.Number, name)
	}
}

// reversed is JSON, written backwards.
type reversed struct{}

func (reversed) Marshal(v any) ([]byte, error) {
	data, err := compensator.JSON.Marshal(v)
	return backwards(data), err
}

func (reversed) Unmarshal(data []byte, v any) error {
	return compensator.JSON.Unmarshal(backwards(data), v)
}

func backwards(data []byte) []byte {
	turned := make([]byte, 0, len(data))
	for i := len(data) - 1; i >= 0; i-- {
		turned = append(turned, data[i])
	}
	return turned
}
