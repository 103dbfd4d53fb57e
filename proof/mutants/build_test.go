package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/compensator-go/compensator"

// Under the race detector the test takes eight times as long and finds nothing more, because it has one goroutine.
func TestEveryMutantBuilds(t *testing.T) {
	if raceEnabled {
		output, err := exec.Command("go", "test", "-count=1", "-vet=off", "-ldflags=-w", "-v", "-run", "^"+t.Name()+"$", ".").CombinedOutput()
		require.NoError(t, err, string(output))
		require.Contains(t, string(output), "--- PASS: "+t.Name())
		return
	}
	tree := readTheTree(t)
	packages := make(map[string][]map[string]string)
	names := make(map[string][]string)
	for _, m := range catalogue() {
		texts, err := tree.changed(m.edits)
		require.NoErrorf(t, err, m.name)
		byDir := make(map[string]map[string]string)
		for file, text := range texts {
			if path.Ext(file) == ".go" {
				dir := path.Dir(file)
				if byDir[dir] == nil {
					byDir[dir] = make(map[string]string)
				}
				byDir[dir][file] = text
			}
		}
		for dir, changed := range byDir {
			packages[dir] = append(packages[dir], changed)
			names[dir] = append(names[dir], m.name)
		}
	}
	c := newChecker(t, tree, slices.Sorted(maps.Keys(packages)))
	for dir, list := range packages {
		for i, changed := range list {
			require.NoErrorf(t, c.check(t, dir, changed), "%s does not build", names[dir][i])
		}
	}
}

// If two modules import the same package, it uses the first module's version.
type checker struct {
	root    string
	fset    *token.FileSet
	imports types.Importer
	parsed  map[string]*ast.File
}

func newChecker(t *testing.T, tree *tree, dirs []string) *checker {
	byModule := make(map[string][]string)
	for _, dir := range dirs {
		module := tree.moduleOf(dir)
		byModule[module] = append(byModule[module], testPlace{module, dir}.pattern())
	}
	exports := make(map[string]string)
	for _, module := range slices.Sorted(maps.Keys(byModule)) {
		addExports(t, exports, filepath.Join(tree.root, module), byModule[module]...)
	}
	fset := token.NewFileSet()
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	return &checker{root: tree.root, fset: fset, imports: importer.ForCompiler(fset, "gc", lookup), parsed: make(map[string]*ast.File)}
}

// addExports uses the flags of make test, so that the build cache holds these packages.
func addExports(t *testing.T, exports map[string]string, dir string, packages ...string) {
	list := exec.Command("go", append([]string{"list", "-race", "-gcflags=modernc.org/...=-race=false -d=checkptr=0", "-export", "-deps", "-json=ImportPath,Export"}, packages...)...)
	var stderr bytes.Buffer
	list.Dir, list.Stderr = dir, &stderr
	output, err := list.Output()
	require.NoError(t, err, stderr.String())
	for d := json.NewDecoder(bytes.NewReader(output)); d.More(); {
		var p struct{ ImportPath, Export string }
		require.NoError(t, d.Decode(&p))
		if exports[p.ImportPath] == "" {
			exports[p.ImportPath] = p.Export
		}
	}
}

func (c *checker) check(t *testing.T, dir string, changed map[string]string) error {
	pkg, err := build.ImportDir(filepath.Join(c.root, dir), 0)
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		file := path.Join(dir, name)
		text, isChanged := changed[file]
		if !isChanged && c.parsed[file] != nil {
			files = append(files, c.parsed[file])
			continue
		}
		var source any
		if isChanged {
			source = text
		}
		parsed, err := parser.ParseFile(c.fset, filepath.Join(c.root, file), source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if !isChanged {
			c.parsed[file] = parsed
		}
		files = append(files, parsed)
	}
	config := types.Config{Importer: c.imports, GoVersion: "go1.25"}
	_, err = config.Check(strings.TrimSuffix(modulePath+"/"+dir, "/."), c.fset, files, nil)
	return err
}
