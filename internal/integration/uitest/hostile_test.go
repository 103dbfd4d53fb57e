package uitest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// Proxies and servers log addresses, so an action takes its reason from the body of the form.
// Failure: F131
func TestFormsActOnTheirBodyAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	refund := w.entriesOf("refund", compensator.Dead)[0]
	alice := w.client("alice")
	query := values("do", "requeue", "seen", seen(refund), "reason", "iN-tHe-aDdReSs", "sure", "yes", "id", refund.ID.String(), "type", "refund", "language", "zh-CN", "back", "/ops/trail").Encode()
	for path, body := range map[string][]string{"do": nil, "do#1": {"seen", seen(refund)}, "do#2": {"do", "requeue", "seen", seen(refund)}, "do#3": {"do", "pause", "type", "mail"}, "reveal": nil, "reveal#1": {"id", refund.ID.String()}, "export": {"type", "refund"}} {
		path, _, _ = strings.Cut(path, "#")
		got := alice.post(path+"?"+query, values(body...))
		assert.Equal(t, 422, got.status, "%s %v", path, body)
		assert.NotContains(t, got.text, "iN-tHe-aDdReSs", "%s %v", path, body)
	}
	assert.False(t, w.changed(t, refund))
	assert.NotContains(t, alice.get("trail").text, "iN-tHe-aDdReSs")
	assert.Contains(t, alice.post("preferences?"+query, values()).text, `lang="en"`)
	confirm := alice.get("confirm?" + query).text
	assert.Contains(t, confirm, "autofocus></textarea>", "a link fills in no reason")
	assert.Equal(t, 1, strings.Count(confirm, `<span class="badge k-dead">`), "the id belongs to no requeue, so the page must not count its entry again")
}

// Failure: F133
func TestLongAddressesMakeNoLargePages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	alice := w.client("alice")
	const largest = 600 << 10
	for _, path := range []string{"", "entries", "entries/1", "find", "cases", "cases/due", "stats", "instances", "periodic", "trail", "settings", "confirm", "done", "actions/x", "assets/x", "nosuch"} {
		for _, name := range []string{"type", "c", "back"} {
			got := alice.get(path + "?do=pause&state=dead&" + name + "=" + strings.Repeat("%00", 300_000))
			assert.Equal(t, 414, got.status, "%s %s", path, name)
			assert.Less(t, len(got.text), 1000, "%s %s", path, name)
			got = alice.get(path + "?do=pause&state=dead&" + name + "=" + strings.Repeat("%00%27", 2_600))
			assert.Less(t, len(got.text), largest, "%s %s", path, name)
		}
	}
	for _, name := range []string{"back", "type", "reason", "owner", "ticket", "id", "seen", "until", "zone", "length", "failure"} {
		got := alice.post("do", values("do", "pause", "state", "dead", name, strings.Repeat("\x00'", 120_000)))
		assert.Less(t, len(got.text), largest, name)
	}
	many := values("do", "requeue")
	for range admin.MaxEntries {
		many.Add("seen", "18446744073709551615:18446744073709551615:18446744073709551615")
	}
	assert.Equal(t, 404, alice.get("confirm?"+many.Encode()).status, "the largest action has an address")
}

// invisible are reasons that nobody can read.
var invisible = []string{" ", "\u3164", "\u115f\u1160\uffa0", "\u034f", "\u2800\u2800", "\u202e\u202c", "\u200b\ufeff\u2060", "\U000E0001\U000E0041\U000E007F", "\ufe0f", "\U000E0101", "\u17b4", "\u180b", "\u00ad\u3000\u0085"}

// Failure: F131
func TestReasonsOfInvisibleCharactersAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	refund := w.entriesOf("refund", compensator.Dead)[0]
	alice := w.client("alice")
	page, err := w.admin.CaseLines(t.Context(), admin.Actor{ID: "alice"}, admin.CaseFilter{BusinessType: "refund"})
	require.NoError(t, err)
	theCase := fmt.Sprintf("%s:%d", seen(page.Lines[0].Entry), page.Lines[0].Case.Version)
	for _, reason := range invisible {
		for _, form := range [][]string{{"do", "requeue", "seen", seen(refund)}, {"do", "note", "id", refund.ID.String()}, {"do", "pause", "type", "refund"}, {"do", "take case", "seen", theCase},
			{"do", "requeue", "all", "yes", "state", "dead"}, {"do", "requeue", "seen", seen(refund), "ticket", "OPS-1"}} {
			assert.Equal(t, 422, alice.post("do", values(append(form, "reason", reason)...)).status, "%q %v", reason, form)
		}
		assert.Equal(t, 422, alice.post("reveal", values("id", refund.ID.String(), "reason", reason)).status, "%q", reason)
		assert.Equal(t, 422, alice.post("do", values("do", "assign case", "seen", theCase, "owner", reason, "reason", "holidays")).status, "owner %q", reason)
		require.Error(t, admin.Of(w.c).Requeue(t.Context(), refund.ID, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "job", Reason: reason}}), "%q", reason)
	}
	assert.False(t, w.changed(t, refund))
	require.Equal(t, 200, alice.post("do", values("do", "note", "id", refund.ID.String(), "reason", "pay\u3164 \u034f\u2800\U000E0041\ufe0fment")).status)
	has(t, alice.get("trail").text, "pay[U+3164] [U+034F][U+2800][U+E0041][U+FE0F]ment")
}
