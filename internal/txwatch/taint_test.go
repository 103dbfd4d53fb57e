package txwatch

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

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
			w.Taint(reason)
			err := commit(conn)
			require.ErrorIs(t, err, processlog.ErrNotRecorded)
			require.ErrorIs(t, err, reason)
			assert.Equal(t, outcomes{RolledBack}, *got)
			assert.False(t, exists(t, plain, 100))
			assert.ErrorIs(t, probe(t, conn).Err(), processlog.ErrNoTransaction)
		})
	}
	t.Run("Tx.Commit", func(t *testing.T) {
		db, plain := connectorDB(t)
		tx := begin(t, db)
		mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
		w, got := enlisted(t, tx)
		w.Taint(reason)
		w.Taint(errors.New("later and less telling"))
		err := tx.Commit()
		require.ErrorIs(t, err, processlog.ErrNotRecorded)
		require.ErrorIs(t, err, reason)
		assert.Equal(t, outcomes{RolledBack}, *got)
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

// Failure: F3
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
		"traced":                    {nil, []string{"SAVEPOINT s /*trace='1'*/", "ROLLBACK TO s /*trace='2'*/"}, false},
		"traced behind a semicolon": {nil, []string{"SAVEPOINT `s`; -- 1", "ROLLBACK TO s # 2"}, false},
		"traced, savepoint before":  {[]string{"SAVEPOINT s /*1*/"}, []string{"SAVEPOINT i/*2*/", "ROLLBACK TO SAVEPOINT s /*3*/"}, true},
		"going back did not happen": {nil, []string{"ROLLBACK TO missing"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := connectorDB(t)
			tx := begin(t, db)
			for _, stmt := range test.before {
				mustExec(t, tx, stmt)
			}
			w, got := enlisted(t, tx)
			w.Taint(errors.New("not written"))
			for _, stmt := range test.after {
				tx.Exec(stmt)
			}
			if err := tx.Commit(); test.commits {
				require.NoError(t, err)
				assert.Equal(t, outcomes{Committed}, *got)
			} else {
				require.ErrorIs(t, err, processlog.ErrNotRecorded)
				assert.Equal(t, outcomes{RolledBack}, *got)
			}
		})
	}
}

// Some of these statements commit without the word COMMIT.
// Failure: F3
func TestTaintedTransactionIsCommittedByNoStatement(t *testing.T) {
	for name, statements := range map[string][]string{
		"ddl":                        {"CREATE TABLE made (id INT)"},
		"begin":                      {"BEGIN"},
		"start transaction":          {"START TRANSACTION"},
		"several statements":         {"SELECT 1; COMMIT"},
		"several, commit first":      {"COMMIT; SELECT 1"},
		"executed comment":           {"/*!40000 COMMIT */"},
		"procedure":                  {"CALL done()"},
		"autocommit":                 {"SET autocommit=0", "SET autocommit=1"},
		"lock tables":                {"LOCK TABLES t WRITE"},
		"prepared in the server":     {"PREPARE p FROM 'COMMIT'", "EXECUTE p"},
		"names that are one":         {"SAVEPOINT `é`", "ROLLBACK TO `e`", "COMMIT"},
		"letters that are one":       {"SAVEPOINT `s`", "ROLLBACK TO `ß`", "COMMIT"},
		"name in a comment":          {"SAVEPOINT s", "ROLLBACK TO /*!40000 s */", "COMMIT"},
		"keyword in a comment":       {"SAVEPOINT s", "ROLLBACK TO /*!40000 SAVEPOINT */ s", "COMMIT"},
		"going back in a comment":    {"SAVEPOINT s", "ROLLBACK /*!40000 TO s */", "COMMIT"},
		"keyword for a name":         {"SAVEPOINT savepoint", "ROLLBACK TO savepoint", "COMMIT"},
		"savepoint set in a comment": {"SAVEPOINT /*!40000 s */", "ROLLBACK TO s", "COMMIT"},
	} {
		t.Run(name, func(t *testing.T) {
			db, plain := connectorDB(t, "multiStatements=true")
			mustExec(t, plain, "CREATE PROCEDURE done() COMMIT")
			conn := connection(t, db)
			mustExec(t, conn, "BEGIN")
			mustExec(t, conn, "INSERT INTO t VALUES (100, 0)")
			w, _ := enlisted(t, conn)
			w.Taint(errors.New("not written"))
			for _, stmt := range statements {
				_, _ = conn.ExecContext(t.Context(), stmt) // Either this statement or the next one is refused.
			}
			assert.False(t, exists(t, plain, 100))
			_, _ = conn.ExecContext(t.Context(), "ROLLBACK")
			mustExec(t, conn, "INSERT INTO t VALUES (101, 0)")
			assert.True(t, exists(t, plain, 101), "the connection is as good as new")
		})
	}
	t.Run("BeginTx", func(t *testing.T) {
		db, plain := connectorDB(t)
		conn := connection(t, db)
		mustExec(t, conn, "BEGIN")
		mustExec(t, conn, "INSERT INTO t VALUES (100, 0)")
		w, _ := enlisted(t, conn)
		w.Taint(errors.New("not written"))
		_, err := conn.BeginTx(t.Context(), nil)
		require.ErrorIs(t, err, processlog.ErrNotRecorded)
		assert.False(t, exists(t, plain, 100))
	})
}
