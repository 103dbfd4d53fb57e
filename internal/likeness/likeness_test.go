package likeness_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator/internal/likeness"
)

// TestFailuresThatDifferInIdsNumbersTimesAndQuotesAreAlike lists error texts. The texts of one line must have the same
// shape.
// Failure: F125
func TestFailuresThatDifferInIdsNumbersTimesAndQuotesAreAlike(t *testing.T) {
	alike := map[string][]string{
		"POST /refund: status 503 for order #":            {"POST /refund: status 503 for order 88123", "POST /refund: status 503 for order #7", "POST /refund:  status 503 for order\n8812399"},
		"dial tcp #: connect: connection refused":         {"dial tcp 10.0.0.1:3306: connect: connection refused", "dial tcp 192.168.12.7:6379: connect: connection refused"},
		"Error 1062 (#): Duplicate entry “…” for key “…”": {"Error 1062 (23000): Duplicate entry 'a-1' for key 'orders.PRIMARY'", "Error 1062 (23000): Duplicate entry 'it is' for key 'k'"},
		"refund #: no such payment":                       {"refund 3fa85f64-5717-4562-b3fc-2c963f66afa6: no such payment", "refund ffffffff-dead-beef-cafe-abcdefabcdef: no such payment", "refund deadbeefcafe: no such payment", "refund 12,500.00: no such payment"},
		"订单#不存在":                                          {"订单12345不存在", "订单A99812不存在", "订单20260101T1不存在"},
		"退款失败，错误码40001：用户“…”余额不足":                         {"退款失败，错误码40001：用户“张三”余额不足", "退款失败，错误码40001：用户“李四”余额不足", "退款失败，错误码40001：用户「王五」余额不足"},
		"已于# #关闭":                                         {"已于2026-01-02 13:02关闭", "已于2025-11-30 09:59:01.25关闭"},
		"no such user “…” here":                           {`no such user "4111 \" 1111" here`, `no such user "a\\" here`, "no such user 「王\\」五」 here", `no such user "it's 'theirs'" here`},
		"no such card “…”":                                {`no such card "4111 1111, Zhang San`, `no such card "4111 \" 11`, "no such card `a", "no such card “张三", `no such card ""`},
		"it's gone: “…”":                                  {"it's gone: 'a'", "it's gone: \"b 7\""},
	}
	for shape, texts := range alike {
		for _, text := range texts {
			assert.Equal(t, shape, likeness.Shape(text), "of %q", text)
		}
	}
}

// Failure: F125
func TestFailuresOfAnotherKindAreNotAlike(t *testing.T) {
	texts := []string{
		"", "no such order", "no such payment", "POST /refund: status 503", "POST /refund: status 404", "POST /charge: status 503",
		"Error 1062 (23000): Duplicate entry 'a'", "Error 1213 (40001): Deadlock found", "错误码40001", "错误码40002", "余额不足", "订单不存在",
		"compensator: handler timed out after 30s: x", "runtime error: index out of range [5] with length 3",
	}
	seen := make(map[[8]byte]string)
	for _, text := range texts {
		print := likeness.Fingerprint("refund", "exhausted", text)
		assert.NotContains(t, seen, print, "%q beside %q", text, seen[print])
		seen[print] = text
	}
	assert.NotEqual(t, likeness.Fingerprint("refund", "crash", "x"), likeness.Fingerprint("refund", "exhausted", "x"))
	assert.NotEqual(t, likeness.Fingerprint("refund", "crash", "x"), likeness.Fingerprint("charge", "crash", "x"))
}

// FuzzShape checks that a shape is valid UTF-8, short, and without long numbers. The content of a quotation must not
// change the shape.
// Failure: F125
func FuzzShape(f *testing.F) {
	for _, seed := range []string{"POST /refund: status 503 for order 88123", "订单12345不存在", "it's \"x", "\xff\x00`", "错误码40001：用户“张三”", "deadbeef-00"} {
		f.Add(seed, "inner")
	}
	f.Fuzz(func(t *testing.T, text, inner string) {
		shape := likeness.Shape(text)
		assert.True(t, utf8.ValidString(shape))
		assert.LessOrEqual(t, utf8.RuneCountInString(shape), 3*likeness.MaxShape)
		digits := 0
		for _, r := range shape {
			if digits++; r < '0' || r > '9' {
				digits = 0
			}
			assert.LessOrEqual(t, digits, 5, "%q", shape)
		}
		if !strings.Contains(inner, "\"") && utf8.RuneCountInString(inner) < 100 {
			assert.Equal(t, likeness.Shape(`no such user "a"`), likeness.Shape(`no such user "`+inner+`"`))
		}
	})
}
