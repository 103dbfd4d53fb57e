package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// Each statement is a whole constant beside the method that sends it. Names in braces stand for fragments. {log}, {case}
// and so on are tables. {by id}, {by due} and {by INDEX} are hints that name an index. Without {by id} a server scans a
// small table, and waits for rows that others have locked. {now} is the database's clock in ms since 1970, and {stamp} its
// value for created_at. {columns} is what a rowScanner reads, and {outline} the same without the content. {text COLUMNS},
// {number COLUMNS} and {ms COLUMN} read columns in a form that is the same in every session.
//
// The dialect and fragmentsOf have the other fragments. Every name that is in neither is an argument of sql.

var indexes = [...]string{"uk_idempotent_id", "k_batch_id", "k_business_id", "k_business_ext_id", "k_created_at", "k_group", "k_line"}

// fragmentsOf returns the fragments that do not depend on Check.
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
		"no bytes":  d.binary(nil),
		"lock now":  d.lockNow,
		"every row": everyRow,

		"in schema":     "", // setSchema sets these two
		"and in schema": "",
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

// sql fills in a statement. args holds names of fragments and their values in turn.
func (s *Store) sql(statement string, args ...string) string {
	parts := make([]string, 0, 64)
	for {
		open := strings.IndexByte(statement, '{')
		if open < 0 {
			text := strings.Join(append(parts, statement), "")
			if s.d.quote != "`" {
				text = strings.ReplaceAll(text, "`", s.d.quote) // Values of users are in literals that contain no quotes.
			}
			return text
		}
		name, rest, _ := strings.Cut(statement[open+1:], "}")
		parts = append(parts, statement[:open], s.fragment(name, args))
		statement = rest
	}
}

// fragment returns the text for a name in braces. It panics if the name has no text. TestEveryFragmentHasAValue looks
// for names without a text.
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
	switch name { // New may change these fields after Open.
	case "and steady":
		return s.steady()
	case "and in tx":
		return s.ifOpen()
	}
	panic("sqlstore: the fragment {" + name + "} has no value")
}

// placeholders replaces each question mark. None belongs to a text, because texts of users are written as hexadecimal
// literals.
func (s *Store) placeholders(statement string) string {
	if !s.d.numbered {
		return statement
	}
	var b strings.Builder
	for n, part := range strings.SplitAfter(statement, "?") {
		if before, found := strings.CutSuffix(part, "?"); found {
			part = before + "$" + strconv.Itoa(n+1)
		}
		b.WriteString(part)
	}
	return b.String()
}

// mayFail runs statements of which one may fail. On some databases a failed statement makes its transaction unusable.
// There mayFail sets a savepoint first, and returns to the savepoint after a failure.
func (s *Store) mayFail(ctx context.Context, tx processlog.Tx, run func() error) error {
	if !s.d.breaks {
		return run()
	}
	if _, err := tx.ExecContext(ctx, "SAVEPOINT compensator_may_fail"); err != nil {
		return err
	}
	after := "RELEASE SAVEPOINT compensator_may_fail"
	err := run()
	if err != nil {
		after = "ROLLBACK TO SAVEPOINT compensator_may_fail"
	}
	if _, failed := tx.ExecContext(ctx, after); failed != nil {
		return errors.Join(err, failed)
	}
	return err
}
