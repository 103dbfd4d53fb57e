package main

import (
	"flag"
	"go/ast"
	"go/doc"
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

var stablePackages = []string{".", "admin", "adopt", "compensatortest", "encrypt", "httpcall", "intake", "observe", "observe/probe", "processlog", "serve", "ui", "ui/local"}

var furtherPackages = []string{"compensatortest/memory", "compensatortest/sqlitetest", "compensatortest/suite", "cron", "migrations", "orms/gormtx", "otel", "relay/rabbitmq", "relay/watermill"}

const (
	mostRootNames   = 110
	mostRootMethods = 16
)

// If the change is intended, add a line to CHANGELOG.md and run: go test ./internal/reference -run ExportedAPI
// -update.
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

// TestEveryExportedNameHasAComment lists the exported names of the public packages that have no comment: types,
// functions, constants, variables, methods, fields, and methods of interfaces.
//
// The comment of a group is not enough, because an editor does not show it for one name. Fields that stand on one
// line share a comment. These names need none:
//   - methods whose meaning the standard library fixes: see fixedMethods,
//   - methods of types that are not exported, because no page shows them,
//   - embedded fields, because their type has a comment.
func TestEveryExportedNameHasAComment(t *testing.T) {
	var bare []string
	for _, dir := range slices.Concat(stablePackages, furtherPackages) {
		for _, name := range uncommented(t, filepath.Join("..", "..", dir)) {
			bare = append(bare, dir+": "+name)
		}
	}
	assert.Empty(t, bare, "exported names without a comment")
}

func TestNamesWithoutACommentAreFound(t *testing.T) {
	require.Equal(t, []string{"Bare", "Bare.Change", "Bare.Field", "Bare.Inner.Deep", "Doer.Do", "Function", "Grouped"},
		uncommented(t, filepath.Join("testdata", "bare")))
}

var runnable = map[string][]string{
	".": {"Handle", "HandleTx", "HandleBatch", "HandleResult", "Declare", "Type_Record", "Type_Once", "Permanent", "Snooze", "Unavailable", "Entry_CallKey", "Batch_Wait",
		"TypeConfig", "Middleware", "ParseDelayLevels"},
	"admin": {"", "Of"}, "cron": {"Parse"}, "encrypt": {"New"}, "httpcall": {"PostJSON"}, "orms/gormtx": {"WithRetry"}, "intake": {"Source"}, "observe/probe": {"Ready"}, "serve": {"Run"}, "ui": {"New"},
}

// TestCommonestNamesHaveAnExampleThatRuns checks that each name in runnable has an example with an Output comment. The
// go command compiles an example without this comment, but does not run it.
func TestCommonestNamesHaveAnExampleThatRuns(t *testing.T) {
	for dir, names := range runnable {
		files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
		require.NoError(t, err)
		var parsed []*ast.File
		for _, file := range files {
			tests, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			require.NoError(t, err)
			parsed = append(parsed, tests)
		}
		examples := doc.Examples(parsed...)
		for _, name := range names {
			assert.True(t, slices.ContainsFunc(examples, func(e *doc.Example) bool {
				return (e.Name == name || name != "" && strings.HasPrefix(e.Name, name+"_")) && e.Output != ""
			}), "%s: no example of %q has an output", dir, name)
		}
	}
}

var fixedMethods = []string{"Error", "Unwrap", "Is", "String", "MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText", "LogValue", "ServeHTTP"}

func uncommented(t *testing.T, dir string) (bare []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	check := func(name string, exported bool, comments ...*ast.CommentGroup) {
		if exported && !slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool { return strings.TrimSpace(c.Text()) != "" }) {
			bare = append(bare, name)
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range parsed.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if receiver := receiverOf(decl); receiver != "" {
					check(receiver+"."+decl.Name.Name, ast.IsExported(receiver) && decl.Name.IsExported() && !slices.Contains(fixedMethods, decl.Name.Name), decl.Doc)
				} else {
					check(decl.Name.Name, decl.Name.IsExported(), decl.Doc)
				}
			case *ast.GenDecl:
				var whole *ast.CommentGroup
				if !decl.Lparen.IsValid() {
					whole = decl.Doc
				}
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							check(name.Name, name.IsExported(), whole, spec.Doc, spec.Comment)
						}
					case *ast.TypeSpec:
						check(spec.Name.Name, spec.Name.IsExported(), whole, spec.Doc, spec.Comment)
						if spec.Name.IsExported() {
							checkFields(spec.Name.Name, spec.Type, check)
						}
					}
				}
			}
		}
	}
	slices.Sort(bare)
	return bare
}

func receiverOf(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return ""
	}
	typ := decl.Recv.List[0].Type
	for {
		switch of := typ.(type) {
		case *ast.StarExpr:
			typ = of.X
		case *ast.IndexExpr:
			typ = of.X
		case *ast.Ident:
			return of.Name
		default:
			return "?"
		}
	}
}

func checkFields(in string, typ ast.Expr, check func(name string, exported bool, comments ...*ast.CommentGroup)) {
	var fields *ast.FieldList
	switch typ := typ.(type) {
	case *ast.StructType:
		fields = typ.Fields
	case *ast.InterfaceType:
		fields = typ.Methods
	default:
		return
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			check(in+"."+name.Name, name.IsExported(), field.Doc, field.Comment)
			checkFields(in+"."+name.Name, field.Type, check)
		}
	}
}
