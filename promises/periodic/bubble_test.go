package periodic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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

type marksStore struct {
	*compensatortest.MemoryStore
	asked   atomic.Int64
	refused atomic.Bool
}

func (s *marksStore) Marks(ctx context.Context, businessTypes []string) (time.Time, map[string]time.Time, error) {
	s.asked.Add(1)
	if s.refused.Load() {
		return time.Time{}, nil, errors.New("gone away")
	}
	return s.MemoryStore.Marks(ctx, businessTypes)
}

var _ processlog.Store = (*marksStore)(nil)

// slow polls only every ten seconds, so that hours in the bubble cost little CPU time.
func slow(store processlog.Store) compensator.Config {
	return compensator.Config{Store: store, Logger: slog.New(slog.DiscardHandler), PollInterval: 10 * time.Second}
}

type process struct {
	*compensator.Compensator
	stop func()
}

func start(t *testing.T, cfg compensator.Config, s compensator.Schedule, catchUp int) process {
	t.Helper()
	c, err := compensator.New(t.Context(), cfg)
	require.NoError(t, err)
	report, err := compensator.Handle(t.Context(), c, "report", func(context.Context, *compensator.Entry, time.Time) error { return nil }, nil)
	require.NoError(t, err)
	require.NoError(t, compensator.Periodic(t.Context(), report, s, &compensator.PeriodicConfig{CatchUp: catchUp}))
	stop := compensatortest.Run(t, c)
	return process{c, func() {
		stop()
		require.NoError(t, c.Close())
	}}
}

// recorded returns the slots that have an entry, as hours and minutes of the day.
func recorded(store *compensatortest.MemoryStore) (slots []string) {
	for _, row := range store.Rows() {
		_, at, _ := strings.Cut(string(row.IdempotencyKey), "T")
		slots = append(slots, at[:5])
	}
	return slots
}

func TestNothingIsAskedWhereNothingIsPeriodic(t *testing.T) {
	t.Parallel()
	for periodic, most := range map[bool]int64{false: 0, true: 61} {
		synctest.Test(t, func(t *testing.T) {
			store := &marksStore{MemoryStore: compensatortest.NewMemoryStore()}
			p := process{}
			if periodic {
				p = start(t, slow(store), compensator.Every(24*time.Hour), 1)
			} else {
				c, err := compensator.New(t.Context(), slow(store))
				require.NoError(t, err)
				stop := compensatortest.Run(t, c)
				p = process{c, func() { stop(); require.NoError(t, c.Close()) }}
			}
			time.Sleep(time.Minute)
			before := store.asked.Load()
			time.Sleep(time.Hour)
			synctest.Wait()
			assert.LessOrEqual(t, store.asked.Load()-before, most, "an hour at rest")
			assert.LessOrEqual(t, before, 3*most)
			p.stop()
		})
	}
}

// Failure: F102
func TestMissedSlotsAreMadeUpForAsTold(t *testing.T) {
	t.Parallel()
	for catchUp, want := range map[int][]string{0: {"01:00", "07:00", "08:00"}, 1: {"01:00", "07:00", "08:00"},
		3: {"01:00", "05:00", "06:00", "07:00", "08:00"}, 100: {"01:00", "02:00", "03:00", "04:00", "05:00", "06:00", "07:00", "08:00"}} {
		t.Run(fmt.Sprint(catchUp), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := compensatortest.NewMemoryStore()
				p := start(t, slow(store), compensator.Every(time.Hour), catchUp)
				time.Sleep(90 * time.Minute)
				p.stop()
				time.Sleep(6 * time.Hour)
				require.Equal(t, []string{"01:00"}, recorded(store), "nobody runs")
				cfg := slow(store)
				log := harness.CaptureLog(&cfg)
				p = start(t, cfg, compensator.Every(time.Hour), catchUp)
				time.Sleep(time.Hour)
				p.stop()
				require.Equal(t, want, recorded(store))
				close(log)
				var told []string
				for line := range log {
					if _, of, found := strings.Cut(line, "slots of a periodic type have passed"); found {
						told = append(told, of)
					}
				}
				if made := max(1, catchUp); made > 6 {
					require.Empty(t, told)
				} else {
					require.Len(t, told, 1)
					require.Contains(t, told[0], fmt.Sprintf("type=report slots=%d ", 6-made))
					require.Contains(t, told[0], fmt.Sprint("made_up_for=", made))
				}
			})
		})
	}
}

