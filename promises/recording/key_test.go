package recording

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
)

// lookalikes are keys that at least one collation treats as equal.
var lookalikes = []string{
	"Abc", "abc", "ABC", "ábc", "Ábc", "a\u0301bc", "abc\u200b", " abc", "abc\t", "straße", "strasse", "😀", "😁", "ﬁ", "fi", "ı", "i", "ж", "Ж", "\u00a0", "%", "_", "a'b", `a\b`,
}

// Failure: F15
func TestKeysThatOnlyLookAlikeAreDifferentEntries(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		entries := harness.NewUntyped(len(lookalikes))
		for i, key := range lookalikes {
			entries[i].IdempotencyKey = compensator.IdempotencyKey(key)
		}
		first := make(map[string]compensator.EntryID)
		w.InTx(db, func(tx *sql.Tx) {
			receipt, err := c.Record(t.Context(), tx, entries[:12]...)
			require.NoError(t, err)
			require.NoError(t, receipt.ResolveIDs(t.Context(), tx))
			recorded := receipt.Entries
			for _, e := range entries[12:] {
				receipt, err := c.Record(t.Context(), tx, e)
				require.NoError(t, err)
				recorded = append(recorded, receipt.Entries...)
			}
			for _, r := range recorded {
				assert.False(t, r.Duplicate, "%q", r.IdempotencyKey)
				first[string(r.IdempotencyKey)] = r.ID
			}
		})
		assert.Equal(t, len(lookalikes), w.Count("common_process_log"))
		w.InTx(db, func(tx *sql.Tx) {
			receipt, err := c.Record(t.Context(), tx, entries...)
			require.NoError(t, err)
			for _, r := range receipt.Entries {
				assert.True(t, r.Duplicate, "%q", r.IdempotencyKey)
				assert.Equal(t, first[string(r.IdempotencyKey)], r.ID, "%q", r.IdempotencyKey)
			}
		})
		var field *compensator.FieldError
		for _, padded := range []string{"abc ", " "} {
			tx := w.Begin(db)
			_, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "close_order", Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(padded)}})
			require.ErrorAs(t, err, &field, "%q: databases ignore the space", padded)
			require.NoError(t, tx.Rollback())
		}
		assert.Equal(t, len(lookalikes), w.Count("common_process_log"))
	})
}

// Failure: F16
func TestOneDuplicateFailsNoneOfItsBatch(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		batch := harness.NewReverseKeyed("key", 100)
		var existing *compensator.Receipt
		w.InTx(cfg.DB, func(tx *sql.Tx) {
			var err error
			existing, err = c.Record(t.Context(), tx, batch[40])
			require.NoError(t, err)
		})
		w.WaitState(existing.ID(), compensator.Succeeded)
		batch[70].IdempotencyKey = batch[20].IdempotencyKey // Make one key a duplicate within the call.
		batch[70].Content = []byte(`{"number":2}`)
		var receipt *compensator.Receipt
		w.InTx(cfg.DB, func(tx *sql.Tx) {
			var err error
			receipt, err = c.Record(t.Context(), tx, batch...)
			require.NoError(t, err)
			require.NoError(t, receipt.ResolveIDs(t.Context(), tx))
		})
		receipt.Committed()
		for i, e := range receipt.Entries {
			assert.Equal(t, i == 40 || i == 70, e.Duplicate, "entry %d", i)
			assert.Equal(t, idOf(w, string(batch[i].IdempotencyKey)), e.ID.Row(), "entry %d", i)
		}
		assert.Equal(t, compensator.Succeeded, receipt.Entries[40].State)
		assert.True(t, receipt.Entries[40].ContentMatches)
		assert.False(t, receipt.Entries[70].ContentMatches)
		w.WaitAllEnded()
		assert.Equal(t, 99, w.Count("common_process_log WHERE state=1"))
		assert.Equal(t, 99, ran.Total())
		assert.Equal(t, 1, ran.Of(existing.ID()), "the duplicate ran again")
	})
}

