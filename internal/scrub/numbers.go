package scrub

import (
	"regexp"
	"strings"
)

// issued matches digits whose length and first digits are those of a card network. The Luhn check alone is not enough
// to find card numbers: ids of 16 or more digits are common, and one in ten of them passes it.
var issued = regexp.MustCompile(`^(?:4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:2[2-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|35\d{14}|6(?:011|4[4-9]\d|5\d\d)\d{12}|62\d{14,17})$`)

// kinds lists functions. Each function looks for one kind of number that begins at text[at], and has two results:
//   - The string kept has those characters of the number that are not removed, for example the last four digits.
//   - The int end is the index after the number. It is 0 if no number of this kind begins at text[at].
var kinds = []func(text []byte, at int) (kept string, end int){card, identity, mobile, account}

// numbers scans the text once, because errors may be long.
func numbers(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return folded(r) >= '0' && folded(r) <= '9' }) {
		return text
	}
	runes := []rune(text)
	rest := make([]byte, len(runes))
	for i, r := range runes {
		rest[i] = folded(r)
	}
	var out strings.Builder
	copied, behind := 0, false
	for at := 0; at < len(rest); at++ {
		isStart := behind || !joined(rest, at-1) || named(rest[:at])
		behind = false
		if !isStart || !joined(rest, at) {
			continue
		}
		for _, find := range kinds {
			kept, end := find(rest, at)
			if end == 0 {
				continue
			}
			out.WriteString(string(runes[copied:at]))
			out.WriteString(gone)
			copied = end - len(kept)
			for i, c := range []byte(kept) {
				rest[copied+i], runes[copied+i] = c, rune(c)
			}
			at, behind = copied-1, true
			break
		}
	}
	if copied == 0 {
		return text
	}
	out.WriteString(string(runes[copied:]))
	return out.String()
}

const other = 0xFF

// Invisible characters count as spaces, because they can stand between two digits.
func folded(r rune) byte {
	switch {
	case r < 0x80:
		return byte(r)
	case r >= '！' && r <= '～':
		return byte(r - '！' + '!')
	case r >= '٠' && r <= '٩':
		return byte(r - '٠' + '0')
	case r >= '۰' && r <= '۹':
		return byte(r - '۰' + '0')
	}
	switch r {
	case 0xA0, 0xAD, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF:
		return ' '
	case 0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2015, 0x2212:
		return '-'
	case 0xB7, 0x2022, 0x30FB:
		return '.'
	}
	if r >= 0x2000 && r <= 0x200D {
		return ' '
	}
	return other
}

func named(before []byte) bool {
	if last := before[len(before)-1]; last >= '0' && last <= '9' {
		return false
	}
	word := strings.TrimRight(strings.ToLower(string(before[max(0, len(before)-8):])), "_")
	for _, name := range []string{"card", "pan", "iban", "phone", "mobile", "tel"} {
		if strings.HasSuffix(word, name) {
			return true
		}
	}
	return false
}

// mostInGroup is the maximum number of digits in one group, if separators divide a card number into groups. A longer
// group after a separator is probably the fraction of a second, so these digits are no card number.
const mostInGroup = 7

// card is one of the functions in kinds, and finds numbers of payment cards. Digits after a decimal point belong to
// another number, so card finds nothing there.
func card(text []byte, at int) (kept string, end int) {
	if text[at] < '2' || text[at] > '6' {
		return "", 0
	}
	if at > 1 && text[at-1] == '.' && isDigit(text[at-2]) {
		return "", 0
	}
	var digits []byte
	group := 0
	for i := at; i < len(text) && len(digits) < 19; {
		if c := text[i]; isDigit(c) {
			digits = append(digits, c)
			group++
			i++
			if group > mostInGroup && group < len(digits) {
				return "", 0
			}
			if len(digits) >= 13 && !joined(text, i) && issued.Match(digits) && luhn(digits) {
				kept, end = string(digits[len(digits)-4:]), i
			}
			continue
		}
		n := separator(text[i:], group)
		if n == 0 || i+n >= len(text) || !isDigit(text[i+n]) || group > mostInGroup {
			break
		}
		i, group = i+n, 0
	}
	return kept, end
}

func identity(text []byte, at int) (kept string, end int) {
	digits, end := collect(text, at, 18, func(n int) bool { return n == 6 || n == 14 })
	if end == 0 || digits[0] == '0' || digits[0] == '9' || string(digits[6:8]) != "19" && string(digits[6:8]) != "20" {
		return "", 0
	}
	month, day := string(digits[10:12]), string(digits[12:14])
	if month < "01" || month > "12" || day < "01" || day > "31" {
		return "", 0
	}
	sum := 0
	for i, weight := range []int{7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2} {
		if !isDigit(digits[i]) {
			return "", 0
		}
		sum += weight * int(digits[i]-'0')
	}
	if "10X98765432"[sum%11] != digits[17] {
		return "", 0
	}
	return "", end
}

