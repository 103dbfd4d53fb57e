package periodic

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	double "github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/internal/engine"
)

type register struct {
	store *double.Store
	mu    sync.Mutex // guards done
	done  []time.Time
}

// If mustFail returns true, the transaction rolls back.
func (r *register) period(schedule func(time.Time) time.Time, mustFail func() bool) Period {
	return Period{Name: "report", Schedule: schedule, CatchUp: 500, Do: func(ctx context.Context, from time.Time, slots []time.Time, _ time.Time) (bool, error) {
		tx, err := r.store.BeginTx(ctx)
		if err != nil {
			return false, err
		}
		defer func() { _ = tx.Rollback() }()
		moved, err := r.store.MoveMark(ctx, tx, "report", from, slots[len(slots)-1])
		if err != nil || !moved || mustFail() {
			return false, err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := tx.Commit(); err != nil {
			return false, err
		}
		r.done = append(r.done, slots...)
		return true, nil
	}}
}

// process runs a calendar with the period p until ctx ends. The end of ctx may interrupt the work at any point, as if
// somebody killed the process.
func (r *register) process(t *testing.T, ctx context.Context, p Period) {
	e := engine.New(ctx, engine.Config{Store: r.store, Log: slog.New(slog.DiscardHandler), PollInterval: time.Second, ErrorNumber: func(error) uint16 { return 0 }})
	defer e.Close()
	c := New(e)
	require.NoError(t, c.Add(ctx, p))
	c.Run(ctx)
}

// Three processes die and restart throughout a year of a local time with daylight saving time.
// Failure: F102
func TestEachSlotOfAYearIsDoneOnce(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	// When daylight saving time ends, one hour occurs twice and has two slots. When daylight saving time begins, one
	// hour is skipped and has no slot.
	schedule := func(after time.Time) time.Time {
		next := after.In(berlin).Truncate(30 * time.Minute)
		for !next.After(after) || next.Minute() != 30 {
			next = next.Add(30 * time.Minute)
		}
		return next
	}
	defer func(pause time.Duration) { maxPause = pause }(maxPause)
	maxPause = 20 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		r := &register{store: double.NewStore()}
		p := r.period(schedule, func() bool { return rng.IntN(20) == 0 }) // Only one process holds the mark, so the mark guards rng.
		begin := time.Now()
		var processes sync.WaitGroup
		for range 3 {
			lives := make([]time.Duration, 0, 400)
			for sum := time.Duration(0); sum < 365*24*time.Hour; sum += lives[len(lives)-1] {
				lives = append(lives, time.Duration(rng.Int64N(int64(72*time.Hour))))
			}
			processes.Go(func() {
				for _, life := range lives {
					ctx, kill := context.WithTimeout(context.Background(), life)
					r.process(t, ctx, p)
					kill()
				}
			})
		}
		processes.Wait()
		require.Greater(t, len(r.done), 365*24-2)
		next := schedule(begin)
		for _, slot := range r.done {
			require.True(t, slot.Equal(next), "slot after slot: %v, want %v", slot, next)
			next = schedule(next)
		}
	})
}

type readCounter struct {
	*double.Store
	reads atomic.Int64
}

func (s *readCounter) Marks(ctx context.Context, names []string) (time.Time, map[string]time.Time, error) {
	s.reads.Add(1)
	return s.Store.Marks(ctx, names)
}

// TestCalendarOfMaintenanceReadsTheMarksOncePerSlot checks how often a calendar that has only maintenance reads the
// marks. A calendar with a periodic type reads the marks once a minute, because somebody may set the database's clock.
func TestCalendarOfMaintenanceReadsTheMarksOncePerSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &readCounter{Store: double.NewStore()}
		ctx, stop := context.WithCancel(t.Context())
		e := engine.New(ctx, engine.Config{Store: store, Log: slog.New(slog.DiscardHandler), PollInterval: time.Second, ErrorNumber: func(error) uint16 { return 0 }})
		defer e.Close()
		var isBusy atomic.Bool
		var done atomic.Int64
		every := func(d time.Duration) func(time.Time) time.Time {
			return func(after time.Time) time.Time {
				if isBusy.Load() {
					return after.Truncate(time.Minute).Add(time.Minute)
				}
				return after.Truncate(d).Add(d)
			}
		}
		period := func(name, problem string, schedule func(time.Time) time.Time) Period {
			return Period{Name: name, Schedule: schedule, CatchUp: 1, Problem: problem, Do: func(ctx context.Context, from time.Time, slots []time.Time, _ time.Time) (bool, error) {
				done.Add(1)
				return store.MoveMark(ctx, nil, name, from, slots[len(slots)-1])
			}}
		}
		c := New(e)
		require.NoError(t, c.Add(ctx, period(" maintenance", "no maintenance", every(4*time.Minute))))
		var running sync.WaitGroup
		running.Go(func() { c.Run(ctx) })
		time.Sleep(time.Hour + time.Second)
		assert.Equal(t, int64(15), done.Load())
		assert.LessOrEqual(t, store.reads.Load(), int64(17), "one in Add, one at the start, and one for each slot")
		isBusy.Store(true)
		time.Sleep(time.Hour)
		assert.GreaterOrEqual(t, done.Load(), int64(15+59))
		stop()
		running.Wait()

		ctx, stop = context.WithCancel(t.Context())
		c = New(e)
		require.NoError(t, c.Add(ctx, period("report", "", every(24*time.Hour))))
		reads := store.reads.Load()
		running.Go(func() { c.Run(ctx) })
		isBusy.Store(false)
		time.Sleep(time.Hour)
		assert.GreaterOrEqual(t, store.reads.Load()-reads, int64(60))
		stop()
		running.Wait()
	})
}

// Failure: F102
func TestNewestSlotsAreKeptAndTheRestCounted(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	seconds := func(after time.Time) time.Time { return after.Truncate(time.Second).Add(time.Second) }
	for catchUp := 1; catchUp < 6; catchUp++ {
		for n := range 40 {
			p := Period{Schedule: seconds, CatchUp: catchUp}
			now := begin.Add(time.Duration(n)*time.Second + time.Millisecond)
			d, err := p.slotsSince(t.Context(), begin, now)
			require.NoError(t, err)
			want := min(n, catchUp)
			require.Len(t, d.slots, want)
			assert.Equal(t, n-want, d.skipped)
			assert.Equal(t, begin.Add(time.Duration(n+1)*time.Second), d.nextSlot)
			for i, slot := range d.slots {
				assert.Equal(t, begin.Add(time.Duration(n-want+i+1)*time.Second), slot)
			}
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Period{Schedule: seconds, CatchUp: 1}.slotsSince(ended, begin, begin.Add(time.Hour))
	require.ErrorIs(t, err, context.Canceled, "a long search ends with Run")
}

func TestSlotsAreWholeMillisecondsAndNeverEarly(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 1_000_001, time.UTC)
	p := Period{Schedule: func(after time.Time) time.Time {
		if after.Before(at) {
			return at
		}
		return time.Time{}
	}, CatchUp: 1}
	next, err := p.NextSlot(at.Add(-time.Hour))
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 1, 1, 0, 0, 0, 2_000_000, time.UTC), next)
	next, err = p.NextSlot(next)
	require.NoError(t, err)
	require.True(t, next.IsZero())
}
