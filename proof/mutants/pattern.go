package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A pattern is Go source with names that match code:
//
//	$x   matches one identifier, or one whole expression
//	$$x  matches as few tokens as possible, perhaps none, with balanced brackets
//
// If a name occurs twice in a pattern, both occurrences must match the same tokens. Patterns are compared token by
// token. White space, line breaks, comments and trailing commas do not matter.

// No name in this repository begins with the letter Ⱦ.
const (
	oneMark = "Ⱦ"
	runMark = "ȾȾ"
)

var metavariable = regexp.MustCompile(`\$\$?[A-Za-z_]\w*`)

type lexeme struct {
	token      token.Token
	text       string
	start, end int
}

func (l lexeme) equals(other lexeme) bool { return l.token == other.token && l.text == other.text }

func (l lexeme) isRun() bool { return strings.HasPrefix(l.text, runMark) }
func (l lexeme) isOne() bool { return strings.HasPrefix(l.text, oneMark) && !l.isRun() }

func scanPattern(pattern string) ([]lexeme, error) {
	marked := strings.ReplaceAll(pattern, "$", oneMark)
	tokens, err := scanTokens(marked)
	for len(tokens) > 0 && tokens[0].token == token.SEMICOLON {
		tokens = tokens[1:]
	}
	return tokens, err
}

// scanTokens leaves out a semicolon or comma before a closing bracket, and a semicolon at the end. They do not
// change the meaning.
func scanTokens(source string) ([]lexeme, error) {
	var s scanner.Scanner
	var failed error
	file := token.NewFileSet().AddFile("", -1, len(source))
	s.Init(file, []byte(source), func(_ token.Position, message string) { failed = fmt.Errorf("%s in %q", message, source) }, 0)
	var tokens []lexeme
	for {
		pos, kind, text := s.Scan()
		if len(tokens) > 0 && closes(kind) {
			if last := tokens[len(tokens)-1].token; last == token.SEMICOLON || last == token.COMMA && kind != token.EOF {
				tokens = tokens[:len(tokens)-1]
			}
		}
		if kind == token.EOF {
			return tokens, failed
		}
		if text == "" {
			text = kind.String()
		}
		start := file.Offset(pos)
		end := start + len(text)
		if kind == token.SEMICOLON {
			text = ";"
		}
		tokens = append(tokens, lexeme{kind, text, start, min(end, len(source))})
	}
}

func closes(t token.Token) bool {
	return t == token.EOF || t == token.RPAREN || t == token.RBRACE || t == token.RBRACK
}

type code struct {
	source string
	tokens []lexeme
	// ends tells which expressions begin at each token. The key is the index of a token. The value holds an index for each
	// expression that begins there: the index after the last token of the expression. The longest expression comes first.
	ends map[int][]int
}

func newCode(file *token.File, source string, declaration ast.Node) (code, error) {
	from, to := file.Offset(declaration.Pos()), file.Offset(declaration.End())
	tokens, err := scanTokens(source[from:to])
	if err != nil {
		return code{}, err
	}
	starts, ends := make(map[int]int), make(map[int]int)
	for i := range tokens {
		tokens[i].start += from
		tokens[i].end += from
		starts[tokens[i].start], ends[tokens[i].end] = i, i+1
	}
	c := code{source: source, tokens: tokens, ends: make(map[int][]int)}
	ast.Inspect(declaration, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			if _, pair := e.(*ast.KeyValueExpr); !pair {
				i, begins := starts[file.Offset(e.Pos())]
				end, known := ends[file.Offset(e.End())]
				if begins && known {
					c.ends[i] = append(c.ends[i], end)
				}
			}
		}
		return true
	})
	for i, list := range c.ends {
		slices.Sort(list)
		list = slices.Compact(list)
		slices.Reverse(list)
		c.ends[i] = list
	}
	return c, nil
}

type match struct {
	from, to int
	names    map[string]span
}

type span struct{ from, to int }

