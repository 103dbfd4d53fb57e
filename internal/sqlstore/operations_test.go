package sqlstore

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// TestTrailOfSomeTypesEndsWhereTheyDo: what others did beyond what a page looks at makes no page, and no cursor.
func TestTrailOfSomeTypesEndsWhereTheyDo(t *testing.T) {
	s := newListStore(t, nil)
	require.NoError(t, s.Operate(t.Context(), processlog.Operation{Actor: "mei", Action: "pause", BusinessType: "mine"}))
	row := ",(1,'bob','note','theirs')"
	for range 12 {
		_, err := s.db.ExecContext(t.Context(), "INSERT INTO `common_process_log_operation` (`at`, actor, `action`, business_type) VALUES "+strings.Repeat(row, trailRead/10)[1:])
		require.NoError(t, err)
	}
	for name, n := range map[string]int{"mine": 1, "nobody's": 0} {
		page, err := s.Trail(t.Context(), processlog.TrailFilter{BusinessTypes: []string{name}})
		require.NoError(t, err)
		assert.Len(t, page.Records, n, name)
		assert.Empty(t, page.Next, name)
	}
	page, err := s.Trail(t.Context(), processlog.TrailFilter{Actor: "mei"})
	require.NoError(t, err)
	assert.Empty(t, page.Records)
	assert.NotEmpty(t, page.Next, "who sees all goes on where reading stopped")
}
