package compensator

import (
	"context"
	"database/sql"
)

// OpenSQLStore gives external tests the store on a SQL database.
func OpenSQLStore(ctx context.Context, db *sql.DB) (Store, error) {
	return newSQLStore(ctx, db, DefaultTable)
}
