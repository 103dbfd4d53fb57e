package txwatch

import (
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

func TestTransactionSentAsTextIsWatched(t *testing.T) {
	db, _ := connectorDB(t)
	for _, test := range []struct {
		begin, end string
		want       Outcome
	}{
		{"BEGIN", "COMMIT", Committed},
		{"begin work", "commit work ;", Committed},
		{"START TRANSACTION", "ROLLBACK", RolledBack},
		{"start transaction read write", "/* why */ -- not\n COMMIT AND NO CHAIN", Committed},
		{"# note\n\tBEGIN", "Rollback Work;", RolledBack},
		{"XA START 'connector-one'", "XA END 'connector-one' THEN XA COMMIT 'connector-one' ONE PHASE", Committed},
		{"XA BEGIN 'connector-two'", "XA END 'connector-two' THEN XA PREPARE 'connector-two' THEN XA COMMIT 'connector-two'", Committed},
		{"XA START 'connector-three'", "XA END 'connector-three' THEN XA PREPARE 'connector-three' THEN XA ROLLBACK 'connector-three'", RolledBack},
	} {
		t.Run(test.begin, func(t *testing.T) {
			conn := connection(t, db)
			mustExec(t, conn, test.begin)
			w, got := enlisted(t, conn)
			for _, stmt := range strings.Split(test.end, " THEN ") {
				assert.Empty(t, *got)
				mustExec(t, conn, stmt)
			}
			assert.Equal(t, outcomes{test.want}, *got)
			assert.ErrorIs(t, w.Err(), processlog.ErrNoTransaction)
			assert.ErrorIs(t, probe(t, conn).Err(), processlog.ErrNoTransaction)
		})
	}
}

func TestChainBeginsTheNextTransaction(t *testing.T) {
	db, _ := connectorDB(t)
	conn := connection(t, db)
	mustExec(t, conn, "BEGIN")
	_, first := enlisted(t, conn)
	mustExec(t, conn, "COMMIT AND CHAIN")
	_, second := enlisted(t, conn)
	mustExec(t, conn, "ROLLBACK AND CHAIN")
	_, third := enlisted(t, conn)
	mustExec(t, conn, "COMMIT")
	assert.Equal(t, outcomes{Committed}, *first)
	assert.Equal(t, outcomes{RolledBack}, *second)
	assert.Equal(t, outcomes{Committed}, *third)
}

func TestPreparedXACommittedElsewhereIsUnknown(t *testing.T) {
	db, _ := connectorDB(t)
	conn := connection(t, db)
	mustExec(t, conn, "XA START 'connector-elsewhere'")
	mustExec(t, conn, "INSERT INTO t VALUES (100, 0)")
	w, got := enlisted(t, conn)
	mustExec(t, conn, "XA END 'connector-elsewhere'")
	assert.ErrorIs(t, w.Err(), processlog.ErrNoTransaction, "no statement joins it any more")
	assert.ErrorIs(t, probe(t, conn).Err(), processlog.ErrNoTransaction)
	mustExec(t, conn, "XA PREPARE 'connector-elsewhere'")
	assert.Empty(t, *got)
	require.Error(t, conn.Raw(func(any) error { return driver.ErrBadConn }))
	assert.Equal(t, outcomes{Unknown}, *got)
	require.Eventually(t, func() bool {
		_, err := db.Exec("XA COMMIT 'connector-elsewhere'")
		return err == nil
	}, connectorTimeout, time.Millisecond, "the server still holds it for the closed connection")
	assert.True(t, exists(t, db, 100))
}

func TestTaintedXATransactionIsNotPrepared(t *testing.T) {
	db, _ := connectorDB(t)
	conn := connection(t, db)
	mustExec(t, conn, "XA START 'connector-tainted'")
	w, got := enlisted(t, conn)
	w.Taint(errors.New("not written"))
	mustExec(t, conn, "XA END 'connector-tainted'")
	for _, stmt := range []string{"XA PREPARE 'connector-tainted'", "XA COMMIT 'connector-tainted' ONE PHASE"} {
		_, err := conn.ExecContext(t.Context(), stmt)
		require.ErrorIs(t, err, processlog.ErrNotRecorded)
	}
	mustExec(t, conn, "XA ROLLBACK 'connector-tainted'")
	assert.Equal(t, outcomes{RolledBack}, *got)
}

func TestImplicitCommitTellsHooksAndEndsTransaction(t *testing.T) {
	for _, stmt := range []string{
		"CREATE TABLE other (id INT)",
		"/* migration */ alter table t COMMENT = 'x'",
		"TRUNCATE TABLE spare",
		"RENAME TABLE spare TO spared",
		"DROP TABLE spare",
		"LOCK TABLES t READ",
		"START TRANSACTION",
		"BEGIN",
	} {
		t.Run(stmt, func(t *testing.T) {
			db, plain := connectorDB(t)
			warnings := collectWarnings(t)
			mustExec(t, plain, "CREATE TABLE spare (id INT)")
			tx := begin(t, db)
			mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
			w, got := enlisted(t, tx)
			mustExec(t, tx, stmt)
			assert.Equal(t, outcomes{Committed}, *got)
			assert.Len(t, *warnings, 1)
			assert.ErrorIs(t, w.Err(), processlog.ErrNoTransaction)
			if kindOf(stmt) == sqlBegin {
				_, second := enlisted(t, tx)
				require.NoError(t, tx.Rollback())
				assert.Equal(t, outcomes{RolledBack}, *second)
			} else {
				assert.ErrorIs(t, probe(t, tx).Err(), processlog.ErrNoTransaction)
				require.NoError(t, tx.Rollback())
			}
			assert.Equal(t, outcomes{Committed}, *got)
			assert.True(t, exists(t, plain, 100))
		})
	}
}

func TestStatementsThatCommitNothing(t *testing.T) {
	for _, stmt := range []string{
		"CREATE TEMPORARY TABLE other (id INT)",
		"CREATE OR REPLACE TEMPORARY TABLE other (id INT)",
		"DROP TEMPORARY TABLE IF EXISTS other",
		"SAVEPOINT s",
		"SET @x = 1",
		"(SELECT 1)",
		"PREPARE p FROM 'SELECT 1'",
		"UNLOCK TABLES",
		"SELECT 'a; b'",
		"CALL innocent()",
		"/*!40101 SET @x = 1 */",
	} {
		t.Run(stmt, func(t *testing.T) {
			if stmt == "CREATE OR REPLACE TEMPORARY TABLE other (id INT)" && testservers.SharedSQL(t).Flavor != "mariadb" {
				stmt = "CREATE TEMPORARY TABLE other (id INT)"
			}
			db, plain := connectorDB(t)
			mustExec(t, plain, "CREATE PROCEDURE innocent() INSERT INTO t VALUES (101, 0)")
			tx := begin(t, db)
			w, got := enlisted(t, tx)
			mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
			mustExec(t, tx, stmt)
			assert.Empty(t, *got)
			require.NoError(t, probe(t, tx).Err())
			require.NoError(t, w.Err())
			require.NoError(t, tx.Rollback())
			assert.Equal(t, outcomes{RolledBack}, *got)
			assert.False(t, exists(t, plain, 100))
		})
	}
}

func TestDoubtIsSettledByTheServer(t *testing.T) {
	for name, test := range map[string]struct {
		stmt string
		open bool
	}{
		"procedure that commits":     {"CALL committing()", false},
		"procedure that begins":      {"CALL beginning()", true},
		"several with a commit":      {"DO 1; COMMIT", false},
		"several with a new begin":   {"COMMIT; BEGIN", true},
		"executed text that commits": {"EXECUTE p", false},
		"executable comment":         {"/*!40101 COMMIT */", false},
		"compound statement":         {"SELECT 1; ROLLBACK; SELECT 2", false},
	} {
		t.Run(name, func(t *testing.T) {
			db, plain := connectorDB(t, "multiStatements=true")
			mustExec(t, plain, "CREATE PROCEDURE committing() COMMIT")
			mustExec(t, plain, "CREATE PROCEDURE beginning() BEGIN COMMIT; START TRANSACTION; END")
			tx := begin(t, db)
			mustExec(t, tx, "PREPARE p FROM 'COMMIT'")
			w, got := enlisted(t, tx)
			mustExec(t, tx, test.stmt)
			require.ErrorIs(t, w.Err(), processlog.ErrNoTransaction, "trusted before the server was asked")
			assert.Empty(t, *got)
			if test.open {
				require.NoError(t, probe(t, tx).Err())
				require.NoError(t, tx.Commit())
				assert.Equal(t, outcomes{Committed}, *got)
				return
			}
			require.ErrorIs(t, probe(t, tx).Err(), processlog.ErrNoTransaction)
			assert.Equal(t, outcomes{Unknown}, *got)
		})
	}
}

func TestTransactionsWithoutBeginAreProvenOneByOne(t *testing.T) {
	db, plain := connectorDB(t)
	conn := connection(t, db)
	mustExec(t, conn, "SET SESSION autocommit = 0")
	for id := 100; id < 102; id++ {
		mustExec(t, conn, "INSERT INTO t VALUES (?, 0)", id)
		_, got := enlisted(t, conn)
		mustExec(t, conn, "COMMIT")
		assert.Equal(t, outcomes{Committed}, *got)
		assert.True(t, exists(t, plain, id))
	}
	mustExec(t, conn, "SET @@autocommit = 1")
	assert.ErrorIs(t, probe(t, conn).Err(), processlog.ErrNoTransaction)
}

func TestFailedStatementsThatMightHaveEndedTheTransaction(t *testing.T) {
	for name, test := range map[string]struct {
		stmt string
		open bool
	}{
		"DDL the server could not read": {"CREATE TABEL x (id INT)", true},
		"DDL that failed":               {"CREATE TABLE t (id INT)", false},
		"COMMIT it could not read":      {"COMMIT NOW", true},
		"ROLLBACK it could not read":    {"ROLLBACK NOW", true},
		"BEGIN it could not read":       {"START TRANSACTION NOW", true},
		"XA COMMIT of another":          {"XA COMMIT 'connector-nobodys'", true},
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := connectorDB(t)
			tx := begin(t, db)
			mustExec(t, tx, "UPDATE t SET n = 1 WHERE id = 1")
			probe(t, tx)
			_, err := tx.Exec(test.stmt)
			require.Error(t, err)
			if test.open {
				assert.NoError(t, probe(t, tx).Err())
			} else {
				assert.ErrorIs(t, probe(t, tx).Err(), processlog.ErrNoTransaction)
			}
			require.NoError(t, tx.Rollback())
		})
	}
}

