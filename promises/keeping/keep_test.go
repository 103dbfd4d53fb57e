package keeping

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

type purgeStore struct {
	*compensatortest.MemoryStore
	takes time.Duration

	mu     sync.Mutex // guards the fields below it
	begins []time.Time
	inside int
	most   int // largest number of entries purged in one call
	limits map[int]bool
	fails  error
	failed string // type whose purge fails (empty: all types)
	locked bool   // whether another transaction locks the oldest row of each type and state
	refers int    // countdown: while it is above 0, each call of Purge reports a row to which a foreign key refers, and subtracts 1
	late   bool   // if set, Marks fails in the first 40 seconds of each minute
}

func (s *purgeStore) Marks(ctx context.Context, businessTypes []string) (time.Time, map[string]time.Time, error) {
	s.mu.Lock()
	late := s.late
	s.mu.Unlock()
	if late && businessTypes[0] == " keep" && time.Now().Second() < 40 {
		return time.Time{}, nil, errors.New("gone away")
	}
	return s.MemoryStore.Marks(ctx, businessTypes)
}

func newPurgeStore() *purgeStore {
	return &purgeStore{MemoryStore: compensatortest.NewMemoryStore(), limits: make(map[int]bool)}
}

func (s *purgeStore) Purge(ctx context.Context, businessType string, state compensator.State, age time.Duration, limit int) (int, error) {
	s.mu.Lock()
	s.begins = append(s.begins, time.Now())
	s.inside++
	s.most = max(s.most, s.inside)
	s.limits[limit] = true
	fails := s.fails
	if s.failed != "" && s.failed != businessType {
		fails = nil
	}
	if s.locked {
		limit--
	}
	refuses := s.refers > 0
	if refuses {
		s.refers--
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inside--
	}()
	if fails != nil {
		return 0, fails
	}
	n, err := s.MemoryStore.Purge(ctx, businessType, state, age, limit)
	if n > 0 {
		time.Sleep(s.takes)
	}
	if refuses && err == nil {
		err = &processlog.RefusedError{Refusals: []processlog.Refusal{{ID: processlog.RowID(7), Err: errors.New("a foreign key refers to it")}}}
	}
	return n, err
}

var _ processlog.Store = (*purgeStore)(nil)

func config(store processlog.Store, keep time.Duration) compensator.Config {
	return compensator.Config{ // The tests let hours pass, so rounds must be rare.
		Store: store, Keep: keep, Logger: slog.New(slog.DiscardHandler), PollInterval: 10 * time.Second, ReconcileInterval: 10 * time.Minute, Horizon: 24 * time.Hour,
	}
}

// types maps the name of each type to its Keep. The content of an entry says how the entry ends.
func start(t *testing.T, cfg compensator.Config, types map[string]time.Duration) (*compensator.Compensator, func()) {
	t.Helper()
	c, err := compensator.New(t.Context(), cfg)
	require.NoError(t, err)
	for name, keep := range types {
		_, err := compensator.Handle(t.Context(), c, name, func(_ context.Context, _ *compensator.Entry, ends string) error {
			if ends == "succeeded" {
				return nil
			}
			return compensator.Permanent(errors.New(ends))
		}, &compensator.HandlerConfig[string]{TypeConfig: compensator.TypeConfig{Keep: keep}})
		require.NoError(t, err)
	}
	stop := compensatortest.Run(t, c)
	return c, func() {
		stop()
		require.NoError(t, c.Close())
	}
}

func record(t *testing.T, c *compensator.Compensator, store interface {
	BeginTx(context.Context) (*compensatortest.MemoryTx, error)
}, businessType, ends string, delay time.Duration) {
	t.Helper()
	tx, err := store.BeginTx(t.Context())
	require.NoError(t, err)
	receipt, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: businessType, Content: fmt.Appendf(nil, "%q", ends),
		Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(businessType + " " + ends), Delay: delay}})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	receipt.Committed()
}

func remainingKeys(store *purgeStore) (ids []string) {
	synctest.Wait()
	for _, row := range store.Rows() {
		ids = append(ids, string(row.IdempotencyKey))
	}
	slices.Sort(ids)
	return ids
}