// Failure: F16
func TestDuplicateHiddenByAnOlderSnapshotIsFound(t *testing.T) {
	t.Parallel()
	harness.InEverySnapshotMode(t, func(t *testing.T, w *harness.World, db *sql.DB, watched, isolated bool) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		var n int
		require.NoError(t, tx.QueryRow("SELECT COUNT(*) FROM common_process_log").Scan(&n)) // This read creates the transaction's snapshot.
		entries := harness.NewReverseKeyed("key", 3)
		var first *compensator.Receipt
		w.InTx(w.DB, func(tx *sql.Tx) {
			first, err = c.Record(t.Context(), tx, entries[:2]...)
			require.NoError(t, err)
			require.NoError(t, first.ResolveIDs(t.Context(), tx))
		})
		require.NoError(t, tx.QueryRow("SELECT COUNT(*) FROM common_process_log").Scan(&n))
		require.Zero(t, n, "the snapshot shows the rows: nothing is hidden")
		alone, err := c.Record(t.Context(), tx, entries[0])
		if isolated && !watched { // In this case only a lock can find the duplicate, and the server then rolls the transaction back.
			require.ErrorIs(t, err, compensator.ErrTxAborted)
			require.NoError(t, tx.Rollback())
			tx = w.Begin(db) // Run the whole transaction again.
			alone, err = c.Record(t.Context(), tx, entries[0])
		}
		require.NoError(t, err)
		assert.True(t, alone.Duplicate())
		assert.Equal(t, first.ID(), alone.ID())
		mixed, err := c.Record(t.Context(), tx, entries...)
		require.NoError(t, err)
		for i, e := range mixed.Entries {
			assert.Equal(t, i < 2, e.Duplicate, "entry %d", i)
		}
		require.NoError(t, tx.Commit())
		assert.Equal(t, 3, w.Count("common_process_log"))
	})
}

// Failure: F16
func TestDuplicateOfAnEntryThatChangesAbortsNothing(t *testing.T) {
	t.Parallel()
	harness.InEverySnapshotMode(t, func(t *testing.T, w *harness.World, db *sql.DB, _, _ bool) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		entries := harness.NewReverseKeyed("key", 2)
		w.InTx(db, func(tx *sql.Tx) {
			_, err := c.Record(t.Context(), tx, entries[:1]...)
			require.NoError(t, err)
		})
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		var n int
		require.NoError(t, tx.QueryRow("SELECT COUNT(*) FROM common_process_log").Scan(&n))
		require.Equal(t, 1, n, "the snapshot shows the entry")
		w.Exec("UPDATE common_process_log SET version=version+1")
		receipt, err := c.Record(t.Context(), tx, entries...)
		require.NoError(t, err)
		assert.True(t, receipt.Duplicate())
		assert.False(t, receipt.Entries[1].Duplicate)
		require.NoError(t, tx.Commit())
		assert.Equal(t, 2, w.Count("common_process_log"))
	})
}

type attempted struct {
	receipt *compensator.Receipt
	err     error
}

// recordAside calls Record in a goroutine, because another transaction holds the key and the call waits.
func recordAside(ctx context.Context, c *compensator.Compensator, tx compensator.Tx, entries ...compensator.NewEntry) <-chan attempted {
	done := make(chan attempted, 1)
	go func() {
		receipt, err := c.Record(ctx, tx, entries...)
		done <- attempted{receipt, err}
	}()
	return done
}

// Failure: F16
func TestRecordWaitsForTheTransactionThatHoldsItsKey(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end       func(*sql.Tx) error
		duplicate bool
	}{
		"commits":    {(*sql.Tx).Commit, true},
		"rolls back": {(*sql.Tx).Rollback, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
				cfg := w.QuickConfig()
				cfg.DB = db
				c := w.New(cfg)
				entry := harness.NewReverseKeyed("key", 1)[0]
				holder, waiter := w.Begin(db), w.Begin(db)
				_, err := c.Record(t.Context(), holder, entry)
				require.NoError(t, err)
				done := recordAside(t.Context(), c, waiter, entry)
				w.WaitLocked(1)
				require.NoError(t, test.end(holder))
				got := <-done
				require.NoError(t, got.err)
				assert.Equal(t, test.duplicate, got.receipt.Duplicate())
				require.NoError(t, waiter.Commit())
				assert.Equal(t, 1, w.Count("common_process_log"))
			})
		})
	}
}

