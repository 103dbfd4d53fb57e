package settling

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// countedBy creates a trigger on the log that updates a row in a table with the name counted. A transaction locks this
// row, so the trigger waits for the lock. The result release is a function that ends the transaction and drops the
// trigger.
func countedBy(w *harness.World, ids []compensator.EntryID, event, when string) (release func()) {
	rows := make([]string, len(ids))
	for i, id := range ids {
		rows[i] = id.String()
	}
	row := map[string]string{"UPDATE": "NEW", "DELETE": "OLD"}[event]
	w.Exec("CREATE TABLE IF NOT EXISTS counted (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
	w.Exec("REPLACE INTO counted VALUES (1, 0)")
	w.Exec("CREATE TRIGGER counts BEFORE " + event + " ON common_process_log FOR EACH ROW IF " + row + ".id IN (" + strings.Join(rows, ",") + ") AND " + when +
		" THEN UPDATE counted SET n=n+1 WHERE id=1; END IF")
	holder := w.Begin(w.DB)
	_, err := holder.Exec("SELECT n FROM counted WHERE id=1 FOR UPDATE")
	require.NoError(w.T, err)
	return func() {
		require.NoError(w.T, holder.Rollback())
		w.Exec("DROP TRIGGER counts")
	}
}

// Each call of try has the engine's deadline for a statement.
func likeTheEngine(w *harness.World, try func(ctx context.Context) bool, what string) {
	w.Eventually(func() bool {
		ctx, cancel := context.WithTimeout(w.T.Context(), 10*time.Second)
		defer cancel()
		return try(ctx)
	}, what)
}

// Sessions of the plain pool wait for locks for longer than a statement of the library may take, as they do with the
// server's default of 50 s.
func patientPools(t *testing.T, test func(t *testing.T, w *harness.World, db *sql.DB)) {
	for name, pool := range harness.Pools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			test(t, w, w.Open(pool(harness.WithParams(t, w.DSN, map[string]string{"innodb_lock_wait_timeout": "12"}))))
		})
	}
}

// The trigger waits for a locked row of another table.
func TestTriggerThatWaitsForALockHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	patientPools(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		store, receipt := storeBeside(t, w, db, entriesBesideRefused)
		ids, all := idsOf(receipt), func(*processlog.Row) bool { return true }
		waiting := threeOf(ids)
		free := len(ids) - len(waiting)

		release := countedBy(w, waiting, "UPDATE", "NEW.delivery_count>OLD.delivery_count")
		claimed := make(map[compensator.EntryID]bool)
		likeTheEngine(w, func(ctx context.Context) bool {
			var want []processlog.Wanted
			for _, id := range ids {
				if !claimed[id] {
					want = append(want, processlog.Wanted{ID: id})
				}
			}
			found, err := store.Claim(ctx, want, processlog.Token{1}, time.Hour, all)
			if err == nil {
				require.Empty(t, found.Refused)
			}
			for _, row := range found.Mine {
				require.NotContains(t, waiting, row.ID)
				claimed[row.ID] = true
			}
			return len(claimed) == free
		}, "all others are claimed")
		release()
		var want []processlog.Wanted
		for _, id := range waiting {
			want = append(want, processlog.Wanted{ID: id})
		}
		found, err := store.Claim(t.Context(), want, processlog.Token{1}, time.Hour, all)
		require.NoError(t, err)
		require.Len(t, found.Mine, len(waiting))

		release = countedBy(w, waiting, "UPDATE", "NEW.lease_until>OLD.lease_until")
		var held []processlog.Held
		for _, id := range ids {
			held = append(held, processlog.Held{ID: id, Version: 1})
		}
		likeTheEngine(w, func(ctx context.Context) bool {
			left, err := store.Renew(ctx, held, 3*time.Hour)
			if err == nil {
				require.Empty(t, left.Lost)
				require.Empty(t, left.Refused)
			}
			held = slices.DeleteFunc(held, func(h processlog.Held) bool { return err == nil && !slices.Contains(left.Busy, h.ID) })
			return len(held) == len(waiting)
		}, "all others are renewed")
		require.Equal(t, free, w.Count("common_process_log WHERE lease_until > (SELECT MIN(lease_until)+3600000 FROM common_process_log)"))
		release()

		release = countedBy(w, waiting, "UPDATE", "NEW.delivery_count<OLD.delivery_count")
		likeTheEngine(w, func(ctx context.Context) bool {
			left, err := store.Release(ctx, ids, processlog.Token{1})
			require.True(t, err != nil || len(left.Busy) > 0)
			return w.Count("common_process_log WHERE lease_until=0") == free
		}, "all others are released")
		release()
		left, err := store.Release(t.Context(), ids, processlog.Token{1})
		require.NoError(t, err)
		require.Empty(t, left)

		release = countedBy(w, waiting, "UPDATE", "NEW.state<>OLD.state")
		var outcomes []processlog.Outcome
		for i, e := range receipt.Entries {
			outcomes = append(outcomes, processlog.Outcome{ID: e.ID, IdempotencyKey: e.IdempotencyKey, Version: 2, To: compensator.Retrying, ProcessCount: 1, LastError: fmt.Sprint(i)})
		}
		likeTheEngine(w, func(ctx context.Context) bool {
			results, err := store.Settle(ctx, processlog.Token{3}, outcomes)
			if err != nil {
				return false
			}
			var rest []processlog.Outcome
			for i, r := range results {
				require.NoError(t, r.Refused)
				require.NotEqual(t, r.Busy, r.Applied, "%+v", r)
				if r.Busy {
					rest = append(rest, outcomes[i])
				}
			}
			outcomes = rest
			return len(outcomes) == len(waiting)
		}, "all others are settled")
		require.Equal(t, free, w.Count("common_process_log WHERE state=-1"))
		release()
		results, err := store.Settle(t.Context(), processlog.Token{3}, outcomes)
		require.NoError(t, err)
		for _, r := range results {
			require.Equal(t, processlog.Settled{Applied: true}, r)
		}
	})
}

func TestTriggerThatWaitsForALockKeepsNoOtherFromBeingPurged(t *testing.T) {
	t.Parallel()
	patientPools(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		store, receipt := storeBeside(t, w, db, entriesBesideRefused)
		ids := idsOf(receipt)
		waiting := threeOf(ids)
		w.Exec("UPDATE common_process_log SET state=1, ended_by='handler', next_at=1, lease_until=0")
		release := countedBy(w, waiting, "DELETE", "1=1")
		likeTheEngine(w, func(ctx context.Context) bool {
			_, _ = store.Purge(ctx, "", compensator.Succeeded, time.Hour, 1000) // Ignore the error, because some entries can never be purged here.
			return w.Count("common_process_log") == len(waiting)
		}, "all others are purged")
		release()
		n, err := store.Purge(t.Context(), "", compensator.Succeeded, time.Hour, 1000)
		require.NoError(t, err)
		require.Equal(t, len(waiting), n)
	})
}
