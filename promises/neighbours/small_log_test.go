package neighbours

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// inASmallLog runs test on a log of eight entries, beside two entries that an open transaction locks. Without an index
// hint, a server scans so small a table completely, and a locking statement waits for the two locked rows.
func inASmallLog(t *testing.T, test func(t *testing.T, w *harness.World, db *sql.DB)) {
	for name, pool := range harness.Pools {
		t.Run(name, func(t *testing.T) {
			w := harness.NewWorld(t)
			db := w.Open(pool(harness.WithParams(t, w.DSN, map[string]string{"innodb_lock_wait_timeout": "1"})))
			w.InsertDue("close_order", 1, 9)
			tx := w.Begin(w.DB)
			for _, statement := range []string{
				"UPDATE common_process_log SET state=3, version=version+1, ended_by='person' WHERE id=9",
				"INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES ('new','close_order','{}',1,NOW(),NOW())",
			} {
				_, err := tx.ExecContext(t.Context(), statement)
				require.NoError(t, err)
			}
			test(t, w, db)
		})
	}
}

func TestPurgeOfASmallLogDoesNotWaitForEntriesThatOthersHold(t *testing.T) {
	t.Parallel()
	inASmallLog(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		w.Exec("UPDATE common_process_log SET state=-2, ended_by='permanent' WHERE id<=5")
		store, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable)
		require.NoError(t, err)
		defer func() { assert.NoError(t, store.Close()) }()
		purged, err := store.Purge(t.Context(), "", compensator.Dead, 0, 1000)
		require.NoError(t, err)
		assert.Equal(t, 5, purged)
	})
}

func TestDuplicatesInASmallLogDoNotWaitForEntriesThatOthersHold(t *testing.T) {
	t.Parallel()
	inASmallLog(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		var again []compensator.NewEntry
		for id := 1; id <= 5; id++ {
			entry := compensator.NewEntry{BusinessType: "close_order", Content: []byte("{}")}
			entry.IdempotencyKey = compensator.IdempotencyKey(fmt.Sprint("close_order", id))
			again = append(again, entry)
		}
		tx := w.Begin(db)
		receipt, err := c.Record(t.Context(), tx, again...)
		require.NoError(t, err)
		for _, recorded := range receipt.Entries {
			assert.True(t, recorded.Duplicate)
		}
		require.NoError(t, tx.Commit())
	})
}
