// Package scrub takes out of the texts of errors what does not belong before other people's eyes, wherever a driver or a
// service far away has put it: numbers of cards, tokens, passwords, and whose e-mail it was.
package scrub

import (
	"regexp"
	"strings"
)

// gone stands where something was.
const gone = "…"

// rules are applied in this order: an address with a password looks like an e-mail's.
var rules = []struct {
	of *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`(://[^\s/:@"']*):[^\s"']+@`), "${1}:" + gone + "@"},                              // scheme://user:password@host
	{regexp.MustCompile(`\b([A-Za-z0-9._%+-]+):(?:[^\s"'/@]|/[^\s"'/@])[^\s"']*@`), "${1}:" + gone + "@"}, // user:password@tcp(host)
	{regexp.MustCompile(`(?i)\b(passw(?:or)?d|pwd|secret|token|api[_-]?key|access[_-]?key|sign(?:ature)?)=[^\s&;,"']+`), "${1}=" + gone},
	{regexp.MustCompile(`(?i)"(passw(?:or)?d|pwd|secret|[a-z_-]*token|api[_-]?key|access[_-]?key|sign(?:ature)?)"\s*:\s*"(?:[^"\\]|\\.)*"?`), `"${1}":"` + gone + `"`},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/-]{16,}=*`), "${1} " + gone},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`), gone}, // a JWT
	{regexp.MustCompile(`[A-Za-z0-9._%+-]+@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)`), gone + "@${1}"},
}

// Text is a text without them, and the same again when it is scrubbed again.
func Text(text string) string {
	for _, rule := range rules {
		text = rule.of.ReplaceAllString(text, rule.to)
	}
	return cards(text)
}

// numbers are what may be a card's: 13 to 19 digits, in groups or not.
var numbers = regexp.MustCompile(`[0-9](?:[ -]?[0-9]){12,18}`)

// issued are how the numbers of cards begin, and how long those are: ids of 16 and more digits are common, and one in ten of them adds up as a card's does.
var issued = regexp.MustCompile(`^(?:4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:2[2-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|35\d{14}|6(?:011|4[4-9]\d|5\d\d)\d{12}|62\d{14,17})$`)

// cards leaves of a card's number its last four digits.
func cards(text string) string {
	var b strings.Builder
	from := 0
	for _, at := range numbers.FindAllStringIndex(text, -1) {
		digits := strings.NewReplacer(" ", "", "-", "").Replace(text[at[0]:at[1]])
		if joined(text, at[0]-1) || joined(text, at[1]) || !issued.MatchString(digits) || !luhn(digits) {
			continue
		}
		b.WriteString(text[from:at[0]] + gone + digits[len(digits)-4:])
		from = at[1]
	}
	if from == 0 {
		return text
	}
	return b.String() + text[from:]
}

// joined reports whether a number goes on there, or is part of a word.
func joined(text string, at int) bool {
	if at < 0 || at >= len(text) {
		return false
	}
	c := text[at]
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

// luhn reports whether digits add up as those of a card do.
func luhn(digits string) bool {
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}
