// Package releasetest installs every module for users from an empty module cache, in the order of their release.
package releasetest

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	root = "../../.." // directory of the library's module
	path = "github.com/compensator-go/compensator"
)

// After each module, the test does what its users do: go get in a new program, go mod tidy and go build.
// Failure: F135
func TestModulesInstallInTheOrderOfTheirRelease(t *testing.T) {
	releases := releasesInOrder(t)
	proxy, install := t.TempDir(), t.TempDir()
	env := userEnvironment(t, proxy, install)
	for _, release := range releases {
		publish(t, proxy, release)
		packages := packagesOf(t, release)
		if packages == nil {
			run(t, install, env, "go", "install", release.String())
			continue
		}
		dir := t.TempDir()
		run(t, dir, env, "go", "mod", "init", "example.com/program")
		run(t, dir, env, "go", "get", release.String())
		writeProgram(t, dir, packages)
		run(t, dir, env, "go", "mod", "tidy")
		run(t, dir, env, "go", "build", "-o", "program", ".")
		run(t, dir, env, "./program")
	}

	command := filepath.Join(install, "compensator")
	assert.Contains(t, run(t, install, env, command, "--help"), "compensator")
	modules := run(t, install, env, "go", "version", "-m", command)
	assert.Contains(t, modules, path+"\t"+releases[0].Version)
	for _, ofTests := range []string{"stretchr/testify", "go.uber.org/goleak", "pgregory.net/rapid"} {
		assert.NotContains(t, modules, ofTests)
	}
}

var tagged = regexp.MustCompile(`(?m)^git tag ((?:[\w-]+/)*)(v\d+\.\d+\.\d+)$`)

func releasesInOrder(t *testing.T) (releases []module.Version) {
	text, err := os.ReadFile(filepath.Join(root, "docs/internals/releasing.md"))
	require.NoError(t, err)
	for _, match := range tagged.FindAllStringSubmatch(string(text), -1) {
		releases = append(releases, module.Version{Path: strings.TrimSuffix(path+"/"+match[1], "/"), Version: match[2]})
	}
	require.NotEmpty(t, releases)
	require.Equal(t, path, releases[0].Path)
	return releases
}

func dirOf(m module.Version) string { return filepath.Join(root, strings.TrimPrefix(m.Path, path)) }

// Go takes third-party modules from this machine's downloads. If they are not there, Go asks the proxies in this
// machine's GOPROXY.
func userEnvironment(t *testing.T, proxy, install string) []string {
	set := strings.Split(strings.TrimSpace(run(t, ".", os.Environ(), "go", "env", "GOMODCACHE", "GOPROXY")), "\n")
	require.Len(t, set, 2)
	others := strings.TrimSuffix(set[1], ",direct") // If a version of the library is missing, the test must not find one on GitHub.
	return append(os.Environ(),
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(set[0], "cache", "download")+","+others,
		"GOMODCACHE="+t.TempDir(),
		"GOBIN="+install,
		"GOSUMDB=off", // The checksum database does not know our versions.
		"GOWORK=off",
		// -modcacherw lets the test remove the module cache. With -trimpath, compiled packages do not contain the path
		// of the cache, so later runs can use them.
		"GOFLAGS=-modcacherw -trimpath",
	)
}

func publish(t *testing.T, proxy string, m module.Version) {
	versions := filepath.Join(proxy, filepath.FromSlash(m.Path), "@v")
	require.NoError(t, os.MkdirAll(versions, 0o755))
	mod, err := os.ReadFile(filepath.Join(dirOf(m), "go.mod"))
	require.NoError(t, err)
	var archive bytes.Buffer
	require.NoError(t, zip.Create(&archive, m, filesOf(t, dirOf(m))))
	for name, content := range map[string][]byte{
		"list":              []byte(m.Version + "\n"),
		m.Version + ".info": fmt.Appendf(nil, `{"Version":%q}`, m.Version),
		m.Version + ".mod":  mod,
		m.Version + ".zip":  archive.Bytes(),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(versions, name), content, 0o644))
	}
}

// filesOf uses no git, so that it works in an unpacked archive.
func filesOf(t *testing.T, dir string) (files []zip.File) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "build", "node_modules"}, entry.Name()):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		name, err := filepath.Rel(dir, path)
		files = append(files, file{path, filepath.ToSlash(name)})
		return err
	}))
	return files
}

type file struct{ path, name string }

func (f file) Path() string                 { return f.name }
func (f file) Lstat() (fs.FileInfo, error)  { return os.Lstat(f.path) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.path) }

func packagesOf(t *testing.T, m module.Version) (packages []string) {
	listed := run(t, dirOf(m), os.Environ(), "go", "list", "-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`, "./...")
	for pkg := range strings.FieldsSeq(listed) {
		if !forContributors.MatchString(strings.TrimPrefix(pkg, path)) {
			packages = append(packages, pkg)
		}
	}
	return packages
}

var forContributors = regexp.MustCompile(`/internal(/|$)|^/(proof|promises)(/|$)`)

func writeProgram(t *testing.T, dir string, packages []string) {
	var text strings.Builder
	text.WriteString("package main\n\n")
	for _, pkg := range packages {
		fmt.Fprintf(&text, "import _ %q\n", pkg)
	}
	text.WriteString("\nfunc main() {}\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(text.String()), 0o644))
}

func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, &out, &problems
	require.NoErrorf(t, cmd.Run(), "%s %s: %s", name, strings.Join(args, " "), &problems)
	return out.String()
}
