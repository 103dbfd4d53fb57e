package claiming

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/features/timingwheel"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

func TestDelaysOfAnyLengthEndOnTimeAndNeverEarly(t *testing.T) {
	t.Parallel()
	var late atomic.Int64
	var runs atomic.Int64
	harness.InBubbleOf(t, compensator.Config{ReconcileInterval: time.Minute, PollInterval: time.Minute}, func(c *compensator.Compensator) {
		_, err := compensator.Handle(t.Context(), c, "later", func(ctx context.Context, e *compensator.Entry, o harness.Order) error {
			lateness := time.Since(e.NextAt)
			assert.GreaterOrEqual(t, lateness, time.Duration(0), "entry %s", e.ID)
			late.Store(max(late.Load(), int64(lateness)))
			runs.Add(1)
			return nil
		}, nil)
		require.NoError(t, err)
	}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
		delays := []time.Duration{0, time.Millisecond, 999 * time.Millisecond, time.Minute, 59 * time.Minute, time.Hour, 25 * time.Hour}
		for _, delay := range delays {
			harness.RecordIn(t, c, store, compensator.NewEntry{BusinessType: "later", Content: []byte(`{}`), Options: compensator.Options{Delay: delay}})
		}
		time.Sleep(26 * time.Hour)
		synctest.Wait()
		assert.EqualValues(t, len(delays), runs.Load())
		for _, row := range store.Rows() {
			assert.Equal(t, compensator.Succeeded, row.State)
		}
		assert.Less(t, time.Duration(late.Load()), 20*time.Millisecond, "by the bubble's clock, on which work takes no time")
	})
}

func TestEntryThatIsNeverEnqueuedIsFoundByTheReconciler(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	harness.InBubble(t, func(c *compensator.Compensator) {
		_, err := compensator.Handle(t.Context(), c, "quiet", func(context.Context, *compensator.Entry, harness.Order) error {
			runs.Add(1)
			return nil
		}, nil)
		require.NoError(t, err)
	}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
		tx, err := store.BeginTx(t.Context())
		require.NoError(t, err)
		_, err = c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "quiet", Content: []byte(`{}`)})
		require.NoError(t, err)
		time.Sleep(2 * time.Second)     // After this time the library no longer polls for the commit.
		require.NoError(t, tx.Commit()) // Commit without calling Receipt.Committed.
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.EqualValues(t, 1, runs.Load())
	})
}

type slowStore struct{ processlog.Store }

func (s slowStore) Scan(ctx context.Context, w processlog.Window) ([]processlog.Scheduled, error) {
	time.Sleep(time.Second)
	page, err := s.Store.Scan(ctx, w)
	time.Sleep(time.Second)
	return page, err
}

func (s slowStore) Heads(ctx context.Context) ([]processlog.Head, error) {
	heads, err := s.Store.Heads(ctx)
	time.Sleep(time.Second)
	return heads, err
}

// The reconciler first reads entries that are due later, and then overdue entries. An entry that comes due between
// these reads is in neither of them. The timing wheel does not hold the entry, either.
func TestEntryThatComesDueWhileTheLogIsLookedThroughIsNotMissed(t *testing.T) {
	t.Parallel()
	for delay := time.Duration(0); delay < 6*time.Second; delay += 250 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			c, err := compensator.New(t.Context(), compensator.Config{Store: slowStore{compensatortest.NewMemoryStore()}, PollInterval: time.Hour,
				Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			ran := make(chan struct{}, 1)
			_, err = compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error {
				ran <- struct{}{}
				return nil
			}, nil)
			require.NoError(t, err)
			harness.RecordLater(t, c, delay)
			compensatortest.Run(t, c)
			time.Sleep(time.Minute) // This is shorter than any interval.
			require.Len(t, ran, 1, "due in %v", delay)
		})
	}
}

// Other processes share the queue, so a process enqueues only some of the open entries at its start.
func TestDelayedEntryThatIsNeverEnqueuedRunsOnTime(t *testing.T) {
	t.Parallel()
	inSharedBubble(t, compensator.Config{}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, late *harness.Lateness) {
		time.Sleep(time.Minute) // By now the process has enqueued the entries that it enqueues at its start.
		harness.RecordDelayedIn(t, c, store, 1, time.Minute)
		time.Sleep(2 * time.Minute)
		late.RequireOnTime(t, 1)
	})
}

