package txwatch

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/compensator-go/compensator/internal/mysqlerr"
)

// These statements show whether a transaction is open:
//
//   - DoubtBegun fails inside a transaction. On TiDB and Vitess it never fails.
//   - DoubtRelease after DoubtSavepoint fails outside a transaction.
//
// In SQLite, DoubtSavepoint would begin a transaction. The comment after # prevents this, because # is a syntax error
// there. After this error askServer sends SQLiteProbe.
const (
	DoubtBegun     = "SET TRANSACTION READ WRITE # compensator: is a transaction open?"
	DoubtSavepoint = "SAVEPOINT compensator_doubt # compensator: is a transaction open?"
	DoubtRelease   = "RELEASE SAVEPOINT compensator_doubt # compensator: is a transaction open?"
)

// SQLiteProbe fails inside a transaction. Outside a transaction the PRAGMA succeeds and changes nothing, because
// synchronous has no effect on the temporary database.
const SQLiteProbe = "PRAGMA temp.synchronous=FULL"

// sqliteBadToken is part of the error with which SQLite refuses the # in these statements.
const sqliteBadToken = "unrecognized token"

// askServer asks the server whether a transaction is open. If the server does not answer, the state stays txDoubtful.
//
// askServer sends DoubtSavepoint and DoubtRelease. With autocommit=0, DoubtRelease succeeds even outside a transaction.
// So if the library must know whether an earlier transaction is still open, askServer sends DoubtBegun first. If
// DoubtBegun and DoubtRelease both succeed, their answers contradict each other, and askAutocommit decides.
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
	// SQLite has not parsed the statement, so nothing has begun.
	case strings.Contains(err.Error(), sqliteBadToken):
		return c.askSQLite(ctx)
	default:
		c.afterError(err)
		return err
	}
	return nil
}

// askAutocommit decides whether a transaction is open if the answers of the server contradict each other. The success
// of DoubtBegun means that no transaction is open. The success of DoubtRelease means that a transaction is open. The
// value of autocommit tells which answer is wrong:
//
//   - If autocommit is 1, the server is TiDB or Vitess, where DoubtBegun never fails. A transaction is open.
//   - If autocommit is 0, the server has kept the savepoint of DoubtSavepoint although no transaction is open.
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

func (c *watchedConn) askSQLite(ctx context.Context) error {
	open, err := SQLiteInside(c.send(ctx, SQLiteProbe))
	if err == nil {
		c.proven(open)
	}
	return err
}

// SQLiteInside interprets the result of SQLiteProbe.
func SQLiteInside(answer error) (inside bool, err error) {
	if answer != nil && strings.Contains(answer.Error(), "inside a transaction") {
		return true, nil
	}
	return false, answer
}

// provesOpen reports whether err is the answer to SQLiteProbe inside a transaction. This error leaves the transaction open.
func provesOpen(query string, err error) bool {
	inside, _ := SQLiteInside(err)
	return inside && query == SQLiteProbe
}

// outcomeOfCommit returns the outcome of a COMMIT with the error err. After a failed COMMIT of SQLite the transaction
// may still be open. For database/sql the transaction has ended, so the caller cannot roll it back. outcomeOfCommit
// sends the ROLLBACK instead.
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
		c.discard = true // Only the end of the connection certainly ends the transaction.
	}
	return Unknown
}