// Failure: F106
func TestEndedEntriesArePurgedOnceTheyHaveBeenKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		c, stop := start(t, config(store, 2*time.Hour), map[string]time.Duration{"usual": 0, "long": 5 * time.Hour, "ever": -1})
		for _, businessType := range []string{"usual", "long", "ever", "stray"} {
			record(t, c, store, businessType, "succeeded", 0)
		}
		record(t, c, store, "usual", "dead", 0)
		record(t, c, store, "usual", "waiting", 100*time.Hour)
		record(t, c, store, "usual", "cancelled", time.Hour)
		record(t, c, store, "usual", "by hand", 0)
		time.Sleep(30 * time.Minute)
		_, err := c.Cancel(t.Context(), compensator.IdempotencyKey("usual cancelled"))
		require.NoError(t, err)
		_, err = c.Cancel(t.Context(), compensator.IdempotencyKey("stray succeeded"))
		require.NoError(t, err)
		require.NoError(t, admin.Of(c).SettleManually(t.Context(), compensator.IdempotencyKey("usual by hand"), admin.AuditInfo{Actor: "ann", Reason: "done"}))

		stay := []string{"ever succeeded", "stray succeeded", "usual by hand", "usual dead", "usual waiting"}
		time.Sleep(89 * time.Minute)
		require.Equal(t, append([]string{"ever succeeded", "long succeeded", "stray succeeded"}, "usual by hand", "usual cancelled", "usual dead", "usual succeeded", "usual waiting"), remainingKeys(store), "too young, all of them")
		time.Sleep(3 * time.Minute)
		require.NotContains(t, remainingKeys(store), "usual succeeded")
		require.Contains(t, remainingKeys(store), "usual cancelled", "it ended later")
		time.Sleep(30 * time.Minute)
		require.Equal(t, []string{"ever succeeded", "long succeeded", "stray succeeded", "usual by hand", "usual dead", "usual waiting"}, remainingKeys(store))
		time.Sleep(4 * time.Hour)
		require.Equal(t, stay, remainingKeys(store), "people's, other processes', and what is kept for ever")
		time.Sleep(50 * time.Hour)
		require.Equal(t, stay, remainingKeys(store))
		stop()
	})
}

// Failure: F106
func TestDeclaredTypeIsKeptAsItSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		c, err := compensator.New(t.Context(), config(store, time.Hour))
		require.NoError(t, err)
		for name, keep := range map[string]time.Duration{"inbox": 2 * time.Hour, "other": 0} {
			recordDone(t, c, name, keep)
		}
		stop := compensatortest.Run(t, c)
		time.Sleep(119 * time.Minute)
		require.Equal(t, []string{"inbox", "other"}, remainingKeys(store))
		time.Sleep(3 * time.Minute)
		require.Equal(t, []string{"other"}, remainingKeys(store))
		time.Sleep(24 * time.Hour)
		require.Equal(t, []string{"other"}, remainingKeys(store))
		_, err = compensator.Declare[string](t.Context(), c, "short", &compensator.TypeConfig{Keep: time.Minute})
		require.ErrorAs(t, err, new(*compensator.FieldError))
		stop()
		require.NoError(t, c.Close())
	})
}

func recordDone(t *testing.T, c *compensator.Compensator, name string, keep time.Duration) {
	t.Helper()
	declared, err := compensator.Declare[string](t.Context(), c, name, &compensator.TypeConfig{Keep: keep})
	require.NoError(t, err)
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := declared.Once(ctx, tx, compensator.IdempotencyKey(name), "")
		return err
	}))
}

