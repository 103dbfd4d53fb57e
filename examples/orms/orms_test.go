package orms

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

type orm struct {
	inTx func(ctx context.Context, note string, work func(tx compensator.Tx) error) error

	nest func(ctx context.Context, outer, inner func(tx compensator.Tx) error) error

	write func(ctx context.Context, tx *compensator.ScopedTx, note string) error

	outside compensator.Tx
}

var orms = map[string]func(*testing.T, *sql.DB) orm{
	"GORM":                    func(t *testing.T, db *sql.DB) orm { return openGORM(t, db, false) },
	"GORM, statements cached": func(t *testing.T, db *sql.DB) orm { return openGORM(t, db, true) },
	"bun":                     openBun,
	"ent":                     openEnt,
	"sqlx":                    openSQLX,
}

func each(t *testing.T, test func(t *testing.T, w *world, o orm)) {
	for name, open := range orms {
		for pool, openDB := range map[string]func(*testing.T) *sql.DB{"plain": openPlain, "Connector": openWatched, "SQLite": openSQLite} {
			t.Run(name+"/"+pool, func(t *testing.T) {
				db := openDB(t)
				o := open(t, db)
				test(t, newWorld(t, db, o), o)
			})
		}
	}
}

var errRollback = errors.New("roll back")

func TestCommittedEntryRuns(t *testing.T) {
	each(t, func(t *testing.T, w *world, o orm) {
		require.NoError(t, o.inTx(t.Context(), "a", func(tx compensator.Tx) error { return w.record(tx, "a") }))
		w.waitRun("a")
		assert.Equal(t, 1, w.count("orders WHERE note='a'"))
	})
}

func TestRolledBackEntryIsGone(t *testing.T) {
	each(t, func(t *testing.T, w *world, o orm) {
		err := o.inTx(t.Context(), "a", func(tx compensator.Tx) error {
			require.NoError(t, w.record(tx, "a"))
			return errRollback
		})
		require.ErrorIs(t, err, errRollback)
		assert.Zero(t, w.count("common_process_log"))
		assert.Zero(t, w.count("orders"))

		require.NoError(t, o.inTx(t.Context(), "b", func(tx compensator.Tx) error { return w.record(tx, "b") }))
		w.waitRun("b")
		assert.Equal(t, []string{"b"}, w.ran())
	})
}

func TestEntryOfARolledBackNestedTransactionNeverRuns(t *testing.T) {
	each(t, func(t *testing.T, w *world, o orm) {
		outer := func(tx compensator.Tx) error { return w.record(tx, "outer") }
		inner := func(tx compensator.Tx) error { return w.record(tx, "inner") }
		require.NoError(t, o.nest(t.Context(), outer, inner))
		w.waitRun("outer")
		assert.Equal(t, []string{"outer"}, w.ran())
		assert.Equal(t, 1, w.count("common_process_log"))
	})
}

func TestHandlerWritesThroughTheORMExactlyOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world, o orm) {
		require.NoError(t, o.inTx(t.Context(), "recorded", func(tx compensator.Tx) error {
			_, err := w.writes.Record(t.Context(), tx, "a", compensator.Options{})
			return err
		}))
		w.eventually(func() bool { return w.count("common_process_log WHERE state=1 AND process_count=1") == 1 })
		assert.Equal(t, 1, w.count("orders WHERE note='a'"), "of two attempts the first was rolled back")
	})
}

func TestRecordOutsideATransactionIsRefused(t *testing.T) {
	each(t, func(t *testing.T, w *world, o orm) {
		require.ErrorIs(t, w.record(o.outside, "a"), compensator.ErrNoTransaction)
		assert.Zero(t, w.count("common_process_log"))
	})
}

// Some ORMs insert arguments into the SQL text themselves.
func TestContentSurvivesTheORM(t *testing.T) {
	each(t, func(t *testing.T, w *world, o orm) {
		var entries []compensator.NewEntry
		for key, content := range map[string][]byte{"every byte": everyByte(), "nothing": nil, "placeholder": []byte(`?0 ?, 'it''s' \'%s\' :name @p1 -- ;`)} {
			entries = append(entries, compensator.NewEntry{BusinessType: "not handled", Content: content, Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key + `'?\`)}})
		}
		require.NoError(t, o.inTx(t.Context(), "a", func(tx compensator.Tx) error {
			_, err := w.Record(t.Context(), tx, entries...)
			return err
		}))
		for _, entry := range entries {
			stored, err := w.Get(t.Context(), entry.IdempotencyKey)
			require.NoError(t, err)
			assert.Equal(t, string(entry.Content), string(stored.Content))
		}
	})
}

func everyByte() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

func TestDuplicateIsReportedThroughTheORM(t *testing.T) {
	each(t, func(t *testing.T, w *world, o orm) {
		require.NoError(t, o.inTx(t.Context(), "a", func(tx compensator.Tx) error {
			require.NoError(t, w.record(tx, "a"))
			receipt, err := w.notes.Record(t.Context(), tx, "a", compensator.Options{IdempotencyKey: "a"})
			require.NoError(t, err)
			assert.True(t, receipt.Duplicate())
			return w.record(tx, "b") // The transaction is still usable.
		}))
		w.waitRun("b")
		assert.Equal(t, 2, w.count("common_process_log"))
	})
}
