package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocsAreWhatTheSourcesSay requires that generated pages, and code in pages, are current.
func TestDocsAreWhatTheSourcesSay(t *testing.T) {
	pages, err := generate("../..")
	require.NoError(t, err)
	for name, want := range pages {
		text, err := os.ReadFile("../../" + name)
		require.NoError(t, err)
		require.Equalf(t, want, string(text), "%s is stale: go run ./internal/reference", name)
	}
}

// checkedElsewhere lists pages whose Go code is compared with compiled files by tests of other packages.
var checkedElsewhere = []string{"docs/reference/telemetry.md"}

// TestDocsIncludeCompiledCode requires that each Go block of a page for users comes from a file that tests compile.
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
