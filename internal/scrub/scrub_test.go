package scrub_test

import (
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator/internal/scrub"
)

// Failure: F125
func TestWhatDoesNotBelongBeforeOthersEyesIsGone(t *testing.T) {
	for text, want := range map[string]string{
		"card 4111111111111111 declined":                                                          "card …1111 declined",
		"card 4111 1111 1111 1111, 3782-822463-10005":                                             "card …1111, …0005",
		"银行卡6222021234567890127余额不足":                                                              "银行卡6222021234567890127余额不足", // fails the Luhn check, so it is no card number
		"银行卡6200000000000005余额不足":                                                                 "银行卡…0005余额不足",
		"dial root:s3cr:e@t/@tcp(db:3306)/shop: refused":                                          "dial root:…@tcp(db:3306)/shop: refused",
		"redis://:hunter2@cache:6379/0: EOF":                                                      "redis://:…@cache:6379/0: EOF",
		"postgres://app:p%40ss@db/shop sslmode":                                                   "postgres://app:…@db/shop sslmode",
		"host=db password=hunter2 user=app":                                                       "host=db password=… user=app",
		"GET /pay?order=7&sign=abc123&token=xyz: 403":                                             "GET /pay?order=7&sign=…&token=… 403",
		`body {"access_token":"a\"b","order":7}`:                                                  `body {"access_token":"…","order":7}`,
		"Authorization: Bearer abcdef0123456789abcdef==: 401":                                     "Authorization: Bearer …: 401",
		"jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln expired":                                   "jwt … expired",
		"no mailbox zhang.san+x@mail.example.com":                                                 "no mailbox …@mail.example.com",
		"用户zhang@example.cn不存在":                                                                   "用户…@example.cn不存在",
		"":                                                                                        "",
		"POST /refund: status 503 for order 88123":                                                "POST /refund: status 503 for order 88123",
		"order 1234567890123456 and id 550e8400-e29b-41d4-a716-446655440000":                      "order 1234567890123456 and id 550e8400-e29b-41d4-a716-446655440000",
		"Access denied for user 'root'@'10.0.0.1' (using password: YES)":                          "Access denied for user 'root'@'10.0.0.1' (using password: YES)",
		"basic authentication required; invalid token: expired":                                   "basic authentication required; invalid token: expired",
		"dial tcp 10.0.0.1:3306: connect: connection refused at 12:03":                            "dial tcp 10.0.0.1:3306: connect: connection refused at 12:03",
		"card 4111111111111111 12/27 declined":                                                    "card …1111 12/27 declined",
		"card 4111111111111111 503":                                                               "card …1111 503",
		"2026-11-23 4111111111111111 declined":                                                    "2026-11-23 …1111 declined",
		"12:03:04 4111 1111 1111 1111":                                                            "12:03:04 …1111",
		"order 7 4111111111111111":                                                                "order 7 …1111",
		"card 4111 1111 1111 1111 123":                                                            "card …1111 123",
		"4242 4242 4242 4242 4242 4242 4242":                                                      "……4242", // the last four digits of one card number begin another card number
		"/cb?access_token=ABC&client_secret=DEF&refresh_token=GHI":                                "/cb?access_token=…&client_secret=…&refresh_token=…",
		"db_password=a MYSQL_PWD=b accessToken=c appsecret=d secret_key=e":                        "db_password=… MYSQL_PWD=… accessToken=… appsecret=… secret_key=…",
		"password='hunter 2', password=\"x y\" design=new":                                        "password=…, password=… design=new",
		`{"client_secret":"a","db_password" : "b","password":123456.7,"a":1}`:                     `{"client_secret":"…","db_password":"…","password":"…","a":1}`,
		`body "{\"password\":\"x\\\"y\\n\",\"order\":7}": 400`:                                    `body "{\"password\":\"…\",\"order\":7}": 400`,
		"Post http://pay:8080/v1/88123/notify/zhang@example.com: status 503":                      "Post http://pay:8080/v1/88123/notify/…@example.com: status 503",
		"redis://:123@cache redis://:1@2@cache amqp://a:1/2x@mq amqp://a:x/2@mq root:1/2@tcp(d)":  "redis://:…@cache redis://:…@cache amqp://a:1/2x@mq amqp://a:…@mq root:…@tcp(d)",
		"41111111111111111111 and x4111111111111111":                                              "41111111111111111111 and x4111111111111111",
		"4111.1111.1111.1111, 4111  1111  1111  1111, 4111\u00a01111\u00a01111\u00a01111":         "…1111, …1111, …1111",
		"4111\r\n1111\r\n1111\r\n1111 card4111111111111111 PAN_4111111111111111":                  "…1111 card…1111 PAN_…1111",
		"took 4.111111111111111 s at 10.0.0.1, 4111 rows\n\n\n1111 1111 1111":                     "took 4.111111111111111 s at 10.0.0.1, 4111 rows\n\n\n1111 1111 1111",
		"password = hunter2, token = abc; passphrase=x PASSWORD%3Dhunter2 password2=x token_v2=y": "password = …, token = …; passphrase=… PASSWORD%3D… password2=… token_v2=…",
		"user[password]=hunter2&password[]=x&token[0]=y&max_tokens=512":                           "user[password]=…&password[]=…&token[0]=…&max_tokens=512",
		"map[password:hunter2 user:x] {Password:hunter2 User:x} X-Api-Key: k3y password: hunter2": "map[password:… user:x] {Password:… User:x} X-Api-Key: … password: …",
		`{"token":["x","y"],"secret": {"value":"x"},"n":1} {'password': 'x', 'n': 1}`:             `{"token":"…","secret":"…","n":1} {'password': '…', 'n': 1}`,
		"Authorization: Basic aHVudGVyMg== authorization: Bearer short, Basic aHVudGVyMg==":       "Authorization: Basic … authorization: Bearer …, Basic …",
		"no mailbox 李雷@example.com, o'brien@example.com, mei@例子.中国, mei%40example.com":            "no mailbox …@example.com, …@example.com, …@例子.中国, …%40example.com",
		"key -----BEGIN RSA PRIVATE KEY-----\nMIIEvQ\n-----END RSA PRIVATE KEY----- is old":       "key … is old",
		"key -----BEGIN PRIVATE KEY-----\nMIIEvQ":                                                 "key …",
		"secret: rotated, password: must have 8 characters, sign: yes":                            "secret: rotated, password: must have 8 characters, sign: yes",
	} {
		assert.Equal(t, want, scrub.Text(text))
	}
}

