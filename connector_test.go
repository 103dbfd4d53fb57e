package compensator

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
)

const connectorPatience = time.Minute

// connectorDB returns a watched handle and a plain one on a database with the table t(id, n), rows 1 to 20.
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
		inner = Connector(inner)
	}
	db := sql.OpenDB(inner)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

type connectorHandle interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

const probeText = "THIS NEVER REACHES A SERVER"

// probe asks a handle for its transaction as the library does.
func probe(t *testing.T, handle connectorHandle) *watchedTx {
	t.Helper()
	ctx, e := withEnlistment(t.Context())
	_, err := handle.ExecContext(ctx, probeText)
	require.NoError(t, err)
	require.NotNil(t, e.tx())
	return e.tx()
}

// outcomes collects what hooks are told.
type outcomes []commitOutcome

func (o *outcomes) add(outcome commitOutcome) { *o = append(*o, outcome) }

// enlisted probes a handle, which must have an open transaction, and hooks on to its end.
func enlisted(t *testing.T, handle connectorHandle) (*watchedTx, *outcomes) {
	t.Helper()
	w, got := probe(t, handle), new(outcomes)
	require.NoError(t, w.err())
	w.onEnd(got.add)
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
	assert.Same(t, w, probe(t, tx), "one transaction was taken for two")
	mustExec(t, tx, "INSERT INTO t VALUES (100, ?)", 0)
	w.onEnd(func(commitOutcome) { assert.True(t, exists(t, plain, 100), "told before it was true") })
	require.NoError(t, tx.Commit())
	assert.Equal(t, outcomes{committed}, *got)
	assert.ErrorIs(t, w.err(), ErrNoTransaction)

	late := new(outcomes)
	w.onEnd(late.add)
	assert.Equal(t, outcomes{committed}, *late, "a hook that came too late was not told")
}

func TestRollbackOfWatchedTransactionTellsItsHooks(t *testing.T) {
	db, _ := connectorDB(t)
	tx := begin(t, db)
	_, got := enlisted(t, tx)
	require.NoError(t, tx.Rollback())
	assert.Equal(t, outcomes{rolledBack}, *got)
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
		assert.ErrorIs(t, w.err(), ErrNoTransaction)
		assert.NotErrorIs(t, w.err(), ErrTxAborted)
		got := new(outcomes)
		w.onEnd(got.add)
		assert.Equal(t, outcomes{rolledBack}, *got, "a reservation would never be released")
	}
}

func TestProbeOfUnwatchedHandleFindsNothing(t *testing.T) {
	_, plain := connectorDB(t)
	ctx, e := withEnlistment(t.Context())
	_, err := begin(t, plain).ExecContext(ctx, "DO 0")
	require.NoError(t, err)
	assert.Nil(t, e.tx())
}

func TestContextIsGoodForStatementsAfterItsProbe(t *testing.T) {
	db, plain := connectorDB(t)
	tx := begin(t, db)
	ctx, e := withEnlistment(t.Context())
	_, err := tx.ExecContext(ctx, probeText)
	require.NoError(t, err)
	require.NotNil(t, e.tx())
	_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (100, 0)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	assert.True(t, exists(t, plain, 100))
}

func TestProbeAsQueryReturnsNoRows(t *testing.T) {
	db, _ := connectorDB(t)
	tx := begin(t, db)
	ctx, e := withEnlistment(t.Context())
	rows, err := tx.QueryContext(ctx, probeText)
	require.NoError(t, err)
	assert.False(t, rows.Next())
	require.NoError(t, rows.Close())
	require.NoError(t, e.tx().err())
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
			ctx, e := withEnlistment(t.Context())
			stmt, err := tx.PrepareContext(ctx, probeText)
			require.NoError(t, err)
			require.NoError(t, run(ctx, stmt))
			require.NotNil(t, e.tx())
			require.NoError(t, e.tx().err())
			require.NoError(t, stmt.Close())
		})
	}
}

