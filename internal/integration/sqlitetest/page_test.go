package sqlitetest

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/proof/traces/sqlpage"
)

func TestPageHasTheStatementsAsSent(t *testing.T) {
	t.Parallel()
	dsn := newFile(t, wal...)
	require.NoError(t, compensator.Migrate(t.Context(), open(t, dsn)))
	_, sent := record(t, dsn)
	db := sql.OpenDB(compensator.Connector(sent))
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	store := openStore(t, db)
	sqlpage.Run(t, "SQLite", store, func() (texts []string) {
		for _, statement := range sent.take() {
			texts = append(texts, statement.text)
		}
		return texts
	})
}
