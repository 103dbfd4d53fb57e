package sqlstore

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// If the filter names types, records of other types must cause no empty page and no cursor.
// Failure: F122
func TestAuditLogOfSomeTypesEndsWhereTheyDo(t *testing.T) {
	s := newListStore(t, nil)
	require.NoError(t, s.Operate(t.Context(), processlog.Operation{Actor: "mei", Action: "pause", BusinessType: "mine"}))
	row := ",(1,'bob','note','theirs')"
	for range 12 {
		_, err := s.db.ExecContext(t.Context(), "INSERT INTO `common_process_log_operation` (`at`, actor, `action`, business_type) VALUES "+strings.Repeat(row, auditLogRead/10)[1:])
		require.NoError(t, err)
	}
	for name, n := range map[string]int{"mine": 1, "nobody's": 0} {
		page, err := s.AuditLog(t.Context(), processlog.AuditLogFilter{BusinessTypes: []string{name}})
		require.NoError(t, err)
		assert.Len(t, page.Records, n, name)
		assert.Empty(t, page.Next, name)
	}
	page, err := s.AuditLog(t.Context(), processlog.AuditLogFilter{Actor: "mei"})
	require.NoError(t, err)
	assert.Empty(t, page.Records)
	assert.NotEmpty(t, page.Next, "a reader of all types continues where reading stopped")
}

func TestAuditLogGoesOnWhereItStoppedLooking(t *testing.T) {
	s := newListStore(t, nil)
	by := processlog.AuditInfo{Actor: "mei", Reason: "asked the bank"}
	require.NoError(t, s.Note(t.Context(), "note", by))
	require.NoError(t, s.Operate(t.Context(), processlog.Operation{Actor: "mei", Action: "pause"}))
	others := map[string]string{
		"_operation (`at`, actor, `action`)":                                                "(1,'bob','note')",
		"_audit (entry_id, `action`, actor, reason, before_state, after_state, created_at)": "(1,'requeue','bob','','{}','{}'," + s.d.stamp + ")",
	}
	for into, row := range others {
		for range 9 {
			_, err := s.db.ExecContext(t.Context(), "INSERT INTO common_process_log"+into+" VALUES "+strings.Repeat(","+row, auditLogRead/4)[1:])
			require.NoError(t, err)
		}
	}
	require.NoError(t, s.Operate(t.Context(), processlog.Operation{Actor: "mei", Action: "resume"}))
	var found []string
	f, pages := processlog.AuditLogFilter{Actor: "mei"}, 0
	for more := true; more && pages < 10; more = f.Cursor != "" {
		cost := s.cost(t, func() {
			page, err := s.AuditLog(t.Context(), f)
			require.NoError(t, err)
			for _, r := range page.Records {
				found = append(found, r.Action)
			}
			f.Cursor = page.Next
		})
		assert.Less(t, cost.read, 2*auditLogRead+50, "page %d", pages)
		pages++
	}
	assert.ElementsMatch(t, []string{"resume", "pause", "note"}, found)
	assert.Equal(t, "resume", found[0])
	assert.Equal(t, 3, pages)
}
