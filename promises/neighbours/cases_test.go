package neighbours

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// CloseCases must not wait for the lock of another case. With few cases in the table, a server may read all open cases,
// and so meet a locked case that need not be closed.
func TestCaseIsClosedWhileSomebodyHoldsAnother(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB, cfg.Operations = db, &compensator.Operations{}
		c := w.New(cfg)
		harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, func(*compensator.Entry, int) error {
			return compensator.Permanent(errors.New("no such account"))
		})
		ids := w.InsertDue("close_order", 1, 6)
		stop := w.Run(c)
		w.Eventually(func() bool { return w.Count("common_process_log_case WHERE closed_at=0") == len(ids) }, "every entry dies")
		require.NoError(t, stop())
		_, err := c.Cancel(t.Context(), ids[3])
		require.NoError(t, err)
		held := w.Begin(w.DB)
		_, err = held.Exec("UPDATE common_process_log_case SET owner='ann' WHERE entry_id=?", ids[2].Row())
		require.NoError(t, err)
		store, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable)
		require.NoError(t, err)
		closed, err := store.(processlog.Operations).CloseCases(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, 1, closed)
		require.NoError(t, held.Rollback())
		require.NoError(t, store.Close())
	})
}
