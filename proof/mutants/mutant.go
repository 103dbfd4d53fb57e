package main

import "strings"

type mutant struct {
	name    string
	breaks  string
	what    string
	edits   []edit
	sees    selection
	inModel string // switch that breaks the model in the same way; see proof/model
}

type edit struct {
	in   string
	from string
	to   string
}

// In a file that is not Go, from is plain text, and any white space matches any other.
func (e edit) isText() bool { return strings.Contains(e.in, "/") }

type selection map[layer]string

func tests(names ...string) selection { return selection{unit: strings.Join(names, "|")} }

func (s selection) with(l layer, what string) selection {
	s[l] = what
	return s
}