// An ORM may keep a probe's statement by its text, prepare it on one connection and run it on another.
func TestKeptProbeServesOtherTransactionsAndOtherUses(t *testing.T) {
	db, plain := connectorDB(t)
	ctx, unused := withEnlistment(t.Context())
	kept, err := db.PrepareContext(ctx, "INSERT INTO t VALUES (?, 0)")
	require.NoError(t, err)
	defer kept.Close()
	assert.Nil(t, unused.tx(), "preparing is not probing: it may happen outside the transaction")

	for _, tx := range []*sql.Tx{begin(t, db), begin(t, db)} { // one on its connection, one on another
		ctx, e := withEnlistment(t.Context())
		_, err = tx.StmtContext(ctx, kept).ExecContext(ctx)
		require.NoError(t, err)
		require.NoError(t, e.tx().err())
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
	assert.Equal(t, outcomes{committed}, *got)
}

// deadlock makes the server roll tx back in favour of a heavier transaction that holds row 2; meet is to
// touch rows 1 and 2. tx must come fresh.
func deadlock(t *testing.T, tx connectorHandle, plain *sql.DB, meet func()) {
	t.Helper()
	mustExec(t, tx, "UPDATE t SET n = n+1 WHERE id = 1")
	other := begin(t, plain)
	mustExec(t, other, "UPDATE t SET n = n+1 WHERE id >= 2")
	waited := make(chan error, 1)
	go func() {
		_, err := other.Exec("UPDATE t SET n = n+1 WHERE id = 1")
		waited <- err
	}()
	meet()
	require.NoError(t, <-waited, "the wrong transaction was rolled back")
	require.NoError(t, other.Rollback())
}

func requireMySQL(t *testing.T, err error, number uint16) {
	t.Helper()
	var answer *mysql.MySQLError
	require.ErrorAs(t, err, &answer)
	require.Equal(t, number, answer.Number)
}

func TestSwallowedDeadlockRefusesEntriesAndCommit(t *testing.T) {
	query := func(t *testing.T, tx *sql.Tx, stmt string, args ...any) error {
		rows, err := tx.Query(stmt, args...)
		require.NoError(t, err)
		defer rows.Close()
		require.True(t, rows.Next(), "row 1 is ours and was to be read before the deadlock")
		assert.False(t, rows.Next())
		return rows.Err()
	}
	for name, meet := range map[string]func(*testing.T, *sql.Tx) error{
		"exec": func(_ *testing.T, tx *sql.Tx) error { _, err := tx.Exec("UPDATE t SET n = 7 WHERE id = 2"); return err },
		"prepared exec": func(_ *testing.T, tx *sql.Tx) error {
			_, err := tx.Exec("UPDATE t SET n = ? WHERE id = 2", 7)
			return err
		},
		"rows": func(t *testing.T, tx *sql.Tx) error {
			return query(t, tx, "SELECT id FROM t WHERE id BETWEEN 1 AND 2 ORDER BY id FOR UPDATE")
		},
		"prepared rows": func(t *testing.T, tx *sql.Tx) error {
			return query(t, tx, "SELECT id FROM t WHERE id BETWEEN ? AND 2 ORDER BY id FOR UPDATE", 1)
		},
		"rows never read": func(t *testing.T, tx *sql.Tx) error {
			rows, err := tx.Query("SELECT id FROM t WHERE id BETWEEN 1 AND 2 ORDER BY id FOR UPDATE")
			require.NoError(t, err)
			return rows.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, plain := connectorDB(t)
			tx := begin(t, db)
			w, got := enlisted(t, tx)
			deadlock(t, tx, plain, func() { requireMySQL(t, meet(t, tx), 1213) })
			assert.ErrorIs(t, w.err(), ErrTxAborted)
			assert.ErrorIs(t, w.err(), ErrNoTransaction)
			assert.Equal(t, outcomes{rolledBack}, *got, "reservations wait for nothing")

			require.ErrorIs(t, tx.Commit(), ErrTxAborted)
			assert.Equal(t, outcomes{rolledBack}, *got)
			assert.ErrorIs(t, probe(t, db).err(), ErrNoTransaction)
			assert.NotErrorIs(t, probe(t, db).err(), ErrTxAborted, "the state leaked into the pool")
		})
	}
}

func TestEntryAfterSwallowedDeadlockIsRefused(t *testing.T) {
	db, plain := connectorDB(t)
	tx := begin(t, db)
	deadlock(t, tx, plain, func() {
		_, err := tx.Exec("UPDATE t SET n = 7 WHERE id = 2")
		requireMySQL(t, err, 1213)
	})
	w := probe(t, tx)
	require.ErrorIs(t, w.err(), ErrTxAborted)
	w.taint(w.err())
	err := tx.Commit()
	require.ErrorIs(t, err, ErrTxAborted)
	require.ErrorIs(t, err, ErrNotRecorded)
}