// TestLongTextIsGoneThroughOnce scrubs a long text with many card numbers. An error may consist of the whole response
// of a remote service, so the scrub must not copy the text for each number.
func TestLongTextIsGoneThroughOnce(t *testing.T) {
	text := strings.Repeat("4111111111111111 ", 1<<12)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	assert.Equal(t, strings.Repeat("…1111 ", 1<<12), scrub.Text(text))
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2000*len(text)), "a copy of the text for each number would need %d times its length", 1<<12) // about 600 allocated bytes for each byte of text with the race detector
}

// FuzzText scrubs confidential data in any surroundings. The data must be removed, a second scrub must change nothing,
// and valid UTF-8 must stay valid.
// Failure: F125
func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "card 4111111111111111", "root:s@tcp(x)", "用户a@b.cn", "eyJ", "\xff4", "password=\"", "4111-1111 1111-1111@x.y:1", "a:4111 1111 1111 1111@", "7", "4242 4242"} {
		f.Add(seed, "x")
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		text := before + " 4111 1111 1111 1111; hunter2, postgres://app:hunter3@db zhang@example.com " + after
		once := scrub.Text(text)
		assert.Equal(t, once, scrub.Text(once), "%q", text)
		assert.True(t, utf8.ValidString(once) || !utf8.ValidString(text), "%q", text)
		for _, word := range []string{"4111 1111 1111 1111", "app:hunter3@", " zhang@example"} {
			if !strings.Contains(before+after, word) {
				assert.NotContains(t, once, word, "%q", text)
			}
		}
	})
}
