package main

import (
	"archive/zip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	rootModule = "github.com/compensator-go/compensator"
	released   = "v0.1.0" // version of the library in go.mod
)

// TestGoInstallWorks runs go install with a proxy that offers this tree as a release, and no other module of this
// repository. go install fails if go.mod has a replace line, or lacks an imported module. The test passes -n, so
// nothing is built.
// Failure: F135
func TestGoInstallWorks(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	assert.NotRegexp(t, `(?m)^\s*(replace|exclude|toolchain)\b`, string(text))
	proxy, cache := t.TempDir(), t.TempDir()
	release(t, proxy, rootModule, "../..")
	release(t, proxy, rootModule+"/cmd/compensator", ".")
	others, err := exec.Command("go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	for _, dir := range []string{"", "github.com", "cache/download", "cache/download/github.com"} {
		lend(t, filepath.Join(strings.TrimSpace(string(others)), dir), filepath.Join(cache, dir))
	}
	cmd := exec.Command("go", "install", "-n", rootModule+"/cmd/compensator@"+released)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOMODCACHE="+cache, "GOBIN="+t.TempDir(), "GONOSUMDB=*", "GOFLAGS=-modcacherw",
		"GOPROXY=file://"+proxy+",off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "compensator")

	out, err = exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	for _, ofTests := range []string{"testify", "testservers", "internal/harness"} {
		assert.NotContains(t, string(out), ofTests)
	}
}

// lend makes the modules of others in one module cache available in another by links, because it takes long to unpack
// them. It leaves out the modules of this repository.
func lend(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(to, 0o755))
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, entry := range entries {
		switch entry.Name() {
		case "cache", "github.com", "compensator-go":
		default:
			require.NoError(t, os.Symlink(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())))
		}
	}
}

// release adds the module in a directory to a proxy, without nested modules.
func release(t *testing.T, proxy, module, dir string) {
	t.Helper()
	versions := filepath.Join(proxy, module, "@v")
	require.NoError(t, os.MkdirAll(versions, 0o755))
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	for name, text := range map[string]string{"list": released + "\n", released + ".info": `{"Version":"` + released + `"}`, released + ".mod": string(mod)} {
		require.NoError(t, os.WriteFile(filepath.Join(versions, name), []byte(text), 0o644))
	}
	file, err := os.Create(filepath.Join(versions, released+".zip"))
	require.NoError(t, err)
	defer file.Close()
	archive := zip.NewWriter(file)
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); entry.IsDir() && path != dir && (err == nil || entry.Name() == ".git" || entry.Name() == "build") {
			return fs.SkipDir
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || !entry.Type().IsRegular() || filepath.Ext(name) == ".work" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		to, err := archive.Create(module + "@" + released + "/" + filepath.ToSlash(name))
		if err == nil {
			_, err = to.Write(text)
		}
		return err
	}))
	require.NoError(t, archive.Close())
}