func TestKindOfStatement(t *testing.T) {
	for query, want := range map[string]sqlKind{
		"":                                     sqlPlain,
		"select 1":                             sqlPlain,
		"SELECT ';'":                           sqlDoubt,
		"SELECT 1;":                            sqlPlain,
		"SELECT 1 ; -- done":                   sqlPlain,
		"SELECT 1;; ":                          sqlPlain,
		"SELECT 1; SELECT 2":                   sqlDoubt,
		"SELECT 1; /*!40101 COMMIT */":         sqlDoubt,
		"--\nCOMMIT":                           sqlCommit,
		"--COMMIT":                             sqlDoubt,
		"/* a */ /* b */\n# c\n-- d\nCOMMIT":   sqlCommit,
		"-- nothing else":                      sqlPlain,
		"/* open":                              sqlPlain,
		"BEGIN":                                sqlBegin,
		"BEGIN IMMEDIATE":                      sqlBegin,
		"BEGIN NOT ATOMIC SELECT 1; END":       sqlDoubt,
		"BEGIN NOT ATOMIC COMMIT":              sqlDoubt,
		"start  transaction":                   sqlBegin,
		"START SLAVE":                          sqlDoubt,
		"COMMITTED":                            sqlDoubt,
		"COMMIT WORK AND CHAIN NO RELEASE":     sqlCommitChain,
		"COMMIT AND NO CHAIN RELEASE":          sqlCommit,
		"ROLLBACK":                             sqlRollback,
		"ROLLBACK/**/TO/**/s":                  sqlRollbackTo,
		"ROLLBACK WORK TO SAVEPOINT s":         sqlRollbackTo,
		"ROLLBACK AND CHAIN":                   sqlRollbackChain,
		"SAVEPOINT s":                          sqlSavepoint,
		"RELEASE SAVEPOINT s":                  sqlPlain,
		"SET autocommit=0":                     sqlAutocommit,
		"SET @a = 1, @@SESSION.AutoCommit=1":   sqlAutocommit,
		"SET NAMES utf8mb4":                    sqlPlain,
		"SET completion_type = 'CHAIN'":        sqlAutocommit,
		"SET STATEMENT x=1 FOR TRUNCATE t":     sqlDoubt,
		Calm + " FOR UPDATE t SET n=1":         sqlPlain,
		Calm + ", x=1 FOR SELECT n FOR UPDATE": sqlPlain,
		Calm + " FOR TRUNCATE t":               sqlDDL,
		"SET PASSWORD = ''":                    sqlDoubt,
		"XA START 'x'":                         sqlXAStart,
		"XA RECOVER":                           sqlPlain,
		"CREATE TEMPORARY TABLE x (id INT)":    sqlPlain,
		"CREATE UNIQUE INDEX i ON t (n)":       sqlDDL,
		"DROP PREPARE p":                       sqlPlain,
		"DROP TABLE t":                         sqlDDL,
		"LOCK TABLES t READ":                   sqlDDL,
		"LOCK INSTANCE FOR BACKUP":             sqlDoubt,
		"CALL p()":                             sqlDoubt,
		"{call p()}":                           sqlDoubt,
		"WITH x AS (SELECT 1) SELECT * FROM x": sqlPlain,
	} {
		assert.Equal(t, want, kindOf(query), query)
	}
}

func TestKindOfStatementAllocatesNothing(t *testing.T) {
	for _, query := range []string{"SELECT * FROM t WHERE id = ?", "-- who\nUPDATE t SET n = 1", "ROLLBACK TO s", "SET NAMES utf8mb4", "CALL p()"} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { kindOf(query) }), query)
	}
}