func TestCommitOfDeadlockedTransactionWithoutEntriesIsLeftAlone(t *testing.T) {
	db, plain := connectorDB(t)
	tx := begin(t, db)
	deadlock(t, tx, plain, func() {
		_, err := tx.Exec("UPDATE t SET n = 7 WHERE id = 2")
		requireMySQL(t, err, 1213)
	})
	require.NoError(t, tx.Commit())
}

func TestSnapshotConflictAbortsTransaction(t *testing.T) {
	db, plain := connectorDB(t)
	conn := connection(t, db)
	_, err := conn.ExecContext(t.Context(), "SET innodb_snapshot_isolation = ON")
	if testservers.SharedSQL(t).Flavor != "mariadb" {
		require.Error(t, err, "this server has it too now: test it")
		return
	}
	require.NoError(t, err)
	tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	w, got := enlisted(t, tx)
	require.NoError(t, tx.QueryRow("SELECT n FROM t WHERE id = 1").Scan(new(int)))
	mustExec(t, plain, "UPDATE t SET n = 5 WHERE id = 1")
	_, err = tx.Exec("UPDATE t SET n = 6 WHERE id = 1")
	requireMySQL(t, err, 1020)
	require.ErrorIs(t, w.err(), ErrTxAborted)
	require.ErrorIs(t, tx.Commit(), ErrTxAborted)
	assert.Equal(t, outcomes{rolledBack}, *got)
}

func TestLockWaitTimeoutKeepsTransactionOpen(t *testing.T) {
	db, plain := connectorDB(t)
	other := begin(t, plain)
	mustExec(t, other, "UPDATE t SET n = 1 WHERE id = 1")
	tx := begin(t, db)
	mustExec(t, tx, "SET innodb_lock_wait_timeout = 1")
	_, got := enlisted(t, tx)
	mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
	_, err := tx.Exec("UPDATE t SET n = 2 WHERE id = 1")
	requireMySQL(t, err, 1205)
	require.NoError(t, probe(t, tx).err())
	require.NoError(t, tx.Commit())
	assert.Equal(t, outcomes{committed}, *got)
	assert.True(t, exists(t, plain, 100))
}

func TestLockWaitTimeoutThatEndsTransactionIsFoundOut(t *testing.T) {
	config, err := mysql.ParseDSN(testservers.NewSQL(t, "--innodb-rollback-on-timeout=ON", "--innodb-lock-wait-timeout=1").Database(t))
	require.NoError(t, err)
	db, plain := openConnectorDB(t, config, true), openConnectorDB(t, config, false)
	mustExec(t, plain, "CREATE TABLE t (id INT PRIMARY KEY, n INT) ENGINE=InnoDB")
	mustExec(t, plain, "INSERT INTO t VALUES (1, 0)")
	other := begin(t, plain)
	mustExec(t, other, "UPDATE t SET n = 1 WHERE id = 1")
	tx := begin(t, db)
	mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
	_, err = tx.Exec("UPDATE t SET n = 2 WHERE id = 1")
	requireMySQL(t, err, 1205)
	assert.ErrorIs(t, probe(t, tx).err(), ErrNoTransaction)
}

func TestTaintedTransactionIsRolledBackByCommit(t *testing.T) {
	reason := errors.New("too long")
	for name, commit := range map[string]func(*sql.Conn) error{
		"text":     func(c *sql.Conn) error { _, err := c.ExecContext(context.Background(), " commit"); return err },
		"query":    func(c *sql.Conn) error { _, err := c.QueryContext(context.Background(), "COMMIT"); return err },
		"chain":    func(c *sql.Conn) error { _, err := c.ExecContext(context.Background(), "COMMIT AND CHAIN"); return err },
		"prepared": commitPrepared,
	} {
		t.Run(name, func(t *testing.T) {
			db, plain := connectorDB(t)
			conn := connection(t, db)
			mustExec(t, conn, "BEGIN")
			mustExec(t, conn, "INSERT INTO t VALUES (100, 0)")
			w, got := enlisted(t, conn)
			w.taint(reason)
			err := commit(conn)
			require.ErrorIs(t, err, ErrNotRecorded)
			require.ErrorIs(t, err, reason)
			assert.Equal(t, outcomes{rolledBack}, *got)
			assert.False(t, exists(t, plain, 100))
			assert.ErrorIs(t, probe(t, conn).err(), ErrNoTransaction)
		})
	}
	t.Run("Tx.Commit", func(t *testing.T) {
		db, plain := connectorDB(t)
		tx := begin(t, db)
		mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
		w, got := enlisted(t, tx)
		w.taint(reason)
		w.taint(errors.New("later and less telling"))
		err := tx.Commit()
		require.ErrorIs(t, err, ErrNotRecorded)
		require.ErrorIs(t, err, reason)
		assert.Equal(t, outcomes{rolledBack}, *got)
		assert.False(t, exists(t, plain, 100))
	})
}

