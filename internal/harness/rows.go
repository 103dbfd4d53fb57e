package harness

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

func (w *World) CountEnded(state compensator.State, failures int) int {
	w.T.Helper()
	return w.Count("common_process_log WHERE state=? AND process_count=?", int64(state), failures)
}

func (w *World) WriteEffect(tx Statements, what string) {
	w.T.Helper()
	_, err := tx.ExecContext(w.T.Context(), "INSERT INTO effects (what) VALUES (?)", what)
	require.NoError(w.T, err)
}

func (w *World) State(id compensator.EntryID) compensator.State {
	w.T.Helper()
	var s compensator.State
	require.NoError(w.T, w.DB.QueryRow("SELECT state FROM common_process_log WHERE id=?", id.Row()).Scan(&s))
	return s
}

func (w *World) WaitState(id compensator.EntryID, want compensator.State) {
	w.T.Helper()
	w.Eventually(func() bool { return w.State(id) == want }, "entry %s becomes %s", id, want)
}

// Count runs SELECT COUNT(*) FROM, followed by the parameter table. The parameter may have a WHERE clause after the
// name of the table.
func (w *World) Count(table string, args ...any) (n int) {
	w.T.Helper()
	require.NoError(w.T, w.DB.QueryRow("SELECT COUNT(*) FROM "+table, args...).Scan(&n))
	return n
}

func (w *World) Exec(query string, args ...any) {
	w.T.Helper()
	_, err := w.DB.Exec(query, args...)
	require.NoError(w.T, err)
}

func (w *World) WaitAllEnded() {
	w.T.Helper()
	w.Eventually(func() bool { return w.Count("common_process_log WHERE state IN (0,-1,-3)") == 0 }, "every entry ends")
}

func (w *World) checkInvariants() {
	for what, where := range map[string]string{
		"a terminal entry under a lease":               "state IN (1,2,3,4,-2) AND lease_until>0",
		"a terminal entry with uncounted deliveries":   "state IN (1,2,3,4,-2) AND delivery_count>0",
		"an entry on its way that has ended":           "state IN (0,-1) AND ended_by<>''",
		"an ended entry that does not say by what":     "state IN (1,2,3,4,-2) AND ended_by=''",
		"a pending entry with failures":                "state=0 AND process_count>0",
		"a retrying entry without failures":            "state=-1 AND process_count=0",
		"an entry with more failures than it may have": "max_process_count>0 AND process_count>max_process_count",
		"an entry leased for ever":                     fmt.Sprintf("lease_until > %d", time.Now().Add(24*time.Hour).UnixMilli()),
	} {
		var n int
		if err := w.DB.QueryRow("SELECT COUNT(*) FROM common_process_log WHERE " + where).Scan(&n); err != nil {
			return
		}
		if n > 0 {
			w.T.Errorf("%d times: %s", n, what)
		}
	}
}

const NowMillis = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(3)) DIV 1000"

func (w *World) AwaitLeasesEnded(n int) {
	w.T.Helper()
	w.Eventually(func() bool {
		return w.Count("common_process_log WHERE state IN (0,-1,-3) AND lease_until>0 AND lease_until<"+NowMillis) == n
	}, "%d leases end", n)
}

func (w *World) LeaseOf(id compensator.EntryID) (endsAt int64) {
	w.T.Helper()
	require.NoError(w.T, w.DB.QueryRow("SELECT lease_until FROM common_process_log WHERE id=?", id.Row()).Scan(&endsAt))
	return endsAt
}

// EndLease expires the lease of a running attempt without the knowledge of its process. A process that pauses for
// longer than the lease has the same effect.
func (w *World) EndLease(id compensator.EntryID) {
	w.T.Helper()
	w.Exec("UPDATE common_process_log SET lease_until=1 WHERE id=?", id.Row())
}

func (w *World) Row(id compensator.EntryID) string {
	w.T.Helper()
	var s string
	require.NoError(w.T, w.DB.QueryRow("SELECT CONCAT_WS('/', state, version, epoch, process_count, compensate_count, delivery_count, next_at, lease_until, "+
		"ended_by, HEX(token), last_error) FROM common_process_log WHERE id=?", id.Row()).Scan(&s))
	return s
}