// Failure: F102
func TestFirstRegistrationFillsNothingBackAndASecondScheduleGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		time.Sleep(5*time.Hour + 30*time.Minute)
		p := start(t, slow(store), compensator.Every(time.Hour), 100)
		time.Sleep(time.Hour)
		p.stop()
		require.Equal(t, []string{"06:00"}, recorded(store), "what was before is not its concern")
		time.Sleep(15 * time.Minute) // It is now 06:45.
		p = start(t, slow(store), compensator.Every(20*time.Minute), 100)
		time.Sleep(time.Minute)
		p.stop()
		require.Equal(t, []string{"06:00", "06:20", "06:40"}, recorded(store), "from the last slot on, by the new schedule")
	})
}

// Failure: F103
func TestSlotsAreThoseOfTheDatabasesClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		store.ShiftClock(-40 * time.Minute)
		p := start(t, slow(store), compensator.Every(time.Hour), 1)
		time.Sleep(time.Hour + 30*time.Minute) // The database's clock now shows 00:50.
		synctest.Wait()
		require.NotContains(t, recorded(store), "01:00")
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		require.Contains(t, recorded(store), "01:00")
		store.ShiftClock(30 * time.Minute) // The database's clock now shows 01:31.
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		require.Contains(t, recorded(store), "02:00", "a clock that was set forward is noticed within a minute")
		p.stop()
	})
}

// Failure: F102
func TestSlotThatAnotherProcessDidNotMakeIsMadeSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		p := start(t, slow(store), compensator.Every(time.Hour), 1)
		_, marks, err := store.Marks(t.Context(), []string{"report"})
		require.NoError(t, err)
		time.Sleep(59 * time.Minute)
		tx, err := store.BeginTx(t.Context())
		require.NoError(t, err)
		moved, err := store.MoveMark(t.Context(), tx, "report", marks["report"], time.Now().Add(time.Minute))
		require.NoError(t, err)
		require.True(t, moved)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Empty(t, recorded(store))
		require.NoError(t, tx.Rollback())
		time.Sleep(10 * time.Second) // one PollInterval
		synctest.Wait()
		require.Equal(t, []string{"01:00"}, recorded(store))
		p.stop()
	})
}

// Failure: F105
func TestScheduleThatEndsIsNoProblem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		once := time.Now().Add(10 * time.Minute)
		p := start(t, slow(store), schedule(func(after time.Time) time.Time {
			if after.Before(once) {
				return once
			}
			return time.Time{}
		}), 1)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"00:10"}, recorded(store))
		require.Empty(t, p.Health(t.Context()).Problems)
		p.stop()
	})
}

// Failure: F105
func TestWhatKeepsSlotsFromBeingRecordedStandsInHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &marksStore{MemoryStore: compensatortest.NewMemoryStore()}
		var panics atomic.Bool
		p := start(t, slow(store), schedule(func(after time.Time) time.Time {
			if panics.Load() {
				panic("oh")
			}
			return compensator.Every(time.Minute).Next(after)
		}), 1)
		problems := func() (whats []string) {
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			for _, problem := range p.Health(t.Context()).Problems {
				whats = append(whats, problem.What+": "+problem.BusinessType)
			}
			return whats
		}
		require.Empty(t, problems())
		store.refused.Store(true)
		require.Equal(t, []string{"the slots of periodic types could not be looked for: "}, problems())
		store.refused.Store(false)
		panics.Store(true)
		require.Equal(t, []string{"a slot could not be recorded: report"}, problems())
		panics.Store(false)
		require.Empty(t, problems())
		p.stop()
	})
}

type encoding struct {
	compensator.Codec
	fails atomic.Bool
}

func (e *encoding) Marshal(v any) ([]byte, error) {
	if e.fails.Load() {
		return nil, errors.New("no key")
	}
	return e.Codec.Marshal(v)
}

func TestSlotThatCannotBeEncodedIsMadeOnceItCan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		c, err := compensator.New(t.Context(), slow(store))
		require.NoError(t, err)
		codec := &encoding{Codec: compensator.JSON}
		codec.fails.Store(true)
		report, err := compensator.Declare[time.Time](t.Context(), c, "report", &compensator.TypeConfig{Codec: codec})
		require.NoError(t, err)
		require.NoError(t, compensator.Periodic(t.Context(), report, compensator.Every(time.Hour), nil))
		stop := compensatortest.Run(t, c)
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		require.Empty(t, store.Rows(), "nothing is recorded in its stead")
		require.Contains(t, c.Health(t.Context()).Problems[0].Error, "no key")
		codec.fails.Store(false)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"01:00"}, recorded(store))
		stop()
		require.NoError(t, c.Close())
	})
}