// The queue was full when an entry was recorded, so the entry was not enqueued.
// Failure: F49
func TestEntriesBeyondTheQueuesLimitRunOnTime(t *testing.T) {
	t.Parallel()
	inSharedBubble(t, compensator.Config{QueueLimit: 1000}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, late *harness.Lateness) {
		harness.RecordDelayedIn(t, c, store, 1000, 9*time.Minute).Committed()
		harness.RecordDelayedIn(t, c, store, 1500, 5*time.Minute).Committed()
		time.Sleep(6 * time.Minute)
		late.RequireOnTime(t, 1500)
		time.Sleep(4 * time.Minute)
		late.RequireOnTime(t, 2500)
	})
}

// endlessStore takes a second for each page, and returns full pages of entries that come due at the end of the window.
type endlessStore struct{ processlog.Store }

func (s endlessStore) Scan(ctx context.Context, w processlog.Window) ([]processlog.Scheduled, error) {
	if w.BusinessType != "busy" {
		return s.Store.Scan(ctx, w)
	}
	time.Sleep(time.Second)
	if w.To <= 0 {
		return nil, nil
	}
	page := make([]processlog.Scheduled, w.Limit)
	for i := range page {
		page[i] = processlog.Scheduled{ID: processlog.RowID(uint64(1_000_000 + i)), In: w.To}
	}
	return page, nil
}

func TestReconcilerDoesNotRunAfterWhatComesNearMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := compensatortest.NewMemoryStore()
		cfg := compensator.Config{Store: endlessStore{memory}, Queue: timingwheel.New(), Logger: slog.New(slog.DiscardHandler)}
		rounds := 0
		cfg.Observer.Reconciled = func(observe.ReconciledEvent) { rounds++ }
		c, err := compensator.New(t.Context(), cfg)
		require.NoError(t, err)
		_, err = compensator.Handle(t.Context(), c, "busy", new(harness.Lateness).Note, nil)
		require.NoError(t, err)
		tx, err := memory.BeginTx(t.Context())
		require.NoError(t, err)
		_, err = c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "busy", Content: []byte(`{}`), Options: compensator.Options{Delay: 30 * time.Second}})
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		stop := compensatortest.Run(t, c)
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		assert.Greater(t, rounds, 1)
		stop()
		require.NoError(t, c.Close())
	})
}

type refusingStore struct {
	processlog.Store
	claims *atomic.Int64
}

func (s refusingStore) Claim(context.Context, []processlog.Wanted, processlog.Token, time.Duration, func(*processlog.Row) bool) (processlog.Claimed, error) {
	s.claims.Add(1)
	return processlog.Claimed{}, errors.New("the database is away")
}

func TestClaimsThatAreRefusedBecomeRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := compensatortest.NewMemoryStore()
		var claims atomic.Int64
		c, err := compensator.New(t.Context(), compensator.Config{Store: refusingStore{memory, &claims}, Queue: timingwheel.New(), Grace: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		_, err = compensator.Handle(t.Context(), c, "quiet", new(harness.Lateness).Note, nil)
		require.NoError(t, err)
		harness.RecordDelayedIn(t, c, memory, 500, time.Second).Committed()
		stop := compensatortest.Run(t, c)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Greater(t, claims.Load(), int64(5))
		assert.Less(t, claims.Load(), int64(50))
		stop()
		require.NoError(t, c.Close())
	})
}

type distantStore struct{ processlog.Store }

func (s distantStore) Claim(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error) {
	time.Sleep(50 * time.Millisecond)
	return s.Store.Claim(ctx, want, token, lease, accept)
}

func TestEntryDueDuringAClaimNeedNotWaitForItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := compensatortest.NewMemoryStore()
		c, err := compensator.New(t.Context(), compensator.Config{Store: distantStore{memory}, Queue: timingwheel.New(), Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		late := new(harness.Lateness)
		_, err = compensator.Handle(t.Context(), c, "quiet", late.Note, nil)
		require.NoError(t, err)
		stop := compensatortest.Run(t, c)
		time.Sleep(time.Minute)
		harness.RecordDelayedIn(t, c, memory, 1, time.Second).Committed()
		harness.RecordDelayedIn(t, c, memory, 1, time.Second+10*time.Millisecond).Committed()
		time.Sleep(2 * time.Second)
		late.RequireOnTime(t, 2)
		assert.Less(t, slices.Max(late.All), 60*time.Millisecond, "by the bubble's clock: one claim, and no part of another")
		stop()
		require.NoError(t, c.Close())
	})
}

// awayStore returns an error from every Settle until the database is back. The field back is the time at which the
// database is back.
type awayStore struct {
	processlog.Store
	back time.Time
}