func commitPrepared(c *sql.Conn) error {
	stmt, err := c.PrepareContext(context.Background(), "COMMIT")
	if err != nil {
		return err
	}
	defer stmt.Close()
	_, err = stmt.Exec()
	return err
}

func TestTaintEndsWithTheSavepointItHappenedIn(t *testing.T) {
	for name, test := range map[string]struct {
		before, after []string
		commits       bool
	}{
		"savepoint before":          {[]string{"SAVEPOINT s"}, []string{"ROLLBACK TO SAVEPOINT `S`"}, true},
		"nested savepoint before":   {[]string{"SAVEPOINT s", "SAVEPOINT i"}, []string{"rollback work to s"}, true},
		"savepoint after":           {nil, []string{"SAVEPOINT s", "ROLLBACK TO s"}, false},
		"savepoint set anew":        {[]string{"SAVEPOINT s"}, []string{"savepoint `s`", "ROLLBACK TO S;"}, false},
		"savepoint only released":   {[]string{"SAVEPOINT s"}, []string{"RELEASE SAVEPOINT s"}, false},
		"back over the later one":   {[]string{"SAVEPOINT s"}, []string{"SAVEPOINT i", "ROLLBACK TO i", "ROLLBACK TO s"}, true},
		"going back did not happen": {nil, []string{"ROLLBACK TO missing"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := connectorDB(t)
			tx := begin(t, db)
			for _, stmt := range test.before {
				mustExec(t, tx, stmt)
			}
			w, got := enlisted(t, tx)
			w.taint(errors.New("not written"))
			for _, stmt := range test.after {
				tx.Exec(stmt)
			}
			if err := tx.Commit(); test.commits {
				require.NoError(t, err)
				assert.Equal(t, outcomes{committed}, *got)
			} else {
				require.ErrorIs(t, err, ErrNotRecorded)
				assert.Equal(t, outcomes{rolledBack}, *got)
			}
		})
	}
}

func TestSavepointRollbackLeavesHooksInPlace(t *testing.T) {
	db, _ := connectorDB(t)
	tx := begin(t, db)
	mustExec(t, tx, "SAVEPOINT s")
	_, got := enlisted(t, tx)
	mustExec(t, tx, "ROLLBACK TO s")
	require.NoError(t, probe(t, tx).err())
	require.NoError(t, tx.Commit())
	assert.Equal(t, outcomes{committed}, *got)
}

func TestPanickingHookHarmsNobody(t *testing.T) {
	db, plain := connectorDB(t)
	warnings := collectWarnings(t)
	tx := begin(t, db)
	mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
	w := probe(t, tx)
	w.onEnd(func(commitOutcome) { panic("boom") })
	got := new(outcomes)
	w.onEnd(got.add)
	require.NoError(t, tx.Commit())
	assert.Equal(t, outcomes{committed}, *got)
	assert.True(t, exists(t, plain, 100))
	require.Len(t, *warnings, 1)
	assert.ErrorContains(t, (*warnings)[0], "boom")
}

// collectWarnings may not be used by parallel tests.
func collectWarnings(t *testing.T) *[]error {
	warnings := new([]error)
	report := func(err error) { *warnings = append(*warnings, err) }
	connectorWarning.Store(&report)
	t.Cleanup(func() { connectorWarning.Store(nil) })
	return warnings
}

