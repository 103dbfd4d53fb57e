package sqlitetest

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
				return suite.Harness{Store: s, Begin: begin, Autocommit: db, SingleWriter: true, Refuse: func(t *testing.T, ids []processlog.ID) func() {
					rows := make([]string, len(ids))
					for i, id := range ids {
						rows[i] = id.String()
					}
					// This is the worst case: the trigger rolls the whole transaction back.
					_, err := db.Exec("CREATE TRIGGER refuse BEFORE UPDATE ON common_process_log WHEN NEW.id IN (" + strings.Join(rows, ",") + ") BEGIN SELECT RAISE(ROLLBACK,'no'); END")
					require.NoError(t, err)
					return func() {
						_, err := db.Exec("DROP TRIGGER refuse")
						require.NoError(t, err)
					}
				}}
			})
		})
	}
}
