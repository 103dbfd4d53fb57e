package sqlstore

import (
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// ourColumns are those that a log has, and hardly a table that somebody has made manually.
var ourColumns = []string{"next_at", "lease_until", "version", "token", "epoch", "delivery_count"}

// foreignTable tells a table of the user's own, which has the log's name, from a log that lacks something. One that lacks half of
// ourColumns is none of ours: a list of its columns would hide that. A table made manually may have a version, a token and a next_at.
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
		". Name another one in Config.Table, make it by MigrateTable, and take the rows of this one over with package adopt (docs/from-your-own-table.md)"}
}
