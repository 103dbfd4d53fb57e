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

// ourColumns are columns that a user's own table seldom has.
var ourColumns = []string{"next_at", "lease_until", "version", "token", "epoch", "delivery_count"}

// foreignTable returns an error if a user's own table has the log's name. Such a table lacks at least half of ourColumns,
// or half of all columns.
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

var requiredTables = []string{"_audit", "_fault", "_meta", "_result"}

var sideColumns = map[string][]string{
	"_audit":     {"id", "entry_id", "action", "actor", "reason", "before_state", "after_state", "created_at"},
	"_fault":     {"entry_id", "epoch", "compensating", "server_faults", "server_downs", "outcome_unknown"},
	"_meta":      {"name", "value"},
	"_result":    {"entry_id", "result_epoch", "result"},
	"_slots":     {"business_type", "slot"},
	"_turns":     {"business_type", "turn_key", "place", "entry_id", "epoch", "parked"},
	"_case":      {"entry_id", "epoch", "version", "kind", "business_type", "business_id", "fingerprint", "ended_by", "error", "amount", "currency", "owner", "opened_at", "due_at", "closed_at"},
	"_operation": {"id", "at", "actor", "action", "refused", "entry_id", "business_type", "subject", "reason"},
	"_setting":   {"name", "value", "version", "actor", "reason", "at"},
	"_limit": {"limit_name", "limit_key", "tat", "granted_at", "starts", "holders", "start_interval", "burst", "concurrent", "business_types", "keyed", "program_interval", "program_burst",
		"program_concurrent", "person_interval", "person_burst", "person_concurrent", "version", "actor", "reason", "changed_at"},
	"_attempt":  append([]string{"entry_id", "slot"}, attemptColumns...),
	"_stat":     append([]string{"instance", "at", "business_type", "last_at"}, statColumns...),
	"_instance": {"id", "name", "library", "build", "started_at", "seen_at", "ended_at", "running", "queue", "types"},
}

type sideTables map[string][]string // columns by suffix, in small letters

func readSideTables(rows *sql.Rows, base string) (sideTables, error) {
	defer rows.Close()
	tables := make(sideTables)
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return nil, err
		}
		suffix := strings.ToLower(table[min(len(base), len(table)):])
		tables[suffix] = append(tables[suffix], strings.ToLower(column))
	}
	return tables, rows.Err()
}

func (t sideTables) missing(name tableName) (missing []string) {
	for _, suffix := range requiredTables {
		if t[suffix] == nil {
			missing = append(missing, name.quoted(suffix))
		}
	}
	return missing
}

// foreign returns an error for each side table that lacks a column. CREATE TABLE IF NOT EXISTS leaves somebody else's
// table as it is.
func (t sideTables) foreign(name tableName) map[string]error {
	foreign := make(map[string]error)
	for suffix, columns := range t {
		lacking := slices.DeleteFunc(slices.Clone(sideColumns[suffix]), func(column string) bool { return slices.Contains(columns, column) })
		if n := len(lacking); n > 0 {
			text := strings.Join(lacking[:min(n, 6)], ", ")
			if n > 6 {
				text += " and others"
			}
			foreign[suffix] = &processlog.FieldError{Field: "table " + name.quoted(suffix), Reason: "looks like a table of your own: it lacks " + text +
				". Rename it and run Migrate, or name another table in Config.Table"}
		}
	}
	return foreign
}

func (d *dialect) sideQuery(name tableName) string {
	var names []string
	for _, suffix := range slices.Sorted(maps.Keys(sideColumns)) {
		names = append(names, d.text(name.base+suffix))
	}
	list := " IN (" + strings.Join(names, ",") + ")"
	if d.name == "sqlite" {
		return "SELECT t.name, c.name FROM main.sqlite_master AS t, pragma_table_info(t.name) AS c WHERE t.type='table' AND t.name COLLATE NOCASE" + list
	}
	return "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema=" + d.schema(name) + " AND table_name" + list
}

func (d *dialect) schema(name tableName) string {
	if name.database == "" {
		return "DATABASE()"
	}
	return d.text(name.database)
}

func checkForeignSides(ctx context.Context, d *dialect, db *sql.DB, name tableName) error {
	rows, err := db.QueryContext(ctx, d.sideQuery(name))
	if err != nil {
		return err
	}
	side, err := readSideTables(rows, name.base)
	if err != nil {
		return err
	}
	foreign := side.foreign(name)
	var errs []error
	for _, suffix := range slices.Sorted(maps.Keys(foreign)) {
		errs = append(errs, foreign[suffix])
	}
	return errors.Join(errs...)
}

func viewNotTable(name tableName) error {
	return &processlog.FieldError{Field: "table " + name.quoted(""), Reason: "is a view, and the log needs a table. Name another table in Config.Table, and create it with MigrateTable"}
}

func checkForeign(ctx context.Context, d *dialect, db *sql.DB, name tableName) error {
	schema := d.schema(name)
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
