package sqlitetest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/processlog"
)

func TestSQLiteStoreKeepsTheContract(t *testing.T) {
	t.Parallel()
	for _, journal := range []string{"WAL", "DELETE"} {
		t.Run(journal, func(t *testing.T) {
			t.Parallel()
			suite.TestStore(t, func(t *testing.T) suite.Harness {
				t.Parallel()
				db, s := newLog(t, "journal_mode("+journal+")", "synchronous(FULL)", "busy_timeout(10000)")
				begin := func(ctx context.Context) (processlog.Transaction, error) {
					return db.BeginTx(ctx, &sql.TxOptions{})
				}
				return suite.Harness{Store: s, Begin: begin, Autocommit: db, SingleWriter: true}
			})
		})
	}
}
