// Package scrub removes confidential data from the texts of errors: card numbers, tokens, passwords and e-mail
// addresses. Such data comes from drivers and remote services.
package scrub

import (
	"regexp"
	"strings"
)

// gone replaces removed text.
const gone = "…"

// secret matches the name of a confidential field, or the end of the name: token, accessToken, client_secret,
// MYSQL_PWD, token_v2. "sign" counts only as a whole word.
const secret = `[a-z0-9_-]*(?:passw(?:or)?d|passphrase|pwd|secret|token|(?:api|access|secret|private)[_-]?key|signature)(?:_?v?[0-9]{1,3})?|(?:[a-z0-9_-]*[_-])?sign`

// quoted matches a quoted text, also with escaped quotes or cut off before its end.
const quoted = `"(?:[^"\\]|\\.)*"?|\\"(?:[^"\\]|\\[^"\\]|\\\\\\?.)*(?:\\")?`

// rules are applied in this order, because an address with a password looks like an e-mail address.
var rules = []struct {
	of *regexp.Regexp
	to string
}{
	// This rule matches scheme://user:password@host. Digits before a slash are a port, not a password.
	{regexp.MustCompile(`(://[^\s/:@"']*):(?:[0-9]*[^\s"'/0-9][^\s"']*|[0-9]+)@`), "${1}:" + gone + "@"},
	// user:password@tcp(host), not after //
	{regexp.MustCompile(`((?:^/?|[^/]/|[^A-Za-z0-9._%+/-])[A-Za-z0-9._%+-]+):(?:[^\s"'/@]|/[^\s"'/@])[^\s"']*@`), "${1}:" + gone + "@"},
	// This rule matches values of form fields and of settings, also inside an escaped URL: password=x, password = x,
	// user[password]=x, password%3Dx
	{regexp.MustCompile(`(?is)\b((?:` + secret + `)(?:\[[a-z0-9_]*\]|\])*)(=|[ \t]+=[ \t]+|%3D)(?:` + quoted + `|'[^']*'?|[^\s&;,"']+)`), "${1}${2}" + gone},
	{regexp.MustCompile(`(?is)(\\?")(` + secret + `)\\?"\s*:\s*(?:` + quoted + `|\[[^\]]*\]?|\{[^}]*\}?|-?[0-9][0-9.e+-]*)`), "${1}${2}${1}:${1}" + gone + "${1}"},
	{regexp.MustCompile(`(?is)'(` + secret + `)'\s*:\s*'[^']*'?`), "'${1}': '" + gone + "'"},
	// These rules match values as Go and YAML write them. After a space a value must have a digit, because "token:
	// expired" describes an error.
	{regexp.MustCompile(`(?i)\b(` + secret + `):[^\s&;,"'\]})=:/@]+`), "${1}:" + gone},
	{regexp.MustCompile(`(?i)\b(` + secret + `):[ \t]+[^\s&;,"'\]})0-9]*[0-9][^\s&;,"'\]})]*`), "${1}: " + gone},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+(?:[A-Za-z0-9._~+/-]{16,}=*|[A-Za-z0-9+/]{6,}=+)`), "${1} " + gone},
	{regexp.MustCompile(`(?i)\b(authorization\\?["']?\s*[:=]\s*[\["'\\]*(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]+`), "${1}" + gone},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`), gone}, // a JWT
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|$)`), gone},
	{regexp.MustCompile(`[A-Za-z0-9._%+-]+(?:'[A-Za-z0-9._%+-]+)*@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)`), gone + "@${1}"},
	{regexp.MustCompile(`[\p{L}\p{N}._%+'-]+@([\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+)`), gone + "@${1}"}, // in other alphabets, where the start of the address is unclear
	{regexp.MustCompile(`[A-Za-z0-9._+-]+%40([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)`), gone + "%40${1}"},
}

// Text returns its argument without confidential data. A second call of Text changes nothing more.
func Text(text string) string {
	for {
		was := text
		for _, rule := range rules {
			text = rule.of.ReplaceAllString(text, rule.to)
		}
		if text = cards(text); text == was { // removing one match may expose another
			return text
		}
	}
}

// issued matches the prefixes and lengths of real card numbers. The Luhn check alone is not enough: ids of 16 or more
// digits are common, and one in ten of them passes it.
var issued = regexp.MustCompile(`^(?:4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:2[2-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|35\d{14}|6(?:011|4[4-9]\d|5\d\d)\d{12}|62\d{14,17})$`)

// cards replaces card numbers by their last four digits, also next to other numbers. It scans the text once, because
// errors may be long.
func cards(text string) string {
	var out strings.Builder
	rest, copied, behind := []byte(text), 0, false
	for at := 0; at < len(rest); at++ {
		if c := rest[at]; c < '2' || c > '6' { // no card number begins with another digit
			behind = false
			continue
		}
		if behind || !joined(rest, at-1) || named(rest[:at]) {
			if end, last := card(rest, at); end > 0 {
				out.Write(rest[copied:at])
				out.WriteString(gone)
				copied = end - len(last)
				copy(rest[copied:], last)
				at, behind = copied-1, true // the last four digits may begin another number
				continue
			}
		}
		behind = false
	}
	if copied == 0 {
		return text
	}
	out.Write(rest[copied:])
	return out.String()
}

// named reports whether a text ends with a word that announces a card number.
func named(before []byte) bool {
	if last := before[len(before)-1]; last >= '0' && last <= '9' {
		return false
	}
	word := strings.TrimRight(strings.ToLower(string(before[max(0, len(before)-8):])), "_")
	return strings.HasSuffix(word, "card") || strings.HasSuffix(word, "pan")
}

// card finds a card number of 13 to 19 digits that begins at the position at. The digits may be in groups. card returns
// the end of the number, and its last four digits.
func card(text []byte, at int) (end int, last string) {
	var digits []byte
	group := 0 // digits since the last separator
	for i := at; i < len(text) && len(digits) < 19; {
		if c := text[i]; c >= '0' && c <= '9' {
			digits = append(digits, c)
			group++
			i++
			if len(digits) >= 13 && !joined(text, i) && issued.Match(digits) && luhn(digits) {
				end, last = i, string(digits[len(digits)-4:])
			}
			continue
		}
		n := separator(text[i:], group)
		if n == 0 || i+n >= len(text) || text[i+n] < '0' || text[i+n] > '9' {
			break
		}
		i, group = i+n, 0
	}
	return end, last
}

// separator returns the length of the separator after a group of digits, or 0. A dot may also be a full stop after an
// ordinary number. So a dot counts only after a group that is as long as a group of a card number.
func separator(text []byte, group int) (n int) {
	for range 2 {
		switch rest := text[n:]; {
		case len(rest) == 0:
			return n
		case rest[0] == ' ' || rest[0] == '-' || rest[0] == '\n' || rest[0] == '\r' || rest[0] == '\t':
			n++
		case rest[0] == '.' && n == 0 && group >= 4 && group <= 6:
			return 1
		case len(rest) > 1 && rest[0] == 0xC2 && rest[1] == 0xA0: // a non-breaking space
			n += 2
		default:
			return n
		}
	}
	return n
}

// joined reports whether the character at the position continues a number or a word.
func joined(text []byte, at int) bool {
	if at < 0 || at >= len(text) {
		return false
	}
	c := text[at]
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

// luhn reports whether digits pass the Luhn check.
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
