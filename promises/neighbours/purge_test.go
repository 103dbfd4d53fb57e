package neighbours

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// insertEnded inserts entries that succeeded two hours ago, with the keys "old 000" and so on.
func insertEnded(w *harness.World, numbers ...int) {
	w.T.Helper()
	rows := make([]string, len(numbers))
	for i, n := range numbers {
		rows[i] = fmt.Sprintf("('old %03d','close_order','{}',1,'handler',UNIX_TIMESTAMP()*1000-7200000,UTC_TIMESTAMP(3),UTC_TIMESTAMP(3))", n)
	}
	w.Exec("INSERT INTO common_process_log (idempotent_id, business_type, content, state, ended_by, next_at, created_at, updated_at) VALUES " + strings.Join(rows, ","))
}

func upTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

func oldEntry(n int) compensator.NewEntry {
	return compensator.NewEntry{BusinessType: "close_order", Content: []byte("{}"), Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprintf("old %03d", n))}}
}

// holders are transactions that hold a lock on the entry "old 007" or on its key.
var holders = map[string]func(t *testing.T, c *compensator.Compensator, tx *sql.Tx){
	"recorded again": func(t *testing.T, c *compensator.Compensator, tx *sql.Tx) {
		receipt, err := c.Record(t.Context(), tx, oldEntry(7))
		require.NoError(t, err)
		require.True(t, receipt.Entries[0].Duplicate)
	},
	"inserted by hand": func(t *testing.T, _ *compensator.Compensator, tx *sql.Tx) {
		_, err := tx.Exec("INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES ('old 007','close_order','{}',1,NOW(),NOW())")
		require.ErrorContains(t, err, "1062")
	},
	"inserted unless it is there": func(t *testing.T, _ *compensator.Compensator, tx *sql.Tx) {
		_, err := tx.Exec("INSERT IGNORE INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES ('old 007','close_order','{}',1,NOW(),NOW())")
		require.NoError(t, err)
	},
	"inserted or updated": func(t *testing.T, _ *compensator.Compensator, tx *sql.Tx) {
		_, err := tx.Exec("INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES ('old 007','close_order','{}',1,NOW(),NOW()) ON DUPLICATE KEY UPDATE id=id")
		require.NoError(t, err)
	},
	"read for update": func(t *testing.T, _ *compensator.Compensator, tx *sql.Tx) {
		var id uint64
		require.NoError(t, tx.QueryRow("SELECT id FROM common_process_log WHERE idempotent_id='old 007' FOR UPDATE").Scan(&id))
	},
	"read in share mode": func(t *testing.T, _ *compensator.Compensator, tx *sql.Tx) {
		var id uint64
		require.NoError(t, tx.QueryRow("SELECT id FROM common_process_log WHERE idempotent_id='old 007' LOCK IN SHARE MODE").Scan(&id))
	},
	"cancelled": func(t *testing.T, _ *compensator.Compensator, tx *sql.Tx) {
		_, err := tx.Exec("UPDATE common_process_log SET user_name='held' WHERE idempotent_id='old 007'")
		require.NoError(t, err)
	},
}

// The lock of the open transaction is in the unique index. A locking read by primary key does not meet this lock.
// Failure: F26
func TestPurgePassesByAnEntryThatAnOpenTransactionHolds(t *testing.T) {
	t.Parallel()
	for name, hold := range holders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEverySnapshotMode(t, func(t *testing.T, w *harness.World, db *sql.DB, _, _ bool) {
				cfg := w.QuickConfig()
				cfg.DB = db
				c := w.New(cfg)
				insertEnded(w, upTo(250)...)
				tx := w.Begin(db)
				hold(t, c, tx)
				ctx, cancel := context.WithTimeout(t.Context(), harness.Timeout)
				defer cancel()
				purged, err := admin.Of(c).Purge(ctx, time.Minute)
				require.NoError(t, err)
				require.Equal(t, 249, purged)
				var left string
				require.NoError(t, w.DB.QueryRow("SELECT idempotent_id FROM common_process_log").Scan(&left))
				require.Equal(t, "old 007", left)
				require.NoError(t, tx.Rollback())
				purged, err = admin.Of(c).Purge(ctx, time.Minute)
				require.NoError(t, err)
				require.Equal(t, 1, purged)
			})
		})
	}
}

// 300 entries are more than one purge step takes.
func TestPurgeGoesOnBehindHundredsOfEntriesThatAreRecordedAgain(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		insertEnded(w, upTo(500)...)
		store, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable)
		require.NoError(t, err)
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		tx := w.Begin(db)
		for n := range 300 {
			_, err := c.Record(t.Context(), tx, oldEntry(n))
			require.NoError(t, err)
		}
		purged, err := store.Purge(t.Context(), "close_order", compensator.Succeeded, time.Hour, 100) // This is the size of one step of Config.Keep.
		require.NoError(t, err)
		require.Equal(t, 100, purged)
		require.NoError(t, tx.Rollback())
		require.NoError(t, store.Close())
	})
}