// Eleven digits are no phone number if orderBefore matches the text before them, or quantityAfter the text after them.
var (
	orderBefore   = regexp.MustCompile(`(?i)(?:order|trade|txn|transaction|refund|bill|invoice|payment)[ _-]?(?:id|no|number|key)?[."']?\s*[:=#]?\s*["']?$`)
	quantityAfter = regexp.MustCompile(`^ ?(?:[nuµm]s|s|[kmgt]?i?b|bytes?|rows?|entries|times|cents?|[a-z]*seconds?)\b`)
)

func mobile(text []byte, at int) (kept string, end int) {
	begin := at
	for _, code := range []string{"0086", "86"} {
		if after := at + len(code); after < len(text) && string(text[at:after]) == code {
			if begin = after; text[begin] == ' ' || text[begin] == '-' {
				begin++
			}
			break
		}
	}
	digits, end := collect(text, begin, 11, func(n int) bool { return n == 3 || n == 7 })
	switch {
	case end == 0 || digits[0] != '1' || digits[1] < '3' || digits[10] == 'X', strings.HasSuffix(string(digits), "000000"),
		at > 1 && text[at-1] == '.' && isDigit(text[at-2]), end+1 < len(text) && text[end] == '.' && isDigit(text[end+1]),
		orderBefore.Match(text[max(0, at-24):at]), quantityAfter.Match(text[end:min(len(text), end+16)]):
		return "", 0
	}
	return string(digits[7:]), end
}

// collect reads n digits from text[at] on. The last of 18 digits may be an X. Spaces and hyphens may stand after the
// first k digits if mayPart(k) is true. If the text does not have exactly n digits there, the result end is 0.
func collect(text []byte, at, n int, mayPart func(n int) bool) (digits []byte, end int) {
	for i := at; i < len(text); i++ {
		c := text[i]
		switch {
		case isDigit(c):
			digits = append(digits, c)
		case (c == 'x' || c == 'X') && len(digits) == n-1 && n == 18:
			digits = append(digits, 'X')
		case (c == ' ' || c == '-') && mayPart(len(digits)) && i > at:
			continue
		default:
			return nil, 0
		}
		if len(digits) == n {
			if joined(text, i+1) {
				return nil, 0
			}
			return digits, i + 1
		}
	}
	return nil, 0
}

// accountLengths has the length of an IBAN for each country that issues them.
const accountLengths = "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BR29BY28CH21CR22CY28CZ24DE22DK18DO28EE20EG29ES24FI18FO18FR27GB22GE22GI23GL18GR27GT28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20" +
	"LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22MK19MR27MT31MU30NL18NO15PK24PL28PS29PT25QA29RO24RS22SA24SC31SE24SI19SK24SM27ST25SV28TL23TN24TR26UA29VA22VG24XK20"

func account(text []byte, at int) (kept string, end int) {
	if at+4 > len(text) || !isDigit(text[at+2]) && text[at+2] != ' ' || isDigit(text[at]) {
		return "", 0
	}
	country := strings.ToUpper(string(text[at : at+2]))
	place := strings.Index(accountLengths, country)
	if place < 0 || place%4 != 0 {
		return "", 0
	}
	length := int(accountLengths[place+2]-'0')*10 + int(accountLengths[place+3]-'0')
	var characters []byte
	for i := at; i < len(text) && len(characters) < length; i++ {
		c := text[i]
		switch {
		case c >= 'a' && c <= 'z':
			characters = append(characters, c-'a'+'A')
		case isDigit(c) || c >= 'A' && c <= 'Z':
			characters = append(characters, c)
		case (c == ' ' || c == '-') && i > at && text[i-1] != c:
		default:
			return "", 0
		}
		end = i + 1
	}
	if len(characters) < length || joined(text, end) || !isDigit(characters[2]) || !isDigit(characters[3]) {
		return "", 0
	}
	// To check an IBAN, remove the separators, and move the first four characters to the end. Each letter counts as a
	// number from 10 to 35. The whole number must be 1 modulo 97.
	remainder := 0
	for _, c := range append(characters[4:len(characters):len(characters)], characters[:4]...) {
		if isDigit(c) {
			remainder = (remainder*10 + int(c-'0')) % 97
		} else {
			remainder = (remainder*100 + int(c-'A') + 10) % 97
		}
	}
	if remainder != 1 {
		return "", 0
	}
	return string(characters[length-4:]), end
}

// A dot or a comma counts as a separator only after a group that is as long as a group of a card number.
func separator(text []byte, group int) (n int) {
	for range 2 {
		switch rest := text[n:]; {
		case len(rest) == 0:
			return n
		case strings.IndexByte(" -+\n\r\t", rest[0]) >= 0:
			n++
		case len(rest) > 2 && rest[0] == '%' && (string(rest[1:3]) == "20" || strings.EqualFold(string(rest[1:3]), "2d")):
			n += 3
		case strings.IndexByte("._/,", rest[0]) >= 0 && n == 0 && group >= 4 && group <= 6:
			return 1
		default:
			return n
		}
	}
	return n
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func joined(text []byte, at int) bool {
	if at < 0 || at >= len(text) {
		return false
	}
	c := text[at]
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

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
