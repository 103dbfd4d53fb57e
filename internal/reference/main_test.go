package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocsOfSettingsErrorsAndColumnsAreCurrent requires that the generated pages are what the sources say.
func TestDocsOfSettingsErrorsAndColumnsAreCurrent(t *testing.T) {
	pages, err := generate("../..")
	require.NoError(t, err)
	for name, want := range pages {
		text, err := os.ReadFile("../../docs/reference/" + name)
		require.NoError(t, err)
		require.Equalf(t, want, string(text), "%s is stale: go run ./internal/reference", name)
	}
}
