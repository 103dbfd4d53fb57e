package uitest

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

func TestOneTimeZoneIsChosenNamedAndUsedInRowsFieldsAndLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(t, err)
	refund := w.entriesOf("refund", compensator.Dead)[0]
	alice, bob := w.client("alice"), w.client("bob")
	has(t, alice.get("entries").text, "<b>UTC</b>")
	has(t, alice.get("entries").text, refund.NextAt.UTC().Format("2006-01-02 15:04:05 UTC"))
	has(t, alice.post("preferences", values("zone", "Asia/Shanghai", "back", "/ops/entries")).text, "Asia/Shanghai (UTC&#43;08:00)")

	const minute = "2006-01-02T15:04"
	from, to := refund.CreatedAt.In(shanghai).Add(-time.Minute).Format(minute), refund.CreatedAt.In(shanghai).Add(10*time.Minute).Format(minute)
	path := "entries?state=dead&type=refund&zone=Asia%2FShanghai&from=" + from + "&to=" + to
	page := alice.get(path).text
	has(t, page, refund.NextAt.In(shanghai).Format(">2006-01-02 15:04:05<"))
	has(t, page, `name="from" value="`+from+`"`)
	has(t, page, "Recorded from (Asia/Shanghai)")
	rows := strings.Count(page, `name="seen"`)
	require.Positive(t, rows)
	page = bob.get(path).text
	assert.Equal(t, rows, strings.Count(page, `name="seen"`), "the link names its zone")
	has(t, page, `name="from" value="`+refund.CreatedAt.UTC().Add(-time.Minute).Format(minute)+`"`)
	assert.Equal(t, rows, strings.Count(alice.get("entries?state=dead&type=refund&from="+url.QueryEscape(refund.CreatedAt.Add(-time.Minute).UTC().Format(time.RFC3339))).text, `name="seen"`))

	assert.Equal(t, 422, alice.post("preferences", values("zone", "Nowhere/None", "back", "/ops/")).status)
	assert.Equal(t, 422, alice.get("entries?zone=Nowhere%2FNone&from="+from).status)
	has(t, alice.get("entries").text, "Asia/Shanghai")
	alice.post("preferences", values("zone", "Europe/Berlin", "back", "/ops/"))
	for path, want := range map[string]string{
		"entries?from=2026-03-29T02:30": "does not exist in this time zone", "trail?from=2026-03-29T02:30": "does not exist in this time zone",
		"entries?ended_to=2026-10-25T02:30": "comes twice in this time zone", "entries?due_to=2026-10-25T02:30": "take another time, or show UTC",
	} {
		refused := alice.get(path)
		assert.Equal(t, 422, refused.status, path)
		has(t, refused.text, want)
	}
	has(t, alice.get("entries?from="+url.QueryEscape("2026-10-25T02:30:00+02:00")).text, `type="text" name="from" value="2026-10-25T02:30:00`)
}

func TestZoneOfTheBrowserIsOffered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	b := openTab(t, w, "alice")
	for lang, offer := range map[string]string{"en": "Show times in Asia/Shanghai", "zh-CN": "按 Asia/Shanghai 显示"} {
		b.look(lang, "light", 360)
		b.open("entries")
		b.do(b.until(fmt.Sprintf(`document.querySelector("#zone [data-here]").textContent === %q && !document.querySelector("#zone [data-here]").hidden`, offer)))
		b.arm()
		b.accessible("zone-"+lang, wcag)
		b.do(chromedp.Focus("#zone [data-here]"))
		b.press(kb.Enter)
		b.arrive(`document.body.dataset.zone === "Asia/Shanghai" && document.querySelector("#zone b").textContent === "Asia/Shanghai (UTC+08:00)"`)
		b.photograph("zone-" + lang + "-light-360")
		b.requireFit(360, "zone "+lang)
		b.do(chromedp.Focus(`#zone [value="UTC"]`))
		b.press(kb.Enter)
		b.arrive(`document.body.dataset.zone === "UTC"`)
		b.quiet("zone " + lang)
	}
}
