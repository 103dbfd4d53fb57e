package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// ourColumns lists columns that every log has. A table that a user made manually has hardly any of them.
var ourColumns = []string{"next_at", "lease_until", "version", "token", "epoch", "delivery_count"}

// foreignTable reports whether a table with the log's name is not a log at all, but a user's own table. A table that
// lacks half of ourColumns or more, or half of all columns, is not a log. For such a table the error says so, and names
// only a few missing columns. A user's own table may have a version, a token and a next_at, so fewer missing columns
// prove nothing.
func foreignTable(name tableName, has func(column string) bool) error {
	missing := slices.DeleteFunc(slices.Clone(ourColumns), has)
	if len(missing) < len(ourColumns)/2 {
		missing = slices.DeleteFunc(slices.Sorted(maps.Keys(wantColumns)), has)
		if len(missing) < len(wantColumns)/2 {
			return nil
		}
		missing = append(missing[:len(ourColumns)], "and others")
	}
	return &processlog.FieldError{Field: "table " + name.quoted(""), Reason: "looks like a table of your own: it lacks " + strings.Join(missing, ", ") +
		". Name another table in Config.Table, create it with MigrateTable, and import the rows of this one with package adopt (docs/how-to/move-from-your-own-table.md)"}
}

// viewNotTable is the error of a view with the log's name.
func viewNotTable(name tableName) error {
	return &processlog.FieldError{Field: "table " + name.quoted(""), Reason: "is a view, and the log needs a table. Name another table in Config.Table, and create it with MigrateTable"}
}

// checkForeign returns an error if the log's name belongs to a view or to a user's own table. CREATE TABLE IF NOT EXISTS
// would leave both as they are, and the log's other tables would be created beside them.
func checkForeign(ctx context.Context, d *dialect, db *sql.DB, name tableName) error {
	schema := "DATABASE()"
	if name.database != "" {
		schema = d.text(name.database)
	}
	kindQuery := "SELECT table_type LIKE '%VIEW' FROM information_schema.tables WHERE table_schema=" + schema + " AND table_name=?"
	columnQuery := "SELECT LOWER(column_name) FROM information_schema.columns WHERE table_schema=" + schema + " AND table_name=?"
	if d.name == "sqlite" {
		kindQuery = "SELECT type='view' FROM main.sqlite_master WHERE type IN ('table','view') AND name=? COLLATE NOCASE"
		columnQuery = "SELECT LOWER(name) FROM pragma_table_info(?)"
	}
	var isView bool
	err := db.QueryRowContext(ctx, kindQuery, name.base).Scan(&isView)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil // The table does not exist yet.
	case err != nil:
		return err
	case isView:
		return viewNotTable(name)
	}
	rows, err := db.QueryContext(ctx, columnQuery, name.base)
	if err != nil {
		return err
	}
	defer rows.Close()
	has := make(map[string]bool)
	for rows.Next() {
		var column string
		if err := rows.Scan(&column); err != nil {
			return err
		}
		has[column] = true
	}
	if err := rows.Err(); err != nil || len(has) == 0 { // Without rights on the table, the server does not show its columns.
		return err
	}
	return foreignTable(name, func(column string) bool { return has[column] })
}
