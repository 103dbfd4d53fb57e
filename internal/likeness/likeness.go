// Failures are similar if their texts differ only in ids, numbers, times and quoted words.
package likeness

import (
	"crypto/sha256"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A change of Shape needs a new version, so that old and new groups stay separate.
const formVersion = "1"

// Fingerprint returns the same value for failures of one type that ended in the same way and have the same Shape.
func Fingerprint(businessType, endedBy, text string) (print [8]byte) {
	sum := sha256.Sum256([]byte(formVersion + "\x00" + businessType + "\x00" + endedBy + "\x00" + Shape(text)))
	copy(print[:], sum[:])
	return print
}

// MaxShape is the number of characters of a text that Shape reads. Later characters are usually data.
const MaxShape = 300

const (
	number = '#'
	quoted = "“…”"
)

var quotes = map[rune]rune{'"': '"', '`': '`', '“': '”', '‘': '’', '「': '」', '『': '』', '«': '»', '《': '》', '【': '】'}

// Shape returns a text without the parts that vary between similar failures. Words with a digit become #: numbers, ids,
// times and addresses. Quoted texts become “…”. Spaces and control characters become one space. A number after a word
// such as status or error is a code and stays: "status 503", "Error 1062", 错误码 40001.
func Shape(text string) string {
	s := shaper{rest: firstRunes(strings.ToValidUTF8(text, "\uFFFD"), MaxShape)}
	for s.rest != "" {
		s.consume()
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

type shaper struct {
	rest string
	out  []rune
	code bool
}

// codes lists words after which a number is a code, and stays in the Shape. For a Chinese word, codes has only the last
// character, because writeWord writes each Han character as a separate word.
var codes = map[string]bool{"status": true, "code": true, "error": true, "errno": true, "http": true, "exit": true, "码": true, "误": true, "态": true}

const longestCode = 5

func (s *shaper) last() rune {
	if len(s.out) == 0 {
		return 0
	}
	return s.out[len(s.out)-1]
}

// writeRune appends r to the shape. Two numbers with a separator between them, such as 12:30, become a single number.
// Repeated spaces become a single space.
func (s *shaper) writeRune(r rune) {
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

func (s *shaper) consume() {
	r, size := utf8.DecodeRuneInString(s.rest)
	switch {
	case quotes[r] != 0 && s.quotation(r, size):
	case r == '\'' && !wordRune(s.last()) && s.quotation(r, size):
	case wordRune(r):
		s.writeWord()
	case unicode.IsSpace(r), unicode.IsControl(r):
		s.writeRune(' ')
		s.rest = s.rest[size:]
	default:
		s.writeRune(r)
		s.rest = s.rest[size:]
		s.code = s.code && strings.ContainsRune(":=([#", r)
	}
}

// quotation replaces a quotation at the start of s.rest, and reports whether it did. If the text has no closing quote,
// the text was cut off. The quotation then extends to the end of the text. But an apostrophe without a second
// apostrophe begins no quotation.
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

// A quote after a backslash does not count, as in %q and JSON.
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

// writeWord writes each Han character as a separate word: 订单12345不存在 becomes 订单#不存在.
func (s *shaper) writeWord() {
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
		s.writeRune(number)
	} else {
		s.out = append(s.out, []rune(word)...)
	}
	s.code = codes[strings.ToLower(word)]
}

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

func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }

func hexID(word string) bool {
	return len(word) >= 8 && strings.Trim(strings.ToLower(word), "abcdef") == ""
}
