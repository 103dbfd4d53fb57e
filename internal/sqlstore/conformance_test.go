package sqlstore_test

import (
	"testing"

	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

func TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn(t *testing.T) {
	t.Parallel()
	suite.TestStore(t, func(t *testing.T) suite.Harness {
		t.Parallel()
		dsn := testservers.Database(t)
		return harness.StoreOn(t, dsn, harness.WatchedPool(dsn))
	})
}

func TestSQLStoreKeepsEveryPromiseOnTheUsersConnections(t *testing.T) {
	t.Parallel()
	suite.TestStore(t, func(t *testing.T) suite.Harness {
		t.Parallel()
		dsn := testservers.Database(t, "clientFoundRows=true", "interpolateParams=true")
		return harness.StoreOn(t, dsn, harness.PlainPool(dsn))
	})
}