// Failure: F16
func TestRecordThatWaitsForAKeyObeysItsContext(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		entry := harness.NewReverseKeyed("key", 1)[0]
		holder, waiter := w.Begin(db), w.Begin(db)
		_, err := c.Record(t.Context(), holder, entry)
		require.NoError(t, err)
		w.WriteEffect(waiter, "business")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := recordAside(ctx, c, waiter, entry)
		w.WaitLocked(1)
		cancel()
		got := <-done // The call returns although the other transaction still holds the key.
		require.ErrorIs(t, got.err, context.Canceled)
		require.Error(t, waiter.Commit(), "the business without its entry")
		require.NoError(t, holder.Commit())
		assert.Zero(t, w.Count("effects"))
		assert.Equal(t, 1, w.Count("common_process_log"))
	})
}

// Failure: F16
func TestThreeProducersOfOneKeyEndWithOneEntry(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		entry := harness.NewReverseKeyed("key", 1)[0]
		first := w.Begin(db)
		_, err := c.Record(t.Context(), first, entry)
		require.NoError(t, err)
		var mu sync.Mutex // guards fresh and aborted
		fresh, aborted := 0, 0
		var producers sync.WaitGroup
		for range 2 {
			producers.Go(func() {
				for again := true; again; {
					tx, err := db.Begin()
					if !assert.NoError(t, err) {
						return
					}
					receipt, err := c.Record(context.Background(), tx, entry)
					mu.Lock()
					again = errors.Is(err, compensator.ErrTxAborted)
					switch {
					case again:
						aborted++
					case assert.NoError(t, err) && !receipt.Duplicate():
						fresh++
					}
					mu.Unlock()
					if again {
						_ = tx.Rollback()
						continue
					}
					assert.NoError(t, tx.Commit())
				}
			})
		}
		w.WaitLocked(2)
		require.NoError(t, first.Rollback()) // The two waiting transactions must not deadlock when the first one ends.
		producers.Wait()
		assert.Equal(t, 1, fresh)
		assert.Equal(t, 1, aborted, "the server was to sacrifice one of the two")
		assert.Equal(t, 1, w.Count("common_process_log"))
	})
}

// Failure: F16
func TestBatchesWithCrossedKeysDoNotDeadlock(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		up := harness.NewUntyped(3)
		for i, key := range []string{"a", "m", "z"} {
			up[i].IdempotencyKey = compensator.IdempotencyKey(key)
		}
		down := []compensator.NewEntry{up[2], up[1], up[0]}
		holder, one, two := w.Begin(db), w.Begin(db), w.Begin(db)
		_, err := c.Record(t.Context(), holder, up[1])
		require.NoError(t, err)
		// Record locks the keys in ascending order. In the order of the caller, the first transaction would lock the
		// key "a", and the second the key "z". Then each transaction would wait for the other one.
		first := recordAside(t.Context(), c, one, up...)
		w.WaitLocked(1)
		second := recordAside(t.Context(), c, two, down...)
		w.WaitLocked(2)
		require.NoError(t, holder.Rollback())
		got := <-first
		require.NoError(t, got.err)
		require.NoError(t, one.Commit())
		got = <-second
		require.NoError(t, got.err)
		for _, e := range got.receipt.Entries {
			assert.True(t, e.Duplicate, "%s", e.IdempotencyKey)
		}
		require.NoError(t, two.Commit())
		assert.Equal(t, 3, w.Count("common_process_log"))
	})
}