// Failure: F106
func TestTypeIsPurgedOnceARoundHoweverOftenItIsDeclared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		c, err := compensator.New(t.Context(), config(store, 0))
		require.NoError(t, err)
		for _, keep := range []time.Duration{3 * time.Hour, 2 * time.Hour, 5 * time.Hour} {
			recordDone(t, c, "inbox", keep)
		}
		stop := compensatortest.Run(t, c)
		recordDone(t, c, "inbox", 4*time.Hour)
		time.Sleep(119 * time.Minute)
		require.Equal(t, []string{"inbox"}, remainingKeys(store))
		looks := make(map[time.Time]int)
		store.mu.Lock()
		begins := slices.Clone(store.begins)
		store.mu.Unlock()
		for _, at := range begins {
			looks[at.Truncate(time.Minute)]++
		}
		require.NotEmpty(t, looks)
		for minute, n := range looks {
			require.Equal(t, 3, n, "%v: one of each state", minute)
		}
		time.Sleep(3 * time.Minute)
		require.Empty(t, remainingKeys(store))
		stop()
		require.NoError(t, c.Close())
	})
}

// noKeyStates is a store without support for serial types.
type noKeyStates struct{ *purgeStore }

func (noKeyStates) KeyStates(context.Context, string, []processlog.Position, processlog.Token, bool) (map[string]processlog.KeyState, error) {
	return nil, errors.New("gone away")
}

// Failure: F106
func TestTypeThatIsRefusedIsNotPurged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		c, err := compensator.New(t.Context(), config(noKeyStates{store}, 0))
		require.NoError(t, err)
		recordDone(t, c, "inbox", 0)
		_, err = compensator.Declare[string](t.Context(), c, "inbox", &compensator.TypeConfig{Keep: time.Hour, Serial: func(*compensator.Entry) string { return "one" }})
		require.ErrorContains(t, err, "gone away")
		handle := func(keep time.Duration) error {
			_, err := compensator.Handle(t.Context(), c, "usual", func(context.Context, *compensator.Entry, string) error { return nil }, &compensator.HandlerConfig[string]{TypeConfig: compensator.TypeConfig{Keep: keep}})
			return err
		}
		require.NoError(t, handle(5*time.Hour))
		require.Error(t, handle(time.Hour))
		record(t, c, store, "usual", "succeeded", 0)
		stop := compensatortest.Run(t, c)
		time.Sleep(4 * time.Hour)
		require.Equal(t, []string{"inbox", "usual succeeded"}, remainingKeys(store))
		stop()
		require.NoError(t, c.Close())

		c, err = compensator.New(t.Context(), config(store, 0))
		require.NoError(t, err)
		stop = compensatortest.Run(t, c)
		synctest.Wait()
		_, err = compensator.Declare[string](t.Context(), c, "late", &compensator.TypeConfig{Keep: time.Hour})
		require.ErrorIs(t, err, compensator.ErrRunning)
		stop()
		require.NoError(t, c.Close())
	})
}

// Failure: F106
func TestNothingIsPurgedUnlessToldSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		c, stop := start(t, config(store, 0), map[string]time.Duration{"usual": 0})
		record(t, c, store, "usual", "succeeded", 0)
		time.Sleep(24 * time.Hour)
		require.Equal(t, []string{"usual succeeded"}, remainingKeys(store))
		require.Empty(t, store.begins)
		stop()
	})
}

// Failure: F106
func TestPurgingIsOneProcessesAtATimeInSmallSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		store.takes = 500 * time.Millisecond
		var stops []func()
		var c *compensator.Compensator
		cfg := config(store, time.Hour)
		cfg.PollInterval = time.Minute // The store scans all its rows on each call, so poll rarely.
		for range 3 {
			var stop func()
			c, stop = start(t, cfg, map[string]time.Duration{"one": 0, "two": 0})
			stops = append(stops, stop)
		}
		const n = 7000
		tx, err := store.BeginTx(t.Context())
		require.NoError(t, err)
		for i := range n {
			_, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: []string{"one", "two"}[i%2], Content: []byte(`"succeeded"`)})
			require.NoError(t, err)
		}
		require.NoError(t, tx.Commit())
		time.Sleep(90 * time.Minute)
		require.Empty(t, remainingKeys(store))
		assert.Equal(t, 1, store.most, "steps at once")
		assert.Equal(t, map[int]bool{100: true}, store.limits)
		for _, stop := range stops {
			stop()
		}
		busy := make(map[time.Time]int)
		for _, at := range store.begins {
			busy[at.Truncate(time.Minute)]++
			assert.LessOrEqual(t, at.Sub(at.Truncate(time.Minute)), 48*time.Second, "a round is over before the next one begins")
		}
		for minute, steps := range busy {
			assert.LessOrEqual(t, steps, 24, "%v: most of a round is rest", minute)
		}
	})
}

