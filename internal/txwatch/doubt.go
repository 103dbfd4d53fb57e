package txwatch

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/compensator-go/compensator/internal/mysqlerr"
)

// DoubtBegun fails inside a transaction on MySQL and MariaDB. TiDB and Vitess accept it everywhere.
//
// DoubtRelease succeeds only inside a transaction: outside one, the savepoint of DoubtSavepoint is gone before the next
// statement. On SQLite a savepoint would begin a transaction. There the # is a syntax error, and askSQLite asks
// instead.
const (
	DoubtBegun     = "SET TRANSACTION READ WRITE # compensator: is a transaction open?"
	DoubtSavepoint = "SAVEPOINT compensator_doubt # compensator: is a transaction open?"
	DoubtRelease   = "RELEASE SAVEPOINT compensator_doubt # compensator: is a transaction open?"
)

// SQLiteProbe fails inside a transaction and changes nothing outside one, because the temporary database has no safety
// level.
const SQLiteProbe = "PRAGMA temp.synchronous=FULL"

// sqliteBadToken is SQLite's answer to a comment in MySQL's style.
const sqliteBadToken = "unrecognized token"

// askServer asks the server whether a transaction is open. After an error the doubt remains.
//
// With autocommit=0 a savepoint always survives. So if a transaction was open before the doubt, askServer also sends
// DoubtBegun, and then askAutocommit.
func (c *watchedConn) askServer(ctx context.Context) error {
	wasOpen := c.ours != nil || c.urgent
	if wasOpen && mysqlerr.IsInsideTransaction(c.send(ctx, DoubtBegun)) {
		c.proven(true)
		return nil
	}
	err := c.send(ctx, DoubtSavepoint)
	if err == nil {
		err = c.send(ctx, DoubtRelease)
	}
	switch {
	case err == nil && wasOpen:
		return c.askAutocommit(ctx)
	case err == nil:
		c.proven(true)
	case mysqlerr.Number(err) == mysqlerr.NoSuchSavepoint:
		c.proven(false)
	// SQLite did not parse the statement, so it set no savepoint. A savepoint would have begun a transaction there.
	case strings.Contains(err.Error(), sqliteBadToken):
		return c.askSQLite(ctx)
	default:
		c.failed(err)
		return err
	}
	return nil
}

// askAutocommit separates two cases in which the server accepts both DoubtBegun and the savepoint. One is a session
// with autocommit=0 outside a transaction. The other is TiDB or Vitess inside a transaction.
func (c *watchedConn) askAutocommit(ctx context.Context) error {
	rows, err := connQuery(ctx, c.inner, "SELECT @@autocommit", nil)
	if err != nil {
		return err
	}
	defer rows.Close()
	value := make([]driver.Value, 1)
	if err := rows.Next(value); err != nil {
		return err
	}
	c.proven(value[0] == int64(1) || fmt.Sprintf("%s", value[0]) == "1") // Drivers return a number or a text.
	return nil
}

// askSQLite is askServer for SQLite.
func (c *watchedConn) askSQLite(ctx context.Context) error {
	open, err := SQLiteInside(c.send(ctx, SQLiteProbe))
	if err == nil {
		c.proven(open)
	}
	return err
}

// SQLiteInside reads the answer to SQLiteProbe. inside is true if a transaction is open.
func SQLiteInside(answer error) (inside bool, err error) {
	if answer != nil && strings.Contains(answer.Error(), "inside a transaction") {
		return true, nil
	}
	return false, answer
}

// cameOf returns the outcome of the transaction whose COMMIT database/sql sent, and which returned err. On SQLite a
// failed COMMIT may leave the transaction open. That happens if readers hold the file too long, or if a deferred
// constraint fails. No caller could end it any more, and its lock would go back to the pool. So cameOf rolls it back.
func (c *watchedConn) cameOf(err error) Outcome {
	outcome := Classify(err)
	if outcome != Unknown || mysqlerr.Number(err) != 0 || mysqlerr.IsBroken(err) {
		return outcome
	}
	ctx := context.Background()
	switch open, doubt := SQLiteInside(c.send(ctx, SQLiteProbe)); {
	case open && c.send(ctx, "ROLLBACK") == nil:
		return RolledBack
	case open || doubt != nil:
		c.discard = true // Only closing the connection ends the transaction for certain.
	}
	return Unknown
}
