package limits

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
)

// ownTransactions selects only the transactions of this test, because other tests use the same server.
const ownTransactions = "information_schema.innodb_trx AS t JOIN information_schema.processlist AS p ON p.id=t.trx_mysql_thread_id WHERE p.db=DATABASE()"

const busySessions = "information_schema.processlist WHERE db=DATABASE() AND id<>CONNECTION_ID() AND command<>'Sleep'"

// A process is stopped in the middle of a claim, while it holds the row lock of a limit.
func TestProcessStoppedInAClaimHoldsUpItsLimitOnly(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB = db
	c := w.New(cfg)
	ships, _ := harness.HandleCounted(t, c, "ship", compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Limit: limitedTypes["ship"]}}, nil)
	free, _ := harness.HandleCounted(t, c, "free", compensator.HandlerConfig[harness.Order]{}, nil)
	worker := startWorker(w, workerProgram{})
	w.RecordMany(c, ships, 3, compensator.Options{})
	w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == 3 }, "the worker works, and the limit has its row")

	// A trigger makes each claim of the type wait in the middle.
	w.Exec("CREATE TABLE gate (id INT PRIMARY KEY) ENGINE=InnoDB")
	w.Exec("INSERT INTO gate VALUES (1)")
	w.Exec("CREATE TRIGGER gate_claims BEFORE UPDATE ON common_process_log FOR EACH ROW BEGIN DECLARE x INT;" +
		" IF NEW.business_type='ship' AND OLD.lease_until=0 AND NEW.lease_until>0 THEN SELECT id INTO x FROM gate WHERE id=1 FOR UPDATE; END IF; END")
	w.Eventually(func() bool {
		w.Eventually(func() bool { return w.Count("common_process_log WHERE state=0") == 0 }, "earlier entries have ended")
		closed, err := w.DB.Begin()
		require.NoError(t, err)
		_, err = closed.Exec("SELECT id FROM gate FOR UPDATE")
		require.NoError(t, err)
		w.RecordMany(c, ships, 3, compensator.Options{})
		w.Eventually(func() bool { return w.Count(ownTransactions+" AND t.trx_state='LOCK WAIT'") > 0 }, "the worker claims")
		worker.Signal(syscall.SIGSTOP)
		require.NoError(t, closed.Rollback())
		// The last statement may be a ROLLBACK, so wait for its end.
		w.Eventually(func() bool { return w.Count(busySessions) == 0 }, "the statements of the stopped worker have ended")
		if w.Count("common_process_log_limit WHERE limit_name='ship' FOR UPDATE SKIP LOCKED") == 0 {
			return true
		}
		worker.Signal(syscall.SIGCONT) // The worker was stopped too late, after its claim. Let the worker claim again.
		return false
	}, "the worker is stopped in the middle of a claim")

	var waits, tries atomic.Int64
	proxy.Arm(faultproxy.Rule{Fault: faultproxy.Count, Match: func(r faultproxy.Request) bool {
		if strings.Contains(r.Text, "common_process_log_limit") && strings.Contains(r.Text, "FOR UPDATE") {
			if tries.Add(1); !strings.HasSuffix(strings.TrimSpace(r.Text), "NOWAIT") {
				waits.Add(1)
			}
		}
		return false
	}})
	w.RecordMany(c, ships, 3, compensator.Options{}) // The stopped process has locked the entries that were recorded before.
	w.Run(c)
	w.Eventually(func() bool { return tries.Load() > 0 }, "this process claims, too")
	w.RecordMany(c, free, 50, compensator.Options{})
	w.Eventually(func() bool {
		return w.Count("common_process_log WHERE business_type='free' AND state=1") == 50 && tries.Load() >= 4
	}, "other types go on")
	require.EqualValues(t, 1, waits.Load(), "only the first claim waits")
	require.Equal(t, 6, w.Count("common_process_log WHERE business_type='ship' AND state=0 AND delivery_count=0"), "waiting costs nothing")
	// End the session of the stopped process. The server would do this after 60 s, see
	// TestServerEndsAClaimThatStandsStill.
	rows, err := w.DB.Query("SELECT t.trx_mysql_thread_id FROM " + ownTransactions + " AND t.trx_rows_modified>0")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var session int64
		require.NoError(t, rows.Scan(&session))
		_, _ = w.DB.Exec(fmt.Sprint("KILL ", session)) // Another session may have ended meanwhile.
	}
	require.NoError(t, rows.Err())
	w.WaitAllEnded()
	worker.Kill()
}
