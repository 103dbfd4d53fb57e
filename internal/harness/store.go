package harness

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/processlog"
)

// StoreOn opens the store on a database of its own; open says how its pool is opened.
func StoreOn(t *testing.T, dsn string, open func() (*sql.DB, error)) suite.Harness {
	t.Helper()
	db, err := open()
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
	return suite.Harness{Store: store, Autocommit: caller, Begin: func(ctx context.Context) (processlog.Transaction, error) { return caller.BeginTx(ctx, nil) }}
}
