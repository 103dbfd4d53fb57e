package main

import "strings"

// mutant is a known bug of the library: the edits that insert it, the promise that it breaks, and the tests that see
// it.
type mutant struct {
	name    string
	breaks  string // number of the promise in docs/reference/guarantees.md
	what    string // what goes wrong, in one sentence
	edits   []edit
	sees    selection // tests that must fail, by layer
	inModel string    // switch that breaks the model in the same way; see proof/model
}

// edit replaces code inside one declaration. It finds the declaration by name, whatever file it is in.
type edit struct {
	in   string // name of a declaration, as tree.declared finds it; for a file that is not Go, the end of its path
	from string // pattern that occurs exactly once
	to   string // replacement; a name of the pattern stands for the code that it matched
}

// isText reports whether the edit changes a file that is not Go. For such a file, the field from holds plain text, in
// which any white space matches any other white space.
func (e edit) isText() bool { return strings.Contains(e.in, "/") }

// selection names the tests of each layer. The form of the text depends on the layer.
type selection map[layer]string

// tests returns the selection of these unit tests.
func tests(names ...string) selection { return selection{unit: strings.Join(names, "|")} }

// The method and returns s with the selection of one more layer.
func (s selection) and(l layer, what string) selection {
	s[l] = what
	return s
}
