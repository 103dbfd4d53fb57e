package sqlstore

import (
	"cmp"
	"strings"
)

// Each statement is a constant beside the method that sends it. The constant is the whole statement, so that a search
// for words of the statement finds it. Names in braces stand for fragments:
//
//   - {log} is the log's table. {audit}, {case}, {meta}, {operation}, {setting}, {slots} and {turns} are its other tables.
//   - {by id}, {by due} and {by INDEX} are hints that name an index of the table before them. A hint begins with a space,
//     or is empty. Without {by id} a server scans a small table, and waits for rows that others have locked.
//   - {now} is the database's clock in ms since 1970. {stamp} is its value for created_at and updated_at.
//   - {columns} is what a rowScanner reads. {outline} is the same without the content.
//   - {text COLUMNS}, {number COLUMNS} and {ms COLUMN} read columns in a form that is the same in every session. See
//     texts, numbers and stampMS in dialect.
//   - {DELETE FROM log} also has the hint to read the table by id. So do those of other tables.
//   - {then join} is a JOIN in written order. {empty} is an empty text, and {no bytes} an empty binary value.
//   - {every row}, {lock now}, {and steady} and {and in tx} end a statement. See everyRow, and lockNow, steady and inTx in
//     dialect.
//
// Every other name is an argument of sql. Only the method that sends the statement has its value.

// indexes lists the indexes of migrations/ that statements name.
var indexes = [...]string{"uk_idempotent_id", "k_batch_id", "k_business_id", "k_business_ext_id", "k_created_at", "k_group", "k_line"}

// fragmentsOf returns the fragments that stay the same for the life of a store.
func fragmentsOf(d *dialect, table tableName) map[string]string {
	fragments := map[string]string{
		"by id":     d.idIndex,
		"by due":    d.dueIndex,
		"now":       d.now,
		"stamp":     d.stamp,
		"columns":   d.columns("content"),
		"outline":   d.columns(d.empty + " AS content"),
		"then join": d.thenJoin,
		"empty":     d.empty,
		"no bytes":  hexLiteral(nil),
		"lock now":  d.lockNow,
		"every row": everyRow,
	}
	for _, suffix := range suffixes {
		name := cmp.Or(strings.TrimPrefix(suffix, "_"), "log")
		fragments[name] = table.quoted(suffix)
		fragments["DELETE FROM "+name] = d.deleteByID(table.quoted(suffix))
	}
	for _, index := range indexes {
		fragments["by "+index] = d.by(index)
	}
	return fragments
}

// sql returns the text of a statement, or of a part of one. args holds names of fragments and their values in turn.
func (s *Store) sql(statement string, args ...string) string {
	parts := make([]string, 0, 64) // No statement has more, so this does not allocate.
	for {
		open := strings.IndexByte(statement, '{')
		if open < 0 {
			return strings.Join(append(parts, statement), "")
		}
		name, rest, _ := strings.Cut(statement[open+1:], "}")
		parts = append(parts, statement[:open], s.fragment(name, args))
		statement = rest
	}
}

// fragment returns the value of one fragment. It panics if there is none. TestEveryFragmentHasAValue finds that before.
func (s *Store) fragment(name string, args []string) string {
	for i := 0; i < len(args); i += 2 {
		if args[i] == name {
			return args[i+1]
		}
	}
	if value, found := s.fragments[name]; found {
		return value
	}
	switch form, columns, _ := strings.Cut(name, " "); form {
	case "text":
		return s.d.texts(columns)
	case "number":
		return s.d.numbers(columns)
	case "ms":
		return s.d.stampMS(columns)
	}
	switch name { // New may still change these after Open.
	case "and steady":
		return s.steady()
	case "and in tx":
		return s.ifOpen()
	}
	panic("sqlstore: the fragment {" + name + "} has no value")
}
