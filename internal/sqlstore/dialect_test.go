package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/processlog"
)

// After a failed statement, a transaction on PostgreSQL accepts only ROLLBACK TO SAVEPOINT. The test uses MySQL, and
// strictTx refuses all other statements as PostgreSQL does.
func TestDuplicateIsFoundWhereAFailedStatementBreaksItsTransaction(t *testing.T) {
	db, err := sql.Open("mysql", testservers.Database(t))
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, Migrate(t.Context(), db, DefaultTable))
	s, err := Open(t.Context(), db, DefaultTable)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Check(t.Context()))
	s.d.breaks = true
	s.d.insertID = !s.d.returning // MySQL has no INSERT … RETURNING.

	tx, err := db.Begin()
	require.NoError(t, err)
	strict := &strictTx{Tx: tx}
	first, err := s.Insert(t.Context(), strict, []processlog.Draft{{IdempotencyKey: "a", BusinessType: "close_order"}}, true)
	require.NoError(t, err)
	again, err := s.Insert(t.Context(), strict, []processlog.Draft{{IdempotencyKey: "a", BusinessType: "close_order"}, {IdempotencyKey: "b", BusinessType: "close_order"}}, true)
	require.NoError(t, err)
	require.Equal(t, first[0].ID, again[0].ID)
	require.True(t, again[0].Duplicate)
	require.False(t, again[1].Duplicate)
	require.NoError(t, tx.Commit())
	rows, err := s.Load(t.Context(), []processlog.ID{first[0].ID, again[1].ID})
	require.NoError(t, err)
	require.Len(t, rows, 2)
}

type strictTx struct {
	*sql.Tx
	broken bool
}

func (t *strictTx) fails(query string) error {
	if t.broken && !strings.HasPrefix(query, "ROLLBACK TO SAVEPOINT ") {
		return errors.New("current transaction is aborted")
	}
	return nil
}

func (t *strictTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := t.fails(query); err != nil {
		return nil, err
	}
	result, err := t.Tx.ExecContext(ctx, query, args...)
	t.broken = err != nil
	return result, err
}

func (t *strictTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := t.fails(query); err != nil {
		return nil, err
	}
	rows, err := t.Tx.QueryContext(ctx, query, args...)
	t.broken = err != nil
	return rows, err
}

func TestNamesAndPlaceholdersAreTheDialects(t *testing.T) {
	d := sqliteDialect()
	d.quote, d.numbered = `"`, true
	s := newStore(d, tableName{base: "log"}, nil)
	require.Equal(t, `SELECT "value" FROM "log_meta" WHERE "name" = 'fingerprint' LIMIT 1`, s.sql(readFingerprint))
	require.Equal(t, `CREATE TABLE "log_meta" ("name"`, s.table.replaceDefault(`CREATE TABLE "common_process_log_meta" ("name"`, d.quote))
	require.Equal(t, "IN ($1,$2) AND id=$3 LIMIT 1", s.placeholders("IN (?,?) AND id=? LIMIT 1"))
}

func TestWaitForARowLockIsSetAsItIsCounted(t *testing.T) {
	require.Equal(t, fmt.Sprintf("innodb_lock_wait_timeout=%d", int(rowWait.Seconds())), txwatch.ShortRowWait)
}
