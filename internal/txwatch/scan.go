package txwatch

import "strings"

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

// skipBlank removes spaces and comments. ok is false if the server executes the content of a comment.
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
			return "", true
		}
	}
}

// hasSeveral reports whether s may hold several statements. It returns true if something follows the first semicolon,
// except for a single comment at the end. But hasSeveral does not know whether the semicolon is inside a literal. For
// example, in SELECT ';# '; DROP TABLE t, the text after the first semicolon looks like a comment, but contains the
// next statement. So hasSeveral also returns true if another semicolon follows.
func hasSeveral(s string) bool {
	_, after, _ := strings.Cut(s, ";")
	after = strings.TrimLeft(after, blanks+";")
	rest, ok := skipBlank(after)
	return !ok || rest != "" || strings.Contains(after, ";")
}
