package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var otherName = regexp.MustCompile(`^(\w*[a-z][A-Z]\w*|[A-Z]\w* (?:returns|reports|implements|asks|makes|begins|lets|finds|counts|says|adds|waits))\b`)

// A comment that begins with another name was probably left unchanged when the declaration was renamed.
func TestCommentsBeginWithTheNameThatTheyDescribe(t *testing.T) {
	var stale []string
	require.NoError(t, eachGoFile("../..", func(path, text string) error {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/suite/") || strings.Contains(path, "/orms/ent/") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, text, parser.ParseComments)
		for name, doc := range documented(file) {
			if first := otherName.FindString(doc.Text()); first != "" && strings.Fields(first)[0] != name.Name {
				stale = append(stale, fmt.Sprintf("%s: the comment of %s begins with %q", files.Position(name.Pos()), name.Name, first))
			}
		}
		return err
	}))
	assert.Empty(t, stale)
}

func documented(file *ast.File) map[*ast.Ident]*ast.CommentGroup {
	all := make(map[*ast.Ident]*ast.CommentGroup)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			all[n.Name] = n.Doc
		case *ast.GenDecl:
			if len(n.Specs) == 1 {
				if spec, ok := n.Specs[0].(*ast.TypeSpec); ok {
					all[spec.Name] = n.Doc
				}
			}
		case *ast.InterfaceType:
			for _, method := range n.Methods.List {
				if len(method.Names) == 1 {
					all[method.Names[0]] = method.Doc
				}
			}
		}
		return true
	})
	return all
}