func TestCommitThatWasNeverSentRollsBack(t *testing.T) {
	db, plain := connectorDB(t)
	for name, finish := range map[string]func(*sql.Tx, context.CancelFunc, <-chan commitOutcome) error{
		"cancelled before Commit": func(tx *sql.Tx, cancel context.CancelFunc, _ <-chan commitOutcome) error {
			cancel()
			return tx.Commit()
		},
		"Commit after the cancelled transaction was rolled back": func(tx *sql.Tx, cancel context.CancelFunc, ended <-chan commitOutcome) error {
			cancel()
			if outcome := <-ended; outcome != rolledBack {
				return fmt.Errorf("ended as %v", outcome)
			}
			return tx.Commit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
			ended := make(chan commitOutcome, 2)
			all := make(chan commitOutcome, 2)
			w := probe(t, tx)
			w.onEnd(func(o commitOutcome) { ended <- o })
			w.onEnd(func(o commitOutcome) { all <- o })
			err = finish(tx, cancel, ended)
			assert.True(t, errors.Is(err, context.Canceled) || errors.Is(err, sql.ErrTxDone), "got %v", err)
			assert.Equal(t, rolledBack, <-all)
			assert.False(t, exists(t, plain, 100))
		})
	}
}

func TestSecondCommitChangesNoOutcome(t *testing.T) {
	db, plain := connectorDB(t)
	tx := begin(t, db)
	mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
	_, got := enlisted(t, tx)
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
	require.ErrorIs(t, tx.Rollback(), sql.ErrTxDone)
	assert.Equal(t, outcomes{committed}, *got)
	assert.True(t, exists(t, plain, 100))
}

func TestAbandonedTransactionsReleaseTheirHooks(t *testing.T) {
	db, _ := connectorDB(t)
	db.SetMaxOpenConns(4)
	const n = 200
	ended := make(chan commitOutcome, 2*n)
	for range n {
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		probe(t, tx).onEnd(func(o commitOutcome) { ended <- o })
		cancel()
	}
	for range n {
		assert.Equal(t, rolledBack, <-ended)
	}
	require.NoError(t, db.Ping())
	assert.Empty(t, ended, "a hook was told twice")
}

func TestAbandonedTransactionLeavesNothingToTheNext(t *testing.T) {
	db, plain := connectorDB(t)
	db.SetMaxOpenConns(1)
	ctx, cancel := context.WithCancel(t.Context())
	first, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, first, "INSERT INTO t VALUES (100, 0)")
	ended := make(chan commitOutcome, 2)
	w := probe(t, first)
	w.onEnd(func(o commitOutcome) { ended <- o })
	w.taint(errors.New("not written"))
	cancel()
	require.Equal(t, rolledBack, <-ended)

	second := begin(t, db)
	mustExec(t, second, "INSERT INTO t VALUES (101, 0)")
	_, got := enlisted(t, second)
	require.NoError(t, second.Commit())
	assert.Equal(t, outcomes{committed}, *got)
	assert.Empty(t, ended)
	assert.False(t, exists(t, plain, 100))
	assert.True(t, exists(t, plain, 101))
}

func TestClosedConnectionRollsBack(t *testing.T) {
	db, plain := connectorDB(t)
	conn := connection(t, db)
	mustExec(t, conn, "BEGIN")
	mustExec(t, conn, "INSERT INTO t VALUES (100, 0)")
	_, got := enlisted(t, conn)
	require.ErrorIs(t, conn.Raw(func(any) error { return driver.ErrBadConn }), driver.ErrBadConn)
	assert.Equal(t, outcomes{rolledBack}, *got)
	assert.False(t, exists(t, plain, 100))
}

// A transaction begun as text and never ended goes back to the pool open: only the next user decides.
func TestTransactionLeftInThePoolIsUnknownAndDoesNotLeak(t *testing.T) {
	db, _ := connectorDB(t)
	db.SetMaxOpenConns(1)
	conn := connection(t, db)
	mustExec(t, conn, "BEGIN")
	w, got := enlisted(t, conn)
	w.taint(errors.New("not written"))
	require.NoError(t, conn.Close())

	tx := begin(t, db)
	assert.Equal(t, outcomes{commitUnknown}, *got)
	_, other := enlisted(t, tx)
	require.NoError(t, tx.Commit())
	assert.Equal(t, outcomes{committed}, *other)
	assert.Equal(t, outcomes{commitUnknown}, *got)
}