// Failure: F106
func TestProcessThatHandlesNothingPurgesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		c, stop := start(t, config(store, time.Hour), nil)
		time.Sleep(2 * time.Hour)
		require.Empty(t, c.Health(t.Context()).Problems)
		require.Empty(t, store.begins)
		stop()
	})
}

// Failure: F106
func TestPurgeThatFailsStandsInHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		c, stop := start(t, config(store, time.Hour), map[string]time.Duration{"usual": 0})
		fail := func(err error) {
			store.mu.Lock()
			store.fails = err
			store.mu.Unlock()
			time.Sleep(3 * time.Minute)
			synctest.Wait()
		}
		fail(errors.New("gone away"))
		problems := c.Health(t.Context()).Problems
		require.Len(t, problems, 1)
		require.Equal(t, "ended entries could not be purged", problems[0].What)
		fail(nil)
		require.Empty(t, c.Health(t.Context()).Problems)
		stop()
	})
}

// deafStore is a store that fails to close cases.
type deafStore struct{ *compensatortest.MemoryStore }

func (s deafStore) CloseCases(context.Context, int) (int, error) { return 0, errors.New("gone away") }

type oldCases struct {
	*compensatortest.MemoryStore
	looks atomic.Int32
}

func (s *oldCases) ForgetCases(ctx context.Context, age time.Duration, limit int) (int, error) {
	s.looks.Add(1)
	return s.MemoryStore.ForgetCases(ctx, age, limit)
}

// Thorough rounds delete old cases. The first round is thorough, and after it one round in each hour.
func TestOldCasesAreForgottenThoughNothingElseIsToBeDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &oldCases{MemoryStore: compensatortest.NewMemoryStore()}
		cfg := config(store, 0)
		cfg.Operations = &compensator.Operations{}
		_, stop := start(t, cfg, map[string]time.Duration{"usual": 0})
		time.Sleep(2*time.Hour + time.Minute)
		synctest.Wait()
		require.EqualValues(t, 3, store.looks.Load())
		stop()
	})
}

func TestMaintenanceOfCasesThatFailsIsReportedByItsName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := config(deafStore{compensatortest.NewMemoryStore()}, time.Hour)
		cfg.Operations = &compensator.Operations{}
		c, stop := start(t, cfg, map[string]time.Duration{"usual": 0})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		problems := c.Health(t.Context()).Problems
		require.Len(t, problems, 1)
		require.Equal(t, "cases could not be opened and closed after the fact", problems[0].What)
		stop()
	})
}

func fill(t *testing.T, c *compensator.Compensator, store *purgeStore, n int, types ...string) {
	t.Helper()
	tx, err := store.BeginTx(t.Context())
	require.NoError(t, err)
	for range n {
		for _, businessType := range types {
			_, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: businessType, Content: []byte(`"succeeded"`)})
			require.NoError(t, err)
		}
	}
	require.NoError(t, tx.Commit())
}

// The oldest row stays locked, so each step purges one entry less than its limit.
func TestPurgeGoesOnBehindALockedRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		store.locked = true
		c, stop := start(t, config(store, 0), map[string]time.Duration{"usual": 0})
		fill(t, c, store, 3000, "usual")
		time.Sleep(time.Hour)
		n, err := admin.Of(c).Purge(t.Context(), time.Minute)
		require.NoError(t, err)
		require.Equal(t, 3000, n)
		require.Empty(t, remainingKeys(store))
		stop()
	})
}

// Failure: F106
func TestRoundGoesOnBehindALockedRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		store.locked = true
		c, stop := start(t, config(store, time.Hour), map[string]time.Duration{"usual": 0})
		fill(t, c, store, 3000, "usual")
		time.Sleep(63 * time.Minute)
		require.Empty(t, remainingKeys(store), "a round or two take them")
		stop()
	})
}

