package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/reference/command-line.md")

func TestReferenceOfTheCommandLineIsCurrent(t *testing.T) {
	const name = "../../docs/reference/command-line.md"
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	const begin, end = "<!-- commands: go test -run Reference . -update, in cmd/compensator -->\n", "<!-- end of commands -->\n"
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	want := before + begin + referenceOfCommands((&program{env: os.Getenv}).newRootCommand()) + end + after
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(page), "write it with -update")
}

func referenceOfCommands(root *cobra.Command) string {
	var out strings.Builder
	var describe func(c *cobra.Command)
	describe = func(c *cobra.Command) {
		if c.Runnable() && !c.Hidden {
			fmt.Fprintf(&out, "\n### %s\n\n```text\n%s\n```\n\n%s.\n", strings.TrimPrefix(c.CommandPath(), "compensator "), c.UseLine(), strings.TrimSuffix(inMarkdown(c.Short), "."))
			out.WriteString(flagBlock(strings.ReplaceAll(c.LocalNonPersistentFlags().FlagUsages(), whereHelp, "see Filters")))
		}
		for _, child := range c.Commands() {
			describe(child)
		}
	}
	for _, child := range root.Commands() {
		describe(child)
	}
	return "\n## Flags of every command\n" + flagBlock(root.PersistentFlags().FlagUsages()) + "\n## Filters\n\n`--where` takes conditions, separated by commas:\n\n- " + strings.ReplaceAll(inMarkdown(whereHelp), ". ", "\n- ") + "\n\n## Commands\n" + out.String() + "\n"
}

func flagBlock(usages string) string {
	if usages == "" {
		return ""
	}
	return "\n```text\n" + strings.TrimRight(usages, "\n") + "\n```\n"
}

var specialInMarkdown = regexp.MustCompile(`[*_<>{}|\[\]]`)

var flagInText = regexp.MustCompile(`(^|[ (])(--[a-z][a-z-]*|-[a-z](?: [a-z]+)?)\b`)

func inMarkdown(text string) string {
	return flagInText.ReplaceAllString(specialInMarkdown.ReplaceAllString(text, `\$0`), "$1`$2`")
}

func TestFlagsInTheReferenceAreMarkedAsCode(t *testing.T) {
	require.Equal(t, "`-o ids` prints ids (`--where`, too), not well-known a - b.", inMarkdown("-o ids prints ids (--where, too), not well-known a - b."))
}
