package scrub_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator/internal/scrub"
)

func TestWhatDoesNotBelongBeforeOthersEyesIsGone(t *testing.T) {
	for text, want := range map[string]string{
		"card 4111111111111111 declined":                                     "card …1111 declined",
		"card 4111 1111 1111 1111, 3782-822463-10005":                        "card …1111, …0005",
		"银行卡6222021234567890127余额不足":                                         "银行卡6222021234567890127余额不足", // it does not add up
		"银行卡6200000000000005余额不足":                                            "银行卡…0005余额不足",
		"dial root:s3cr:e@t/@tcp(db:3306)/shop: refused":                     "dial root:…@tcp(db:3306)/shop: refused",
		"redis://:hunter2@cache:6379/0: EOF":                                 "redis://:…@cache:6379/0: EOF",
		"postgres://app:p%40ss@db/shop sslmode":                              "postgres://app:…@db/shop sslmode",
		"host=db password=hunter2 user=app":                                  "host=db password=… user=app",
		"GET /pay?order=7&sign=abc123&token=xyz: 403":                        "GET /pay?order=7&sign=…&token=… 403",
		`body {"access_token":"a\"b","order":7}`:                             `body {"access_token":"…","order":7}`,
		"Authorization: Bearer abcdef0123456789abcdef==: 401":                "Authorization: Bearer …: 401",
		"jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln expired":              "jwt … expired",
		"no mailbox zhang.san+x@mail.example.com":                            "no mailbox …@mail.example.com",
		"用户zhang@example.cn不存在":                                              "用户…@example.cn不存在",
		"":                                                                   "",
		"POST /refund: status 503 for order 88123":                           "POST /refund: status 503 for order 88123",
		"order 1234567890123456 and id 550e8400-e29b-41d4-a716-446655440000": "order 1234567890123456 and id 550e8400-e29b-41d4-a716-446655440000",
		"Access denied for user 'root'@'10.0.0.1' (using password: YES)":     "Access denied for user 'root'@'10.0.0.1' (using password: YES)",
		"basic authentication required; invalid token: expired":              "basic authentication required; invalid token: expired",
		"dial tcp 10.0.0.1:3306: connect: connection refused at 12:03":       "dial tcp 10.0.0.1:3306: connect: connection refused at 12:03",
		"41111111111111111111 and x4111111111111111":                         "41111111111111111111 and x4111111111111111",
	} {
		assert.Equal(t, want, scrub.Text(text))
	}
}

// FuzzText: scrubbed is scrubbed, whatever stands around it, and what is a text stays one.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "card 4111111111111111", "root:s@tcp(x)", "用户a@b.cn", "eyJ", "\xff4", "password=\"", "4111-1111 1111-1111@x.y:1"} {
		f.Add(seed, "x")
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		text := before + " 4111 1111 1111 1111; hunter2, postgres://app:hunter3@db zhang@example.com " + after
		once := scrub.Text(text)
		assert.Equal(t, once, scrub.Text(once), "%q", text)
		assert.Equal(t, utf8.ValidString(text), utf8.ValidString(once))
		for _, word := range []string{"app:hunter3@", " zhang@example"} {
			if !strings.Contains(before+after, word) {
				assert.NotContains(t, once, word, "%q", text)
			}
		}
	})
}
