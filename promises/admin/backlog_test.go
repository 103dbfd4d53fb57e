package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
)

// insertWaiting inserts n entries. The parameter from is the time until the first of them is due. If from is negative,
// the entries are overdue.
func insertWaiting(w *harness.World, businessType string, n int, from time.Duration) {
	w.Exec(fmt.Sprintf("INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) "+
		"WITH RECURSIVE digits AS (SELECT 0 AS d UNION ALL SELECT d+1 FROM digits WHERE d<99) "+
		"SELECT CONCAT('%[1]s %[3]d ', a.d, ' ', b.d, ' ', c.d), '%[1]s', '{}', %[4]s+%[3]d, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) FROM digits a, digits b, digits c WHERE a.d*10000+b.d*100+c.d<%[2]d",
		businessType, n, from.Milliseconds(), harness.NowMillis))
}

// Failure: F29
func TestBacklogIsCountedWithoutALimit(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	insertWaiting(w, "close_order", 11_000, -time.Hour)
	insertWaiting(w, "close_order", 2_000, time.Hour)
	insertWaiting(w, "refund", 3, time.Hour)
	reader := w.New(counted(w.QuickConfig()))
	none, err := admin.Of(reader).Backlog(t.Context())
	require.NoError(t, err)
	assert.False(t, none.Known, "nothing was counted yet")
	assert.Equal(t, admin.StateCount{State: compensator.Pending, N: 1000, More: true}, overviewOf(t, reader, "close_order").Counts[0])

	// Let the next count of the backlog be due now.
	w.Exec("UPDATE common_process_log_slots SET slot=slot-3600000 WHERE business_type=' backlog'")
	w.Run(w.New(counted(w.QuickConfig())))
	var found admin.BacklogReading
	require.Eventually(t, func() bool {
		found, err = admin.Of(reader).Backlog(t.Context())
		return err != nil || found.Known
	}, time.Minute, 20*time.Millisecond, "the backlog is counted")
	require.NoError(t, err)
	assert.Equal(t, []admin.Backlog{{BusinessType: "close_order", Pending: 13_000, Due: 11_000, Overdue: 11_000}, {BusinessType: "refund", Pending: 3}}, found.Types)

	shown := overviewOf(t, w.New(counted(w.QuickConfig())), "close_order")
	assert.Equal(t, []admin.StateCount{{State: compensator.Pending, N: 13_000}}, shown.Counts)
	require.NotNil(t, shown.Backlog)
	assert.Equal(t, 11_000, shown.Backlog.Due)

	w.Exec("UPDATE common_process_log_stat SET `at`=`at`-600000*(`at`>0), last_at=last_at-600000*(`at`=0)")
	old := overviewOf(t, w.New(counted(w.QuickConfig())), "close_order")
	assert.Equal(t, admin.StateCount{State: compensator.Pending, N: 1000, More: true}, old.Counts[0], "an old number is not shown")

	_, err = admin.Of(w.New(operated(w.QuickConfig()))).Backlog(t.Context())
	assert.ErrorAs(t, err, new(*compensator.FieldError), "Statistics is not set")
}

func overviewOf(t *testing.T, c *compensator.Compensator, businessType string) admin.TypeOverview {
	t.Helper()
	overview, err := open(t, c).Overview(t.Context(), mei)
	require.NoError(t, err)
	for _, o := range overview.Types {
		if o.Type == businessType {
			return o
		}
	}
	t.Fatalf("no type %q", businessType)
	return admin.TypeOverview{}
}
