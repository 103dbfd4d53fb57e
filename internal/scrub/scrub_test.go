package scrub_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator/internal/scrub"
)

// Failure: F125
func TestWhatDoesNotBelongBeforeOthersEyesIsGone(t *testing.T) {
	for text, want := range map[string]string{
		"card 4111111111111111 declined":                                                          "card …1111 declined",
		"card 4111 1111 1111 1111, 3782-822463-10005":                                             "card …1111, …0005",
		"银行卡6222021234567890127余额不足":                                                              "银行卡6222021234567890127余额不足", // fails the Luhn check
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
		"4242 4242 4242 4242 4242 4242 4242":                                                      "……4242",
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

// Failure: F125
func TestEachKindOfSecretIsGone(t *testing.T) {
	for text, want := range map[string]string{
		"身份证11010519491231002X不匹配, id 110105 19491231 002x, １１０１０５１９４９１２３１００２Ｘ": "身份证…不匹配, id …, …",
		"SMS to 13812345678: rejected, +86 138-1234-5678, 手机号８６１３９１２３４５６７８停机":   "SMS to …5678: rejected, +…5678, 手机号…5678停机",
		`{"mobile":"13912345678"} tel13912345678`:                                                               `{"mobile":"…5678"} tel…5678`,
		"InvalidAccessKeyId: AKIAIOSFODNN7EXAMPLE, LTAI5tFakeFakeFakeFake1":                                     "InvalidAccessKeyId: AKIA…, LTAI…",
		"clone https://ghp_0123456789abcdefghijABCDEFGHIJ012345:x@github.com/a: 403":                            "clone https://ghp_…:…@github.com/a: 403",
		"no such key sk_live_4eC39HqLyjWDarjtT1zdp7dc (rk_test_0123456789ab)":                                   "no such key sk_live_… (rk_test_…)",
		"slack xoxb-123456789012-abcDEF, google AIzaSyA0123456789abcdefghijklmnopqrstu-w":                       "slack xoxb-…, google AIza…",
		"glpat-abcdefghij0123456789 npm_abcdefghij0123456789 sk-proj-abcdefghij0123456789":                      "glpat-… npm_… sk-…",
		"jwe eyJhbGciOiJSU0EtT0FFUCJ9.OKOawDo13gRp.48V1_ALb6US0.5eym8TW_c8SuK0.XFBoMYUZodet x":                  "jwe … x",
		"x-api-key: abcdefgh, X-Auth-Token: opaque; X-Signature: deadbeef":                                      "x-api-key: …, X-Auth-Token: …; X-Signature: …",
		"Authorization: Token 0123456789abcdef: 401, authorization: k3yk3yk3yk3y":                               "Authorization: Token …: 401, authorization: …",
		`map[Authorization:[Token 9944b09199c62bcf] Host:[x]]`:                                                  `map[Authorization:[Token …] Host:[x]]`,
		`Proxy-Authorization: Digest 0123456789abcdef0123, Cookie: sid=abc; theme=dark`:                         `Proxy-Authorization: Digest …, Cookie: …`,
		"AccountKey=Zm9v+bar/baz==;EndpointSuffix=core.windows.net":                                             "AccountKey=…;EndpointSuffix=core.windows.net",
		"GET /blob?sv=2022&sig=AbC%2F123&se=2026: 403; auth_key: 7f, master-key=ab":                             "GET /blob?sv=2022&sig=…&se=2026: 403; auth_key: …, master-key=…",
		"otp 482913 is wrong, pin=1234, PIN is 4711, card_cvv: 123, cvc2 321, sms_otp:000111":                   "otp … is wrong, pin=…, PIN is …, card_cvv: …, cvc2 …, sms_otp:…",
		`{"cvv":123,"pin":"0000","otp" : "12 34"}`:                                                              `{"cvv":"…","pin":"…","otp":"…"}`,
		"密码=hunter2 密码：hunter2，口令为abc123！ 密钥: k, 令牌是t0k":                                                        "密码=… 密码：…，口令为…！ 密钥: …, 令牌是…",
		`{"密码":"hunter 2","用户":"李雷"} 验证码482913错误 验证码：0000 支付密码=“a b”`:                                           `{"密码":…,"用户":"李雷"} 验证码…错误 验证码：… 支付密码=…`,
		"IBAN DE89370400440532013000 closed, gb82 west 1234 5698 7654 32 and FR14-2004-1010-0505-0001-3M02-606": "IBAN …3000 closed, …5432 and …2606",
		"4111_1111_1111_1111 4111/1111/1111/1111 4111–1111–1111–1111 4111,1111,1111,1111":                       "…1111 …1111 …1111 …1111",
		"４１１１１１１１１１１１１１１１ and ４１１１　１１１１　１１１１　１１１１ 4111\u200b1111\u200b1111\u200b1111":                           "…1111 and …1111 …1111",
		"q=4111%201111%201111%201111&p=4111+1111+1111+1111 4111%2D1111%2D1111%2D1111":                           "q=…1111&p=…1111 …1111",
		"host=db password=correct horse battery staple user=app":                                                "host=db password=… user=app",
		"map[password:my dog Rex user:x] {Name:x Password:my dog Rex}":                                          "map[password:… user:x] {Name:x Password:…}",
		"pg_dump --password hunter2 db; CREATE USER x IDENTIFIED BY 'hunter 2'":                                 "pg_dump --password … db; CREATE USER x IDENTIFIED BY '…'",
	} {
		assert.Equal(t, want, scrub.Text(text))
		assert.Equal(t, want, scrub.Text(scrub.Text(text)))
	}
}

// Scrubbing must not remove a number or word of these errors, because a person needs them to find the cause.
func TestErrorsWithoutSecretsStayWhole(t *testing.T) {
	for _, text := range []string{
		"Error 1062 (23000): Duplicate entry '20261128093012345678' for key 'orders.uk_order_no'",
		"Error 1205 (HY000): Lock wait timeout exceeded; try restarting transaction",
		"Error 1045 (28000): Access denied for user 'app'@'10.0.0.7' (using password: YES)",
		"dial tcp 10.96.0.10:6379: i/o timeout after 15000000000 ns, 17179869184 bytes read",
		"read tcp [fe80::1]:52113->10.0.0.1:443: connection reset by peer at 2026-11-28T08:56:26.123456789Z",
		"NOAUTH Authentication required. WRONGPASS invalid username-password pair or user is disabled",
		"oauth2: \"invalid_grant\" \"token expired\"; token: expired, secret: rotated, sign: mismatch",
		"authorization: denied by policy, Authorization: required, cookie: missing",
		"order 13812345678 not found, trade_no=15912345678, refund id: 18812345678",
		"order_id 1234567890123456 account 9876543210123 trace 4bf92f3577b34da6a3ce929d0e0e4736",
		"rpc error: code = Unavailable desc = pin the version: 3 replicas, spin 300, mapping 4 of 12",
		"snowflake 1862037493848932352 at 1764320186123 ms, uuid 138a1234-5678-4111-8111-111111111111",
		"余额不足：账户6222021234567890127，需要100.00元，密码错误，请重试",
		"密码不能为空；验证码已过期；令牌失效；密钥是必填项",
		"POST https://pay.example.com/v3/refund?order=7: 429 Too Many Requests, retry after 30",
		"SKU DE12-3456-7890 is out of stock; GB12 left 3; batch FR2026112800000001",
		"context deadline exceeded (Client.Timeout exceeded while awaiting headers), key 'PRIMARY', foreign key fails",
		"x509: certificate signed by unknown authority (serial 11010519491231002 1)",
		"took 1.13812345678 s of 13000000000, version v1.25.13812345678",
	} {
		assert.Equal(t, text, scrub.Text(text))
	}
}

// A scrubbed time would put similar failures into different groups.
func TestTimesStayWhole(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		at := time.Unix(1_700_000_000+random.Int64N(100_000_000), random.Int64N(1_000_000_000))
		text := fmt.Sprintf("status 503 at %v m=+%d.%09d, deadline %s, took %v", at, random.IntN(5000), random.IntN(1_000_000_000),
			at.Format(time.RFC3339Nano), time.Duration(random.Int64N(1_000_000_000_000)))
		if got := scrub.Text(text); got != text {
			t.Fatalf("%s\nbecomes\n%s", text, got)
		}
	}
}

// An error may consist of the whole response of a remote service, so the scrub must not copy the text for each
// number.
func TestLongTextIsGoneThroughOnce(t *testing.T) {
	text := strings.Repeat("4111111111111111 ", 1<<12)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	assert.Equal(t, strings.Repeat("…1111 ", 1<<12), scrub.Text(text))
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2000*len(text)), "a copy of the text for each number would need %d times its length", 1<<12)
}

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
