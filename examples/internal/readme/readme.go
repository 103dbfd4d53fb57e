// Package readme compares what the programs of the README print with what the README says.
package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pages lists the pages that show programs. The paths are relative to a folder of examples.
var pages = []string{"../../README.md", "../../README.zh-CN.md"}

var number = regexp.MustCompile(`\d+`)

// RequirePrints requires that each page shows the program main.go of the current folder, and below it what the program
// prints. Numbers may differ, because a program prints times and ids.
func RequirePrints(t *testing.T, printed string) {
	t.Helper()
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	for _, page := range pages {
		text, err := os.ReadFile(filepath.FromSlash(page))
		require.NoError(t, err)
		_, below, found := strings.Cut(string(text), "```go\n"+string(program)+"```\n\n```text\n")
		require.Truef(t, found, "%s does not have this program with its output below", page)
		shown, _, _ := strings.Cut(below, "```")
		require.Equalf(t, number.ReplaceAllString(shown, "N"), number.ReplaceAllString(printed, "N"), "%s", page)
	}
}
