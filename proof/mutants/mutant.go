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

// For such a file, the field from holds plain text. Any white space in it matches any other white space.
func (e edit) isText() bool { return strings.Contains(e.in, "/") }

// The form of the text depends on the layer.
type selection map[layer]string

func tests(names ...string) selection { return selection{unit: strings.Join(names, "|")} }

func (s selection) with(l layer, what string) selection {
	s[l] = what
	return s
}
