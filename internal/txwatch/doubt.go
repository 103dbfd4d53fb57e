package txwatch

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/compensator-go/compensator/internal/mysqlerr"
)

// The library sends these statements to find out whether a transaction is open on a connection.
//
// DoubtBegun fails inside a transaction on MySQL and MariaDB. On TiDB and Vitess it never fails.
//
// DoubtSavepoint and then DoubtRelease are sent one after the other. Inside a transaction DoubtRelease succeeds.
// Outside a transaction DoubtRelease fails, because a savepoint then ends with its own statement.
//
// On SQLite a savepoint would begin a transaction. The # in the texts prevents this, because it is a syntax error in
// SQLite. So askServer calls askSQLite after such an error, and askSQLite sends SQLiteProbe.
const (
	DoubtBegun     = "SET TRANSACTION READ WRITE # compensator: is a transaction open?"
	DoubtSavepoint = "SAVEPOINT compensator_doubt # compensator: is a transaction open?"
	DoubtRelease   = "RELEASE SAVEPOINT compensator_doubt # compensator: is a transaction open?"
)

// SQLiteProbe fails inside a transaction. Outside a transaction it changes nothing, because the setting synchronous has
// no effect on the temporary database.
const SQLiteProbe = "PRAGMA temp.synchronous=FULL"

// sqliteBadToken is the error text of SQLite for a comment in MySQL's style.
const sqliteBadToken = "unrecognized token"

// askServer asks the server whether a transaction is open. If the server gives no answer, the state stays doubtful.
//
// With autocommit=0 a savepoint survives even if no transaction was open, so it does not show that a transaction is
// still open. If a transaction was open before the state became doubtful, askServer therefore also sends DoubtBegun and
// calls askAutocommit.
func (c *watchedConn) askServer(ctx context.Context) error {
	wasOpen := c.recordingTx != nil || c.urgent
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
	// This server is SQLite. It has not parsed the statement, so it has set no savepoint and begun no transaction.
	case strings.Contains(err.Error(), sqliteBadToken):
		return c.askSQLite(ctx)
	default:
		c.afterError(err)
		return err
	}
	return nil
}

// askAutocommit reads autocommit, to find out whether a transaction is open. askServer calls it after the server has
// accepted DoubtBegun and the savepoint, which happens in two kinds of sessions. A session with autocommit=0 is outside a
// transaction. A session of TiDB or Vitess with autocommit=1 is inside one.
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
	c.proven(value[0] == int64(1) || fmt.Sprintf("%s", value[0]) == "1") // Some drivers return a number, others a text.
	return nil
}

// askSQLite does the work of askServer for SQLite.
func (c *watchedConn) askSQLite(ctx context.Context) error {
	open, err := SQLiteInside(c.send(ctx, SQLiteProbe))
	if err == nil {
		c.proven(open)
	}
	return err
}

// SQLiteInside interprets the result of SQLiteProbe. inside is true if a transaction is open.
func SQLiteInside(answer error) (inside bool, err error) {
	if answer != nil && strings.Contains(answer.Error(), "inside a transaction") {
		return true, nil
	}
	return false, answer
}

// outcomeOfCommit returns the outcome of a transaction for which database/sql sent a COMMIT. err is the result of the
// COMMIT.
//
// On SQLite a failed COMMIT may leave the transaction open, for example if readers hold the file too long or a deferred
// constraint fails. The caller could not end the transaction, and its lock would stay on a pooled connection. So
// outcomeOfCommit rolls the transaction back.
func (c *watchedConn) outcomeOfCommit(err error) Outcome {
	outcome := Classify(err)
	if outcome != Unknown || mysqlerr.Number(err) != 0 || mysqlerr.IsBroken(err) {
		return outcome
	}
	ctx := context.Background()
	switch open, doubt := SQLiteInside(c.send(ctx, SQLiteProbe)); {
	case open && c.send(ctx, "ROLLBACK") == nil:
		return RolledBack
	case open || doubt != nil:
		c.discard = true // The transaction may still be open. Only the end of the connection certainly ends it.
	}
	return Unknown
}
