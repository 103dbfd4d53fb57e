package commits

import (
	"context"
	"database/sql"
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

// The reconciler runs one round. After it, the library finds a new entry only by polling for its commit.
func polledOnly(w *harness.World) (cfg compensator.Config, ready func()) {
	cfg = w.QuickConfig()
	cfg.DB = w.Open(harness.PlainPool(w.DSN))
	return w.HooksOnlyConfig(cfg)
}

// commitUnseen does not call Receipt.Committed, like the tutorials of ORMs.
func commitUnseen(w *harness.World, c *compensator.Compensator, db *sql.DB, before string, entries ...compensator.NewEntry) *compensator.Receipt {
	w.T.Helper()
	var receipt *compensator.Receipt
	w.InTx(db, func(tx *sql.Tx) {
		var err error
		receipt, err = c.Record(w.T.Context(), tx, entries...)
		require.NoError(w.T, err)
		_, err = tx.Exec(before)
		require.NoError(w.T, err)
	})
	return receipt
}

// Failure: F12
func TestEntryStartsAlthoughNobodyReportsItsCommit(t *testing.T) {
	t.Parallel()
	for name, redis := range map[string]bool{"redis": true, "no redis": false} {
		for took, before := range map[string]string{"at once": "DO 0", "after the first poll": "DO SLEEP(0.1)", "after the second": "DO SLEEP(0.4)", "after the first second": "DO SLEEP(2.3)"} {
			t.Run(name+"/"+took, func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				if redis {
					w.WithRedis()
				}
				cfg, ready := polledOnly(w)
				c := w.New(cfg)
				orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
				w.Run(c)
				ready()
				one := commitUnseen(w, c, cfg.DB, before, orders.Entry(harness.Order{}, compensator.Options{}))
				bulk := commitUnseen(w, c, cfg.DB, before,
					orders.Entry(harness.Order{}, compensator.Options{Delay: 20 * time.Millisecond}), orders.Entry(harness.Order{}, compensator.Options{}))
				require.NoError(t, bulk.ResolveIDs(t.Context(), w.DB))
				for _, e := range append(bulk.Entries, one.Entries...) {
					w.WaitState(e.ID, compensator.Succeeded)
					assert.Equal(t, 1, ran.Of(e.ID))
				}
			})
		}
	}
}