// Failure: F17
func TestDuplicateWithOtherContentIsTold(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		entry := compensator.NewEntry{BusinessType: "close_order", Content: []byte(`{"number":1}`), Options: compensator.Options{IdempotencyKey: "key"}}
		w.InTx(db, func(tx *sql.Tx) {
			_, err := c.Record(t.Context(), tx, entry)
			require.NoError(t, err)
		})
		otherContent := entry
		otherContent.Content = []byte(`{"number":2}`)
		for want, e := range map[bool]compensator.NewEntry{true: entry, false: otherContent} {
			w.InTx(db, func(tx *sql.Tx) {
				receipt, err := c.Record(t.Context(), tx, e)
				require.NoError(t, err)
				assert.True(t, receipt.Duplicate())
				assert.Equal(t, want, receipt.Entries[0].ContentMatches)
			})
		}
		strict := otherContent
		strict.FailOnDuplicate = true
		w.InTx(db, func(tx *sql.Tx) {
			receipt, err := c.Record(t.Context(), tx, append(harness.NewUntyped(2), strict)...)
			require.ErrorIs(t, err, compensator.ErrDuplicate)
			assert.True(t, receipt.Entries[2].Duplicate, "the receipt is right in spite of the error")
			w.WriteEffect(tx, "business")
		})
		assert.Equal(t, 1, w.Count("effects"), "the transaction stays usable")
		assert.Equal(t, 3, w.Count("common_process_log"), "the others of the call are recorded")
		assert.Equal(t, 1, w.Count("common_process_log WHERE idempotent_id='key' AND business_type='close_order' AND content=?", entry.Content))
	})
}

// Failure: F17
func TestKeyOfAnotherTypeIsRefusedByName(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		closing := compensator.NewEntry{BusinessType: "close_order", Content: []byte(`{"number":1}`), Options: compensator.Options{IdempotencyKey: "order-42"}}
		notice := closing
		notice.BusinessType = "notify"
		notice.FailOnDuplicate = true // Even with FailOnDuplicate, the error must be an OtherTypeError.
		requireRefused := func(err error) {
			t.Helper()
			var other *compensator.OtherTypeError
			require.ErrorAs(t, err, &other)
			require.Equal(t, compensator.OtherTypeError{IdempotencyKey: "order-42", Recorded: "close_order", Asked: "notify"}, *other)
			for _, part := range []string{`"order-42"`, `"close_order"`, `"notify"`} {
				require.ErrorContains(t, err, part)
			}
		}
		refusedIn := func(entries ...compensator.NewEntry) {
			t.Helper()
			tx := w.Begin(db)
			w.WriteEffect(tx, "business")
			receipt, err := c.Record(t.Context(), tx, entries...)
			requireRefused(err)
			require.Nil(t, receipt)
			require.NoError(t, tx.Rollback())
			requireRefused(c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				_, err := c.Record(ctx, tx, entries...)
				return err
			}))
		}
		refusedIn(closing, notice) // Record both entries in one call.
		require.Zero(t, w.Count("common_process_log"))
		w.InTx(db, func(tx *sql.Tx) {
			_, err := c.Record(t.Context(), tx, closing)
			require.NoError(t, err)
		})
		refusedIn(notice)
		refusedIn(append(harness.NewUntyped(3), notice, closing)...)
		require.Equal(t, 1, w.Count("common_process_log"))
		require.Zero(t, w.Count("effects"))
	})
}

// Failure: F17
func TestTransactionWithAKeyOfAnotherTypeCommitsNothing(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	closing := compensator.NewEntry{BusinessType: "close_order", Options: compensator.Options{IdempotencyKey: "order-42"}}
	w.InTx(w.DB, func(tx *sql.Tx) {
		_, err := c.Record(t.Context(), tx, closing)
		require.NoError(t, err)
	})
	notice := closing
	notice.BusinessType = "notify"
	swallow := func(tx compensator.Tx) {
		_, err := tx.ExecContext(t.Context(), "INSERT INTO effects (what) VALUES ('business')")
		require.NoError(t, err)
		_, _ = c.Record(t.Context(), tx, append(harness.NewUntyped(2), notice)...)
	}
	tx := w.Begin(w.DB) // The transaction belongs to a Connector's pool.
	swallow(tx)
	var other *compensator.OtherTypeError
	err := tx.Commit()
	require.ErrorIs(t, err, compensator.ErrNotRecorded)
	require.ErrorAs(t, err, &other)
	err = c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error { swallow(tx); return nil })
	require.ErrorIs(t, err, compensator.ErrNotRecorded)
	require.ErrorAs(t, err, &other)
	require.Zero(t, w.Count("effects"))
	require.Equal(t, 1, w.Count("common_process_log"))
}

