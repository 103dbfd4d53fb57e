package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// If session is true, the names are variables of the session. Otherwise they are parameters of the driver
// itself.
type dsnSetting struct {
	names   []string
	session bool
	advice  string
}

var dsnSettings = []dsnSetting{
	{[]string{"readTimeout", "writeTimeout"}, false, "Set them longer than your slowest statement, for example 30 s. Without these timeouts, a COMMIT on a connection that no longer answers waits forever. Do not set them below 3 s, because an outcome may wait up to {RowWait} for a locked row."},
	{[]string{"rejectReadOnly"}, false, "Set it to `true` on a pool without `Connector`. After a switchover the driver then closes a connection to the former primary at its first error (1290, 1792, 1836). A pool with a `Connector` does not need it. `New` warns only if the server has a binary log or is in a Galera cluster."},
	{[]string{"interpolateParams"}, false, "Set it to `true`. A statement with arguments then takes one round trip instead of two."},
	{[]string{"autocommit"}, true, "Leave `autocommit` at 1, and do not set it to 0 in a session later. With `autocommit=0` the library cannot detect a rollback by a procedure that hides the error, except in `InTx` and `HandleTx`."},
	{[]string{"charset"}, false, "Leave the charset out, or set `utf8mb4`. `New` warns about `utf8` and refuses every other charset. `New` also refuses a table whose key columns have another charset than `utf8mb4`. A charset that your program sets on a pooled session later does not affect the log."},
	{[]string{"sql_mode"}, true, "Keep STRICT_TRANS_TABLES or STRICT_ALL_TABLES, which the servers have by default. Do not set MariaDB's EMPTY_STRING_IS_NULL."},
	{[]string{"completion_type", "innodb_lock_wait_timeout", "sql_select_limit", "max_join_size", "unique_checks", "timestamp", "transaction_read_only", "sql_log_bin"}, true, "Leave these variables at their defaults."},
	{[]string{"maxAllowedPacket"}, false, "Leave it out, or set it to more than twice `MaxContent` and to at least 256 KiB. The library stores up to 100 outcomes with one statement of at most {maxSettleBytes}, or a little more for dead entries."},
	{[]string{"parseTime", "loc"}, false, "Set them as you like. The library neither reads nor writes times through the driver."},
	{[]string{"time_zone"}, true, "Set it as you like. The library does not use the session's time zone."},
}

var sessionVariable = regexp.MustCompile(`in the session|sql_mode|without STRICT`)

// dsnTable returns the table of DSN parameters for the page of settings. It returns an error in each of these cases:
//
//   - New refuses or warns about a name that dsnSettings lacks.
//   - dsnSettings names a variable of the session that New does not check. The variable time_zone is an exception.
//   - An advice names a constant that does not exist.
func dsnTable(root string) (string, error) {
	store, err := parsePackage(root, "internal/sqlstore")
	if err != nil {
		return "", err
	}
	watch, err := parsePackage(root, "internal/txwatch")
	if err != nil {
		return "", err
	}
	refused, warned := store.dsnRefusals(), store.dsnWarnings()
	var out strings.Builder
	out.WriteString("| DSN parameter | `New` | what to do |\n|---|---|---|\n")
	for _, setting := range dsnSettings {
		does := "does not check"
		for _, name := range setting.names {
			switch {
			case refused[name]:
				does = "refuses"
			case warned[name]:
				does = "warns"
			case setting.session && name != "time_zone":
				return "", fmt.Errorf("internal/reference says that New refuses %s, and internal/sqlstore/check_mysql.go does not", name)
			}
			delete(refused, name)
			delete(warned, name)
		}
		advice := setting.advice
		for name, value := range map[string]string{"RowWait": constantOf(watch, "RowWait"), "maxSettleBytes": constantOf(store, "maxSettleBytes")} {
			if value == "" {
				return "", fmt.Errorf("no constant %s", name)
			}
			advice = strings.ReplaceAll(advice, "{"+name+"}", value)
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", strings.Join(setting.names, "`, `"), does, advice)
	}
	for name := range refused {
		return "", fmt.Errorf("the check of New refuses %s, and internal/reference/dsn.go does not list it", name)
	}
	for name := range warned {
		return "", fmt.Errorf("the check of New warns about %s, and internal/reference/dsn.go does not list it", name)
	}
	return out.String(), nil
}

func (s *source) dsnRefusals() map[string]bool {
	refused := make(map[string]bool)
	for _, row := range s.refusalsOf("check_mysql.go") {
		cells := strings.SplitN(row, "|", 4)
		if !sessionVariable.MatchString(cells[2]) {
			continue
		}
		for _, name := range strings.Split(strings.ReplaceAll(cells[1], "`", ""), ", ") {
			if name = strings.TrimSpace(name); strings.HasPrefix(name, "character_set_") {
				name = "charset" // the parameter that sets these variables
			}
			refused[name] = true
		}
	}
	return refused
}

var namedInNote = regexp.MustCompile(`set (\w+)=`)

// dsnWarnings returns the DSN parameters about which New warns. Each has a note "set <parameter>=" in check_mysql.go.
func (s *source) dsnWarnings() map[string]bool {
	warned := make(map[string]bool)
	for _, file := range s.files {
		if !strings.HasSuffix(s.fset.Position(file.Pos()).Filename, "/check_mysql.go") {
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || s.text(call.Fun) != "append" || s.text(call.Args[0]) != "s.notes" {
				return true
			}
			for _, name := range namedInNote.FindAllStringSubmatch(written(call.Args[1]), -1) {
				warned[name[1]] = true
			}
			return true
		})
	}
	return warned
}

// constantOf returns the value of a constant of the package, or "". A duration has the form that people read, such as
// "30 s".
func constantOf(s *source, name string) (value string) {
	s.specs(token.CONST, func(spec ast.Spec, _ string) {
		values := spec.(*ast.ValueSpec)
		if i := slices.IndexFunc(values.Names, func(id *ast.Ident) bool { return id.Name == name }); i >= 0 && i < len(values.Values) {
			value = constant(values.Values[i])
		}
	})
	return value
}
