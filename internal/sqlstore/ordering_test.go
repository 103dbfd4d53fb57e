package sqlstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// The statements run with outdated statistics of the server's optimizer, and again after ANALYZE TABLE has renewed the
// statistics.
// Failure: F117
func TestPositionsAreReadAlongTheirKey(t *testing.T) {
	b := openLogbook(t)
	const lines, each = 1000, 20
	b.fill(lines * each)
	var positions []processlog.Position
	var ids []processlog.ID
	var keys []processlog.Position
	for i := range lines * each {
		ids = append(ids, processlog.RowID(uint64(i+1)))
		if i < 100 {
			keys = append(keys, processlog.Position{Key: fmt.Sprint(i)})
		}
		positions = append(positions, processlog.Position{BusinessType: "type 1", Key: fmt.Sprint(i % lines), ID: processlog.RowID(uint64(i + 1))})
	}
	require.NoError(t, b.s.Join(t.Context(), b.s.pool(), positions))
	b.exec("UPDATE common_process_log SET business_type='type 1'")
	for _, statistics := range []string{"old", "new"} {
		if statistics == "new" {
			b.exec("ANALYZE TABLE common_process_log, common_process_log_turns")
		}
		looked := b.s.cost(t, func() {
			found, err := b.s.KeyStates(t.Context(), "type 1", positions[:100], processlog.Token{1}, true)
			require.NoError(t, err)
			require.Equal(t, each, len(found["0"].Members))
		})
		assert.Less(t, looked.read, 100*each*6, "%s statistics: a hundred keys, and no more", statistics)
		moved := b.s.cost(t, func() {
			next, err := b.s.Advance(t.Context(), "type 1", keys, true)
			require.NoError(t, err)
			require.Len(t, next, 100)
		})
		assert.Less(t, moved.read, 100*25, "%s statistics: the first entries of a hundred keys", statistics)
		firsts := b.s.cost(t, func() {
			found, err := b.s.Firsts(t.Context(), "type 1", positions[:100], true)
			require.NoError(t, err)
			require.Equal(t, processlog.KeyState{First: processlog.RowID(1), Known: 1}, found["0"])
		})
		assert.Less(t, firsts.read, 100*10, "%s statistics: the first entries of a hundred keys", statistics)
		blocked := b.s.cost(t, func() {
			found, err := b.s.Blocked(t.Context(), "type 1", ids[:2*lines], true)
			require.NoError(t, err)
			require.Len(t, found, lines)
		})
		assert.Less(t, blocked.read, 2*lines*10, "%s statistics: two entries of a thousand keys", statistics)
		by := b.s.cost(t, func() {
			for _, id := range ids[lines : lines+10] {
				first, err := b.s.BlockedBy(t.Context(), "type 1", id, true)
				require.NoError(t, err)
				require.Equal(t, processlog.RowID(id.Row()-lines), first)
			}
		})
		assert.Less(t, by.read, 10*10, "%s statistics: the entries that block ten others", statistics)
		fronts := b.s.cost(t, func() {
			found, last, err := b.s.Fronts(t.Context(), "type 1", "", 200, true)
			require.NoError(t, err)
			require.Len(t, found, 200)
			require.NotEmpty(t, last)
		})
		assert.Less(t, fronts.read, 200*(each+10), "%s statistics: two hundred keys", statistics)
		blocking := b.s.cost(t, func() {
			require.NoError(t, b.s.Block(t.Context(), []processlog.BlockedEntry{{Position: positions[0], Version: 1, Wait: time.Second}}, processlog.Token{1}))
		})
		assert.Less(t, blocking.read, 50, "%s statistics: one entry", statistics)
	}
}
