package sqlstore

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// TestOutcomeIsNotJudgedByAnOldSnapshot leaves a session of a plain pool inside a transaction. Reads in that session
// show rows as they were before. The store must still see that the outcome was applied.
func TestOutcomeIsNotJudgedByAnOldSnapshot(t *testing.T) {
	db, err := sql.Open("mysql", testservers.Database(t))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, Migrate(t.Context(), db, DefaultTable))
	s, err := Open(t.Context(), db, DefaultTable)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Check(t.Context()))
	tx, err := db.Begin()
	require.NoError(t, err)
	inserted, err := s.Insert(t.Context(), tx, []processlog.Draft{{IdempotencyKey: "a", BusinessType: "close_order"}}, true)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	left, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = left.ExecContext(t.Context(), "START TRANSACTION WITH CONSISTENT SNAPSHOT")
	require.NoError(t, err)
	id, token := inserted[0].ID, processlog.Token{1}
	outcomes := []processlog.Outcome{{ID: id, IdempotencyKey: "a", To: processlog.Succeeded, EndedBy: processlog.EndedByHandler}}
	settled, err := s.Settle(t.Context(), token, outcomes)
	require.NoError(t, err)
	require.True(t, settled[0].Applied)
	require.NoError(t, left.Close()) // The pool returns this session for the next statement.

	require.NoError(t, s.explain(t.Context(), token, []processlog.ID{id}, map[processlog.ID]int{id: 0}, outcomes, settled))
	require.Equal(t, processlog.Settled{Applied: true, State: processlog.Succeeded}, settled[0])
}
