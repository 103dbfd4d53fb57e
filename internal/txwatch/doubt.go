package txwatch

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/compensator-go/compensator/internal/mysqlerr"
)

// Only inside a transaction does a savepoint live long enough to be released. Where a savepoint would begin
// a transaction instead (SQLite), the # is a syntax error, and another question is asked.
//
// And MySQL and MariaDB refuse the first inside a transaction; TiDB and Vitess take it anywhere.
const (
	DoubtBegun     = "SET TRANSACTION READ WRITE # compensator: is a transaction open?"
	DoubtSavepoint = "SAVEPOINT compensator_doubt # compensator: is a transaction open?"
	DoubtRelease   = "RELEASE SAVEPOINT compensator_doubt # compensator: is a transaction open?"
)

// SQLiteProbe is the one statement that fails inside a transaction and changes nothing outside of one: the
// temporary database has no safety level.
const SQLiteProbe = "PRAGMA temp.synchronous=FULL"

// sqliteBadToken is SQLite's answer to a comment in MySQL's style.
const sqliteBadToken = "unrecognized token"

// askServer settles a doubt about the transaction. On an error the doubt remains.
//
// In a session with autocommit=0 a savepoint lives always. Where a transaction was open before the doubt, it is asked for
// in another way, too: only one that has not begun yet is taken for open.
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
	// SQLite, which has set no savepoint: there it would have begun a transaction.
	case strings.Contains(err.Error(), sqliteBadToken):
		return c.askSQLite(ctx)
	default:
		c.failed(err)
		return err
	}
	return nil
}

// askAutocommit tells apart who takes both for an answer: a session with autocommit=0 outside a transaction, and TiDB or
// Vitess inside one.
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
	c.proven(value[0] == int64(1) || fmt.Sprintf("%s", value[0]) == "1") // a number or a text, as the driver has it
	return nil
}

// askSQLite is askServer in SQLite's words.
func (c *watchedConn) askSQLite(ctx context.Context) error {
	open, err := SQLiteInside(c.send(ctx, SQLiteProbe))
	if err == nil {
		c.proven(open)
	}
	return err
}

// SQLiteInside reads the answer to SQLiteProbe.
func SQLiteInside(answer error) (inside bool, err error) {
	if answer != nil && strings.Contains(answer.Error(), "inside a transaction") {
		return true, nil
	}
	return false, answer
}

// cameOf tells what came of the transaction whose COMMIT package sql sent, and which ended with err. SQLite leaves it open where readers do not let
// go of the file in time, or a deferred constraint does not hold. Nobody could end it any more, and its lock would go back to the pool: it is
// rolled back.
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
		c.discard = true // only closing the connection is sure to end the transaction now
	}
	return Unknown
}
