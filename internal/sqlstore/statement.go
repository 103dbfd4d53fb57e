package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// Each statement is a whole constant beside the method that sends the statement. A name in braces is called a fragment,
// and stands for a text:
//   - {log}, {case} and so on are tables.
//   - {by id}, {by due} and {by INDEX} are hints that name an index. Without {by id} a server scans a small table, and
//     waits for rows that others have locked.
//   - {now} is the database's clock in ms since 1970. {stamp} is the present time as a value for created_at.
//   - {columns} are the columns that a rowScanner reads. {outline} are the same columns without the content.
//   - {text COLUMNS}, {number COLUMNS} and {ms COLUMN} read columns in a form that is the same in every session.
//
// The functions fragmentsOf and fragment have the other fragments. A name that neither of them has is an argument of
// the method Store.sql.

var indexes = [...]string{"uk_idempotent_id", "k_batch_id", "k_business_id", "k_business_ext_id", "k_created_at", "k_group", "k_line"}

// fragmentsOf returns the fragments whose texts are known before Store.Check has tried the server.
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

		"in schema":     "", // setSchema sets this fragment and the next one
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

// sql returns the statement with a text in place of each name in braces. The parameter args is a list of pairs: the
// name of a fragment, then its text, then the next name.
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
	// These two texts are not in s.fragments. They depend on fields of the Store and its dialect that Store.Check may
	// change after Open.
	switch name {
	case "and steady":
		return s.steady()
	case "and in tx":
		return s.ifOpen()
	}
	panic("sqlstore: the fragment {" + name + "} has no value")
}

// placeholders writes $1, $2 and so on in place of the question marks, if the database wants numbered placeholders.
// Every question mark in the statement is a placeholder. A text of a user could contain a question mark, but the
// statement has such a text only as a hexadecimal literal.
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

// mayFail calls the function run, and returns the error of run. On some databases a failed statement makes its
// transaction unusable. On these databases, mayFail sets a savepoint before it calls run. After a failure it returns to
// the savepoint, so that the caller can go on with the transaction.
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
