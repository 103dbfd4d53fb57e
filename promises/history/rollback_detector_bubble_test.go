package history

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// forgetful is a process in a bubble, on a database that the test can set back to an earlier state.
type forgetful struct {
	*compensator.Compensator
	t     *testing.T
	store *compensatortest.MemoryStore
	stops bool
}

// inForgetfulBubble calls the function test twice: with a process that only reports a loss, and with one that also
// stops.
func inForgetfulBubble(t *testing.T, cfg compensator.Config, wrap func(*compensatortest.MemoryStore) processlog.Store, test func(t *testing.T, f *forgetful)) {
	for name, stops := range map[string]bool{"reports": false, "stops": true} {
		cfg.StopOnLoss = stops
		t.Run(name, func(t *testing.T) { forgetfulBubble(t, cfg, wrap, test) })
	}
}

func forgetfulBubble(t *testing.T, cfg compensator.Config, wrap func(*compensatortest.MemoryStore) processlog.Store, test func(t *testing.T, f *forgetful)) {
	synctest.Test(t, func(t *testing.T) {
		f := &forgetful{t: t, store: compensatortest.NewMemoryStore(), stops: cfg.StopOnLoss}
		cfg.Store, cfg.Logger = wrap(f.store), slog.New(slog.DiscardHandler)
		c, err := compensator.New(t.Context(), cfg)
		require.NoError(t, err)
		_, err = compensator.Handle(t.Context(), c, "quiet", func(context.Context, *compensator.Entry, harness.Order) error { return nil }, nil)
		require.NoError(t, err)
		_, err = compensator.Handle(t.Context(), c, "failing", func(context.Context, *compensator.Entry, harness.Order) error { return assert.AnError },
			&compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(2 * time.Hour)})
		require.NoError(t, err)
		f.Compensator = c
		stop := compensatortest.Run(t, c)
		test(t, f)
		stop()
		require.NoError(t, c.Close())
	})
}

func asItIs(store *compensatortest.MemoryStore) processlog.Store { return store }

// An entry without a delay runs before recordAndWait returns.
func (f *forgetful) recordAndWait(delay time.Duration) {
	f.t.Helper()
	harness.RecordIn(f.t, f.Compensator, f.store, compensator.NewEntry{BusinessType: "quiet", Content: []byte(`{}`), Options: compensator.Options{Delay: delay}})
	time.Sleep(time.Second)
	synctest.Wait()
}

func (f *forgetful) requireReported(why string) {
	f.t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	var loss *processlog.LossError
	require.ErrorAs(f.t, f.Health(f.t.Context()).History, &loss, why)
	require.Equal(f.t, f.stops, loss.Stopped)
}

func (f *forgetful) requireGoingOn() {
	f.t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	require.NoError(f.t, f.Health(f.t.Context()).History)
}

func accept(t *testing.T, c *compensator.Compensator) {
	t.Helper()
	_, err := admin.Of(c).AcceptLoss(t.Context(), admin.AuditInfo{Actor: "ann", Reason: "known"})
	require.NoError(t, err)
}

// AcceptLoss writes a note with the time of the database's clock. The test then sets this clock back. So the note of
// the first loss looks newer than the second loss.
func TestNoteThatAClockMakesYoungerAcceptsNoLaterLoss(t *testing.T) {
	t.Parallel()
	inForgetfulBubble(t, compensator.Config{}, asItIs, func(t *testing.T, f *forgetful) {
		before := f.store.Snapshot()
		f.recordAndWait(0)
		f.store.Restore(before)
		f.requireReported("the first loss")
		accept(t, f.Compensator)
		f.requireGoingOn()

		before = f.store.Snapshot()
		f.recordAndWait(0)
		f.store.Restore(before)
		f.requireReported("the second loss")
		f.store.ShiftClock(-time.Hour)
		f.requireReported("the second loss is not accepted")
		accept(t, f.Compensator)
		f.requireGoingOn()
	})
}

