package txwatch

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var hardStatements = []string{
	"", " ", ";", ";;", "\ufeffCOMMIT", "\x00COMMIT", "COMMIT\x00", "\xa0COMMIT", "cOmMiT", "(SELECT 1)", "((SELECT 1))", "(00;#",
	"SELECT 1;/* open", "SELECT 1;--", "SELECT 1", "SELECT 1;", "SELECT 1; -- done", "SELECT 1; COMMIT", "SELECT ';'",
	"SELECT ';-- ' ; COMMIT", "SELECT ';#'; COMMIT", "SELECT ';/*' ; COMMIT; SELECT '*/'", "SELECT `;# `, 1 FROM t; COMMIT",
	"SELECT \";-- \"; COMMIT", "SELECT '\\';-- '; COMMIT", "SELECT ''';-- '; COMMIT", "SELECT 1; /* */ COMMIT", "SELECT 1 /* ; */; COMMIT",
	"SELECT 1;# ;\nCOMMIT", "SELECT 1;-- ;\nCOMMIT", "/*!COMMIT*/", "/*!99999 COMMIT*/", "/*M!COMMIT*/", "/*M!100100 COMMIT*/",
	"/*+ COMMIT */", "/* a */ COMMIT", "/* /* */ COMMIT", "-- \nCOMMIT", "--\tCOMMIT", "--\nCOMMIT", "--COMMIT", "#\nCOMMIT", "# COMMIT",
	"/*", "/**/", "/*/ COMMIT", "BEGIN", "BEGIN WORK", "BEGIN NOT ATOMIC END", "BEGIN /*! NOT ATOMIC */ END",
	"BEGIN /*M! NOT ATOMIC */ END", "BEGIN /* */ NOT ATOMIC END", "START TRANSACTION", "START /*! TRANSACTION */",
	"START TRANSACTION READ ONLY", "START SLAVE", "COMMIT", "COMMIT WORK", "COMMIT AND CHAIN", "COMMIT AND NO CHAIN",
	"COMMIT /*! AND CHAIN */", "COMMIT NO RELEASE", "ROLLBACK", "ROLLBACK AND CHAIN", "SAVEPOINT a", "ROLLBACK TO a",
	"ROLLBACK TO SAVEPOINT a", "ROLLBACK /*! TO */ a", "RELEASE SAVEPOINT a", "SET @a = 1", "SET autocommit = 0",
	"SET @@session.autocommit = 1", "SET STATEMENT max_statement_time=9 FOR SELECT 1",
	"SET STATEMENT max_statement_time=9 FOR CREATE TABLE hard1 (id INT)",
	"SET /*!STATEMENT max_statement_time=9 FOR*/ CREATE TABLE hard2 (id INT)",
	"SET /**/ STATEMENT max_statement_time=9 FOR CREATE TABLE hard3 (id INT)", "SET completion_type = 1", "SET completion_type = 0",
	"SET sql_mode = 'ORACLE'", "SET sql_mode = 'ANSI_QUOTES'", "SET SESSION TRANSACTION READ WRITE", "SET NAMES utf8mb4", "SET ROLE NONE",
	"SET DEFAULT ROLE NONE", "CREATE TABLE hard4 (id INT)", "CREATE TEMPORARY TABLE hard5 (id INT)",
	"CREATE OR REPLACE TEMPORARY TABLE hard5 (id INT)", "CREATE /*!TEMPORARY*/ TABLE hard6 (id INT)", "DROP TEMPORARY TABLE hard5",
	"CREATE TEMPORARY SEQUENCE hard7", "CREATE OR REPLACE TABLE hard8 (id INT)", "DROP TABLE IF EXISTS hard8", "ALTER TABLE t COMMENT 'x'",
	"TRUNCATE t", "RENAME TABLE t TO u, u TO t", "ANALYZE TABLE t", "OPTIMIZE TABLE t", "CHECK TABLE t", "CHECKSUM TABLE t",
	"FLUSH STATUS", "RESET QUERY CACHE", "LOCK TABLES t WRITE", "UNLOCK TABLES", "CACHE INDEX t IN default", "LOAD INDEX INTO CACHE t",
	"CREATE VIEW hard9 AS SELECT 1", "CREATE USER hard10", "DROP USER hard10", "PREPARE p FROM 'COMMIT'", "EXECUTE p",
	"DEALLOCATE PREPARE p", "EXECUTE IMMEDIATE 'COMMIT'", "CALL nothing()", "DO 1", "VALUES (1)", "TABLE t", "HANDLER t OPEN",
	"HANDLER t CLOSE", "SHOW TABLES", "SHOW MASTER STATUS", "USE mysql", "DESC t", "DESCRIBE t", "EXPLAIN SELECT 1",
	"EXPLAIN DELETE FROM t", "ANALYZE SELECT 1", "ANALYZE DELETE FROM t WHERE id=1", "WITH a AS (SELECT 1) SELECT * FROM a",
	"SELECT 1 INTO @a", "SELECT id FROM t FOR UPDATE", "INSERT INTO t VALUES (900, 0)", "REPLACE INTO t VALUES (901, 0)",
	"UPDATE t SET n=1", "DELETE FROM t WHERE id=901", "INSERT INTO t VALUES (1, 0)", "SELECT GET_LOCK('hard', 0)", "KILL QUERY 0",
	"XA RECOVER", "XA START 'hard'", "XA END 'hard'", "XA ROLLBACK 'hard'", "XA COMMIT 'hard'", "PRAGMA synchronous",
	"IF 1 THEN COMMIT; END IF", "SELECT 1 /*! ; COMMIT */", "GET DIAGNOSTICS @a = NUMBER", "SIGNAL SQLSTATE '01000'", "HELP 'x'",
	"BINLOG ''", "PURGE BINARY LOGS TO 'x'",
}

