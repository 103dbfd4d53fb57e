package compensator

import (
	"context"
	"database/sql"

	"github.com/compensator-go/compensator/internal/sqlstore"
)

// DefaultTable is the default of Config.Table: "common_process_log".
const DefaultTable = sqlstore.DefaultTable

// Migrate creates the tables of the log, under their default names, where they are missing. No other function needs the
// right to create tables. Processes may call Migrate at the same time. If a call fails or its process dies, call
// Migrate again. If a view has the name of the log, Migrate creates nothing and returns a *FieldError. It does the same
// if a table of your own has the name of one of the log's tables.
func Migrate(ctx context.Context, db *sql.DB) error { return MigrateTable(ctx, db, DefaultTable) }

// MigrateTable does the same as Migrate for a table with another name. An invalid name is a *FieldError.
func MigrateTable(ctx context.Context, db *sql.DB, table string) error {
	return sqlstore.Migrate(ctx, db, table)
}

// DDL returns the statements that MigrateTable runs. The parameter database is "mysql" (also for MariaDB) or "sqlite".
// Each error is a *FieldError. Its Field is "database" if that parameter is wrong, and "Table" if the name of the table
// is wrong.
func DDL(database, table string) (string, error) { return sqlstore.DDL(database, table) }
