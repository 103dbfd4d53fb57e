package main

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden file of the exported API")

// stablePackages are the packages of the root module that docs/reference/stability.md names.
var stablePackages = []string{".", "admin", "adopt", "compensatortest", "encrypt", "httpcall", "intake", "observe", "observe/probe", "processlog", "serve", "ui", "ui/local"}

const (
	mostRootNames   = 110 // exported package-level names of the root package
	mostRootMethods = 16  // exported methods of Compensator
)

// TestExportedAPIIsTheGoldenFile fails when an exported name or signature changes. If the change is intended, add a line
// to CHANGELOG.md and run: go test ./internal/reference -run ExportedAPI -update.
func TestExportedAPIIsTheGoldenFile(t *testing.T) {
	var all strings.Builder
	for _, dir := range stablePackages {
		lines := exported(t, filepath.Join("..", "..", dir))
		all.WriteString("package " + dir + "\n" + strings.Join(lines, "\n") + "\n\n")
		if dir == "." {
			methods := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.HasPrefix(line, "func (*Compensator) ") })
			names := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
				return strings.HasPrefix(line, "func (") || strings.HasPrefix(line, "field ")
			})
			assert.LessOrEqual(t, len(methods), mostRootMethods)
			assert.LessOrEqual(t, len(names), mostRootNames)
		}
	}
	const golden = "testdata/api.txt"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(all.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), all.String(), "the exported API has changed: see the comment of this test")
}

// exported returns a sorted line for each exported name of the package in dir, without tests.
func exported(t *testing.T, dir string) (lines []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	fset := token.NewFileSet()
	text := func(node any) string {
		var out strings.Builder
		require.NoError(t, printer.Fprint(&out, fset, node))
		return strings.Join(strings.Fields(out.String()), " ")
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range parsed.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if line := funcLine(decl, text); line != "" {
					lines = append(lines, line)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					lines = append(lines, specLines(decl.Tok, spec, text)...)
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// funcLine returns the line of an exported function, or of an exported method of an exported type.
func funcLine(decl *ast.FuncDecl, text func(any) string) string {
	if !decl.Name.IsExported() {
		return ""
	}
	receiver := ""
	if decl.Recv != nil {
		typ := text(decl.Recv.List[0].Type)
		if !ast.IsExported(strings.TrimPrefix(typ, "*")) {
			return ""
		}
		receiver = "(" + typ + ") "
	}
	params := ""
	if decl.Type.TypeParams != nil {
		names := make([]string, 0, len(decl.Type.TypeParams.List))
		for _, field := range decl.Type.TypeParams.List {
			for _, name := range field.Names {
				names = append(names, name.Name+" "+text(field.Type))
			}
		}
		params = "[" + strings.Join(names, ", ") + "]"
	}
	signature := *decl.Type
	signature.TypeParams = nil
	return "func " + receiver + decl.Name.Name + params + strings.TrimPrefix(text(&signature), "func")
}

// specLines returns the lines of exported types with their exported fields, constants and variables.
func specLines(tok token.Token, spec ast.Spec, text func(any) string) (lines []string) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if !spec.Name.IsExported() {
			return nil
		}
		structure, ok := spec.Type.(*ast.StructType)
		if !ok {
			if spec.Assign.IsValid() {
				return []string{"type " + spec.Name.Name + " = " + text(spec.Type)}
			}
			return []string{"type " + spec.Name.Name + " " + text(spec.Type)}
		}
		lines = append(lines, "type "+spec.Name.Name+" struct")
		for _, field := range structure.Fields.List {
			if len(field.Names) == 0 {
				lines = append(lines, "field "+spec.Name.Name+" embeds "+text(field.Type))
			}
			for _, name := range field.Names {
				if name.IsExported() {
					lines = append(lines, "field "+spec.Name.Name+"."+name.Name+" "+text(field.Type))
				}
			}
		}
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if name.IsExported() {
				lines = append(lines, tok.String()+" "+name.Name)
			}
		}
	}
	return lines
}
