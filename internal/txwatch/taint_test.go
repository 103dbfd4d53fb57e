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
