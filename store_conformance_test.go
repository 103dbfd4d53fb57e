package compensator_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// sqlHarness opens the store on a database of its own; open says how its pool is opened.
func sqlHarness(t *testing.T, dsn string, open func() (*sql.DB, error)) suite.Harness {
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

func TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn(t *testing.T) {
	suite.TestStore(t, func(t *testing.T) suite.Harness {
		dsn := testservers.Database(t)
		return sqlHarness(t, dsn, compensatorOn(dsn))
	})
}

func TestSQLStoreKeepsEveryPromiseOnTheUsersConnections(t *testing.T) {
	suite.TestStore(t, func(t *testing.T) suite.Harness {
		dsn := testservers.Database(t, "clientFoundRows=true", "interpolateParams=true")
		return sqlHarness(t, dsn, plain(dsn))
	})
}
