// Package scrub removes confidential data from the texts of errors: passwords, keys, tokens, e-mail addresses, and the
// numbers of cards, accounts and people. Such data comes from drivers and remote services.
package scrub

import (
	"regexp"
	"slices"
	"strings"
)

const gone = "…"

// secret matches the name of a confidential field, or the end of the name: token, accessToken, client_secret,
// MYSQL_PWD, token_v2. The short names "sign", "sig", "otp", "pin", "cvv" and "cvc" count only as whole words.
const secret = `[a-z0-9_-]*(?:` + password + `|secret|token|(?:api|access|secret|private|account|auth|signing|encryption|master)[_-]?key|signature|credentials?)(?:_?v?[0-9]{1,3})?|(?:[a-z0-9_-]*[_-])?(?:sign|sig|` + code + `)`

const password = `passw(?:or)?d|passphrase|passcode|pwd`

const code = `otp|pin|cvv2?|cvc2?|csc`

const hanSecret = `密码|口令|密钥|秘钥|私钥|令牌|` + hanCode
const hanCode = `验证码|校验码|动态码|短信码|安全码`

const quoted = `"(?:[^"\\]|\\.)*"?|\\"(?:[^"\\]|\\[^"\\]|\\\\\\?.)*(?:\\")?`

type words []string

var (
	passwordWords = words{"passw", "passphrase", "passcode", "pwd"}
	secretWords   = append(words{"secret", "token", "key", "sig", "credential", "otp", "pin", "cvv", "cvc", "csc"}, passwordWords...)
)

func (w words) in(lowerText string) bool {
	return slices.ContainsFunc(w, func(word string) bool { return strings.Contains(lowerText, word) })
}

