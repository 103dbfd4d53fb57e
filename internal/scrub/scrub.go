// Package scrub takes out of the texts of errors what does not belong before other people's eyes, wherever a driver or a
// service far away has put it: numbers of cards, tokens, passwords, and whose e-mail it was.
package scrub

import "regexp"

// gone stands where something was.
const gone = "…"

// secret is the name of what nobody is to read, or the end of it: token, accessToken, client_secret, MYSQL_PWD. "sign" is one only as a word.
const secret = `[a-z0-9_-]*(?:passw(?:or)?d|pwd|secret|token|(?:api|access|secret|private)[_-]?key|signature)|(?:[a-z0-9_-]*[_-])?sign`

// quoted is a text in quotes, in quotes that are quoted, or one that was cut off.
const quoted = `"(?:[^"\\]|\\.)*"?|\\"(?:[^"\\]|\\[^"\\]|\\\\\\?.)*(?:\\")?`

// rules are applied in this order: an address with a password looks like an e-mail's.
var rules = []struct {
	of *regexp.Regexp
	to string
}{
	// scheme://user:password@host; digits up to a slash are a port, and what follows is a path
	{regexp.MustCompile(`(://[^\s/:@"']*):(?:[0-9]*[^\s"'/0-9][^\s"']*|[0-9]+)@`), "${1}:" + gone + "@"},
	// user:password@tcp(host), which does not stand behind //
	{regexp.MustCompile(`((?:^/?|[^/]/|[^A-Za-z0-9._%+/-])[A-Za-z0-9._%+-]+):(?:[^\s"'/@]|/[^\s"'/@])[^\s"']*@`), "${1}:" + gone + "@"},
	{regexp.MustCompile(`(?is)\b(` + secret + `)=(?:` + quoted + `|'[^']*'?|[^\s&;,"']+)`), "${1}=" + gone},
	{regexp.MustCompile(`(?is)(\\?")(` + secret + `)\\?"\s*:\s*(?:` + quoted + `|-?[0-9][0-9.e+-]*)`), "${1}${2}${1}:${1}" + gone + "${1}"},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/-]{16,}=*`), "${1} " + gone},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`), gone}, // a JWT
	{regexp.MustCompile(`[A-Za-z0-9._%+-]+@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)`), gone + "@${1}"},
}

// Text is a text without them, and the same again when it is scrubbed again.
func Text(text string) string {
	for {
		was := text
		for _, rule := range rules {
			text = rule.of.ReplaceAllString(text, rule.to)
		}
		if text = cards(text); text == was { // what a rule takes out may make way for another
			return text
		}
	}
}

// issued are how the numbers of cards begin, and how long those are: ids of 16 and more digits are common, and one in ten of them adds up as a card's does.
var issued = regexp.MustCompile(`^(?:4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:2[2-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|35\d{14}|6(?:011|4[4-9]\d|5\d\d)\d{12}|62\d{14,17})$`)

// cards leaves of a card's number its last four digits, whatever other numbers stand beside it.
func cards(text string) string {
	for at := 0; at < len(text); at++ {
		if end, last := card(text, at); end > 0 {
			text = text[:at] + gone + last + text[end:]
			at += len(gone) - 1 // the last four may begin another
		}
	}
	return text
}

// card finds the number that begins there, of 13 to 19 digits in groups or not: where it ends, and its last four digits.
func card(text string, at int) (end int, last string) {
	if joined(text, at-1) {
		return 0, ""
	}
	var digits []byte
	for i := at; i < len(text) && len(digits) < 19; i++ {
		if c := text[i]; c >= '0' && c <= '9' {
			digits = append(digits, c)
			if len(digits) >= 13 && !joined(text, i+1) && issued.Match(digits) && luhn(digits) {
				end, last = i+1, string(digits[len(digits)-4:])
			}
		} else if c != ' ' && c != '-' || len(digits) == 0 || !joined(text, i+1) {
			break
		}
	}
	return end, last
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
func luhn(digits []byte) bool {
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
