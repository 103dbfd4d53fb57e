package txwatch

import "strings"

// nextWord returns the first word of s and the text after it. The word is empty if s does not begin with a word.
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

// skipBlank removes spaces and comments from the beginning of s. ok is false if s has a comment whose content the
// server executes.
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
			return "", true // s has only comments.
		}
	}
}

// hasSeveral reports whether s may hold more than one statement. It looks for text after the first semicolon.
// That semicolon may be inside a literal, and text that then looks like a comment may be content. So a comment after
// the semicolon is ignored only if no further semicolon follows.
func hasSeveral(s string) bool {
	_, after, _ := strings.Cut(s, ";")
	after = strings.TrimLeft(after, blanks+";")
	rest, ok := skipBlank(after)
	return !ok || rest != "" || strings.Contains(after, ";")
}
