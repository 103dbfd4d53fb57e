package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

type source struct {
	importPath string
	fset       *token.FileSet
	files      []*ast.File
}

const module = "github.com/compensator-go/compensator"

func parsePackage(root, dir string) (*source, error) {
	s := &source{importPath: strings.TrimSuffix(module+"/"+dir, "/."), fset: token.NewFileSet()}
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(s.fset, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, file)
	}
	if len(s.files) == 0 {
		return nil, fmt.Errorf("no Go file in %s", dir)
	}
	return s, nil
}

func (s *source) specs(kind token.Token, visit func(spec ast.Spec, doc string)) {
	for _, file := range s.files {
		for _, decl := range file.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok || general.Tok != kind {
				continue
			}
			for _, spec := range general.Specs {
				own, beside := comments(spec)
				if own == "" && len(general.Specs) == 1 {
					own = general.Doc.Text()
				}
				visit(spec, strings.TrimSpace(own+"\n\n"+beside))
			}
		}
	}
}

func comments(spec ast.Spec) (above, behind string) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		return spec.Doc.Text(), spec.Comment.Text()
	case *ast.ValueSpec:
		return spec.Doc.Text(), spec.Comment.Text()
	}
	return "", ""
}

func (s *source) text(node ast.Node) string {
	var out bytes.Buffer
	if err := printer.Fprint(&out, s.fset, node); err != nil {
		return err.Error()
	}
	return out.String()
}

func (s *source) defaults() map[string]string {
	found := make(map[string]string)
	for _, file := range s.files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			receiver := strings.TrimPrefix(s.text(f.Recv.List[0].Type), "*")
			ast.Inspect(f, func(node ast.Node) bool {
				call, ok := node.(*ast.CallExpr)
				if !ok || s.text(call.Fun) != "setDefault" || len(call.Args) != 2 {
					return true
				}
				_, field, found2 := strings.Cut(s.text(call.Args[0]), ".")
				if value := constant(call.Args[1]); found2 && value != "" {
					found[receiver+"."+field] = value
				}
				return true
			})
		}
	}
	return found
}

func (s *source) least() map[string]string {
	found := make(map[string]string)
	for _, file := range s.files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != "validate" {
				continue
			}
			receiver := strings.TrimPrefix(s.text(f.Recv.List[0].Type), "*")
			ast.Inspect(f, func(node ast.Node) bool {
				call, ok := node.(*ast.CallExpr)
				if !ok || len(call.Args) < 2 {
					return true
				}
				name, ok := call.Args[0].(*ast.BasicLit)
				if !ok {
					return true
				}
				field := receiver + "." + strings.Trim(name.Value, `"`)
				switch least := s.text(call.Fun); {
				case least == "atLeastOne":
					found[field] = "1"
				case least == "atLeast" && len(call.Args) == 3:
					if value := span(call.Args[2]); value != "" {
						found[field] = value
					}
				}
				return true
			})
		}
	}
	return found
}

func span(e ast.Expr) string {
	if value := constant(e); value != "0" {
		return value
	}
	return ""
}

func constant(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.INT {
			n, err := strconv.ParseInt(strings.ReplaceAll(e.Value, "_", ""), 10, 64)
			if err != nil {
				return ""
			}
			return grouped(n)
		}
	case *ast.SelectorExpr:
		return duration(1, e)
	case *ast.BinaryExpr:
		left, right := e.X, e.Y
		n, ok := left.(*ast.BasicLit)
		if !ok {
			return ""
		}
		count, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil {
			return ""
		}
		if e.Op == token.MUL {
			return duration(count, right)
		}
		if shift, ok := right.(*ast.BasicLit); ok && e.Op == token.SHL && shift.Value == "10" {
			return fmt.Sprintf("%d KiB", count)
		}
	}
	return ""
}

func duration(count int64, unit ast.Expr) string {
	selected, ok := unit.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	names := map[string]string{"Millisecond": "ms", "Second": "s", "Minute": "min", "Hour": "h"}
	if name := names[selected.Sel.Name]; name != "" {
		return fmt.Sprintf("%d %s", count, name)
	}
	return ""
}

func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

var special = regexp.MustCompile("[\\\\`*_<>{}\\[\\]|]")

// markdown turns the text of a Go comment into Markdown: paragraphs and lists. The function inline converts one
// paragraph or one list item.
func markdown(comment string, inline func(text string) string) string {
	var out []string
	for paragraph := range strings.SplitSeq(strings.TrimSpace(comment), "\n\n") {
		lead, items, isList := strings.Cut("\n"+paragraph, "\n  - ")
		if lead = strings.Join(strings.Fields(lead), " "); lead != "" {
			out = append(out, sentence(inline(lead)))
		}
		if !isList {
			continue
		}
		var list []string
		for item := range strings.SplitSeq(items, "\n  - ") {
			list = append(list, "- "+inline(strings.Join(strings.Fields(item), " ")))
		}
		out = append(out, strings.Join(list, "\n"))
	}
	return strings.Join(out, "\n\n")
}

// sentence begins a text with a capital letter and ends it with a stop, unless it begins with code.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	if word, _, _ := strings.Cut(text, " "); word == strings.ToLower(word) {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, ":") {
		text += "."
	}
	return text
}

const generated = "<!-- Generated by internal/reference from the sources. Run: go run ./internal/reference -->\n\n"

// readMigrations returns the migrations of a dialect, in order.
func readMigrations(root, dialect string) (texts []string, err error) {
	names, err := filepath.Glob(filepath.Join(root, "migrations", dialect, "*.sql"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		texts = append(texts, string(text))
	}
	return texts, nil
}
