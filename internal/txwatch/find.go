package txwatch

import (
	"context"
	"database/sql"
	"errors"
)

// ErrHidden says that the database was opened on a wrapper, and that this wrapper contains a Connector. The wrapper
// does not pass contexts on to the Connector.
var ErrHidden = errors.New("Config.DB was opened on a wrapper around a Connector that passes no context on, so no commit is seen, and entries wait for the " +
	"reconciler or for Committed; put the wrapper inside: sql.OpenDB(compensator.Connector(theOtherWrapper(connector)))")

// Find returns the Connector that db was opened on. Find also sees a Connector inside a wrapper that passes contexts
// on. If there is no Connector, Find returns nil. The error is ErrHidden, or an error of the server.
func Find(ctx context.Context, db *sql.DB) (*Connector, error) {
	if d, ok := db.Driver().(Driver); ok {
		return d.Connector, nil
	}
	ctx, e := Ask(ctx)
	rows, err := db.QueryContext(ctx, areYouThere)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if e.Tx() != nil {
		return e.Connector, nil
	}
	var answer int
	for rows.Next() {
		if err := rows.Scan(&answer); err != nil {
			return nil, err
		}
	}
	if answer == 1 {
		return nil, ErrHidden
	}
	return nil, rows.Err()
}

// Find sends the statement in the constant areYouThere, which returns 0. A Connector sends the statement in iAmThere to
// the server instead, which returns 1. So Find recognises a Connector by the answer 1. This works even behind a wrapper
// that does not pass on the context of Find.
const (
	areYouThere = "SELECT 0 /* compensator: is a Connector beneath? */"
	iAmThere    = "SELECT 1"
)

func answering(query string) string {
	if query == areYouThere {
		return iAmThere
	}
	return query
}
