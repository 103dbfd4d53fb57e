package sqlitetest

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
	"github.com/compensator-go/compensator/proof/traces/sqlpage"
)

func TestPageHasTheStatementsAsSent(t *testing.T) {
	t.Parallel()
	db, sent := recordConnector(t)
	store := openStore(t, db)
	sqlpage.Run(t, "SQLite", store, func() (texts []string) {
		for _, statement := range sent.take() {
			texts = append(texts, statement.text)
		}
		return texts
	})
}

func recordConnector(t *testing.T) (*sql.DB, *recorder) {
	dsn := newFile(t, wal...)
	require.NoError(t, compensator.Migrate(t.Context(), open(t, dsn)))
	_, sent := record(t, dsn)
	db := sql.OpenDB(compensator.Connector(sent))
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db, sent
}

func TestRecordAsksSQLiteOnceWhetherItsTransactionIsOpen(t *testing.T) {
	t.Parallel()
	db, sent := recordConnector(t)
	store := openStore(t, db)
	tx, err := store.Begin(t.Context())
	require.NoError(t, err)
	sent.take()
	_, err = store.Insert(t.Context(), tx, []processlog.Draft{draft("a")}, true)
	require.NoError(t, err)
	statements := sent.take()
	require.Len(t, statements, 2)
	require.Contains(t, statements[0].text, "PRAGMA")
	require.Contains(t, statements[1].text, "INSERT")
	require.NoError(t, tx.Commit())
}
