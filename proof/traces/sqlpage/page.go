// Package sqlpage compares docs/internals/statements.md with the statements that a store sends. The tests that record the
// statements are in proof/traces for MariaDB and MySQL, and in internal/integration/sqlitetest for SQLite. Their flag -update
// rewrites the SQL of the page.
package sqlpage

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the SQL of docs/internals/statements.md")

const page = "docs/internals/statements.md"

var (
	block    = regexp.MustCompile("(?s)```sql\n-- ([^\n]+): ([^\n:]+)\n(.*?)```\n")
	method   = regexp.MustCompile("`(\\w+)\\.(\\w+)\\.(\\w+)`") // package.Type.Method
	fragment = regexp.MustCompile(`\{[^}]*\}`)
)

// compare requires that the page has each step of the scenario for this database, with the statements as sent.
func compare(t *testing.T, database string, steps map[string][]string) {
	root := rootDir(t)
	content, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	source := readSource(t, root)
	missing := maps.Clone(steps)
	rewritten := block.ReplaceAllStringFunc(string(content), func(text string) string {
		parts := block.FindStringSubmatch(text)
		name, databases := parts[1], strings.Split(parts[2], ", ")
		if !slices.Contains(databases, database) {
			return text
		}
		assert.Contains(t, steps, name, "the scenario has no such step")
		delete(missing, name)
		sent := source.annotate(steps[name])
		if !*update {
			assert.Equal(t, parts[3], sent, "what the page has for %q, and what is sent; -update writes the page", name)
		}
		return strings.TrimSuffix(text, parts[3]+"```\n") + sent + "```\n"
	})
	assert.Empty(t, slices.Sorted(maps.Keys(missing)), "the page has no block for these steps on "+database)
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(root, page), []byte(rewritten), 0o666))
		return
	}
	for _, name := range method.FindAllStringSubmatch(string(content), -1) {
		assert.Regexp(t, `(?m)^func \(\w+ \*?`+name[2]+`\) `+name[3]+`\(`, packageText(t, root, name[1]), "the page names a method that does not exist")
	}
}

func rootDir(t *testing.T) string {
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, page)); err == nil {
			return dir
		}
		require.NotEqual(t, filepath.Dir(dir), dir, "no folder above has "+page)
		dir = filepath.Dir(dir)
	}
}

// packageText returns the Go files of a package below internal, or below internal/features.
func packageText(t *testing.T, root, name string) string {
	var text strings.Builder
	for _, pattern := range []string{"internal/" + name + "/*.go", "internal/features/" + name + "/*.go"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, name := range names {
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			text.Write(content)
		}
	}
	return text.String()
}

type constant struct {
	name, file string
	matches    *regexp.Regexp
	literal    int // number of characters outside braces
}

type source []constant

func readSource(t *testing.T, root string) source {
	dir := filepath.Join(root, "internal/sqlstore")
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	var s source
	values := make(map[string]ast.Expr)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			if spec, ok := node.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
				values[spec.Names[0].Name] = spec.Values[0]
				s = append(s, constant{name: spec.Names[0].Name, file: filepath.Base(name)})
			}
			return true
		})
	}
	for i := range s {
		c := &s[i]
		if text := evaluate(values[c.name], values); strings.Contains(text, "{") {
			var pattern string
			pattern, c.literal = expected(text)
			c.matches = regexp.MustCompile(pattern)
		}
	}
	s = slices.DeleteFunc(s, func(c constant) bool { return c.matches == nil || c.literal < len("SELECT FROM") })
	return s
}

func evaluate(expr ast.Expr, values map[string]ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(expr.Value)
		return text
	case *ast.BinaryExpr:
		return evaluate(expr.X, values) + evaluate(expr.Y, values)
	case *ast.Ident:
		return evaluate(values[expr.Name], values)
	}
	return ""
}

// within has a text that the value of a fragment contains.
var within = map[string]string{"{columns}": ", content, headers, ", "{outline}": " AS content, headers, "}

var tables = regexp.MustCompile(`((?:FROM|INTO|UPDATE|JOIN) |\{DELETE FROM )\{?([a-z]+)\}`)

// expected returns a regular expression that matches each statement made from a constant of the source. The result literal
// is the number of characters that the expression matches literally.
func expected(text string) (pattern string, literal int) {
	text = tables.ReplaceAllString(text, "$1{}_$2`{}")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "{DELETE FROM ", "DELETE "), "_log`", "common_process_log`")
	fragments := append(fragment.FindAllString(text, -1), "")
	for i, piece := range fragment.Split(text, -1) {
		pattern += regexp.QuoteMeta(piece) + ".*?" + regexp.QuoteMeta(within[fragments[i]]) + ".*?"
		literal += len(piece) + len(within[fragments[i]])
	}
	return "(?s)^" + pattern, literal
}

// annotate writes above each statement the constant that the statement was made of. A statement matches the constants of which
// it has every character outside braces. The longest of them is its source.
func (s source) annotate(statements []string) string {
	var b strings.Builder
	for _, statement := range statements {
		var best constant
		for _, c := range s {
			if c.literal > best.literal && c.matches.MatchString(statement) {
				best = c
			}
		}
		if best.name != "" {
			b.WriteString("-- " + best.name + " in internal/sqlstore/" + best.file + "\n")
		}
		b.WriteString(statement + ";\n")
	}
	return b.String()
}