// Failure: F12
func TestEntryStartsElsewhereAlthoughNobodyReportsItsCommit(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	cfg, ready := polledOnly(w)
	worker := w.New(cfg)
	_, ran := harness.HandleCounted(t, worker, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(worker)
	ready()
	producing, _ := polledOnly(w)
	producer := w.New(producing)
	receipt := commitUnseen(w, producer, producing.DB, "DO 0", compensator.NewEntry{BusinessType: "close_order", Content: []byte("{}")})
	w.WaitState(receipt.ID(), compensator.Succeeded)
	assert.Equal(t, 1, ran.Total())
}

// Failure: F12
func TestChangeTakesEffectAlthoughNobodyReportsItsCommit(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg, ready := polledOnly(w)
	c := w.New(cfg)
	orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	serial, held := harness.HandleGated(t, c, "pay", compensator.HandlerConfig[harness.Order]{
		TypeConfig: compensator.TypeConfig{Serial: func(*compensator.Entry) string { return "account" }},
	}, nil)
	w.Run(c)
	ready()
	later := commitUnseen(w, c, cfg.DB, "DO 0", orders.Entry(harness.Order{}, compensator.Options{Delay: time.Hour}))
	w.InTx(cfg.DB, func(tx *sql.Tx) { require.NoError(t, c.RescheduleTx(t.Context(), tx, later.ID(), 0)) })
	w.WaitState(later.ID(), compensator.Succeeded)

	first := commitUnseen(w, c, cfg.DB, "DO 0", serial.Entry(harness.Order{}, compensator.Options{Delay: 30 * 24 * time.Hour}))
	second := commitUnseen(w, c, cfg.DB, "DO 0", serial.Entry(harness.Order{}, compensator.Options{}))
	passer := commitUnseen(w, c, cfg.DB, "DO 0", orders.Entry(harness.Order{}, compensator.Options{}))
	w.WaitState(passer.ID(), compensator.Succeeded) // By now the second entry has been read and found blocked.
	require.Equal(t, compensator.Pending, w.State(second.ID()))
	w.InTx(cfg.DB, func(tx *sql.Tx) {
		_, err := c.CancelTx(t.Context(), tx, first.ID())
		require.NoError(t, err)
	})
	held.Open()
	w.WaitState(second.ID(), compensator.Succeeded)
}

func TestPollDoesNotTakeAnotherTransactionsEntryForItsOwn(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg, ready := polledOnly(w)
	log := harness.CaptureLog(&cfg)
	c := w.New(cfg)
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	ready()
	entry := orders.Entry(harness.Order{}, compensator.Options{IdempotencyKey: "close-42"})
	tx := w.Begin(cfg.DB)
	_, err := c.Record(t.Context(), tx, entry)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	receipt := commitUnseen(w, c, cfg.DB, "DO 0", entry)
	w.WaitState(receipt.ID(), compensator.Succeeded)
	log.Contains(w, "whose commit the library does not see", "close-42")
	assert.Equal(t, 1, ran.Total())
	for len(log) > 0 {
		assert.NotContains(t, <-log, "is not there", "the commit of the first transaction was not reported")
	}
}

type asked struct {
	after time.Duration
	keys  int
}

type askedStore struct {
	processlog.Store
	mu    sync.Mutex
	began time.Time
	asked []asked // guarded by mu
}

func (s *askedStore) IDs(ctx context.Context, tx processlog.Tx, keys []processlog.IdempotencyKey) (map[processlog.IdempotencyKey]processlog.ID, error) {
	s.mu.Lock()
	s.asked = append(s.asked, asked{time.Since(s.began), len(keys)})
	s.mu.Unlock()
	return s.Store.IDs(ctx, tx, keys)
}

func inPolledBubble(t *testing.T, test func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, log harness.Log) (want []asked)) {
	synctest.Test(t, func(t *testing.T) {
		memory := compensatortest.NewMemoryStore()
		store := &askedStore{Store: memory, began: time.Now()}
		cfg := compensator.Config{Store: store, PollInterval: time.Hour, ReconcileInterval: time.Hour}
		log := harness.CaptureLog(&cfg)
		c, err := compensator.New(t.Context(), cfg)
		require.NoError(t, err)
		harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		stop := compensatortest.Run(t, c)
		synctest.Wait()
		want := test(t, c, memory, log)
		time.Sleep(2 * time.Minute)
		stop()
		require.NoError(t, c.Close())
		store.mu.Lock()
		defer store.mu.Unlock()
		require.Equal(t, want, store.asked)
	})
}

func record(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, opts compensator.Options) (*compensatortest.MemoryTx, *compensator.Receipt) {
	t.Helper()
	tx, err := store.BeginTx(t.Context())
	require.NoError(t, err)
	receipt, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "close_order", Content: []byte("{}"), Options: opts})
	require.NoError(t, err)
	return tx, receipt
}

