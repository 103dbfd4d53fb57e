package main

import "strings"

// mutant is a known bug of the library: how to put it in, which promise it breaks, and which tests see that.
type mutant struct {
	name    string
	breaks  string // the promise, as docs/guarantees.md numbers it
	what    string // what goes wrong, in one sentence
	edits   []edit
	sees    selection // what goes red, by layer
	inModel string    // the switch that breaks the model of the protocol the same way; see proof/model
}

// edit replaces code inside one declaration of the tree, wherever that stands.
type edit struct {
	in   string // a declaration, as tree.declared finds it; or the end of the path of a file that is not Go
	from string // a pattern that stands there exactly once
	to   string // what stands there then; names of the pattern stand for what they matched
}

// isText reports whether the edit is of a file that is not Go. There from is text, in which any white space is the same.
func (e edit) isText() bool { return strings.Contains(e.in, "/") }

// selection says, by layer, which of its tests are meant; see layer for what the text stands for.
type selection map[layer]string

// tests names tests of any module.
func tests(names ...string) selection { return selection{unit: strings.Join(names, "|")} }

// and adds another layer's part.
func (s selection) and(l layer, what string) selection {
	s[l] = what
	return s
}
