package compensator

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

// skipBlank returns s from its first byte that is neither space nor comment. It is not ok with a comment
// whose content the server executes.
func skipBlank(s string) (rest string, ok bool) {
	for {
		s = strings.TrimLeft(s, " \t\r\n\f\v")
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

// several reports whether anything follows a semicolon.
func several(s string) bool {
	for {
		_, after, found := strings.Cut(s, ";")
		if !found {
			return false
		}
		rest, ok := skipBlank(after)
		if !ok || rest != "" && rest[0] != ';' {
			return true
		}
		s = rest
	}
}