// Failure: F106
func TestRoundTakesTheRestOfARefusedEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		c, stop := start(t, config(store, time.Hour), map[string]time.Duration{"usual": 0})
		fill(t, c, store, 1000, "usual")
		time.Sleep(50 * time.Minute)
		store.mu.Lock()
		store.refers = 1 << 20
		store.mu.Unlock()
		time.Sleep(12 * time.Minute)
		require.Empty(t, remainingKeys(store))
		problems := c.Health(t.Context()).Problems
		require.Len(t, problems, 1)
		require.Contains(t, problems[0].Error, "entry 7: a foreign key refers to it")

		fill(t, c, store, 2500, "usual")
		store.mu.Lock()
		store.refers = 1
		store.mu.Unlock()
		time.Sleep(2 * time.Minute)
		n, err := admin.Of(c).Purge(t.Context(), time.Minute)
		require.Equal(t, 2500, n)
		// Only one purge reports the refused row. If that was a purge of an earlier round, err is nil here.
		if err != nil {
			require.ErrorAs(t, err, new(*processlog.RefusedError))
		}
		stop()
	})
}

// Failure: F106
func TestTypeWhosePurgeFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		store.fails, store.failed = errors.New("no right to delete"), "bad"
		c, stop := start(t, config(store, time.Hour), map[string]time.Duration{"bad": 0, "good": 0, "fine": 0})
		fill(t, c, store, 1, "bad", "good", "fine")
		time.Sleep(63 * time.Minute)
		require.Len(t, remainingKeys(store), 1, "the others' are gone")
		require.Equal(t, "bad", store.Rows()[0].BusinessType)
		problems := c.Health(t.Context()).Problems
		require.Len(t, problems, 1)
		require.Equal(t, 3, strings.Count(problems[0].Error, "no right to delete"), "of each state: %s", problems[0].Error)
		stop()
	})
}

func TestPurgeThatTakesAllItsTimeHoldsUpNoCases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		store.takes = 2 * time.Second
		cfg := config(store, time.Hour)
		cfg.Operations = &compensator.Operations{}
		c, stop := start(t, cfg, map[string]time.Duration{"usual": 0})
		fill(t, c, store, 3000, "usual")
		time.Sleep(65 * time.Minute)
		require.NotEmpty(t, remainingKeys(store), "it is not done yet")
		require.Empty(t, c.Health(t.Context()).Problems)
		stop()
	})
}

// Failure: F106
func TestRoundThatBeginsLateEndsAsAnyOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newPurgeStore()
		store.takes = 500 * time.Millisecond
		c, stop := start(t, config(store, time.Hour), map[string]time.Duration{"usual": 0})
		fill(t, c, store, 3000, "usual")
		store.mu.Lock()
		store.late = true
		store.mu.Unlock()
		time.Sleep(3 * time.Hour)
		require.Empty(t, remainingKeys(store))
		for _, at := range store.begins {
			assert.Less(t, at.Second(), 46, "%v: the next round may have begun", at)
		}
		stop()
	})
}

// Failure: F106
func TestKeepIsAtLeastAnHour(t *testing.T) {
	t.Parallel()
	for _, keep := range []time.Duration{-time.Second, time.Second, time.Hour - 1, 11 * 365 * 24 * time.Hour} {
		_, err := compensator.New(t.Context(), config(newPurgeStore(), keep))
		require.ErrorContains(t, err, "Keep")
	}
	c, err := compensator.New(t.Context(), config(newPurgeStore(), 0))
	require.NoError(t, err)
	defer c.Close()
	_, err = compensator.Handle(t.Context(), c, "short", func(context.Context, *compensator.Entry, string) error { return nil }, &compensator.HandlerConfig[string]{TypeConfig: compensator.TypeConfig{Keep: time.Minute}})
	require.ErrorContains(t, err, "Keep")
}

