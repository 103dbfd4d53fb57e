package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func codeOf(t *testing.T, name, source string) code {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, "x.go", source, parser.SkipObjectResolution)
	require.NoError(t, err)
	tree := tree{byName: make(map[string][]declaration)}
	tree.add(files, parsed, "x.go", source)
	d, err := tree.declared(name)
	require.NoError(t, err)
	c, err := newCode(d.tokens, d.source, d.node)
	require.NoError(t, err)
	return c
}

func TestPatternFindsTheSameCodeAfterARename(t *testing.T) {
	const before = `package p
func (s *Store) settle(row *Row) error {
	if row.Version != s.seen[row.ID].version { // lost
		return errLost
	}
	return s.write(row, row.Version+1,
		s.now(),
	)
}
`
	const after = `package other
func (s *Store) settle(r Entry) error {
	if r.Number !=
		seen(r) {
		return errLost
	}
	return s.put(r, r.Number+1, s.now())
}
`
	for from, to := range map[string]string{
		"if $row.$version != $seen {":                          "if false {",
		"if $version != $seen { $$body }":                      "",
		"return $write($row, $version+1, $now())":              "return $write($row, $version, $now())",
		"return $write($row,\n\t$version + 1, $s.now(),\n)":    "return nil",
		"return $lost }\nreturn $write($row, $number, $now())": "return nil }\nreturn nil",
	} {
		for _, source := range []string{before, after} {
			got, err := codeOf(t, "Store.settle", source).replace(from, to)
			if assert.NoError(t, err, source) {
				_, err = parser.ParseFile(token.NewFileSet(), "x.go", got, 0)
				assert.NoErrorf(t, err, "%s\n%s", from, got)
				assert.NotEqual(t, source, got)
			}
		}
	}
}

func TestReplacementHasWhatThePatternMatched(t *testing.T) {
	c := codeOf(t, "f", "package p\nfunc f() int { return g(a.b[1], c.d(e)) + 1 }")
	got, err := c.replace("return $g($x, $y) + 1", "return $g($y, $x)")
	require.NoError(t, err)
	require.Equal(t, "package p\nfunc f() int { return g(c.d(e), a.b[1]) }", got)
	got, err = c.replace("$g($$all) + 1", "$g()")
	require.NoError(t, err)
	require.Equal(t, "package p\nfunc f() int { return g() }", got)
}

func TestPatternThatDoesNotStandThereExactlyOnceIsRefused(t *testing.T) {
	c := codeOf(t, "f", "package p\nfunc f() { if a { b() }; if c.d { b() } }")
	for _, from := range []string{"", "b()", "if $x { $y() }", "if $x.$x { b() }", "return", "if $x { c() }", "case $x", "if a $$rest", "$$all b()"} {
		_, err := c.replace(from, "panic(1)")
		require.Error(t, err, from)
	}
	_, err := c.replace("if $x.$y { b() }", "")
	require.NoError(t, err)
	_, err = c.replace("if $x.$y { b() }", "$z()")
	require.ErrorContains(t, err, "$z")
}

func TestNameThatStandsTwiceMatchesTheSameTokens(t *testing.T) {
	c := codeOf(t, "f", "package p\nfunc f() bool { return a.b == c.d || a.b == a.b }")
	got, err := c.replace("$x == $x", "true")
	require.NoError(t, err)
	require.Equal(t, "package p\nfunc f() bool { return a.b == c.d || true }", got)
}

func writeTree(t *testing.T, files map[string]string) *tree {
	root := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	tree, err := readTree(root)
	require.NoError(t, err)
	return tree
}

func TestDeclarationIsFoundWhereverItStands(t *testing.T) {
	tree := writeTree(t, map[string]string{
		"a/one.go":         "package a\ntype T struct{}\nfunc (t *T) Do() { x() }\nfunc both() { x() }\nconst limit = 3",
		"b/go.mod":         "module b",
		"b/deep/two.go":    "package b\nfunc (s Set[K]) Do() { y() }\nfunc both() { y() }\nfunc helper() { y() }",
		"b/deep/x_test.go": "package b\nfunc helper() {}\nfunc onlyHere() {}\nfunc TestB(t *testing.T) {}",
		"testdata/no.go":   "package no\nfunc unseen() {}",
		"b/lua/s.lua":      "if a and\n   b then",
	})
	for name, file := range map[string]string{
		"T.Do": "a/one.go", "a.T.Do": "a/one.go", "Set.Do": "b/deep/two.go", "b.both": "b/deep/two.go",
		"limit": "a/one.go", "T": "a/one.go", "helper": "b/deep/two.go", "onlyHere": "b/deep/x_test.go",
	} {
		d, err := tree.declared(name)
		if assert.NoError(t, err) {
			assert.Equal(t, file, d.file, name)
		}
	}
	for _, name := range []string{"both", "Do", "unseen", "gone", "c.T.Do"} {
		_, err := tree.declared(name)
		assert.Error(t, err, name)
	}
	changed, err := tree.changed([]edit{
		{"T.Do", "x()", "y()"},
		{"a.both", "x()", "z()"},
		{"lua/s.lua", "a and b", "b"},
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"a/one.go":    "package a\ntype T struct{}\nfunc (t *T) Do() { y() }\nfunc both() { z() }\nconst limit = 3",
		"b/lua/s.lua": "if b then",
	}, changed)
	for _, e := range []edit{{"lua/s.lua", "c", "d"}, {"lua/s.lua", "", "d"}, {"lua/t.lua", "a", "b"}, {"gone", "x()", ""}} {
		_, err := tree.changed([]edit{e})
		require.Error(t, err, e.in)
	}
	commands, err := unit.commands(tree, "TestB/x")
	require.NoError(t, err)
	require.Equal(t, []command{{"b", []string{"-timeout=10m", "-run=^TestB$/^x$", "./deep"}}}, commands)
}
