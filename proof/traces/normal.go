package main

import (
	"regexp"
	"strings"
)

// normals keep small numbers, which are states, or ids that begin at 1 in each scenario.
var normals = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\s+`), " "},
	{regexp.MustCompile(`compensator_[a-z0-9]{12}`), "DATABASE"},
	{regexp.MustCompile(`test[a-z2-7]{12}`), "PREFIX"},
	{regexp.MustCompile(`\b[0-9a-f]{40}\b`), "SHA"},
	{regexp.MustCompile(`\b[A-Z2-7]{26}\b`), "RANDOM"},
	{regexp.MustCompile(`(?i)\b(?:x'[0-9a-f]*'|0x[0-9a-f]+)`), "BYTES"},
	{regexp.MustCompile(`'[A-Za-z0-9+/_=-]{16,}'`), "'TOKEN'"},
	{regexp.MustCompile(`\b\d+\.\d+\b`), "TIME"},
	{regexp.MustCompile(`\b\d{6,}\b`), "TIME"},
}

func normal(text string) string {
	for _, n := range normals {
		text = n.what.ReplaceAllString(text, n.with)
	}
	return strings.TrimSpace(text)
}
