package main

import (
	"fmt"
	"io"
	"strings"
)

// printList prints the mutants, the promises that they break, and the layers that see them.
func printList(out io.Writer, mutants []mutant) {
	for _, m := range mutants {
		fmt.Fprintf(out, "%s (%s)\n  %s\n  %s\n", m.name, m.breaks, m.what, strings.Join(m.seenBy(), "\n  "))
	}
}

func (m mutant) seenBy() []string {
	var lines []string
	for _, l := range layers {
		if what := m.sees[l]; what != "" {
			lines = append(lines, string(l)+": "+l.selected(what))
		}
	}
	if m.inModel != "" {
		lines = append(lines, "model: "+m.inModel)
	}
	return lines
}

func (l layer) selected(what string) string {
	switch l {
	case unit:
		return strings.ReplaceAll(what, "|", ", ")
	case simulation:
		return "within " + what + " seeds"
	case chaos:
		return "within " + what
	}
	return what
}
