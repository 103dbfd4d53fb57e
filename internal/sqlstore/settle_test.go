package sqlstore

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// A session of the pool stays in a transaction, whose reads show old rows.
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

// A success that changed the length of a row would make the server log the whole row, with 4 KB of content.
func TestASuccessIsWrittenIntoTheRowInPlace(t *testing.T) {
	// The test has a server for itself, because redoWritten reads a counter of the whole server.
	db, err := sql.Open("mysql", testservers.NewSQL(t).Database(t))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, Migrate(t.Context(), db, DefaultTable))
	s, err := Open(t.Context(), db, DefaultTable)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Check(t.Context()))
	const n = 500
	keys, drafts, outcomes := make([]processlog.IdempotencyKey, n), make([]processlog.Draft, n), make([]processlog.Outcome, n)
	for i := range n {
		keys[i] = processlog.IdempotencyKey(fmt.Sprint("key ", i))
		drafts[i] = processlog.Draft{IdempotencyKey: keys[i], BusinessType: "close_order", Content: []byte(strings.Repeat("x", 4096))}
		outcomes[i] = processlog.Outcome{IdempotencyKey: keys[i], To: processlog.Succeeded, EndedBy: processlog.EndedByHandler}
	}
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = s.Insert(t.Context(), tx, drafts, true)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	ids, err := s.IDs(t.Context(), nil, keys)
	require.NoError(t, err)
	for i := range n {
		outcomes[i].ID = ids[keys[i]]
	}

	before := redoWritten(t, db)
	settled, err := s.Settle(t.Context(), processlog.Token{1}, outcomes)
	require.NoError(t, err)
	require.NotContains(t, settled, processlog.Settled{})
	assert.Less(t, (redoWritten(t, db)-before)/n, int64(2048), "bytes of redo an entry")
}

func redoWritten(t *testing.T, db *sql.DB) (lsn int64) {
	var name string
	require.NoError(t, db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_lsn_current','Innodb_redo_log_current_lsn')").Scan(&name, &lsn))
	return lsn
}
