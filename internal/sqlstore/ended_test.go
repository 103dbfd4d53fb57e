package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// At the deadline the driver closes its connection. Only the limit in the statement can still end the read on the server.
// Failure: F127
func TestServerEndsAReadWhoseTimeIsOver(t *testing.T) {
	dsn := testservers.Database(t)
	open := func() *sql.DB {
		db, err := sql.Open("mysql", dsn)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		return db
	}
	beside := open()
	s, err := Open(t.Context(), open(), DefaultTable)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	const forever = "SELECT COUNT(*) AS for_ever FROM information_schema.columns a, information_schema.columns b, information_schema.columns c"
	if rows, err := s.read(ctx, forever); err == nil {
		for rows.Next() {
			continue
		}
		require.Error(t, rows.Err())
		_ = rows.Close()
	}
	require.Eventually(t, func() bool {
		var n int
		err := beside.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%AS for_ever FROM%' AND id<>CONNECTION_ID()").Scan(&n)
		return assert.NoError(t, err) && n == 0
	}, time.Minute, 50*time.Millisecond, "the server still reads")
	assert.Equal(t, forever, s.withTimeLimit(t.Context(), forever), "without a deadline the text is unchanged")
	assert.Equal(t, "SELECT /*+ MAX_EXECUTION_TIME(2000) */ 1", mysqlDialect("8.4.0").ended(2, "SELECT 1"))
}

// A time limit in a statement would replace the limit of the session. So a statement gets no limit if the limit of the
// session is stricter.
func TestStricterBoundOfTheSessionStays(t *testing.T) {
	server := testservers.SharedSQL(t)
	settings := map[string]bool{"autocommit=1": true, "max_execution_time=600000": true, "max_execution_time=1500": false}
	if server.Flavor == "mariadb" {
		settings = map[string]bool{"autocommit=1": true, "max_statement_time=600": true, "max_statement_time=1.5": false}
	}
	for setting, bounded := range settings {
		db, err := sql.Open("mysql", server.Database(t, setting))
		require.NoError(t, err)
		require.NoError(t, Migrate(t.Context(), db, DefaultTable))
		s, err := Open(t.Context(), db, DefaultTable)
		require.NoError(t, err)
		require.NoError(t, s.Check(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		assert.Equal(t, bounded, s.withTimeLimit(ctx, "SELECT 1") != "SELECT 1", setting)
		cancel()
		require.NoError(t, errors.Join(s.Close(), db.Close()))
	}
}

// Load and Versions read few rows by id, so they need no time limit, and the test does not call them.
func TestListsSumsAndCountsAreEndedByTheServer(t *testing.T) {
	b := openLogbook(t)
	b.fill(100)
	statements := b.written(func(ctx context.Context, s *Store) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		page, err1 := s.List(ctx, processlog.Filter{States: []processlog.State{processlog.Pending}, Outline: true})
		_, err2 := s.Outlines(ctx, []processlog.ID{page.Rows[0].ID})
		_, err3 := s.Count(ctx, nil, processlog.CountFilter{})
		_, err4 := s.Count(ctx, nil, processlog.CountFilter{BatchID: "batch"})
		_, err5 := s.Cases(ctx, processlog.CaseFilter{})
		_, err6 := s.CaseGroups(ctx, nil, processlog.Fingerprint{})
		_, err7 := s.AuditLog(ctx, processlog.AuditLogFilter{})
		_, err8 := s.Types(ctx)
		_, err9 := s.CountCases(ctx)
		require.NoError(t, errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9))
	})
	for _, statement := range statements {
		assert.Regexp(t, `^(SET STATEMENT [^(]*max_statement_time=\d+ FOR SELECT|SELECT /\*\+ MAX_EXECUTION_TIME\(\d+000\) [^/]*\*/) `, statement)
	}
}