// Failure: F106
func TestLogWithoutTheTableOfSlotsKeepsForEverOrSaysSo(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	_, err := w.DB.ExecContext(t.Context(), "DROP TABLE common_process_log_slots")
	require.NoError(t, err)
	cfg := w.QuickConfig()
	cfg.Keep = 2 * time.Hour
	_, err = compensator.New(t.Context(), cfg)
	require.ErrorContains(t, err, "table `common_process_log_slots`: does not exist")
	c := w.New(w.QuickConfig())
	_, err = compensator.Handle(t.Context(), c, "kept", func(context.Context, *compensator.Entry, string) error { return nil }, &compensator.HandlerConfig[string]{TypeConfig: compensator.TypeConfig{Keep: 2 * time.Hour}})
	require.ErrorContains(t, err, "table `common_process_log_slots`: does not exist")
}

// Failure: F106
func TestKeepOnAServerTakesWhatIsOldAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	for _, state := range processlog.States {
		for i, age := range []time.Duration{3 * time.Hour, time.Minute} {
			for _, businessType := range []string{"kept", "other"} {
				_, err := w.DB.ExecContext(t.Context(), "INSERT INTO common_process_log (idempotent_id, business_type, content, state, ended_by, process_count, next_at, created_at, updated_at) "+
					"VALUES (?, ?, '\"x\"', ?, IF(? IN (0,-1,-3), '', 'handler'), IF(?=-1,1,0), UNIX_TIMESTAMP()*1000-?+IF(? IN (0,-1,-3), 360000000, 0), NOW(), NOW())",
					fmt.Sprint(businessType, state, i), businessType, int(state), int(state), int(state), age.Milliseconds(), int(state))
				require.NoError(t, err)
			}
		}
	}
	_, err := w.DB.ExecContext(t.Context(), "INSERT INTO common_process_log_slots VALUES (' keep', UNIX_TIMESTAMP()*1000-120000)") // The next round of the purge is due now.
	require.NoError(t, err)
	cfg := w.QuickConfig()
	cfg.Keep = 2 * time.Hour
	c := w.New(cfg)
	_, err = compensator.Handle(t.Context(), c, "kept", func(context.Context, *compensator.Entry, string) error { return nil }, nil)
	require.NoError(t, err)
	stop := w.Run(c)
	w.Eventually(func() bool {
		return w.Count("common_process_log WHERE business_type='kept'") == 2*len(processlog.States)-3
	}, "what is old is purged")
	require.NoError(t, stop())
	for _, state := range []compensator.State{compensator.Succeeded, compensator.Compensated, compensator.Cancelled} {
		require.Equal(t, 1, w.Count(fmt.Sprintf("common_process_log WHERE business_type='kept' AND state=%d AND idempotent_id LIKE '%%1'", state)), "the young %s one", state)
	}
	require.Equal(t, 2*len(processlog.States), w.Count("common_process_log WHERE business_type='other'"))
}

// silentMarks is a store whose Marks method does not answer until silent is closed.
type silentMarks struct {
	*purgeStore
	silent chan struct{}
	asked  chan struct{}
}

func (s *silentMarks) Marks(ctx context.Context, businessTypes []string) (time.Time, map[string]time.Time, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	select {
	case <-s.silent:
		return s.purgeStore.Marks(ctx, businessTypes)
	case <-ctx.Done():
		return time.Time{}, nil, ctx.Err()
	}
}

func TestTypeIsDeclaredAlthoughTheDatabaseIsSilentToAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &silentMarks{purgeStore: newPurgeStore(), silent: make(chan struct{}), asked: make(chan struct{}, 1)}
		c, err := compensator.New(t.Context(), config(store, 0))
		require.NoError(t, err)
		first := make(chan error, 1)
		go func() {
			_, err := compensator.Declare[string](t.Context(), c, "one", &compensator.TypeConfig{Keep: time.Hour})
			first <- err
		}()
		<-store.asked
		ended := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := compensator.Declare[string](t.Context(), c, "two", &compensator.TypeConfig{Keep: time.Hour})
			ended <- err
		}()
		// Each of the two declarations fails at its own deadline, counted from its own start.
		require.ErrorIs(t, <-first, context.DeadlineExceeded)
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(began), "the second has waited in its own time, not behind the first one's")
		close(store.silent)
		_, err = compensator.Declare[string](t.Context(), c, "three", &compensator.TypeConfig{Keep: time.Hour})
		require.NoError(t, err)
		require.NoError(t, c.Close())
	})
}
