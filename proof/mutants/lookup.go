package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

type declaration struct {
	file   string // path relative to the root
	node   ast.Node
	tokens *token.File
	source string
}

// A declaration can have several names, and is stored under each.
type tree struct {
	root   string
	byName map[string][]declaration
	texts  []string // paths of files that are not Go, relative to the root
	tests  map[string][]testPlace
}

var elsewhere = []string{".git", "build", "testdata", "node_modules", "bench", "examples", "mutants"}

var theTree = sync.OnceValues(func() (*tree, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	return readTree(root)
})

func readTree(root string) (*tree, error) {
	t := &tree{root: root, byName: make(map[string][]declaration), tests: make(map[string][]testPlace)}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != root && slices.Contains(elsewhere, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if name = filepath.ToSlash(name); filepath.Ext(name) != ".go" {
			t.texts = append(t.texts, name)
			return nil
		}
		return t.read(path, name)
	})
	return t, err
}

func (t *tree) read(path, name string) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	t.addTests(name, string(source))
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.add(files, parsed, name, string(source))
	return nil
}

func (t *tree) add(files *token.FileSet, parsed *ast.File, file, source string) {
	add := func(node ast.Node, name string) {
		d := declaration{file: file, node: node, tokens: files.File(parsed.Pos()), source: source}
		for _, n := range []string{name, parsed.Name.Name + "." + name} {
			t.byName[n] = append(t.byName[n], d)
		}
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if receiver := receiverType(d); receiver != "" {
				add(d, receiver+"."+d.Name.Name)
			} else {
				add(d, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add(s, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						add(s, n.Name)
					}
				}
			}
		}
	}
}

func receiverType(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	e := f.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// The forms of a name are name, Type.method, package.name and package.Type.method. declared returns an error if no
// declaration matches, or several do. Declarations in test files count only if no other file declares the name.
func (t *tree) declared(name string) (declaration, error) {
	all := t.byName[name]
	found := slices.DeleteFunc(slices.Clone(all), func(d declaration) bool { return strings.HasSuffix(d.file, "_test.go") })
	if len(found) == 0 {
		found = all
	}
	if len(found) == 1 {
		return found[0], nil
	}
	places := make([]string, len(found))
	for i, d := range found {
		places[i] = d.file
	}
	return declaration{}, fmt.Errorf("%d declarations have the name %s, want one: %s", len(found), name, strings.Join(places, ", "))
}

// text returns an error if no file matches, or several do.
func (t *tree) text(suffix string) (string, error) {
	var found []string
	for _, file := range t.texts {
		if file == suffix || strings.HasSuffix(file, "/"+suffix) {
			found = append(found, file)
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%d files end with %s, want one: %s", len(found), suffix, strings.Join(found, ", "))
	}
	return found[0], nil
}
