package txwatch

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

const connectorTimeout = time.Minute

// connectorDB returns handles on a database with the table t(id, n), which has rows 1 to 20.
func connectorDB(t *testing.T, params ...string) (watched, plain *sql.DB) {
	config, err := mysql.ParseDSN(testservers.SharedSQL(t).Database(t, params...))
	require.NoError(t, err)
	config.Logger = &mysql.NopLogger{}
	plain = openConnectorDB(t, config, false)
	_, err = plain.Exec("CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
	require.NoError(t, err)
	for id := 1; id <= 20; id++ {
		_, err = plain.Exec(fmt.Sprintf("INSERT INTO t VALUES (%d, 0)", id))
		require.NoError(t, err)
	}
	return openConnectorDB(t, config, true), plain
}

func openConnectorDB(t *testing.T, config *mysql.Config, watch bool) *sql.DB {
	inner, err := mysql.NewConnector(config)
	require.NoError(t, err)
	if watch {
		inner = Wrap(inner)
	}
	db := sql.OpenDB(inner)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

type connectorHandle interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

const probeText = "THIS NEVER REACHES A SERVER"

func probe(t *testing.T, handle connectorHandle) *Tx {
	t.Helper()
	ctx, e := Ask(t.Context())
	_, err := handle.ExecContext(ctx, probeText)
	require.NoError(t, err)
	require.NotNil(t, e.Tx())
	return e.Tx()
}

type outcomes []Outcome

func (o *outcomes) add(outcome Outcome) { *o = append(*o, outcome) }

func enlisted(t *testing.T, handle connectorHandle) (*Tx, *outcomes) {
	t.Helper()
	w, got := probe(t, handle), new(outcomes)
	require.NoError(t, w.Err())
	w.OnEnd(got.add)
	require.Empty(t, *got)
	return w, got
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func connection(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func mustExec(t *testing.T, handle connectorHandle, query string, args ...any) {
	t.Helper()
	_, err := handle.ExecContext(t.Context(), query, args...)
	require.NoError(t, err, query)
}

func exists(t *testing.T, db *sql.DB, id int) bool {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRow("SELECT COUNT(*) FROM t WHERE id = ?", id).Scan(&n))
	return n == 1
}

func TestCommitOfWatchedTransactionTellsItsHooks(t *testing.T) {
	db, plain := connectorDB(t)
	tx := begin(t, db)
	w, got := enlisted(t, tx)
	assert.Same(t, w, probe(t, tx), "two probes of one transaction differ")
	mustExec(t, tx, "INSERT INTO t VALUES (100, ?)", 0)
	w.OnEnd(func(Outcome) { assert.True(t, exists(t, plain, 100), "the hook ran too early") })
	require.NoError(t, tx.Commit())
	assert.Equal(t, outcomes{Committed}, *got)
	assert.ErrorIs(t, w.Err(), processlog.ErrNoTransaction)

	late := new(outcomes)
	w.OnEnd(late.add)
	assert.Equal(t, outcomes{Committed}, *late, "a hook that was added after the end was not called")
}

func TestRollbackOfWatchedTransactionTellsItsHooks(t *testing.T) {
	db, _ := connectorDB(t)
	tx := begin(t, db)
	_, got := enlisted(t, tx)
	require.NoError(t, tx.Rollback())
	assert.Equal(t, outcomes{RolledBack}, *got)
}

func TestProbeCostsNoStatement(t *testing.T) {
	db, _ := connectorDB(t)
	tx := begin(t, db)
	questions := func() (n int) {
		require.NoError(t, tx.QueryRow("SHOW SESSION STATUS LIKE 'Questions'").Scan(new(string), &n))
		return n
	}
	before := questions()
	probe(t, tx)
	assert.Equal(t, before+1, questions())
}

func TestProbeFindsNoTransactionOnPoolAndConnection(t *testing.T) {
	db, _ := connectorDB(t)
	for _, handle := range []connectorHandle{db, connection(t, db)} {
		w := probe(t, handle)
		assert.ErrorIs(t, w.Err(), processlog.ErrNoTransaction)
		assert.NotErrorIs(t, w.Err(), processlog.ErrTxAborted)
		got := new(outcomes)
		w.OnEnd(got.add)
		assert.Equal(t, outcomes{RolledBack}, *got, "a reservation would never be released")
	}
}

func TestProbeOfUnwatchedHandleFindsNothing(t *testing.T) {
	_, plain := connectorDB(t)
	ctx, e := Ask(t.Context())
	_, err := begin(t, plain).ExecContext(ctx, "DO 0")
	require.NoError(t, err)
	assert.Nil(t, e.Tx())
}

func TestContextIsGoodForStatementsAfterItsProbe(t *testing.T) {
	db, plain := connectorDB(t)
	tx := begin(t, db)
	ctx, e := Ask(t.Context())
	_, err := tx.ExecContext(ctx, probeText)
	require.NoError(t, err)
	require.NotNil(t, e.Tx())
	_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (100, 0)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	assert.True(t, exists(t, plain, 100))
}

func TestProbeAsQueryReturnsNoRows(t *testing.T) {
	db, _ := connectorDB(t)
	tx := begin(t, db)
	ctx, e := Ask(t.Context())
	rows, err := tx.QueryContext(ctx, probeText)
	require.NoError(t, err)
	assert.False(t, rows.Next())
	require.NoError(t, rows.Close())
	require.NoError(t, e.Tx().Err())
}

func TestPreparedProbeSendsNothing(t *testing.T) {
	db, _ := connectorDB(t)
	for name, run := range map[string]func(context.Context, *sql.Stmt) error{
		"exec": func(ctx context.Context, s *sql.Stmt) error { _, err := s.ExecContext(ctx); return err },
		"query": func(ctx context.Context, s *sql.Stmt) error {
			rows, err := s.QueryContext(ctx)
			rows.Close()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			tx := begin(t, db)
			ctx, e := Ask(t.Context())
			stmt, err := tx.PrepareContext(ctx, probeText)
			require.NoError(t, err)
			require.NoError(t, run(ctx, stmt))
			require.NotNil(t, e.Tx())
			require.NoError(t, e.Tx().Err())
			require.NoError(t, stmt.Close())
		})
	}
}

// An ORM may cache a probe's prepared statement by its text, and run it on another connection or without a Question.
func TestKeptProbeServesOtherTransactionsAndOtherUses(t *testing.T) {
	db, plain := connectorDB(t)
	ctx, unused := Ask(t.Context())
	kept, err := db.PrepareContext(ctx, "INSERT INTO t VALUES (?, 0)")
	require.NoError(t, err)
	defer kept.Close()
	assert.Nil(t, unused.Tx(), "preparing is not probing: it may happen outside the transaction")

	for _, tx := range []*sql.Tx{begin(t, db), begin(t, db)} { // One of these runs on the same connection, and one on another.
		ctx, e := Ask(t.Context())
		_, err = tx.StmtContext(ctx, kept).ExecContext(ctx)
		require.NoError(t, err)
		require.NoError(t, e.Tx().Err())
		require.NoError(t, tx.Rollback())
	}
	_, err = kept.Exec(100)
	require.NoError(t, err)
	assert.True(t, exists(t, plain, 100), "the statement was swallowed")
	_, err = kept.Exec()
	require.Error(t, err, "a wrong number of arguments was not noticed")
}

func TestProbeThroughSqlx(t *testing.T) {
	db, _ := connectorDB(t)
	tx, err := sqlx.NewDb(db, "mysql").BeginTxx(t.Context(), nil)
	require.NoError(t, err)
	_, got := enlisted(t, tx)
	require.NoError(t, tx.Commit())
	assert.Equal(t, outcomes{Committed}, *got)
}

func TestSavepointRollbackLeavesHooksInPlace(t *testing.T) {
	db, _ := connectorDB(t)
	tx := begin(t, db)
	mustExec(t, tx, "SAVEPOINT s")
	_, got := enlisted(t, tx)
	mustExec(t, tx, "ROLLBACK TO s")
	require.NoError(t, probe(t, tx).Err())
	require.NoError(t, tx.Commit())
	assert.Equal(t, outcomes{Committed}, *got)
}

func TestPanickingHookHarmsNobody(t *testing.T) {
	db, plain := connectorDB(t)
	warnings := collectWarnings(t)
	tx := begin(t, db)
	mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
	w := probe(t, tx)
	w.OnEnd(func(Outcome) { panic("boom") })
	got := new(outcomes)
	w.OnEnd(got.add)
	require.NoError(t, tx.Commit())
	assert.Equal(t, outcomes{Committed}, *got)
	assert.True(t, exists(t, plain, 100))
	require.Len(t, *warnings, 1)
	assert.ErrorContains(t, (*warnings)[0], "boom")
}

// collectWarnings changes global state, so parallel tests must not use it.
func collectWarnings(t *testing.T) *[]error {
	warnings := new([]error)
	report := func(err error) { *warnings = append(*warnings, err) }
	connectorWarning.Store(&report)
	t.Cleanup(func() { connectorWarning.Store(nil) })
	return warnings
}
