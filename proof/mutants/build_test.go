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
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/compensator-go/compensator"

// TestEveryMutantBuilds checks the types of the changed packages: that is what would fail a build, at a hundredth
// of its cost. It is done in one goroutine, where the race detector has nothing to find and takes eight times as long:
// with the detector this test runs itself without.
func TestEveryMutantBuilds(t *testing.T) {
	if raceEnabled {
		output, err := exec.Command("go", "test", "-count=1", "-vet=off", "-ldflags=-w", "-v", "-run", "^"+t.Name()+"$", ".").CombinedOutput()
		require.NoError(t, err, string(output))
		require.Contains(t, string(output), "--- PASS: "+t.Name())
		return
	}
	c := newChecker(t)
	for _, m := range catalogue() {
		for dir, changed := range m.changedGo(t) {
			require.NoErrorf(t, c.check(t, dir, changed), "%s does not build", m.name)
		}
	}
}

// changedGo is the text of the changed Go files, by package directory and file.
func (m mutant) changedGo(t *testing.T) map[string]map[string]string {
	texts := make(map[string]map[string]string)
	for _, e := range m.edits {
		dir := path.Dir(e.file)
		if path.Ext(e.file) != ".go" {
			continue
		}
		if texts[dir] == nil {
			texts[dir] = make(map[string]string)
		}
		text, again := texts[dir][e.file]
		if !again {
			content, err := os.ReadFile(filepath.Join(root, e.file))
			require.NoError(t, err)
			text = string(content)
		}
		changed, err := e.apply(text)
		require.NoErrorf(t, err, m.name)
		texts[dir][e.file] = changed
	}
	return texts
}

// checker knows the compiled imports, and the files as they are. What two modules import is taken from the first.
type checker struct {
	fset    *token.FileSet
	imports types.Importer
	parsed  map[string]*ast.File
}

func newChecker(t *testing.T) *checker {
	exports := make(map[string]string)
	addExports(t, exports, root, ".", "./compensatortest/memory", "./intake")
	addExports(t, exports, filepath.Join(root, relay.dir()), ".")
	addExports(t, exports, filepath.Join(root, router.dir()), ".")
	addExports(t, exports, filepath.Join(root, "otel"), ".")
	addExports(t, exports, filepath.Join(root, "ui"), ".")
	addExports(t, exports, filepath.Join(root, command.dir()), ".")
	addExports(t, exports, filepath.Join(root, schedules.dir()), ".")
	fset := token.NewFileSet()
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	return &checker{fset: fset, imports: importer.ForCompiler(fset, "gc", lookup), parsed: make(map[string]*ast.File)}
}

// addExports adds the compiled packages that some in a module's directory import, and themselves; with the flags with which make
// test has compiled them.
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
	pkg, err := build.ImportDir(filepath.Join(root, dir), 0)
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		file := path.Join(dir, name)
		text, isChanged := changed[file]
		if !isChanged && c.parsed[file] != nil {
			files = append(files, c.parsed[file])
			continue
		}
		var source any // nil: read the file
		if isChanged {
			source = text
		}
		parsed, err := parser.ParseFile(c.fset, filepath.Join(root, file), source, parser.SkipObjectResolution)
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