func TestCommitIsPolledForDuringAMinuteAndForAllThatWaitAtOnce(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	// Until 8 s after the transaction there is a poll every second. Later, the pause between polls is an eighth of the
	// transaction's age.
	slow := func(keys int) (list []asked) {
		for age := 2 * time.Second; age <= time.Minute; age += max(time.Second, age/8) {
			list = append(list, asked{age, keys})
		}
		return list
	}
	t.Run("rolled back", func(t *testing.T) {
		t.Parallel()
		inPolledBubble(t, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, log harness.Log) []asked {
			for range 10 {
				tx, _ := record(t, c, store, compensator.Options{})
				require.NoError(t, tx.Rollback())
			}
			return append([]asked{{50 * ms, 10}, {200 * ms, 10}, {1000 * ms, 10}}, slow(10)...)
		})
	})
	t.Run("committed and not reported", func(t *testing.T) {
		t.Parallel()
		inPolledBubble(t, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, log harness.Log) []asked {
			early, _ := record(t, c, store, compensator.Options{})
			require.NoError(t, early.Commit())
			late, _ := record(t, c, store, compensator.Options{})
			time.Sleep(150 * ms)
			require.NoError(t, late.Commit())
			time.Sleep(2 * time.Second)
			require.Len(t, log, 1, "it is said once")
			return []asked{{50 * ms, 2}, {200 * ms, 1}}
		})
	})
	t.Run("committed late and not reported", func(t *testing.T) {
		t.Parallel()
		inPolledBubble(t, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, log harness.Log) []asked {
			tx, _ := record(t, c, store, compensator.Options{})
			time.Sleep(500 * ms)
			require.NoError(t, tx.Commit())
			time.Sleep(2 * time.Second)
			require.Len(t, log, 1, "the last poll found the entry, and it was not reported as missing")
			return []asked{{50 * ms, 1}, {200 * ms, 1}, {1000 * ms, 1}}
		})
	})
	t.Run("committed after 40 s and not reported", func(t *testing.T) {
		t.Parallel()
		inPolledBubble(t, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, log harness.Log) []asked {
			tx, _ := record(t, c, store, compensator.Options{})
			time.Sleep(40 * time.Second)
			require.NoError(t, tx.Commit())
			time.Sleep(7 * time.Second)
			require.Len(t, log, 1, "it is said once")
			list := slow(1)
			found := slices.IndexFunc(list, func(a asked) bool { return a.after >= 40*time.Second })
			return append([]asked{{50 * ms, 1}, {200 * ms, 1}, {1000 * ms, 1}}, list[:found+1]...)
		})
	})
	t.Run("another one while a slow one is polled for", func(t *testing.T) {
		t.Parallel()
		inPolledBubble(t, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, log harness.Log) []asked {
			early, receipt := record(t, c, store, compensator.Options{})
			time.Sleep(300 * ms)
			late, _ := record(t, c, store, compensator.Options{})
			require.NoError(t, late.Commit())
			time.Sleep(2 * time.Second)
			require.NoError(t, early.Commit())
			receipt.Committed()
			return []asked{{50 * ms, 1}, {200 * ms, 1}, {350 * ms, 1}, {1000 * ms, 1}, {2000 * ms, 1}}
		})
	})
	t.Run("the key was recorded by another transaction", func(t *testing.T) {
		t.Parallel()
		inPolledBubble(t, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, log harness.Log) []asked {
			one, _ := record(t, c, store, compensator.Options{IdempotencyKey: "close-42"})
			require.NoError(t, one.Rollback())
			other, receipt := record(t, c, store, compensator.Options{IdempotencyKey: "close-42"})
			require.NoError(t, other.Commit())
			receipt.Committed()
			return []asked{{50 * ms, 1}}
		})
	})
	t.Run("more slow ones than one statement asks for", func(t *testing.T) {
		t.Parallel()
		inPolledBubble(t, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, log harness.Log) []asked {
			const all = processlog.MaxRows + 10
			for range all {
				tx, _ := record(t, c, store, compensator.Options{})
				require.NoError(t, tx.Rollback())
			}
			return append([]asked{{50 * ms, all}, {200 * ms, all}, {1000 * ms, all}}, slow(processlog.MaxRows)...)
		})
	})
	t.Run("reported right after the last poll", func(t *testing.T) {
		t.Parallel()
		inPolledBubble(t, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, log harness.Log) []asked {
			tx, receipt := record(t, c, store, compensator.Options{})
			time.Sleep(999 * ms)
			require.NoError(t, tx.Commit())
			time.Sleep(2 * ms)
			receipt.Committed()
			time.Sleep(2 * time.Second)
			require.Empty(t, log)
			return []asked{{50 * ms, 1}, {200 * ms, 1}, {1000 * ms, 1}}
		})
	})
	t.Run("reported", func(t *testing.T) {
		t.Parallel()
		inPolledBubble(t, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, log harness.Log) []asked {
			tx, receipt := record(t, c, store, compensator.Options{})
			require.NoError(t, tx.Commit())
			receipt.Committed()
			time.Sleep(2 * time.Second)
			require.Empty(t, log)
			return nil
		})
	})
	t.Run("due later than the next round", func(t *testing.T) {
		t.Parallel()
		inPolledBubble(t, func(t *testing.T, c *compensator.Compensator, store *compensatortest.MemoryStore, log harness.Log) []asked {
			tx, _ := record(t, c, store, compensator.Options{Delay: 24 * time.Hour})
			require.NoError(t, tx.Commit())
			return nil
		})
	})
}
