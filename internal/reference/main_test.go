package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDocsAreWhatTheSourcesSay(t *testing.T) {
	pages, err := generate("../..")
	require.NoError(t, err)
	for name, want := range pages {
		text, err := os.ReadFile("../../" + name)
		require.NoError(t, err)
		require.Equalf(t, want, string(text), "%s is stale: go run ./internal/reference", name)
	}
}

var errorsNotForUsers = []string{"compensatortest/memory"}

func TestDocsHaveEveryExportedError(t *testing.T) {
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		dir, err := filepath.Rel("../..", path)
		require.NoError(t, err)
		if slices.Contains([]string{"internal", "proof", "promises", "bench", "examples", "build", "docs", ".git", "testdata"}, entry.Name()) {
			return filepath.SkipDir
		}
		if sources, err := filepath.Glob(filepath.Join(path, "*.go")); err != nil || len(sources) == 0 || slices.Contains(errorsNotForUsers, dir) {
			return err
		}
		if _, err := parsePackage("../..", dir); err != nil {
			return nil
		}
		found, err := errorsOf("../..", dir)
		require.NoError(t, err)
		assert.Truef(t, len(found) == 0 || slices.Contains(packagesWithErrors, dir), "the errors of %s are not on the page", dir)
		return nil
	}))
}

// checkedElsewhere lists pages whose Go code is compared with compiled files by tests of other packages.
var checkedElsewhere = []string{"docs/reference/telemetry.md"}

func TestDocsIncludeCompiledCode(t *testing.T) {
	pages, err := pagesWithSamples("../..")
	require.NoError(t, err)
	for _, name := range pages {
		if slices.Contains(checkedElsewhere, name) {
			continue
		}
		text, err := os.ReadFile("../../" + name)
		require.NoError(t, err)
		for _, block := range goFence.FindAllStringSubmatch(string(text), -1) {
			assert.Truef(t, strings.HasPrefix(block[1], "<!-- go: "), "%s: no comment above a Go block names its file: %q", name, block[1])
		}
	}
}