func (s awayStore) Settle(ctx context.Context, token processlog.Token, outcomes []processlog.Outcome) ([]processlog.Settled, error) {
	if time.Now().Before(s.back) {
		return nil, errors.New("the database is away")
	}
	return s.Store.Settle(ctx, token, outcomes)
}

func TestStopStoresOutcomesInADatabaseThatIsBack(t *testing.T) {
	t.Parallel()
	for range 20 { // The waits between retries are random.
		synctest.Test(t, func(t *testing.T) {
			memory := compensatortest.NewMemoryStore()
			store := awayStore{memory, time.Now().Add(time.Minute)}
			c, err := compensator.New(t.Context(), compensator.Config{Store: store, StopTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			_, err = compensator.Handle(t.Context(), c, "quiet", new(harness.Lateness).Note, nil)
			require.NoError(t, err)
			stop := compensatortest.Run(t, c)
			harness.RecordDelayedIn(t, c, memory, 1, time.Second).Committed()
			time.Sleep(time.Until(store.back))
			stop()
			require.Equal(t, compensator.Succeeded, memory.Rows()[0].State)
			require.NoError(t, c.Close())
		})
	}
}

// inSharedBubble runs test with a Config.Queue, so the library treats the queue as shared with other processes.
func inSharedBubble(t *testing.T, cfg compensator.Config, test func(*testing.T, *compensator.Compensator, *compensatortest.MemoryStore, *harness.Lateness)) {
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		cfg.Store, cfg.Queue, cfg.Logger = store, timingwheel.New(), slog.New(slog.DiscardHandler)
		c, err := compensator.New(t.Context(), cfg)
		require.NoError(t, err)
		late := new(harness.Lateness)
		_, err = compensator.Handle(t.Context(), c, "quiet", late.Note, nil)
		require.NoError(t, err)
		stop := compensatortest.Run(t, c)
		test(t, c, store, late)
		stop()
		require.NoError(t, c.Close())
	})
}

// Failure: F67
func TestRetriesAreSpacedAsTheScheduleSays(t *testing.T) {
	t.Parallel()
	var at []time.Duration
	var began time.Time
	harness.InBubble(t, func(c *compensator.Compensator) {
		levels, err := compensator.ParseDelayLevels("1s 5s 10s 30s 1m")
		require.NoError(t, err)
		_, err = compensator.Handle(t.Context(), c, "stubborn", func(context.Context, *compensator.Entry, harness.Order) error {
			at = append(at, time.Since(began).Truncate(time.Second))
			return errors.New("again")
		}, &compensator.HandlerConfig[harness.Order]{Retry: levels, MaxAttempts: 6})
		require.NoError(t, err)
	}, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore) {
		began = time.Now()
		harness.RecordIn(t, c, store, compensator.NewEntry{BusinessType: "stubborn", Content: []byte(`{}`)})
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []time.Duration{0, 1, 6, 16, 46, 106}
		require.Len(t, at, len(want))
		for i, seconds := range want {
			assert.Equal(t, seconds*time.Second, at[i], "attempt %d", i+1)
		}
		assert.Equal(t, compensator.Dead, store.Rows()[0].State)
	})
}

// The session's clock must be recent, because Record refuses a session whose clock differs much from the server's.
func TestStoredDueMomentIsNeverEarly(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		var second int64
		require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT UNIX_TIMESTAMP()").Scan(&second))
		harness.ExecAll(t, conn, []string{fmt.Sprintf("SET timestamp=%d.000900", second)})
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		entries := harness.NewUntyped(3)
		for i, delay := range []time.Duration{time.Nanosecond, time.Millisecond, 1500 * time.Microsecond} {
			entries[i].Delay = delay
		}
		receipt, err := c.Record(t.Context(), tx, entries...)
		require.NoError(t, err)
		require.NoError(t, receipt.ResolveIDs(t.Context(), tx))
		for i, want := range []int64{1000*second + 1, 1000*second + 2, 1000*second + 3} {
			var dueMS int64
			require.NoError(t, tx.QueryRow("SELECT next_at FROM common_process_log WHERE id=?", receipt.Entries[i].ID.Row()).Scan(&dueMS))
			assert.GreaterOrEqual(t, dueMS, want, "due %v after 0.9 ms", entries[i].Delay)
			assert.LessOrEqual(t, dueMS, want+1)
		}
		require.NoError(t, tx.Rollback())
		harness.ExecAll(t, conn, []string{"SET timestamp=DEFAULT"})
	})
}