// Failure: F17
func TestOtherContentIsWarnedAboutOnceForEachType(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	var log bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c := w.New(cfg)
	record := func(entries ...compensator.NewEntry) {
		w.InTx(w.DB, func(tx *sql.Tx) {
			_, err := c.Record(t.Context(), tx, entries...)
			require.NoError(t, err)
		})
	}
	for _, of := range []string{"close_order", "notify"} {
		e := compensator.NewEntry{BusinessType: of, Content: []byte("1"), Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(of + "-42")}}
		record(e)
		record(e)
		require.NotContains(t, log.String(), e.IdempotencyKey)
		e.Content = []byte("2")
		record(e)
		record(e)
		record(e, e)
		require.Equal(t, 1, strings.Count(log.String(), string(e.IdempotencyKey)), log.String())
	}
	require.NotContains(t, log.String(), "panic")
}

// Failure: F17
func TestOtherContentIsRefusedWhereItsTypeSaysSo(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	strict := compensator.TypeConfig{RefuseOtherContent: true}
	handled, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{TypeConfig: strict}, nil)
	declared, err := compensator.Declare[harness.Order](t.Context(), c, "notify", &strict)
	require.NoError(t, err)
	for _, of := range []*compensator.Type[harness.Order]{handled, declared} {
		opts := compensator.Options{IdempotencyKey: compensator.IdempotencyKey(of.Name())}
		w.InTx(w.DB, func(tx *sql.Tx) {
			_, err := of.Record(t.Context(), tx, harness.Order{Number: 1}, opts)
			require.NoError(t, err)
			receipt, err := of.Record(t.Context(), tx, harness.Order{Number: 1}, opts)
			require.NoError(t, err, "the same event again")
			require.True(t, receipt.Entries[0].ContentMatches)
		})
		fresh := compensator.Options{IdempotencyKey: compensator.IdempotencyKey(of.Name() + "-fresh")}
		one := of.Entry(harness.Order{Number: 1}, fresh)
		two := of.Entry(harness.Order{Number: 2}, fresh)
		stored := two
		stored.IdempotencyKey = opts.IdempotencyKey
		for _, entries := range [][]compensator.NewEntry{{stored}, {one, two}} {
			tx := w.Begin(w.DB)
			w.WriteEffect(tx, "business")
			_, err = c.Record(t.Context(), tx, entries...)
			require.ErrorIs(t, err, compensator.ErrOtherContent)
			require.ErrorContains(t, err, string(entries[0].IdempotencyKey))
			require.ErrorIs(t, tx.Commit(), compensator.ErrNotRecorded, "half of it")
		}
	}
	require.Zero(t, w.Count("effects"))
	require.Equal(t, 2, w.Count("common_process_log"))
}

// Failure: F17
func TestChangeThroughATypeRefusesEntriesOfAnother(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		closings, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		notices, _ := harness.HandleCounted(t, c, "notify", compensator.HandlerConfig[harness.Order]{}, nil)
		for key, change := range map[string]func(of *compensator.Type[harness.Order], tx *sql.Tx, ref compensator.Ref) error{
			"cancel": func(of *compensator.Type[harness.Order], tx *sql.Tx, ref compensator.Ref) error {
				_, err := of.CancelTx(t.Context(), tx, ref)
				return err
			},
			"complete": func(of *compensator.Type[harness.Order], tx *sql.Tx, ref compensator.Ref) error {
				return harness.ErrOf(of.CompleteTx(t.Context(), tx, ref))
			},
		} {
			var receipt *compensator.Receipt
			w.InTx(db, func(tx *sql.Tx) {
				var err error
				receipt, err = closings.Record(t.Context(), tx, harness.Order{}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key), Delay: time.Hour})
				require.NoError(t, err)
			})
			w.InTx(db, func(tx *sql.Tx) {
				for _, ref := range []compensator.Ref{receipt.ID(), compensator.IdempotencyKey(key)} {
					var other *compensator.OtherTypeError
					require.ErrorAs(t, change(notices, tx, ref), &other)
					require.Equal(t, compensator.OtherTypeError{IdempotencyKey: compensator.IdempotencyKey(key), Recorded: "close_order", Asked: "notify"}, *other)
				}
				w.WriteEffect(tx, key)
			})
			require.Equal(t, compensator.Pending, w.State(receipt.ID()))
			require.Equal(t, 1, w.Count("effects WHERE what=?", key), "the transaction stays usable")
			w.InTx(db, func(tx *sql.Tx) { require.NoError(t, change(closings, tx, compensator.IdempotencyKey(key))) })
			require.True(t, w.State(receipt.ID()).Terminal())
		}
	})
}

