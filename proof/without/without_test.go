package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryFeatureHasItsPackageAndItsFile(t *testing.T) {
	features, err := list("../..")
	require.NoError(t, err)
	require.NotEmpty(t, features)
}

func tree(t *testing.T, imports ...string) (root string) {
	t.Helper()
	root = t.TempDir()
	files := map[string]string{
		"go.mod":                        "module example.com/m\n\ngo 1.24\n",
		"internal/features/features.go": "package features\n",
		"internal/features/a.go":        "package features\n\nimport _ \"example.com/m/internal/features/a\"\n",
		"internal/features/a/a.go":      "package a\n",
		"internal/features/b.go":        "package features\n\nimport _ \"example.com/m/internal/features/b\"\n",
		"internal/features/b/b.go":      "package b\n",
		"internal/features/b/b_test.go": "package b\n",
		"m.go":                          "package m\n\nimport _ \"example.com/m/internal/features\"\n",
	}
	for _, path := range imports {
		files["m.go"] += "import _ \"example.com/m/" + path + "\"\n"
	}
	for path, text := range files {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

func TestFeatureThatTheRestNeedsIsNamed(t *testing.T) {
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOWORK", "off")
	build := [][]string{{"build", "./..."}}

	root := tree(t, "internal/features/b")
	features, err := list(root)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, features)
	var out strings.Builder
	require.NoError(t, try(root, []string{"a"}, build, &out))
	assert.Contains(t, out.String(), "without a: ok")
	require.ErrorContains(t, try(root, []string{"b"}, build, &out), "without b: go build")
	assert.Contains(t, out.String(), "without b: FAIL")
	require.Error(t, try(root, features, build, io.Discard))

	require.NoError(t, try(tree(t), features, build, io.Discard))
}

func TestPackageAndFileOfAFeatureBelongTogether(t *testing.T) {
	root := tree(t)
	require.NoError(t, os.Remove(filepath.Join(root, below, "b.go")))
	_, err := list(root)
	require.ErrorContains(t, err, "internal/features/b has no file")

	require.NoError(t, os.RemoveAll(filepath.Join(root, below, "b")))
	require.NoError(t, os.WriteFile(filepath.Join(root, below, "c.go"), []byte("package features\n"), 0o600))
	_, err = list(root)
	require.ErrorContains(t, err, "internal/features/c.go has no package")
}
