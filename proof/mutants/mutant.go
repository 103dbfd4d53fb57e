package main

import "strings"

type mutant struct {
	name    string
	breaks  string
	what    string
	edits   []edit
	sees    selection
	inModel string // switch that puts the bug of this mutant into the model; see proof/model
}

type edit struct {
	in   string
	from string
	to   string
}

// isText reports whether the edit changes a file that is not Go. Such an edit replaces plain text (edit.from) instead
// of a pattern. Any white space in edit.from matches any white space of the file.
func (e edit) isText() bool { return strings.Contains(e.in, "/") }

type selection map[layer]string

func tests(names ...string) selection { return selection{unit: strings.Join(names, "|")} }

func (s selection) with(l layer, what string) selection {
	s[l] = what
	return s
}
