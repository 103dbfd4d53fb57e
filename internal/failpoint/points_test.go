package failpoint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

type named struct {
	constant string
	point    Point
}

func declared(t *testing.T) (list []named) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "points.go", nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		list = append(list, named{spec.Names[0].Name, Point(value)})
		return false
	})
	require.NotEmpty(t, list)
	return list
}

func TestEachPointIsPlacedOnce(t *testing.T) {
	call := regexp.MustCompile(`\bfailpoint\.Reach\((?:failpoint\.(\w+))?`)
	places := make(map[string]int)
	for _, dir := range []string{".", "processlog", "intake", "adopt", "internal/*", "internal/features/*"} {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			for _, found := range call.FindAllStringSubmatch(string(text), -1) {
				places[found[1]]++
			}
		}
	}
	want := make(map[string]int)
	for _, p := range declared(t) {
		want[p.constant] = 1
	}
	require.Equal(t, want, places)
}

func TestPointsNameIsItsConstantsInWords(t *testing.T) {
	capital := regexp.MustCompile(`[A-Z][a-z]+`)
	for _, p := range declared(t) {
		words := capital.FindAllString(strings.Replace(p.constant, "IDs", "Ids", 1), -1)
		require.Equal(t, strings.ToLower(strings.Join(words, "-")), string(p.point))
		require.Greater(t, len(words), 0)
	}
}
