package admin_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// Failure: F132
func TestNoCellBeginsAFormula(t *testing.T) {
	for cell, guarded := range map[string]bool{"=1": true, "+1": true, "-1": true, "@x": true, " =1": true, "＝1": true, "\t=1": true, "\r\n@x": true, "\u3000=1": true, "\xff=1": true,
		"a=1": false, "": false, "退": false, " ": false} {
		assert.Equal(t, guarded, strings.Trim(admin.Cell(cell), `"`) == "'"+cell, "%q", cell)
	}
	for cell, want := range map[string]string{"\x1b]0;owned\x07ok": `"[U+001B]]0;owned[U+0007]ok"`, "\u200b=1": "[U+200B]=1", "\x00=1": "[U+0000]=1", "\u202e=1": "[U+202E]=1", "\u009b31m": "[U+009B]31m",
		"\u3164=1": "[U+3164]=1", "\u3000\u034f+1": "\"\u3000[U+034F]+1\"", "\x7f\u2800\U000E0041\ufe0f": "[U+007F][U+2800][U+E0041][U+FE0F]"} {
		assert.Equal(t, want, admin.Cell(cell))
	}
}

// Failure: F132
func TestExportsAreExactAndHarmless(t *testing.T) {
	id, err := compensator.ParseEntryID("18446744073709551615")
	require.NoError(t, err)
	lines := []admin.Line{{Entry: compensator.Entry{ID: id, Version: 1<<63 + 1, BusinessType: "refund", State: compensator.Dead, BusinessID: "=cmd|' /C calc'!A0", LastError: "a \"b\", c\n@SUM(1)"},
		Amount: compensator.Amount{Minor: -9_000_000_000_000, Currency: "CNY"}, Case: &admin.Case{Kind: admin.CaseUnknown, Owner: "+mei"}}}
	var text bytes.Buffer
	require.NoError(t, admin.WriteCSV(&text, lines))
	rows, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(text.String(), "\ufeff"))).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 2)
	got := make(map[string]string)
	for i, name := range rows[0] {
		got[name] = rows[1][i]
	}
	for name, want := range map[string]string{"id": "18446744073709551615", "version": "9223372036854775809", "amount_minor": "-9000000000000", "currency": "CNY", "business_id": "'=cmd|' /C calc'!A0",
		"last_error": "a \"b\", c\n@SUM(1)", "case": "outcome unknown", "case_owner": "'+mei", "state": "dead", "created_at": ""} {
		assert.Equal(t, want, got[name], name)
	}
	for _, parted := range []string{"a;=1", "a\t=1", "a\r=1", "\u3000a", "a "} {
		text.Reset()
		lines[0].Entry.LastError = parted
		require.NoError(t, admin.WriteCSV(&text, lines))
		assert.Contains(t, text.String(), `,"`+parted+`",`, "other signs than a comma part cells, too")
	}
	text.Reset()
	lines[0].Entry.LastError = ""
	require.NoError(t, admin.WriteJSONLines(&text, lines))
	var line struct {
		Entry  struct{ ID, Version string }
		Amount struct{ Minor string }
	}
	require.NoError(t, json.Unmarshal(text.Bytes(), &line), text.String())
	assert.Equal(t, []string{"18446744073709551615", "9223372036854775809", "-9000000000000"}, []string{line.Entry.ID, line.Entry.Version, line.Amount.Minor})
	assert.Equal(t, 1, strings.Count(text.String(), "\n"))
}
