package sqlitetest

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wal lists the pragmas with which a database for the log should be opened.
var wal = []string{"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(10000)"}

func newFile(t testing.TB, pragmas ...string) string {
	query := url.Values{"_pragma": pragmas}
	return "file:" + filepath.Join(t.TempDir(), "log.db") + "?" + query.Encode()
}

func open(t testing.TB, dsn string) *sql.DB {
	db, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

func newLog(t testing.TB, pragmas ...string) (*sql.DB, processlog.Store) {
	db := open(t, newFile(t, pragmas...))
	require.NoError(t, compensator.Migrate(t.Context(), db))
	return db, openStore(t, db)
}

func openStore(t testing.TB, db *sql.DB) processlog.Store {
	s, err := compensator.OpenStore(t.Context(), db, compensator.DefaultTable)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func draft(key string) processlog.Draft {
	return processlog.Draft{BusinessType: "t", Content: []byte("{}"), IdempotencyKey: compensator.IdempotencyKey(key)}
}

func insert(t testing.TB, s processlog.Store, drafts ...processlog.Draft) []processlog.Inserted {
	tx, err := s.Begin(t.Context())
	require.NoError(t, err)
	inserted, err := s.Insert(t.Context(), tx, drafts, false)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	return inserted
}

func count(t testing.TB, db *sql.DB) (n int) {
	require.NoError(t, db.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM common_process_log").Scan(&n))
	return n
}
