package settling

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/processlog"
)

// refuseIn creates a trigger on a side table of the log. The parameter suffix is the end of the table's name. The
// parameter event is the kind of statement that the trigger refuses for the entries in ids. The result allow is a
// function that drops the trigger.
func refuseIn(w *harness.World, suffix, event string, ids []compensator.EntryID) (allow func()) {
	rows, row := make([]string, len(ids)), "NEW"
	for i, id := range ids {
		rows[i] = id.String()
	}
	if event == "DELETE" {
		row = "OLD"
	}
	w.Exec("CREATE TRIGGER refuse_beside BEFORE " + event + " ON common_process_log" + suffix + " FOR EACH ROW IF " + row + ".entry_id IN (" + strings.Join(rows, ",") +
		") THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='the auditors say no'; END IF")
	return func() { w.Exec("DROP TRIGGER refuse_beside") }
}

func requireNamed(t *testing.T, refused []compensator.EntryID, err error) {
	t.Helper()
	var named *processlog.RefusedError
	require.ErrorAs(t, err, &named)
	require.Equal(t, refused, refusedIDs(named.Refusals))
	require.ErrorContains(t, err, "the auditors say no")
}

// Failure: F75
func TestRefusedRowBesideTheLogHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		store, receipt := storeBeside(t, w, db, entriesBesideRefused)
		ops := store.(processlog.Operations)
		require.NoError(t, ops.KeepAttempts(t.Context()))
		ids, all := idsOf(receipt), func(*processlog.Row) bool { return true }
		refused, free := threeOf(ids), entriesBesideRefused-3
		var want []processlog.Wanted
		for _, id := range ids {
			want = append(want, processlog.Wanted{ID: id})
		}
		round := byte(0)
		for suffix, to := range map[string]compensator.State{"_case": compensator.Dead, "_fault": compensator.Retrying, "_attempt": compensator.Retrying, "_result": compensator.Succeeded} {
			w.Exec("DELETE FROM common_process_log_case")
			w.Exec("UPDATE common_process_log SET state=0, next_at=1, lease_until=0, delivery_count=0")
			round += 2
			found, err := store.Claim(t.Context(), want, processlog.Token{round}, time.Minute, all)
			require.NoError(t, err)
			require.Len(t, found.Mine, len(ids))
			var outcomes []processlog.Outcome
			for _, row := range found.Mine {
				o := processlog.Outcome{ID: row.ID, IdempotencyKey: row.IdempotencyKey, Version: row.Version, Epoch: row.Epoch, To: to}
				if to == compensator.Succeeded {
					o.EndedBy, o.Result = compensator.EndedByHandler, []byte("result")
				} else {
					o.LastError, o.ProcessCount = "no", 1
					o.Faults = &processlog.Faults{ServerFaults: 1}
					o.Attempt = &processlog.FailedAttempt{Number: 1, Verdict: processlog.AttemptFailed, Error: "no", DueAt: row.NextAt, StartedAt: row.NextAt}
				}
				if to == compensator.Dead {
					o.EndedBy, o.Case = compensator.EndedByPermanent, &processlog.CaseDraft{Kind: processlog.CaseDead, Due: time.Hour, Error: "no"}
				}
				outcomes = append(outcomes, o)
			}
			allow := refuseIn(w, suffix, "INSERT", refused)
			results, err := store.Settle(t.Context(), processlog.Token{round + 1}, outcomes)
			require.NoError(t, err, suffix)
			for i, r := range results {
				if slices.Contains(refused, outcomes[i].ID) {
					require.ErrorContains(t, r.Refused, "the auditors say no", suffix)
					continue
				}
				require.Equal(t, processlog.Settled{Applied: true}, r, suffix)
			}
			require.Equal(t, free, w.Count("common_process_log WHERE state=? AND lease_until=0", int(to)), suffix)
			allow()
		}
	})
}

// Failure: F75
func TestRefusedCaseHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		store, receipt := storeBeside(t, w, db, entriesBesideRefused)
		ops, ids := store.(processlog.Operations), idsOf(receipt)
		refused, free := threeOf(ids), entriesBesideRefused-3
		w.Exec("UPDATE common_process_log SET state=-2, ended_by='exhausted', last_error='no'")
		open := func() (int, error) {
			rows, err := ops.DeadWithoutCase(t.Context(), 0, 500)
			require.NoError(t, err)
			drafts := make([]processlog.CaseDraft, len(rows))
			for i := range drafts {
				drafts[i] = processlog.CaseDraft{Kind: processlog.CaseDead, Due: time.Hour, Error: "no"}
			}
			return ops.OpenCases(t.Context(), rows, drafts)
		}
		steps := []struct {
			event, stays string
			do           func() (int, error)
		}{
			{"INSERT", "SELECT id FROM common_process_log WHERE id NOT IN (SELECT entry_id FROM common_process_log_case)", open},
			{"UPDATE", "SELECT 1 FROM common_process_log_case WHERE closed_at=0", func() (int, error) { return ops.CloseCases(t.Context(), 500) }},
			{"DELETE", "SELECT 1 FROM common_process_log_case", func() (int, error) { return ops.ForgetCases(t.Context(), 0, 500) }},
		}
		for _, step := range steps {
			allow := refuseIn(w, "_case", step.event, refused)
			n, err := step.do()
			requireNamed(t, refused, err)
			require.Equal(t, free, n, step.event)
			require.Equal(t, 3, w.Count("("+step.stays+") stays"), step.event)
			allow()
			n, err = step.do()
			require.NoError(t, err)
			require.Equal(t, 3, n, step.event)
			if step.event == "INSERT" {
				w.Exec("UPDATE common_process_log SET state=1, ended_by='handler'")
			} else {
				w.Exec("UPDATE common_process_log_case SET closed_at=1")
			}
		}
	})
}

// Failure: F75
func TestPurgeHoldsUpNoOtherForARefusedRowBesideTheLog(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		store, receipt := storeBeside(t, w, db, entriesBesideRefused)
		ids := idsOf(receipt)
		refused := threeOf(ids)
		w.Exec("UPDATE common_process_log SET state=1, ended_by='handler', next_at=1")
		w.Exec("INSERT INTO common_process_log_result (entry_id, result_epoch, result) SELECT id, 0, 'x' FROM common_process_log")
		allow := refuseIn(w, "_result", "DELETE", refused)
		n, err := store.Purge(t.Context(), "", compensator.Succeeded, 0, 1000)
		requireNamed(t, refused, err)
		require.Equal(t, entriesBesideRefused-3, n)
		allow()
		holder := w.Begin(w.DB)
		_, err = holder.Exec("SELECT entry_id FROM common_process_log_result WHERE entry_id=? FOR UPDATE", refused[0].Row())
		require.NoError(t, err)
		fresh, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable) // This store has not met the refused entries yet.
		require.NoError(t, err)
		defer fresh.Close()
		w.Eventually(func() bool {
			_, err := fresh.Purge(t.Context(), "", compensator.Succeeded, 0, 1000)
			require.NoError(t, err)
			return w.Count("common_process_log") == 1
		}, "one held result keeps its own entry only")
		require.NoError(t, holder.Rollback())
	})
}
