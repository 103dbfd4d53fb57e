package compensator

import (
	"context"
	"database/sql"

	"github.com/compensator-go/compensator/internal/sqlstore"
)

// DefaultTable is the process log's name unless Config.Table says otherwise: "common_process_log".
const DefaultTable = sqlstore.DefaultTable

// Migrate creates the process log, its audit table and its facts table under their default names, and does
// nothing where they exist. It needs the right to create tables, which nothing else in this package does.
// Whoever runs goose or golang-migrate can use the files of package migrations instead; DDL prints them.
func Migrate(ctx context.Context, db *sql.DB) error { return MigrateTable(ctx, db, DefaultTable) }

// MigrateTable is Migrate for another table name.
func MigrateTable(ctx context.Context, db *sql.DB, table string) error {
	return sqlstore.Migrate(ctx, db, table)
}

// DDL returns the statements Migrate runs, for "mysql" (also MariaDB) or "sqlite".
func DDL(database, table string) (string, error) { return sqlstore.DDL(database, table) }
