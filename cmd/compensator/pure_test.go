package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

// Failure: F132
func TestTextsAreShownAsWhatTheyAre(t *testing.T) {
	for text, want := range map[string]string{
		"plain 退款 ¥129.00":  "plain 退款 ¥129.00",
		"\x1b[2J":           `\x1b[2J`,
		"a\u202eb":          `a\u202eb`,
		"a\xffb":            `a\xffb`,
		"a\r\nb\tc\x00\x7f": `a\r\nb\tc\x00\x7f`,
		"\u009b2J":          `\u009b2J`,
		"\u200b\U000e0041":  `\u200b\U000e0041`,
	} {
		assert.Equal(t, want, printable(text))
	}
	assert.Equal(t, `"\u202e\u009b\udb40\udc41退"`, string(escapeNonASCII([]byte("\"\u202e\u009b\U000e0041退\""))))
}

func TestCellsAreWhole(t *testing.T) {
	for cell, want := range map[string]string{"a": "a", "a b": "a b", "a,b": `"a,b"`, "a;=1": `"a;=1"`, `a"b`: `"a""b"`, " a": `" a"`, "a ": `"a "`, "": ""} {
		assert.Equal(t, want, formatCSV(cell))
	}
	assert.Equal(t, `"{""a"":""b""}"`, formatCSV(map[string]string{"a": "b"}))
}

// Failure: F132
func TestAmountsAreExact(t *testing.T) {
	for want, of := range map[string]compensator.Amount{"129.00 CNY": {Minor: 12900, Currency: "CNY"}, "-0.05 EUR": {Minor: -5, Currency: "EUR"},
		"7 JPY": {Minor: 7, Currency: "JPY"}, "0.007 KWD": {Minor: 7, Currency: "KWD"}, "0.0007 CLF": {Minor: 7, Currency: "CLF"}, "7 UYI": {Minor: 7, Currency: "UYI"}, "0.00 CNY": {Currency: "CNY"}, "": {}} {
		assert.Equal(t, want, amountText(of))
	}
}

func TestWhereTakesCommasInValues(t *testing.T) {
	w, err := parseWhere([]string{"type=refund,error=a, b=c,state=dead|retrying", "from=2026-01-31T10:00:00Z"})
	require.NoError(t, err)
	assert.Equal(t, "refund", w.BusinessType)
	assert.Equal(t, "a, b=c", w.LastError)
	assert.Equal(t, []compensator.State{compensator.Dead, compensator.Retrying}, w.States)
	assert.Equal(t, 2026, w.CreatedFrom.Year())
	w, err = parseWhere([]string{"business=o-24,prefix=yes,ended_from=2026-01-31T10:00:00Z,ended_to=2h,due_from=3h,due_to=1h"})
	require.NoError(t, err)
	assert.True(t, w.Prefix)
	for _, at := range []time.Time{w.EndedFrom, w.EndedTo, w.DueFrom, w.DueTo} {
		assert.False(t, at.IsZero())
	}
	assert.True(t, w.EndedFrom.Before(w.EndedTo) && w.DueFrom.Before(w.DueTo))
	for _, wrong := range []string{"prefix=no", "ended_to=never", "due_from=x", "", "x", "type", "type=", "from=never", "failure=1", "color=red", "failure=0123456789abcdef,error=x"} {
		_, err := parseWhere([]string{wrong})
		assert.Equal(t, codeUsage, codeOf(err), wrong)
	}
}

// A condition that parseWhere ignored would let a command change entries that nobody meant.
func TestWhereIgnoresNoCondition(t *testing.T) {
	for _, conditions := range [][]string{
		{"type=refund,type=transfer"}, {"type=refund", "type=transfer"}, {"batch=b1,state=dead", "batch=b2"}, {"from=2h", "from=1h"}, {"failure=0000000000000000"}, {"failure=0000000000000000,state=dead"},
	} {
		_, err := parseWhere(conditions)
		assert.Equal(t, codeUsage, codeOf(err), "%v", conditions)
	}
	w, err := parseWhere([]string{"state=dead", "state=retrying,type=refund"})
	require.NoError(t, err)
	assert.Equal(t, []compensator.State{compensator.Dead, compensator.Retrying}, w.States)
}
