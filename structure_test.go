package compensator_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/compensator-go/compensator"

func TestArrowsRunOneWay(t *testing.T) {
	allowed := importTable(t)
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}\n"+testsOf+"{{.ImportPath}} {{join .TestImports \" \"}}", "./...").Output()
	require.NoError(t, err)
	seen := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		may, known := allowed[packageDir(words[0])]
		if !known {
			continue // A package that is not in the table may import every package in the table.
		}
		seen[packageDir(words[0])] = true
		for _, imported := range words[1:] {
			if imported == module || strings.HasPrefix(imported, module+"/") {
				assert.Truef(t, may[packageDir(imported)], "%s imports %s", packageDir(words[0]), packageDir(imported))
			}
		}
	}
	require.Len(t, seen, len(allowed), "every package in the table exists")
}

const testsOf = "tests:"

const features = "internal/features"

func packageDir(importPath string) string {
	if chapter, tests := strings.CutPrefix(importPath, testsOf); tests {
		if strings.HasPrefix(chapter, module+"/promises/") {
			return "promises/*"
		}
		return importPath
	}
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func importTable(t *testing.T) map[string]map[string]bool {
	text, err := os.ReadFile("CONTRIBUTING.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "## One direction\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	name := regexp.MustCompile("`([^`]+)`")
	table, below := make(map[string]map[string]bool), make(map[string]bool)
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		may := make(map[string]bool)
		for _, match := range name.FindAllStringSubmatch(cells[2], -1) {
			may[match[1]] = true
		}
		for _, match := range name.FindAllStringSubmatch(cells[1], -1) {
			table[match[1]] = may
			if table["."] != nil && match[1] != "." {
				below[match[1]] = true
			}
		}
	}
	table["."] = below
	for name := range table {
		if strings.HasPrefix(name, features+"/") {
			table[features][name] = true
		}
	}
	return table
}

// A user may combine a module with a newer version of the root module, and everything below internal may change in any
// version.
func TestModulesForUsersImportNothingInternal(t *testing.T) {
	seen := 0
	for _, dir := range modulesForUsers(t) {
		if dir == "." {
			continue
		}
		list := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")
		list.Dir = dir
		out, err := list.Output()
		require.NoError(t, err, dir)
		assert.NotContains(t, string(out), " "+module+"/internal/", dir)
		seen++
	}
	require.Positive(t, seen)
}

func TestRootIsWhatAUserMeets(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	tests, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	assert.LessOrEqual(t, len(files), 35)
	assert.LessOrEqual(t, len(files)-len(tests), 26)
}

// TestModulesAreFew limits the number of modules, and checks the list of tags in docs/internals/releasing.md. A module
// must come after the modules that it requires. The go.mod of a released module must have no replace, because go
// install refuses such a module.
func TestModulesAreFew(t *testing.T) {
	forUsers := make(map[string]bool)
	for _, dir := range modulesForUsers(t) {
		forUsers[dir] = true
	}
	files, _ := sourceTree(t)
	others := 0
	for _, file := range files {
		dir := path.Dir(file)
		if path.Base(file) == "go.mod" && !strings.Contains(file, "testdata/") && !forUsers[dir] {
			others++
		}
	}
	assert.LessOrEqual(t, len(forUsers), 8)
	assert.LessOrEqual(t, others, 6)

	tagged := make(map[string]string)
	for _, tag := range gitTag.FindAllStringSubmatch(page(t, "docs/internals/releasing.md"), -1) {
		dir := path.Clean(tag[1])
		text := page(t, path.Join(dir, "go.mod"))
		assert.NotRegexp(t, `(?m)^\s*(replace|exclude|toolchain)\b`, text, dir)
		for _, required := range requiredOfOurs.FindAllStringSubmatch(text, -1) {
			of := path.Clean(strings.TrimPrefix(required[1], "/"))
			assert.Equalf(t, required[2], tagged[of], "%s requires %s, which has this tag before it", dir, of)
		}
		tagged[dir] = tag[2]
		assert.Truef(t, forUsers[dir], "%s is a module for users", dir)
	}
	assert.Len(t, tagged, len(forUsers))
}

func modulesForUsers(t *testing.T) (dirs []string) {
	_, row, found := strings.Cut(page(t, "docs/reference/stability.md"), "| modules for users: ")
	require.True(t, found)
	row, _, _ = strings.Cut(row, " |")
	dirs = append(dirs, ".")
	for _, name := range namedInDocs.FindAllStringSubmatch(row, -1) {
		dirs = append(dirs, name[1])
	}
	return dirs
}

var (
	gitTag         = regexp.MustCompile(`(?m)^git tag ((?:[\w-]+/)*)(v\S+)$`)
	requiredOfOurs = regexp.MustCompile(`(?m)^\s*(?:require )?` + module + `((?:/[\w-]+)*) (v\S+)`)
)
