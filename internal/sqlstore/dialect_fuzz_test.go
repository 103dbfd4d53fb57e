package sqlstore

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

func FuzzTableName(f *testing.F) {
	for _, name := range []string{"common_process_log", "shop.log", "a.b.c", "", ".", "x`y", "log; DROP", strings.Repeat("x", 59), "Größe", "$1"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := parseTable(text)
		if err != nil {
			require.ErrorAs(t, err, new(*processlog.FieldError))
			return
		}
		requirePlainName(t, name)
	})
}

// requirePlainName requires that the quoted form is exactly the name, and that the name leaves room for the suffixes.
func requirePlainName(t *testing.T, name tableName) {
	t.Helper()
	quoted := name.quoted("_audit")
	want := 2
	if name.database != "" {
		want = 4
	}
	require.Equal(t, want, strings.Count(quoted, "`"))
	require.NotContains(t, quoted, " ")
	for _, suffix := range suffixes {
		require.LessOrEqual(t, len(name.base+suffix), 64)
	}
	texts, err := DDL("mysql", strings.ReplaceAll(name.quoted(""), "`", ""))
	require.NoError(t, err)
	require.Contains(t, texts, name.quoted(""))
	require.Equal(t, name.quoted("") == "`"+DefaultTable+"`", strings.Contains(texts, "`"+DefaultTable+"`"))
}

// TestTableWhoseLongestNameDoesNotFitIsRefused creates a log whose longest table name has as many characters as MySQL
// allows. A name with one more character must be refused.
func TestTableWhoseLongestNameDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	fits := strings.Repeat("x", 64-len("_operation"))
	require.NoError(t, CheckTable(fits))
	require.NoError(t, CheckTable(strings.Repeat("d", 64)+"."+fits))
	for _, long := range []string{fits + "x", "d." + fits + "x", strings.Repeat("d", 65) + "." + fits} {
		var field *processlog.FieldError
		require.ErrorAs(t, CheckTable(long), &field)
		require.Equal(t, "Table", field.Field)
		require.ErrorContains(t, field, "at most 54")
	}
	for _, d := range []string{"mysql", "sqlite"} {
		text, err := DDL(d, "x")
		require.NoError(t, err)
		for _, table := range regexp.MustCompile("CREATE TABLE (?:IF NOT EXISTS )?[`\"]x(\\w*)[`\"]").FindAllStringSubmatch(text, -1) {
			require.Contains(t, suffixes, table[1], "a table of the log must be in suffixes")
		}
	}
}

// FuzzServerAnswers checks settings with any values. No setting of a server may cause a panic. A server whose version
// cannot be read must be refused, because the library needs features of certain versions.
func FuzzServerAnswers(f *testing.F) {
	for _, version := range []string{
		"", "10.11.19-MariaDB-0+deb12u1", "8.0.1", "8.0.0", "5.5.5-10.6.0-MariaDB", "9", "8.", "99999999999999999999.1.1", "-1.0.0", "8.0", "+8.9.9", " 8.4.0",
	} {
		f.Add(version, "STRICT_TRANS_TABLES", int64(16<<20), "ROW", "0")
	}
	f.Add("8.4.0", "strict_all_tables", int64(-1<<63), "statement", "ON")
	f.Fuzz(func(t *testing.T, version, mode string, packet int64, format, readOnly string) {
		m := mysqlSession{version: version, autocommit: true, charsets: [3]string{"utf8mb4", "utf8mb4", format}, sqlMode: mode, maxPacket: packet, logBin: true, binlogFormat: format, readOnly: readOnly}
		_ = m.contentLimit()
		known := map[string]bool{"server version": true, "sql_mode": true, "binlog_format": true, "read_only": true, "character_set_results": true}
		for _, field := range fieldsOf(t, m.problems()) {
			require.True(t, known[field.Field], field.Field)
		}
		require.Equal(t, m.supported(), !refusesField(t, m.problems(), "server version"))
		require.NotNil(t, mysqlDialect(version).fault)
		column := mysqlColumn{dataType: version, length: packet, collation: format}
		table := mysqlTable{engine: readOnly, columns: map[string]mysqlColumn{mode: column, "idempotent_id": column}, side: sideTables{"_meta": {mode}}}
		fieldsOf(t, table.problems(tableName{base: "x"}))
		_ = sqliteSession{version: version}.supported()
	})
}

// fieldsOf requires that each problem is a *FieldError with a field.
func fieldsOf(t *testing.T, problems []error) (fields []*processlog.FieldError) {
	t.Helper()
	for _, problem := range problems {
		var field *processlog.FieldError
		require.ErrorAs(t, problem, &field)
		fields = append(fields, field)
	}
	return fields
}

func refusesField(t *testing.T, problems []error, name string) bool {
	for _, field := range fieldsOf(t, problems) {
		if field.Field == name {
			return true
		}
	}
	return false
}
