package compensator

import (
	"database/sql/driver"

	"github.com/compensator-go/compensator/internal/txwatch"
)

// Connector wraps a database driver's connector so that the end of every transaction on it is seen. Entries
// recorded through such a database are announced by the transaction's own Commit: no call site changes, and
// Committed need not be called.
//
//	db := sql.OpenDB(compensator.Connector(connector))
//
// Everything else behaves as it did: each statement costs what it cost, and every optional interface of the
// driver is passed on. What differs:
//   - db.Driver() and sql.Conn.Raw give the wrapper, not the driver's own types.
//   - Commit refuses, and rolls back, a transaction in which an entry could not be written
//     (ErrNotRecorded) or which the server has already rolled back on its own (ErrTxAborted).
//   - Once the server has rolled such a transaction back, its statements return ErrTxAborted: sent, they
//     would commit by themselves.
//   - A connection on which a statement was refused because the server is read-only (1290, 1792, 1836) is closed
//     once it comes back to the pool: after a switchover the next one leads to the new primary.
//   - When the connection breaks around COMMIT, the error also wraps ErrCommitUnknown.
//   - A pooled connection that was left inside a transaction is thrown away when a BeginTx with an isolation
//     level finds it so.
//
// ErrCommitUnknown, ErrTxAborted and refusals of Commit concern only transactions an entry was recorded in. How
// statements and errors change a transaction is known of MySQL, MariaDB and what speaks like them.
func Connector(inner driver.Connector) driver.Connector { return txwatch.Wrap(inner) }
