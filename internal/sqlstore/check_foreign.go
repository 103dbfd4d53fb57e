package sqlstore

import (
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// ourColumns lists columns that every log has. A table that a user made manually has hardly any of them.
var ourColumns = []string{"next_at", "lease_until", "version", "token", "epoch", "delivery_count"}

// foreignTable reports whether a table with the log's name is not a log at all, but a user's own table. A table that
// lacks half of ourColumns or more is not a log. For such a table the error says so, and does not list the missing
// columns. A user's own table may have a version, a token and a next_at, so fewer missing columns prove nothing.
func foreignTable(name tableName, has func(column string) bool) error {
	var missing []string
	for _, column := range ourColumns {
		if !has(column) {
			missing = append(missing, column)
		}
	}
	if len(missing) < len(ourColumns)/2 {
		return nil
	}
	return &processlog.FieldError{Field: "table " + name.quoted(""), Reason: "looks like a table of your own: it lacks " + strings.Join(missing, ", ") +
		". Name another table in Config.Table, create it with MigrateTable, and import the rows of this one with package adopt (docs/how-to/move-from-your-own-table.md)"}
}
