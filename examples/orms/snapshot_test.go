package orms

import (
	"database/sql/driver"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
)

// innodb_snapshot_isolation makes MariaDB roll back a transaction that locks a row newer than its snapshot.
func eachSnapshot(t *testing.T, test func(t *testing.T, w *world, o orm, watched, isolated bool)) {
	isolated := testservers.SharedSQL(t).Flavor == "mariadb"
	isolate := func(cfg *mysql.Config) {
		if isolated {
			cfg.Params = map[string]string{"innodb_snapshot_isolation": "1"}
		}
	}
	for name, open := range orms {
		for pool, wrap := range map[string]func(driver.Connector) driver.Connector{"plain": unwatched, "Connector": compensator.Connector} {
			t.Run(name+"/"+pool, func(t *testing.T) {
				db := openDB(t, wrap, isolate)
				o := open(t, db)
				test(t, newWorld(t, db, o), o, pool == "Connector", isolated)
			})
		}
	}
}

func snapshot(t *testing.T, tx compensator.Tx) (entries int) {
	rows, err := tx.QueryContext(t.Context(), "SELECT COUNT(*) FROM common_process_log")
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	require.NoError(t, rows.Scan(&entries))
	return entries
}

// Failure: F16
func TestCompletionBehindTheSnapshotAbortsAndLosesNothing(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, w *world, o orm, watched, isolated bool) {
		id := compensator.IdempotencyKey("shipped")
		require.NoError(t, o.inTx(t.Context(), "ordered", func(tx compensator.Tx) error {
			_, err := w.notes.Record(t.Context(), tx, "shipped", compensator.Options{IdempotencyKey: "shipped", Delay: time.Hour})
			return err
		}))
		complete := func(note string, left, swallowed bool) error {
			return o.inTx(t.Context(), note, func(tx compensator.Tx) error {
				snapshot(t, tx)
				if left {
					require.NoError(t, w.Reschedule(t.Context(), id, 2*time.Hour))
				}
				_, err := w.CompleteTx(t.Context(), tx, id)
				if left && isolated {
					assert.ErrorIs(t, err, compensator.ErrTxAborted)
					assert.ErrorContains(t, err, "1020")
					assert.ErrorIs(t, w.record(tx, note), compensator.ErrNoTransaction, "an entry would commit by itself")
				} else {
					assert.NoError(t, err)
				}
				if swallowed {
					return nil
				}
				return err
			})
		}
		if isolated {
			require.ErrorIs(t, complete("told", true, false), compensator.ErrTxAborted)
			err := complete("swallowed", true, true)
			if watched {
				require.ErrorIs(t, err, compensator.ErrTxAborted)
			} else {
				require.NoError(t, err, "the driver's handle does not see the rollback")
			}
			assert.Equal(t, 1, w.count("orders"))
			assert.Equal(t, 1, w.count("common_process_log WHERE state=0"))
		}
		require.NoError(t, complete("again", !isolated, false))
		assert.Equal(t, 1, w.count("orders WHERE note='again'"))
		assert.Equal(t, 1, w.count("common_process_log WHERE state=1"))
		assert.Equal(t, 1, w.count("common_process_log"))
	})
}

// Failure: F16
func TestRecordBehindTheSnapshotIsADuplicateOrAborts(t *testing.T) {
	eachSnapshot(t, func(t *testing.T, w *world, o orm, watched, isolated bool) {
		order := func(note string, hidden bool) error {
			return o.inTx(t.Context(), note, func(tx compensator.Tx) error {
				seen := snapshot(t, tx)
				if hidden {
					require.NoError(t, o.inTx(t.Context(), "another's", func(tx compensator.Tx) error { return w.record(tx, "first") }))
					require.Equal(t, seen, snapshot(t, tx), "the snapshot must not show the new entry")
				}
				if err := w.record(tx, note); err != nil {
					return err
				}
				receipt, err := w.notes.Record(t.Context(), tx, "first", compensator.Options{IdempotencyKey: "first"})
				if err == nil {
					assert.True(t, receipt.Duplicate())
				}
				return err
			})
		}
		// The transaction's snapshot does not show the duplicate, which was committed later. Without the Connector,
		// Record can read this entry only with a lock. If the server isolates snapshots, this lock aborts the
		// transaction.
		if err := order("behind", true); isolated && !watched {
			require.ErrorIs(t, err, compensator.ErrTxAborted)
			require.ErrorContains(t, err, "1020")
			assert.Zero(t, w.count("orders WHERE note='behind'"))
			assert.Zero(t, w.count("common_process_log WHERE idempotent_id='behind'"))
			require.NoError(t, order("behind", false), "the whole transaction again")
		} else {
			require.NoError(t, err)
		}
		w.waitRun("behind")
		w.waitRun("first")
		assert.Len(t, w.ran(), 2)
		assert.Equal(t, 1, w.count("orders WHERE note='behind'"))
		assert.Equal(t, 2, w.count("common_process_log"))
	})
}
