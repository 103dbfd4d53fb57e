package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// The page leaves out a refusal if the code builds the name of its setting at run time.
var refusals = []struct{ file, title string }{
	{"check_mysql.go", "MySQL and MariaDB"},
	{"check_sqlite.go", "SQLite"},
}

var formatVerb = regexp.MustCompile(`%[a-z]`)

func refusalTables(root string) (string, error) {
	s, err := parsePackage(root, "internal/sqlstore")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, r := range refusals {
		rows := s.refusalsOf(r.file)
		if len(rows) < 5 {
			return "", fmt.Errorf("internal/sqlstore/%s has %d refusals: New has another way to refuse", r.file, len(rows))
		}
		fmt.Fprintf(&out, "### Refused on %s\n\n| setting | text of the error |\n|---|---|\n%s\n", r.title, strings.Join(rows, ""))
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

func (s *source) refusalsOf(name string) (rows []string) {
	add := func(field, reason ast.Expr) {
		setting := unquoted(field)
		if id, ok := field.(*ast.Ident); ok && id.Name == "name" {
			setting = "character_set_client, character_set_connection, character_set_results"
		}
		if setting == "" || strings.HasPrefix(setting, " ") {
			return
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", strings.ReplaceAll(setting, ", ", "`, `"), special.ReplaceAllString(written(reason), `\$0`)))
	}
	for _, file := range s.files {
		if !strings.HasSuffix(s.fset.Position(file.Pos()).Filename, "/"+name) {
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.CallExpr:
				if s.text(node.Fun) == "refuse" && len(node.Args) == 2 {
					add(node.Args[0], node.Args[1])
				}
			case *ast.CompositeLit:
				if s.text(node.Type) == "processlog.FieldError" && len(node.Elts) == 2 {
					add(node.Elts[0].(*ast.KeyValueExpr).Value, node.Elts[1].(*ast.KeyValueExpr).Value)
				}
			}
			return true
		})
	}
	return rows
}

func written(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		return unquoted(e)
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return written(e.X) + written(e.Y)
		}
	case *ast.CallExpr:
		if len(e.Args) > 1 {
			if format := unquoted(e.Args[0]); format != "" {
				return formatVerb.ReplaceAllString(format, "…")
			}
		}
	}
	return "…"
}