// The clock of the restored database is an hour behind. By this clock, the note that AcceptLoss has written lies in the
// future.
func TestLossIsNoticedWhereTheClockIsBehindANote(t *testing.T) {
	t.Parallel()
	inForgetfulBubble(t, compensator.Config{}, asItIs, func(t *testing.T, f *forgetful) {
		accept(t, f.Compensator)
		time.Sleep(time.Minute)
		before := f.store.Snapshot()
		f.recordAndWait(0)
		f.store.Restore(before)
		f.store.ShiftClock(-time.Hour)
		f.requireReported("what was accepted is older")
	})
}

// distantNotes is a store that answers late when the process reads notes of accepted losses.
type distantNotes struct{ processlog.Store }

func (s distantNotes) History(ctx context.Context, id processlog.ID) ([]processlog.AuditRecord, error) {
	notes, err := s.Store.History(ctx, id)
	time.Sleep(4 * time.Second)
	return notes, err
}

// Reading the note takes four seconds, in which the database loses a row.
func TestNoteThatIsLongOnItsWayAcceptsNoLaterLoss(t *testing.T) {
	t.Parallel()
	distant := func(store *compensatortest.MemoryStore) processlog.Store { return distantNotes{store} }
	inForgetfulBubble(t, compensator.Config{}, distant, func(t *testing.T, f *forgetful) {
		person, err := compensator.New(t.Context(), compensator.Config{Store: f.store, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		accept(t, person)
		time.Sleep(time.Second)
		before := f.store.Snapshot()
		f.recordAndWait(0)
		f.store.Restore(before)
		f.requireReported("what was accepted is older")
		accept(t, person)
		f.requireGoingOn()
		require.NoError(t, person.Close())
	})
}

// The process reads a new version of a row, and then an older version of the same row.
func TestLossIsNoticedAlthoughSomethingOlderWasReadSince(t *testing.T) {
	t.Parallel()
	inForgetfulBubble(t, compensator.Config{ReconcileInterval: 20 * time.Minute, PollInterval: time.Second}, asItIs, func(t *testing.T, f *forgetful) {
		many := make([]compensator.NewEntry, 100) // These are more entries than the process reads back before the test ends.
		for i := range many {
			many[i] = compensator.NewEntry{BusinessType: "quiet", Content: []byte(`{}`)}
		}
		harness.RecordIn(t, f.Compensator, f.store, many...)
		time.Sleep(19 * time.Minute) // The process reads back at the start of a round, and a round comes every 20 minutes.
		f.recordAndWait(0)
		f.recordAndWait(time.Hour) // In the next round the process reads this entry back first.
		before := f.store.Snapshot()
		f.recordAndWait(0)
		time.Sleep(90 * time.Second)
		f.store.Restore(before)
		time.Sleep(20 * time.Minute)
		f.requireReported("the last entry is lost")
	})
}

// The restore loses an entry, and also a change of a second entry, whose id is in the variable failing. Another process
// then raises the version of the second entry above the lost version. So only the lost entry shows the loss.
func TestLossIsNoticedAlthoughItsLastEntryWasCarriedPast(t *testing.T) {
	t.Parallel()
	inForgetfulBubble(t, compensator.Config{ReconcileInterval: 20 * time.Minute, PollInterval: time.Second}, asItIs, func(t *testing.T, f *forgetful) {
		time.Sleep(time.Minute)
		f.recordAndWait(0)
		failing := harness.RecordIn(t, f.Compensator, f.store, compensator.NewEntry{BusinessType: "failing", Content: []byte(`{}`),
			Options: compensator.Options{Delay: 10 * time.Second}}).ID()
		before := f.store.Snapshot()
		f.recordAndWait(0)
		time.Sleep(20 * time.Second)
		f.store.Restore(before)
		other, err := compensator.New(t.Context(), compensator.Config{Store: f.store, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, other.Reschedule(t.Context(), failing, 2*time.Hour))
		}
		time.Sleep(20 * time.Minute)
		f.requireReported("the entry before it is lost")
		require.NoError(t, other.Close())
	})
}

// lateStore takes two minutes to purge cancelled entries.
type lateStore struct{ processlog.Store }

func (s lateStore) Purge(ctx context.Context, businessType string, state compensator.State, age time.Duration, limit int) (int, error) {
	if state == compensator.Cancelled {
		time.Sleep(2 * time.Minute)
	}
	return s.Store.Purge(ctx, businessType, state, age, limit)
}

// Purge writes a note before it deletes entries. The minimum age of the entries counts from the time of the note. Purge
// must not delete an entry that reaches the minimum age later.
// Failure: F21
func TestPurgeDeletesNothingThatEndsAfterItsNote(t *testing.T) {
	t.Parallel()
	harness.InBubble(t, func(c *compensator.Compensator) {
		_, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error { return nil }, nil)
		require.NoError(t, err)
	}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
		purger, err := compensator.New(t.Context(), compensator.Config{Store: lateStore{store}, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		harness.RecordLater(t, c, 0)
		time.Sleep(time.Minute + time.Second)
		purged := make(chan int, 1)
		go func() {
			n, err := admin.Of(purger).Purge(t.Context(), time.Minute, compensator.Cancelled, compensator.Succeeded)
			assert.NoError(t, err)
			purged <- n
		}()
		synctest.Wait() // By now the purge has written its note.
		harness.RecordLater(t, c, time.Millisecond)
		assert.Equal(t, 1, <-purged)
		rows := store.Rows()
		require.Len(t, rows, 1)
		assert.Equal(t, compensator.Succeeded, rows[0].State)
		require.NoError(t, purger.Close())
	})
}

// While silent is set, silentStore does not answer the rollback detector's reads of versions.
type silentStore struct {
	processlog.Store
	silent atomic.Bool
	opened atomic.Int64
}

func (s *silentStore) Connections() int64 { return s.opened.Add(1) }

func (s *silentStore) ReadsCommitted() bool { return true }

func (s *silentStore) Versions(ctx context.Context, ids []processlog.ID) ([]processlog.Version, error) {
	if s.silent.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Versions(ctx, ids)
}

// Failure: F21
func TestRecordWaitsForNoCheckOfTheDatabase(t *testing.T) {
	t.Parallel()
	var silent *silentStore
	wrap := func(store *compensatortest.MemoryStore) processlog.Store {
		silent = &silentStore{Store: store}
		return silent
	}
	inForgetfulBubble(t, compensator.Config{}, wrap, func(t *testing.T, f *forgetful) {
		f.recordAndWait(0) // The process now remembers an entry.
		silent.silent.Store(true)
		time.Sleep(20 * time.Second) // A check now waits for its answer.
		var records sync.WaitGroup
		for range 3 {
			records.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				began := time.Now()
				tx, err := f.store.Begin(ctx)
				if !assert.NoError(t, err) {
					return
				}
				_, err = f.Record(ctx, tx, compensator.NewEntry{BusinessType: "quiet", Content: []byte(`{}`), Options: compensator.Options{Delay: time.Hour}})
				assert.NoError(t, err)
				assert.Zero(t, time.Since(began))
				assert.NoError(t, tx.Rollback())
			})
		}
		records.Wait()
		silent.silent.Store(false)
	})
}

func TestNothingIsReadBackWhereLossesAreIgnored(t *testing.T) {
	t.Parallel()
	forgetfulBubble(t, compensator.Config{IgnoreLoss: true}, asItIs, func(t *testing.T, f *forgetful) {
		before := f.store.Snapshot()
		f.recordAndWait(0)
		f.store.Restore(before)
		f.requireGoingOn()
		accept(t, f.Compensator)
		notes, err := admin.Of(f.Compensator).History(t.Context(), compensator.EntryID{})
		require.NoError(t, err)
		require.Len(t, notes, 1)
	})
}
