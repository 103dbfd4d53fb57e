package uitest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// The test stores screenshots of every page.
// Failure: F131
func TestEveryPageIsAccessibleInBothLanguagesLightDarkAndOnAPhone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.breaks("charge", "POST https://psp.example/v2/charge: dial tcp 10.4.0.17:443: connect: connection refused, after 3 tries within 30 s (request 51c0ffee)")
	w.problem()
	w.broken()
	ctx, alice := t.Context(), admin.Actor{ID: "alice"}
	transfer := w.entriesOf("transfer", compensator.Dead)[0]
	refund := w.entriesOf("refund", compensator.Dead)[1]
	view, err := w.admin.Entry(ctx, alice, refund.ID)
	require.NoError(t, err)
	why := admin.Why{Reason: "asked the bank", Ticket: "OPS-988"}
	require.NoError(t, joined(w.admin.TakeCases(ctx, alice, []admin.SeenCase{{EntryID: refund.ID, Version: view.Case.Version}}, why)))
	require.NoError(t, w.admin.Note(ctx, alice, refund.ID, admin.Why{Reason: "they call back at 18:00"}))
	require.NoError(t, w.admin.Pause(ctx, alice, "ship_parcel", admin.Why{Reason: "shipper is down"}))
	followed := w.triedFirst("invoice_mail", alice)
	groups, _, err := w.admin.Groups(ctx, alice)
	require.NoError(t, err)
	pages := []struct{ name, path string }{
		{"overview", ""},
		{"groups", "cases"},
		{"cases", fmt.Sprintf("cases/due?failure=%s&type=%s", groups[0].Fingerprint, groups[0].Type)},
		{"entries", "entries"},
		{"entry", "entries/" + refund.ID.String()},
		{"waits", "entries/" + w.entriesOf("charge", compensator.Pending)[0].ID.String()},
		{"unknown", "entries/" + transfer.ID.String()},
		{"confirm", fmt.Sprintf("confirm?do=requeue&seen=%s:%d&seen=%s:%d", transfer.ID, transfer.Version, refund.ID, refund.Version)},
		{"trail", "trail"},
		{"bulk", "actions/" + followed.String()},
		{"settings", "settings"},
		{"stats", "stats?over=24h"},
		{"instances", "instances"},
		{"periodic", "periodic"},
		{"error", "nothing"},
	}
	b := openTab(t, w, "alice")
	for _, lang := range []string{"en", "zh-CN"} {
		for _, p := range pages {
			b.look(lang, "light", 1280)
			b.open(p.path)
			require.True(t, b.holds(fmt.Sprintf(`document.documentElement.lang === %q`, lang)))
			b.arm()
			rules := wcag // After the first look, check only the rules that depend on scheme and width.
			for _, scheme := range []string{"light", "dark"} {
				for _, width := range []int64{1280, 360} {
					name := fmt.Sprintf("%s-%s-%s-%d", p.name, lang, scheme, width)
					b.look(lang, scheme, width)
					b.photograph(name)
					b.accessible(name, rules)
					rules = looks
					b.requireFit(width, name)
					assert.True(t, b.holds(`[...document.querySelectorAll("main tr, main li")].every(row => row.offsetHeight < 260)`), "%s has rows that are no rows any more", name)
				}
			}
			for _, width := range []int64{761, 800, 850, 900, 1000, 1100, 1101} { // Tablets, and windows at half the width of a screen
				b.look(lang, "light", width)
				b.requireFit(width, fmt.Sprint(p.name, " at ", width, " px"))
				assert.Empty(t, b.text(`[...document.querySelectorAll("main *")].filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 1 && getComputedStyle(e).overflowX === "hidden" && !e.matches("code, .lanes *")).map(e => e.className || e.tagName).join(" ")`), "%s is cut at %d px", p.name, width)
			}
			if p.name == "error" {
				b.forgive("404")
			}
			b.quiet(p.name + "-" + lang)
		}
	}
}