// Unless kindOf returns sqlDoubt, a full reading of literals and comments must find at most one statement.
func FuzzKindOfStatement(f *testing.F) {
	for _, text := range hardStatements {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kind := kindOf(text)
		_ = savepointName(text)
		if kind == sqlDoubt || kind == sqlAutocommit {
			return
		}
		require.LessOrEqual(t, statementsIn(text), 1, "%q is taken for one statement of kind %d", text, kind)
		for _, around := range []string{"\t%s", "/* why */ %s", "-- why\n%s", "%s ", "# why\r\n \v\f%s"} {
			require.Equal(t, kind, kindOf(fmt.Sprintf(around, text)), around)
		}
		if flat := strings.ToUpper(text); isASCII(text) && !strings.Contains(text, "*M!") {
			require.Equal(t, kind, kindOf(flat), flat)
		}
	})
}

var lexemes = regexp.MustCompile(`(?s)'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|` + "`[^`]*`" + `|/\*.*?(?:\*/|$)|#[^\n]*|--(?:[\x00-\x20][^\n]*|$)|;|.`)

// statementsIn counts the statements of a text in the same way as a server that accepts several statements. A comment
// that the server executes counts as content, and so does a literal without an end.
func statementsIn(text string) int {
	n, content := 0, false
	for _, lexeme := range lexemes.FindAllString(text, -1) {
		executed := strings.HasPrefix(lexeme, "/*!") || strings.HasPrefix(lexeme, "/*M!")
		comment := lexeme[0] == '#' || strings.HasPrefix(lexeme, "/*") || strings.HasPrefix(lexeme, "--")
		switch {
		case lexeme == ";":
			content = false
		case strings.TrimSpace(lexeme) == "", comment && !executed:
		case !content:
			content = true
			n++
		}
	}
	return n
}

// The watcher must never think that an ended transaction is open, because an entry would be committed on its own. The
// opposite mistake is allowed: the watcher then refuses an entry.
func TestNoStatementEndsATransactionUnseen(t *testing.T) {
	db, plain := connectorDB(t, "multiStatements=true")
	mustExec(t, plain, "CREATE PROCEDURE nothing() DO 0")
	for _, opening := range []string{"", "BEGIN", "START TRANSACTION", "SET autocommit=0"} {
		for _, text := range hardStatements {
			t.Run(opening+": "+text, func(t *testing.T) {
				conn := freshConnection(t, db)
				if opening != "" {
					mustExec(t, conn, opening)
					mustExec(t, conn, "UPDATE t SET n=n+1 WHERE id=20")
					require.NoError(t, probe(t, conn).Err())
				}
				_, _ = conn.ExecContext(t.Context(), text)
				requireNotTakenForOpen(t, conn)
			})
		}
	}
}

// freshConnection returns a connection that is closed after the test, with all its settings.
func freshConnection(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) })
	return conn
}

// requireNotTakenForOpen fails if the watcher believes without asking the server that an ended transaction is open. It
// bypasses the watcher and asks the server with a savepoint, because a savepoint can be released only inside a
// transaction.
func requireNotTakenForOpen(t *testing.T, conn *sql.Conn) {
	t.Helper()
	require.NoError(t, conn.Raw(func(c any) error {
		watched := c.(*watchedConn)
		if watched.state == txOpen {
			require.NoError(t, watched.send(t.Context(), "SAVEPOINT asked"))
			require.NoError(t, watched.send(t.Context(), "RELEASE SAVEPOINT asked"), "the watcher says open, the server says closed")
		}
		return nil
	}))
}