// Failure: F18
func TestKeyGuardsAsLongAsItsEntryIsKept(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	record := func() (r *compensator.Receipt) {
		w.InTx(w.DB, func(tx *sql.Tx) {
			var err error
			r, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{IdempotencyKey: "key"})
			require.NoError(t, err)
		})
		w.WaitState(r.ID(), compensator.Succeeded)
		return r
	}
	first := record()
	n, err := admin.Of(c).Purge(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Zero(t, n)
	assert.True(t, record().Entries[0].Duplicate)
	w.Exec("UPDATE common_process_log SET next_at=next_at-7200000") // The entries have now ended two hours ago.
	n, err = admin.Of(c).Purge(t.Context(), time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	second := record()
	assert.False(t, second.Duplicate())
	assert.NotEqual(t, first.ID(), second.ID())
	assert.Equal(t, 2, ran.Total())
}

// Failure: F16
func TestDuplicateResurrectsNothing(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1}, func(*compensator.Entry, int) error { return errors.New("no") })
		undone, _ := harness.HandleCounted(t, c, "take_stock", compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, Compensate: func(context.Context, *compensator.Entry, harness.Order) error { return nil }},
			func(*compensator.Entry, int) error { return errors.New("no") })
		stop := w.Run(c)
		record := func(of *compensator.Type[harness.Order], key string, delay time.Duration) (r *compensator.Receipt) {
			w.InTx(cfg.DB, func(tx *sql.Tx) {
				var err error
				r, err = of.Record(t.Context(), tx, harness.Order{}, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key), Delay: delay})
				require.NoError(t, err)
			})
			r.Committed()
			return r
		}
		want := map[string]compensator.State{"dead": compensator.Dead, "compensated": compensator.Compensated, "cancelled": compensator.Cancelled}
		types := map[string]*compensator.Type[harness.Order]{"dead": orders, "compensated": undone, "cancelled": orders}
		cancelled := record(orders, "cancelled", time.Hour)
		_, err := c.Cancel(t.Context(), cancelled.ID())
		require.NoError(t, err)
		for _, key := range []string{"dead", "compensated"} {
			w.WaitState(record(types[key], key, 0).ID(), want[key])
		}
		before := fingerprint(w)
		for key, of := range types {
			got := record(of, key, 0)
			assert.True(t, got.Entries[0].Duplicate)
			assert.Equal(t, want[key], got.Entries[0].State)
		}
		require.NoError(t, stop())
		assert.Equal(t, before, fingerprint(w), "a duplicate changed the row")
		assert.Equal(t, 1, ran.Total())
	})
}

// fingerprint returns the columns of every row that a write could have changed, as one text.
func fingerprint(w *harness.World) (sum string) {
	w.T.Helper()
	require.NoError(w.T, w.DB.QueryRow(fmt.Sprintf("SELECT GROUP_CONCAT(CONCAT_WS('|',%s) ORDER BY id) FROM common_process_log",
		"id,state,version,epoch,process_count,compensate_count,delivery_count,next_at,lease_until,HEX(token),ended_by,last_error,updated_at")).Scan(&sum))
	return sum
}
