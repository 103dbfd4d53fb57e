package compensator

import (
	"database/sql/driver"

	"github.com/compensator-go/compensator/internal/txwatch"
)

// Connector wraps a driver's connector so that the end of every transaction on it is seen: Commit itself announces what
// was recorded, and nobody need call Committed.
//
//	db := sql.OpenDB(compensator.Connector(connector))
//
// Each statement costs what it cost, and every optional interface of the driver is passed on. What differs, beside the
// care of pooled connections that docs/operations.md describes:
//   - db.Driver() and sql.Conn.Raw give the wrapper, not the driver's types.
//   - Commit refuses, and rolls back, a transaction in which an entry could not be written (ErrNotRecorded)
//     or which the server has rolled back by itself (ErrTxAborted).
//   - Once the server has, its statements return ErrTxAborted: sent, they would commit by themselves.
//   - When the connection breaks around COMMIT, the error also wraps ErrCommitUnknown.
//
// Other wrappers, for traces say, go inside of it. One around it may stand if it hands contexts on; New warns of one that
// does not, and behind which no commit is seen. See docs/operations.md.
//
// The errors concern only transactions an entry was recorded in. How statements and errors change a transaction is
// known of MySQL, MariaDB and what speaks like them.
func Connector(inner driver.Connector) driver.Connector { return txwatch.Wrap(inner) }
