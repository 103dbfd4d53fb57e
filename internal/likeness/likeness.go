// Package likeness tells which failures are alike: those whose texts differ only in ids, numbers, times and quoted words.
package likeness

import (
	"crypto/sha256"
	"strings"
	"unicode"
	"unicode/utf8"
)

// formVersion is part of each fingerprint: another form makes other groups, and none that is of both.
const formVersion = "1"

// Fingerprint is the same for failures of a type that ended alike and have one shape.
func Fingerprint(businessType, endedBy, text string) (print [8]byte) {
	sum := sha256.Sum256([]byte(formVersion + "\x00" + businessType + "\x00" + endedBy + "\x00" + Shape(text)))
	copy(print[:], sum[:])
	return print
}

// MaxShape is how much of a text its shape is made of, in characters: what comes later is data as a rule.
const MaxShape = 300

// The places of what differs.
const (
	number = '#'
	quoted = "“…”"
)

// quotes are what opens a quotation, and what ends it.
var quotes = map[rune]rune{'"': '"', '`': '`', '“': '”', '‘': '’', '「': '」', '『': '』', '«': '»', '《': '》', '【': '】'}

// Shape is a text without what differs from one failure to its like: words with a digit in them, be they numbers, ids,
// times or addresses, become #, what is quoted becomes “…”, and spaces and control characters one space. A number that a
// word before it makes a code stays: "status 503", "Error 1062", 错误码 40001.
func Shape(text string) string {
	s := shaper{rest: firstRunes(strings.ToValidUTF8(text, "\uFFFD"), MaxShape)}
	for s.rest != "" {
		s.next()
	}
	return strings.TrimSpace(string(s.out))
}

func firstRunes(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// shaper goes through a text once.
type shaper struct {
	rest string
	out  []rune
	code bool // the last word says that a number behind it is a code
}

// codes are the words, in lower case, behind which a number is a code, and the Han characters that such words end in.
var codes = map[string]bool{"status": true, "code": true, "error": true, "errno": true, "http": true, "exit": true, "码": true, "误": true, "态": true}

// longestCode is how many digits a code has at most.
const longestCode = 5

func (s *shaper) last() rune {
	if len(s.out) == 0 {
		return 0
	}
	return s.out[len(s.out)-1]
}

// write leaves out a second space, and makes one number of those that one character joins, as in a time.
func (s *shaper) write(r rune) {
	n := len(s.out)
	switch {
	case (r == ' ' || r == number) && s.last() == r:
		return
	case r == number && n > 1 && s.out[n-2] == number && strings.ContainsRune(".:-,/", s.out[n-1]):
		s.out = s.out[:n-1]
		return
	}
	s.out = append(s.out, r)
}

// next takes a quotation, a word, or one character.
func (s *shaper) next() {
	r, size := utf8.DecodeRuneInString(s.rest)
	switch {
	case quotes[r] != 0 && s.quotation(r, size):
	case r == '\'' && !wordRune(s.last()) && s.quotation(r, size):
	case wordRune(r):
		s.word()
	case unicode.IsSpace(r), unicode.IsControl(r):
		s.write(' ')
		s.rest = s.rest[size:]
	default:
		s.write(r)
		s.rest = s.rest[size:]
		s.code = s.code && strings.ContainsRune(":=([#", r)
	}
}

// quotation leaves out what is quoted. One that does not end was cut off, and goes on to the end; but an apostrophe opens none then.
func (s *shaper) quotation(open rune, size int) bool {
	end := quotes[open]
	if open == '\'' {
		end = '\''
	}
	length := quotationEnd(s.rest[size:], end)
	if length < 0 && open == '\'' {
		return false
	}
	s.out = append(s.out, []rune(quoted)...)
	if length < 0 {
		s.rest = ""
	} else {
		s.rest = s.rest[size+length+utf8.RuneLen(end):]
	}
	return true
}

// quotationEnd is where a quotation ends, as %q and JSON write it: not behind a backslash. -1: nowhere.
func quotationEnd(text string, end rune) int {
	escaped := false
	for i, r := range text {
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
		case r == end:
			return i
		}
	}
	return -1
}

// word writes a word, or # where it has a digit. Han characters are words of their own: 订单12345不存在 is 订单#不存在.
func (s *shaper) word() {
	end, digits := uuid(s.rest), false
	for i, r := range s.rest {
		if i < end {
			continue
		}
		if !wordRune(r) || unicode.Is(unicode.Han, r) && i > 0 {
			break
		}
		digits = digits || unicode.IsDigit(r)
		if end = i + utf8.RuneLen(r); unicode.Is(unicode.Han, r) {
			break
		}
	}
	word := s.rest[:end]
	digits = digits || strings.Contains(word, "-")
	s.rest = s.rest[end:]
	if isCode := s.code && len(word) <= longestCode && strings.Trim(word, "0123456789") == ""; (digits || hexID(word)) && !isCode {
		s.write(number)
	} else {
		s.out = append(s.out, []rune(word)...)
	}
	s.code = codes[strings.ToLower(word)]
}

// uuid is the length of one that text begins with, or 0.
func uuid(text string) int {
	const form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	if len(text) < len(form) {
		return 0
	}
	for i := range len(form) {
		if is := text[i]; form[i] == '-' && is != '-' || form[i] == 'x' && !strings.ContainsRune("0123456789abcdefABCDEF", rune(is)) {
			return 0
		}
	}
	return len(form)
}

// wordRune reports whether r is of a word: letters and digits, and _ within names.
func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }

// hexID reports whether a word without digits is of an id all the same, as a part of a UUID may be: "deadbeef".
func hexID(word string) bool {
	return len(word) >= 8 && strings.Trim(strings.ToLower(word), "abcdef") == ""
}
