package main

import (
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"strings"
)

type names map[string]bool

var plainWords = map[string]bool{"Redis": true, "JSON": true, "MySQL": true, "MariaDB": true, "RabbitMQ": true, "OpenTelemetry": true, "KiB": true, "MiB": true, "All": true}

func (s *source) exported() names {
	found := make(names)
	add := func(id *ast.Ident) {
		if id.IsExported() {
			found[id.Name] = true
		}
	}
	for _, file := range s.files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				add(f.Name)
			}
		}
	}
	s.specs(token.TYPE, func(spec ast.Spec, _ string) { add(spec.(*ast.TypeSpec).Name) })
	for _, kind := range []token.Token{token.VAR, token.CONST} {
		s.specs(kind, func(spec ast.Spec, _ string) {
			for _, id := range spec.(*ast.ValueSpec).Names {
				add(id)
			}
		})
	}
	return found
}

func (n names) with(fields *ast.StructType) names {
	all := maps.Clone(n)
	for _, field := range fields.Fields.List {
		for _, id := range field.Names {
			if id.IsExported() {
				all[id.Name] = true
			}
		}
	}
	return all
}

var (
	// codeLike matches quoted and marked texts, and everything that may be code.
	codeLike = regexp.MustCompile("\"[^\"]*\"|`[^`]*`" +
		`|\bdocs/[\w/-]+\.md\b` +
		`|\*?\b[a-z]\w*(?:/\w+)*\.[A-Z]\w*(?:\.[A-Z]\w*)*(?:\([^()]*\))?` +
		`|\*?\b[A-Z]\w*(?:\.[A-Z]\w*)+(?:\([^()]*\))?` +
		`|\b[a-z]\w*(?:\.[a-z]\w*)+(?:/\w+)*` +
		`|\b[a-z]\w*_\w+\b` +
		`|\b[A-Z][A-Za-z]*\([^()]*\)` +
		`|\*?\b[A-Z]\w*\b` +
		`|\b(?:nil|ctx|tx|msg)\b`)
	inPackage  = regexp.MustCompile(`\b([Pp]ackage|[Mm]odule) ([a-z]\w+)\b`)
	camelCase  = regexp.MustCompile(`^[A-Z][a-z]+[A-Z]`)
	beforeVerb = regexp.MustCompile(`^(?:,? (?:if|and|or|is|are|was|has|have|may|must|can|never|also|means)\b|, [A-Z]| [a-z]+[^s\W]s\b)`)
	beforeNoun = regexp.MustCompile(`^ (?:entries|messages|rows|attempts|values|times|ids)\b`)
)

// code puts backticks around the identifiers of the API in one paragraph of a comment. The argument subject is the
// identifier that the comment describes. If the paragraph begins with this identifier, code marks the identifier even
// if no verb follows.
//
// Inside a sentence, a capitalized word is an identifier if the word is in n. The first word of each sentence is
// capitalized, so the first word is an identifier only if a verb follows. "Types says" begins with an identifier, and
// "Time that" does not.
func (n names) code(paragraph, subject string) string {
	var out strings.Builder
	paragraph = inPackage.ReplaceAllString(paragraph, "$1 `$2`")
	at := 0
	for _, m := range codeLike.FindAllStringIndex(paragraph, -1) {
		word, before, after := paragraph[m[0]:m[1]], paragraph[:m[0]], paragraph[m[1]:]
		out.WriteString(escaped(paragraph[at:m[0]]))
		at = m[1]
		switch {
		case strings.HasPrefix(word, "`"):
			out.WriteString(word)
		case strings.HasPrefix(word, `"`):
			out.WriteString(escaped(word))
		case n.isCode(word, before, after, subject):
			out.WriteString("`" + word + "`")
		default:
			out.WriteString(escaped(word))
		}
	}
	out.WriteString(escaped(paragraph[at:]))
	return out.String()
}

func (n names) isCode(word, before, after, subject string) bool {
	name := strings.TrimPrefix(word, "*")
	switch {
	case plainWords[name]:
		return false
	case strings.ContainsAny(name, "._/(") || camelCase.MatchString(name) || name == strings.ToLower(name):
		return true
	case !n[name]:
		return false
	case !beginsSentence(before):
		return true
	}
	return before == "" && name == subject || beforeVerb.MatchString(after) && !beforeNoun.MatchString(after)
}

func beginsSentence(before string) bool {
	before = strings.TrimRight(before, " ")
	return before == "" || strings.HasSuffix(before, ".") || strings.HasSuffix(before, ":")
}

func escaped(text string) string { return special.ReplaceAllString(text, `\$0`) }
