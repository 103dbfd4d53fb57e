package sqlstore

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each name in braces must be a fragment of every store, or a name that the same file passes to sql.
func TestEveryFragmentHasAValue(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	s := newStore(mysqlDialect(""), tableName{base: DefaultTable}, nil)
	statements := 0
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		fragments, texts := make(map[string]bool), make(map[string]bool)
		ast.Inspect(file, func(node ast.Node) bool {
			text, ok := node.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING {
				return true
			}
			value, err := strconv.Unquote(text.Value)
			require.NoError(t, err)
			texts[value] = true
			for _, found := range regexp.MustCompile(`\{([a-zA-Z_ ,.]+)\}`).FindAllStringSubmatch(value, -1) {
				fragments[found[1]] = true
				statements++
			}
			return true
		})
		for fragment := range fragments {
			if !texts[fragment] { // The file does not pass this name to sql.
				assert.NotPanics(t, func() { s.sql("{" + fragment + "}") }, name)
			}
		}
	}
	require.Greater(t, statements, 100)
}

func TestStatementIsSentWithItsFragments(t *testing.T) {
	s := newStore(sqliteDialect(), tableName{base: DefaultTable}, nil)
	require.Equal(t, "SELECT id FROM `common_process_log` WHERE id IN (1,2) FOR UPDATE", s.sql("SELECT id FROM {log}{by id} WHERE id IN ({ids}){lock}", "ids", "1,2", "lock", " FOR UPDATE"))
	require.Equal(t, "{now}", s.sql("{text}", "text", "{now}"), "a value is not read again")
	require.Equal(t, "no fragment", s.sql("no fragment"))
	require.Panics(t, func() { s.sql("{unknown}") })
}

// A new column must not be forgotten in one of the two statements.
func TestStatementsThatStoreOutcomesSetTheSameColumns(t *testing.T) {
	parts := func(statement string) (assignments []string, condition string) {
		_, rest, found := strings.Cut(statement, " SET ")
		require.True(t, found)
		set, condition, found := strings.Cut(rest, " WHERE ")
		require.True(t, found)
		return strings.Split(set, ", "), condition
	}
	rows, _ := parts(settleRows)
	successes, successCondition := parts(settleSuccesses)
	counts := []string{"process_count={process_count}", "compensate_count={compensate_count}"}
	require.Equal(t, slices.DeleteFunc(rows, func(a string) bool { return slices.Contains(counts, a) }), successes, "a success changes no counts")
	require.Equal(t, "id IN ({ids}) AND epoch={epoch} AND state+0{from} AND {same entries}", successCondition)
}
