package txwatch

import "strings"

// nextWord returns the first word of s and what follows it; empty when s begins with anything else.
func nextWord(s string) (word, rest string) {
	s, ok := skipBlank(s)
	if !ok {
		return "", s
	}
	end := 0
	for end < len(s) && isWordByte(s[end]) {
		end++
	}
	return s[:end], s[end:]
}

func isWordByte(b byte) bool {
	return 'a' <= b|0x20 && b|0x20 <= 'z' || '0' <= b && b <= '9' || b == '_' || b == '$'
}

const blanks = " \t\r\n\f\v"

// skipBlank returns s from its first byte that is neither space nor comment. It is not ok with a comment
// whose content the server executes.
func skipBlank(s string) (rest string, ok bool) {
	for {
		s = strings.TrimLeft(s, blanks)
		switch {
		case strings.HasPrefix(s, "/*!"), strings.HasPrefix(s, "/*M!"):
			return s, false
		case strings.HasPrefix(s, "/*"):
			_, s, ok = strings.Cut(s, "*/")
		case strings.HasPrefix(s, "#"), strings.HasPrefix(s, "--") && (len(s) == 2 || s[2] <= ' '):
			_, s, ok = strings.Cut(s, "\n")
		default:
			return s, true
		}
		if !ok {
			return "", true // all comment
		}
	}
}

// several reports whether anything follows a semicolon. The first one may stand in a literal, where what looks
// like a comment is none, so only a comment with no further semicolon is let pass.
func several(s string) bool {
	_, after, _ := strings.Cut(s, ";")
	after = strings.TrimLeft(after, blanks+";")
	rest, ok := skipBlank(after)
	return !ok || rest != "" || strings.Contains(after, ";")
}