// rules are applied in this order, because an address with a password looks like an e-mail address.
var rules = []struct {
	hints words
	of    *regexp.Regexp
	to    string
}{
	// Digits before a slash are a port, not a password.
	{words{"://"}, regexp.MustCompile(`(://[^\s/:@"']*):(?:[0-9]*[^\s"'/0-9][^\s"']*|[0-9]+)@`), "${1}:" + gone + "@"},
	{words{"@"}, regexp.MustCompile(`((?:^/?|[^/]/|[^A-Za-z0-9._%+/-])[A-Za-z0-9._%+-]+):(?:[^\s"'/@]|/[^\s"'/@])[^\s"']*@`), "${1}:" + gone + "@"},
	// The prefix of a key stays, because it says which secret to replace.
	{words{"akia", "asia", "aroa", "aida"}, regexp.MustCompile(`\b(AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b`), "${1}" + gone},
	{words{"ltai", "akid", "aklt"}, regexp.MustCompile(`\b(LTAI|AKID|AKLT)[A-Za-z0-9]{12,48}\b`), "${1}" + gone},
	{words{"gh", "glpat-", "npm_", "k_live_", "k_test_", "whsec_", "xox", "xapp-", "aiza", "ya29.", "gocspx-", "sg."}, regexp.MustCompile(`\b(gh[pousr]_|github_pat_|glpat-|npm_|[srp]k_(?:live|test)_|whsec_|xox[a-z]-|xapp-|AIza|ya29\.|GOCSPX-|SG\.)[A-Za-z0-9._-]{10,}`), "${1}" + gone},
	{words{"sk-"}, regexp.MustCompile(`\b(sk-)[A-Za-z0-9_-]{20,}`), "${1}" + gone},
	// A password with spaces ends where the next field begins: password=my dog user=x, map[password:my dog user:x]
	{passwordWords, regexp.MustCompile(`(?i)\b([a-z0-9_-]*(?:` + password + `)(?:_?v?[0-9]{1,3})?)=[^\s&;,"']+(?:[ \t]+[^\s&;,"'=:%]+){1,7}([ \t]+[a-z_][a-z0-9_.-]*=)`), "${1}=" + gone + "${2}"},
	{passwordWords, regexp.MustCompile(`(?i)\b([a-z0-9_-]*(?:` + password + `)(?:_?v?[0-9]{1,3})?):[^\s&;,"'\]})=:/@]+(?:[ \t]+[^\s&;,"'=:\]})]+){1,7}([ \t]+[a-z_][a-z0-9_]*:|[\]}])`), "${1}:" + gone + "${2}"},
	{secretWords, regexp.MustCompile(`(?is)\b((?:` + secret + `)(?:\[[a-z0-9_]*\]|\])*)(=|[ \t]+=[ \t]+|%3D)(?:` + quoted + `|'[^']*'?|[^\s&;,"']+)`), "${1}${2}" + gone},
	{secretWords, regexp.MustCompile(`(?is)(\\?")(` + secret + `)\\?"\s*:\s*(?:` + quoted + `|\[[^\]]*\]?|\{[^}]*\}?|-?[0-9][0-9.e+-]*)`), "${1}${2}${1}:${1}" + gone + "${1}"},
	{secretWords, regexp.MustCompile(`(?is)'(` + secret + `)'\s*:\s*'[^']*'?`), "'${1}': '" + gone + "'"},
	// The first of these two rules removes a value that directly follows the colon. The second rule removes a value
	// after a space, but only if the value has a digit. Without a digit, a text such as "token: expired" describes an
	// error.
	{secretWords, regexp.MustCompile(`(?i)\b(` + secret + `):[^\s&;,"'\]})=:/@]+`), "${1}:" + gone},
	{secretWords, regexp.MustCompile(`(?i)\b(` + secret + `):[ \t]+[^\s&;,"'\]})0-9]*[0-9][^\s&;,"'\]})]*`), "${1}: " + gone},
	{words{"x-"}, regexp.MustCompile(`(?i)\b(x-[a-z0-9-]*(?:key|token|secret|signature)):[ \t]+[^\s&;,"'\]})]+`), "${1}: " + gone},
	{words{"--"}, regexp.MustCompile(`(?i)(--[a-z0-9-]*(?:` + password + `|secret|token|api-key)[ \t]+)[^\s-][^\s]*`), "${1}" + gone},
	{words{"identified"}, regexp.MustCompile(`(?i)(\bidentified[ \t]+(?:with[ \t]+[^\s]+[ \t]+)?by[ \t]+)(?:` + quoted + `|'[^']*'?)`), "${1}'" + gone + "'"},
	{words{"otp", "pin", "cvv", "cvc", "csc"}, regexp.MustCompile(`(?i)\b(` + code + `)([ \t]+is[ \t]+|[ \t]+)[0-9]{3,8}\b`), "${1}${2}" + gone},
	// This rule removes values in quotes, and values in ASCII characters. Other values in Chinese characters are not
	// removed, because a text such as 密钥是必填项 ("the key is required") describes an error.
	{words{"密", "口令", "私钥", "令牌", "码"}, regexp.MustCompile(`(?s)(` + hanSecret + `)(["'”]?\s*(?:[=:：]|为|是)\s*)(?:` + quoted + `|'[^']*'?|“[^”]*”?|[!#-&(-+\--:<-~][!#-%(-+\--:<-\\^-~]*)`), "${1}${2}" + gone},
	{words{"码"}, regexp.MustCompile(`(` + hanCode + `)([ \t]*)[0-9]{4,8}\b`), "${1}${2}" + gone},
	{words{"bearer", "basic"}, regexp.MustCompile(`(?i)\b(bearer|basic)\s+(?:[A-Za-z0-9._~+/-]{16,}=*|[A-Za-z0-9+/]{6,}=+)`), "${1} " + gone},
	{words{"authorization"}, regexp.MustCompile(`(?i)\b(authorization\\?["']?\s*[:=]\s*[\["'\\]*(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]+`), "${1}" + gone},
	// This rule leaves "Authorization: denied by policy", because the words after the colon describe an error.
	{words{"authorization"}, regexp.MustCompile(`(?i)\b(authorization\\?["']?\s*[:=]\s*[\["'\\]*(?:[a-z][a-z0-9-]*[ \t]+)?)(?:[A-Za-z0-9._~+/-]{16,}=*|[A-Za-z._~+/-]{0,15}[0-9][A-Za-z0-9._~+/-]{7,}=*)`), "${1}" + gone},
	{words{"cookie"}, regexp.MustCompile(`(?i)\b((?:set-)?cookie:\s*)[^\s=;,"]+=[^\r\n"]*`), "${1}" + gone},
	{words{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)(?:\.[A-Za-z0-9_-]*){0,3}`), gone},
	{words{"-----begin"}, regexp.MustCompile(`(?s)-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|$)`), gone},
	{words{"@"}, regexp.MustCompile(`[A-Za-z0-9._%+-]+(?:'[A-Za-z0-9._%+-]+)*@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)`), gone + "@${1}"},
	{words{"@"}, regexp.MustCompile(`[\p{L}\p{N}._%+'-]+@([\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+)`), gone + "@${1}"},
	{words{"%40"}, regexp.MustCompile(`[A-Za-z0-9._+-]+%40([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)`), gone + "%40${1}"},
}

// Text returns its argument without confidential data. A second call of Text changes nothing more.
func Text(text string) string {
	for {
		was, lowerText := text, strings.ToLower(text)
		for _, rule := range rules {
			if rule.hints.in(lowerText) {
				text = rule.of.ReplaceAllString(text, rule.to)
			}
		}
		if text = numbers(text); text == was {
			return text
		}
	}
}
