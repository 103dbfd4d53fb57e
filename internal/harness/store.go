package harness

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/processlog"
)

func StoreOn(t *testing.T, dsn string, openPool func() (*sql.DB, error)) suite.Harness {
	t.Helper()
	db, err := openPool()
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, compensator.Migrate(t.Context(), db))
	store, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	require.NoError(t, store.Check(t.Context()))
	caller, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = caller.Close() })
	return suite.Harness{
		Store: store, Autocommit: caller, Begin: func(ctx context.Context) (processlog.Transaction, error) { return caller.BeginTx(ctx, nil) },
		Refuse: func(t *testing.T, ids []processlog.ID) func() { return refuseRows(t, caller, ids) },
	}
}

func refuseRows(t *testing.T, db *sql.DB, ids []processlog.ID) (allowRows func()) {
	t.Helper()
	rows := make([]string, len(ids))
	for i, id := range ids {
		rows[i] = id.String()
	}
	_, err := db.Exec("CREATE TRIGGER refuse BEFORE UPDATE ON common_process_log FOR EACH ROW IF NEW.id IN (" + strings.Join(rows, ",") + ") THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='no'; END IF")
	require.NoError(t, err)
	return func() {
		_, err := db.Exec("DROP TRIGGER refuse")
		require.NoError(t, err)
	}
}