// If the pattern begins with a name, several matches may end at the same token. In this case, find returns only the
// longest of them.
func (c code) find(pattern []lexeme) []match {
	var found []match
	for i := range c.tokens {
		if len(pattern) > 0 && pattern[0].isOne() && c.afterDot(i) {
			continue
		}
		names := make(map[string]span)
		end, ok := c.fits(pattern, i, names)
		if !ok {
			continue
		}
		if n := len(found); n > 0 && pattern[0].isOne() && found[n-1].to == end {
			continue
		}
		found = append(found, match{i, end, names})
	}
	return found
}

func (c code) afterDot(i int) bool { return i > 0 && c.tokens[i-1].token == token.PERIOD }

// fits reports whether the pattern matches the tokens that begin at an index, the parameter at. The result end is the
// index after the match. For each name in the pattern, fits stores the matched tokens in the map names.
func (c code) fits(pattern []lexeme, at int, names map[string]span) (end int, ok bool) {
	if len(pattern) == 0 {
		return at, true
	}
	first := pattern[0]
	if !first.isOne() && !first.isRun() {
		if at < len(c.tokens) && c.tokens[at].equals(first) {
			return c.fits(pattern[1:], at+1, names)
		}
		return 0, false
	}
	for _, candidate := range c.candidates(first, at) {
		before, again := names[first.text]
		if again && !c.same(before, span{at, candidate}) {
			continue
		}
		tried := maps.Clone(names)
		tried[first.text] = span{at, candidate}
		if end, ok := c.fits(pattern[1:], candidate, tried); ok {
			maps.Copy(names, tried)
			return end, true
		}
	}
	return 0, false
}

func (c code) candidates(name lexeme, at int) []int {
	if name.isRun() {
		return c.runs(at)
	}
	if at >= len(c.tokens) {
		return nil
	}
	if c.tokens[at].token == token.IDENT && (c.afterDot(at) || len(c.ends[at]) == 0) {
		return []int{at + 1}
	}
	return c.ends[at]
}

func (c code) runs(at int) []int {
	ends := []int{at}
	depth := 0
	for i := at; i < len(c.tokens); i++ {
		switch c.tokens[i].token {
		case token.LPAREN, token.LBRACE, token.LBRACK:
			depth++
		case token.RPAREN, token.RBRACE, token.RBRACK:
			depth--
		}
		if depth < 0 {
			break
		}
		if depth == 0 {
			ends = append(ends, i+1)
		}
	}
	return ends
}

func (c code) same(a, b span) bool {
	return slices.EqualFunc(c.tokens[a.from:a.to], c.tokens[b.from:b.to], lexeme.equals)
}

func (c code) text(s span) string {
	if s.from == s.to {
		return ""
	}
	return c.source[c.tokens[s.from].start:c.tokens[s.to-1].end]
}

func (c code) replace(from, to string) (string, error) {
	pattern, err := scanPattern(from)
	if err != nil {
		return "", err
	}
	if len(pattern) == 0 {
		return "", errors.New("the pattern is empty")
	}
	if pattern[0].isRun() || pattern[len(pattern)-1].isRun() {
		return "", fmt.Errorf("a run at an end of a pattern matches nothing; $x matches a whole expression:\n%s", from)
	}
	found := c.find(pattern)
	if len(found) != 1 {
		return "", fmt.Errorf("the pattern occurs %d times, want once:\n%s", len(found), from)
	}
	m := found[0]
	var unknown string
	text := metavariable.ReplaceAllStringFunc(to, func(name string) string {
		s, known := m.names[strings.ReplaceAll(name, "$", oneMark)]
		if !known {
			unknown = name
		}
		return c.text(s)
	})
	if unknown != "" {
		return "", fmt.Errorf("the replacement uses %s, which the pattern does not define:\n%s", unknown, from)
	}
	return c.source[:c.tokens[m.from].start] + text + c.source[c.tokens[m.to-1].end:], nil
}
