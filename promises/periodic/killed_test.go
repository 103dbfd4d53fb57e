package periodic

import (
	"database/sql"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

const (
	tickEvery = 100 * time.Millisecond
	kills     = 25
)

// Failure: F102
func TestEachSlotHasOneEntryWhileProcessesAreKilled(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t).WithRedis()
	program := harness.Program{Every: tickEvery}
	children := make([]*harness.Child, 3)
	for i := range children {
		children[i] = w.StartChild(program)
	}
	for range kills {
		before := w.Count("common_process_log WHERE business_type='tick'")
		i := rand.N(len(children))
		w.Eventually(func() bool { return w.Count("common_process_log WHERE business_type='tick'") > before+rand.N(4) }, "slots are recorded")
		children[i].Kill()
		children[i] = w.StartChild(program)
	}
	before := w.Count("common_process_log WHERE business_type='tick'")
	w.Eventually(func() bool { return w.Count("common_process_log WHERE business_type='tick'") > before+10 }, "it goes on")
	for _, child := range children {
		child.Kill()
	}

	last := w.StartChild(program)
	w.Eventually(func() bool {
		return w.Count("common_process_log WHERE business_type='tick' AND state IN (0,-1,-3) AND created_at < NOW(3) - INTERVAL 5 SECOND") == 0
	}, "what was begun has ended")
	last.Kill()
	slots := slotsOf(w)
	require.Greater(t, len(slots), kills)
	for i, slot := range slots[1:] {
		assert.Equal(t, slots[i].Add(tickEvery), slot, "slot after slot, each once")
	}
	assert.Zero(t, w.Count("(SELECT what FROM effects GROUP BY what HAVING COUNT(*)>1) twice"), "no slot has two effects")
	assert.Zero(t, w.Count("common_process_log WHERE business_type='tick' AND state=1 AND JSON_UNQUOTE(CONVERT(content USING utf8mb4)) NOT IN (SELECT what FROM effects)"))
}

// slotsOf requires that no entry was recorded before the time of its slot.
func slotsOf(w *harness.World) (slots []time.Time) {
	w.T.Helper()
	rows, err := w.DB.QueryContext(w.T.Context(), "SELECT idempotent_id, CONVERT(content USING utf8mb4), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', created_at) DIV 1000 FROM common_process_log WHERE business_type='tick'")
	require.NoError(w.T, err)
	defer func(rows *sql.Rows) { _ = rows.Close() }(rows)
	for rows.Next() {
		var id, content string
		var created int64
		require.NoError(w.T, rows.Scan(&id, &content, &created))
		var slot time.Time
		require.NoError(w.T, slot.UnmarshalJSON([]byte(content)))
		require.Equal(w.T, string(compensator.SlotKey("tick", slot)), id)
		require.LessOrEqual(w.T, slot.UnixMilli(), created, "not before its time")
		slots = append(slots, slot)
	}
	require.NoError(w.T, rows.Err())
	sortTimes(slots)
	return slots
}
