package main

import "strings"

// mutant is a known bug of the library: the edits that insert it, the promise that it breaks, and the tests that find
// it.
type mutant struct {
	name    string
	breaks  string // number of the promise in docs/reference/guarantees.md
	what    string // what goes wrong, in one sentence
	edits   []edit
	sees    selection // tests that must fail, by layer
	inModel string    // switch that breaks the model in the same way; see proof/model
}

// edit replaces code inside one declaration. It finds the declaration by its name, in any file.
type edit struct {
	in   string // name of a declaration, as tree.declared finds it; for a file that is not Go, the end of its path
	from string // pattern that occurs exactly once
	to   string // replacement; a name of the pattern stands for the code that it matched
}

// isText reports whether the edit changes a file that is not Go. For such a file, the field from holds plain text. Any
// white space in it matches any other white space.
func (e edit) isText() bool { return strings.Contains(e.in, "/") }

// selection says which tests of each layer must find the mutant. The form of the text depends on the layer.
type selection map[layer]string

// tests returns a selection with these unit tests.
func tests(names ...string) selection { return selection{unit: strings.Join(names, "|")} }

// with adds the tests of one more layer to s and returns s.
func (s selection) with(l layer, what string) selection {
	s[l] = what
	return s
}