// A producer that waits a second for a lock fails the test.
// Failure: F26
func TestProducersOfOldIDsNeitherDeadlockNorFailBesideAPurge(t *testing.T) {
	t.Parallel()
	for kind, pool := range harness.Pools {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := testservers.NewSQL(t)
			w := harness.WorldAt(t, server.Database(t))
			// A process reports an entry as lost if the entry disappears without a note of a purge. The store's Purge
			// writes no note, so the test writes one.
			w.Exec("INSERT INTO common_process_log_audit (entry_id, action, actor, reason, before_state, after_state, created_at) VALUES (0,?,'','','{}','{}',UTC_TIMESTAMP(3)+INTERVAL 1 HOUR)",
				processlog.ActionPurge)
			store, err := compensator.OpenStore(t.Context(), w.Open(pool(w.DSN)), compensator.DefaultTable)
			require.NoError(t, err)
			cfg := w.QuickConfig()
			cfg.DB = w.Open(pool(harness.WithParams(t, w.DSN, map[string]string{"innodb_lock_wait_timeout": "1"})))
			c := w.New(cfg)
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			var working sync.WaitGroup
			var again, purged atomic.Int64
			for producer := range 6 {
				working.Go(func() {
					for ctx.Err() == nil {
						n, err := recordOld(t.Context(), c, cfg.DB, producer)
						assert.NoError(t, err)
						again.Add(int64(n))
					}
				})
			}
			working.Go(func() {
				for ctx.Err() == nil {
					endPending(w)
				}
			})
			working.Go(func() {
				for ctx.Err() == nil {
					n, err := store.Purge(t.Context(), "", compensator.Succeeded, time.Minute, 1000)
					assert.NoError(t, err)
					purged.Add(int64(n))
				}
			})
			working.Wait()
			assert.Positive(t, purged.Load())
			assert.Positive(t, again.Load(), "ids that came again before they were purged")
			assert.NotContains(t, server.ErrorLog(), "common_process_log", "a deadlock")
			require.NoError(t, store.Close())
		})
	}
}

// recordOld returns how many of the keys existed already. Half of the producers record one key at a time at the default
// isolation level. With several keys, producers would deadlock at that level even without a purge.
func recordOld(ctx context.Context, c *compensator.Compensator, db *sql.DB, producer int) (again int, err error) {
	const each = 100
	level, n := sql.LevelDefault, 1
	if producer%2 == 0 {
		level, n = sql.LevelReadCommitted, 1+rand.IntN(5)
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	for _, number := range rand.Perm(each)[:n] {
		receipt, err := c.Record(ctx, tx, oldEntry(producer*each+number))
		if err != nil {
			return again, err
		}
		if receipt.Entries[0].Duplicate {
			again++
		}
	}
	return again, tx.Commit()
}

// endPending changes pending entries to entries that succeeded two hours ago, one by one by primary key.
func endPending(w *harness.World) {
	rows, err := w.DB.Query("SELECT id FROM common_process_log WHERE state=0 ORDER BY id LIMIT 200")
	if !assert.NoError(w.T, err) {
		return
	}
	var ids []uint64
	for rows.Next() {
		var id uint64
		assert.NoError(w.T, rows.Scan(&id))
		ids = append(ids, id)
	}
	assert.NoError(w.T, errors.Join(rows.Err(), rows.Close()))
	for _, id := range ids {
		_, err := w.DB.Exec("UPDATE common_process_log SET state=1, ended_by='handler', version=version+1, next_at=UNIX_TIMESTAMP()*1000-7200000 WHERE id=?", id)
		assert.NoError(w.T, err)
	}
}

// An INSERT of an existing key locks the key in the unique index but not the entry's row. So a change of the entry must
// not wait for the transaction of this INSERT.
// Failure: F26
func TestEntryIsChangedByItsKeyWhileThatIsRecordedAgain(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		w.InTx(db, func(tx *sql.Tx) {
			_, err := c.Record(t.Context(), tx, oldEntry(7))
			require.NoError(t, err)
		})
		again := w.Begin(db)
		holders["inserted by hand"](t, c, again)
		key := compensator.IdempotencyKey("old 007")
		require.NoError(t, c.Reschedule(t.Context(), key, time.Hour))
		w.InTx(db, func(tx *sql.Tx) {
			_, err := c.CancelTx(t.Context(), tx, key)
			require.NoError(t, err)
		})
		require.Equal(t, 1, w.Count("common_process_log WHERE state=3"))
		require.NoError(t, again.Rollback())
	})
}
