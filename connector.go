package compensator

import (
	"database/sql"
	"database/sql/driver"

	"github.com/compensator-go/compensator/internal/txwatch"
)

// Open is sql.Open on a Connector, for whoever knows a driver by its name. Like it, it connects to nothing yet.
func Open(driverName, dataSourceName string) (*sql.DB, error) {
	named, err := sql.Open(driverName, dataSourceName) // only it finds drivers by name
	if err != nil {
		return nil, err
	}
	defer named.Close()
	connector, err := txwatch.ConnectorOf(named.Driver(), dataSourceName)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(Connector(connector)), nil
}

// Connector wraps a driver's connector so that the end of every transaction on it is seen: Commit itself announces what
// was recorded, and nobody need call Committed. Open does so with a driver's name.
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
// known of MySQL, MariaDB, what speaks like them, and SQLite.
func Connector(inner driver.Connector) driver.Connector { return txwatch.Wrap(inner) }
