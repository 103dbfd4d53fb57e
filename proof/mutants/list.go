package main

import (
	"fmt"
	"io"
	"strings"
)

// printList shows the mutants and who sees them, for people or for docs/reliability.md.
func printList(out io.Writer, mutants []mutant, markdown bool) {
	if markdown {
		fmt.Fprintln(out, "| mutant | the bug | breaks | seen by |\n|---|---|---|---|")
	}
	for _, m := range mutants {
		if markdown {
			fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", m.name, m.what, m.oracle, m.seenBy("`", "<br>"))
			continue
		}
		fmt.Fprintf(out, "%s (%s)\n  %s\n  %s\n", m.name, m.oracle, m.what, m.seenBy("", "\n  "))
	}
}

// seenBy lists the layers in their order.
func (m mutant) seenBy(quote, separator string) string {
	var lines []string
	for _, l := range append(layers, model) {
		if what := m.sees[l]; what != "" {
			lines = append(lines, string(l)+": "+l.selected(what, quote))
		}
		if what := m.survives[l]; what != "" {
			lines = append(lines, "harmless to "+string(l)+": "+l.selected(what, quote))
		}
	}
	return strings.Join(lines, separator)
}

// selected is a selection in words.
func (l layer) selected(what, quote string) string {
	switch {
	case l.hasTests():
		return quote + strings.ReplaceAll(what, "|", quote+", "+quote) + quote
	case l == simulation:
		return "within " + what + " seeds"
	case l == chaos:
		return "within " + what
	}
	return quote + strings.ReplaceAll(what, "|", `\|`) + quote
}
