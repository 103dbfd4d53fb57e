package uitest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// Failure: F131
func TestOperatorRequeuesWithTheKeyboardAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/a/b/")
	w.problem()
	w.shop.PSPWorks.Store(true)
	b := openTab(t, w, "alice")
	b.look("en", "dark", 1280)
	b.open("cases/due?type=refund")
	assert.True(t, b.holds(`[...document.querySelectorAll("form[data-lines] button")].every(b => b.disabled)`), "nothing is chosen yet")
	b.press("/")
	assert.True(t, b.holds(`document.activeElement.id === "find"`))
	b.do(chromedp.Evaluate(`document.activeElement.blur()`, nil))
	b.press("j")
	b.press("x")
	b.press("j")
	b.press("x")
	b.do(b.until(`document.querySelector(".chosen").textContent === "2 chosen"`))
	b.press("a")
	b.do(b.until(`document.activeElement.value === "requeue"`))
	b.press(kb.Enter)
	b.do(b.until(`document.querySelector("#asked").open && document.activeElement.name === "reason"`))
	b.press(kb.Escape)
	b.do(b.until(`!document.querySelector("#asked").open && document.activeElement.value === "requeue"`)) // The focus is back on the button that opened the dialog.
	b.press(kb.Enter)
	b.do(b.until(`document.querySelector("#asked").open && document.activeElement.name === "reason"`))
	b.arm()
	b.accessible("dialog", wcag)
	b.photograph("dialog-en-dark-1280")
	b.press("PSP is back")
	b.press(kb.Tab)
	b.press("OPS-991")
	b.press(kb.Enter)
	w.until(func() bool { return len(w.entriesOf("refund", compensator.Succeeded)) >= theSum.Fine+2 })
	b.arrive(`location.pathname.startsWith("/a/b/actions/") && document.querySelector(".answers")?.textContent.includes("succeeded 2")`)
	b.quiet("requeue")
	b.photograph("done-en-dark-1280")
}

// Failure: F119
func TestFormOverUnknownOutcomesWaitsForItsTick(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	b := openTab(t, w, "alice")
	for lang, says := range map[string]string{"en": "An attempt timed out", "zh-CN": "结果未知"} {
		left := len(w.entriesOf("transfer", compensator.Dead))
		b.look(lang, "light", 1280)
		b.open("cases/due?type=transfer")
		b.do(chromedp.Click(`input[name="seen"]`), chromedp.Click(`.menu summary`), chromedp.Click(`form[data-lines] button[value="cancel"]`), b.until(`document.querySelector("#asked").open`))
		assert.True(t, b.holds(fmt.Sprintf(`document.querySelector("#asked").textContent.includes(%q)`, says)), lang)
		b.do(chromedp.SendKeys(`#asked [name="reason"]`, "wanted no more"), chromedp.Click(`#asked button.main`))
		assert.True(t, b.holds(`document.querySelector('#asked [name="sure"]').matches(":invalid")`), "the browser wants the tick")
		assert.Len(t, w.entriesOf("transfer", compensator.Dead), left)
		b.do(chromedp.Click(`#asked [name="sure"]`), chromedp.Click(`#asked button.main`))
		b.arrive(`location.pathname === "/ops/done" && document.querySelector(".answers") !== null`)
		b.quiet("cancel")
		w.until(func() bool { return len(w.entriesOf("transfer", compensator.Dead)) == left-1 })
	}
}

func TestMenuClosesAndTimesHaveTheirDistance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	b := openTab(t, w, "alice")
	for lang, ago := range map[string]string{"en": " ago", "zh-CN": "前"} {
		b.look(lang, "light", 1280)
		b.open("cases/due?type=refund")
		b.do(chromedp.Click(".menu summary"), b.until(`document.querySelector(".menu").open`))
		b.press(kb.Escape)
		b.do(b.until(`!document.querySelector(".menu").open && document.activeElement.matches(".menu summary")`))
		b.do(chromedp.Click(".menu summary"), b.until(`document.querySelector(".menu").open`), chromedp.Click("main h1", chromedp.ByQuery), b.until(`!document.querySelector(".menu").open`))
		b.open("entries/" + w.entriesOf("refund", compensator.Dead)[0].ID.String())
		b.do(b.until(fmt.Sprintf(`document.querySelector("dd .ago").textContent.includes(%q)`, ago)))
		b.quiet("menu")
	}
}

// Failure: F133
func TestRefreshWaitsForWhoIsAtWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	b := openTab(t, w, "alice")
	b.look("en", "light", 1280)
	b.quicken()
	b.open("cases/due?type=refund")
	b.do(chromedp.Evaluate(`window.here = true`, nil))
	before := b.requests()
	b.do(chromedp.Evaluate(`document.querySelector('input[name="seen"]').click()`, nil))
	b.rounds(3)
	assert.Equal(t, before, b.requests(), "a row is chosen")
	b.do(chromedp.Evaluate(`document.querySelector('input[name="seen"]').click(); document.querySelector("#find").focus()`, nil))
	b.rounds(3)
	assert.Equal(t, before, b.requests(), "somebody is at a field")
	b.do(chromedp.Evaluate(`document.activeElement.blur(); getSelection().selectAllChildren(document.querySelector("h1"))`, nil))
	b.rounds(3)
	assert.Equal(t, before, b.requests(), "a text is marked")
	b.do(chromedp.Evaluate(`getSelection().removeAllRanges()`, nil), b.until(fmt.Sprintf(`document.querySelectorAll("#live tbody tr").length === %d`, theSum.Refunds+theSum.Closed)))

	refund := w.entriesOf("refund", compensator.Dead)[0]
	require.NoError(t, admin.Of(w.c).SettleManually(t.Context(), refund.ID, admin.AuditInfo{Actor: "bob", Reason: "cash"}))
	_, err := w.admin.Change(t.Context(), admin.Actor{ID: "bob"}, admin.Change{Action: admin.SettleManually, Why: admin.Why{Reason: "cash"},
		Entries: []admin.Seen{{ID: w.entriesOf("refund", compensator.Dead)[0].ID, Version: w.entriesOf("refund", compensator.Dead)[0].Version}}})
	require.NoError(t, err)
	b.do(b.until(fmt.Sprintf(`document.querySelectorAll("#live tbody tr").length < %d`, theSum.Refunds+theSum.Closed)))
	assert.True(t, b.holds(`window.here === true`), "without being loaded again")
	b.do(chromedp.Click("#live-switch"))
	paused := b.requests()
	b.rounds(3)
	assert.Equal(t, paused, b.requests(), "paused")
	b.quiet("refresh")
}

// A refresh of an entry's page also replaces the button that pauses the automatic refresh.
func TestRefreshOfAnEntrysPageIsPausedAfterARefresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	b := openTab(t, w, "alice")
	b.look("en", "light", 1280)
	b.quicken()
	refund := w.entriesOf("refund", compensator.Dead)[0]
	b.open("entries/" + refund.ID.String())
	replaced := func() {
		b.do(chromedp.Evaluate(`window.before = document.querySelector("#live h1")`, nil))
		require.NoError(t, w.admin.Note(t.Context(), admin.Actor{ID: "bob"}, refund.ID, admin.Why{Reason: "they call back"})) // Change the entry, so that its page differs.
		b.do(b.until(`document.querySelector("#live h1") !== window.before`))
	}
	replaced()
	b.do(chromedp.Click("#live-switch"), b.until(`document.querySelector("#live-switch").ariaPressed === "true"`))
	paused := b.requests()
	b.rounds(3)
	assert.Equal(t, paused, b.requests(), "paused")
	assert.True(t, b.holds(`document.activeElement.id === "live-switch"`))
	b.do(chromedp.Click("#live-switch"), b.until(`document.querySelector("#live-switch").ariaPressed === "false"`))
	replaced()
	assert.True(t, b.holds(`document.activeElement.id === "live-switch"`), "the focus stays where it was")
	b.press(kb.Enter)
	b.do(b.until(`document.querySelector("#live-switch").ariaPressed === "true"`))
	b.quiet("refresh of an entry")
}

const hostile = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1> \u202Egnp.exe \" ' ` {{.}} javascript:window.hacked=1"

// Failure: F132
func TestHostileTextsStayTexts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	short := hostile[:strings.Index(hostile, "<img")]
	bad, err := compensator.Handle(t.Context(), w.c, short, func(context.Context, *compensator.Entry, string) error {
		return compensator.Permanent(errors.New(hostile))
	}, nil)
	require.NoError(t, err)
	w.problem()
	link := "javascript:window.hacked=1//\u202E"
	require.NoError(t, w.c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		for i := range 2 {
			_, err := bad.Record(ctx, tx, hostile, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint(hostile, i)), BatchID: link, BusinessID: short, BusinessExtID: link,
				UserID: short, UserName: short, Headers: map[string]string{"traceparent": hostile}})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	w.until(func() bool { return w.open() == dead+2 })
	e := w.entriesOf(short, compensator.Dead)[0]
	mallory := admin.Actor{ID: hostile}
	require.NoError(t, w.admin.Note(t.Context(), mallory, e.ID, admin.Why{Reason: hostile}))
	require.NoError(t, w.admin.Pause(t.Context(), mallory, short, admin.Why{Reason: hostile}))
	b := openTab(t, w, "alice")
	b.look("en", "light", 360)
	for _, path := range []string{"", "cases", "cases/due", "entries", "entries/" + e.ID.String(), "trail", "settings", "confirm?do=requeue&seen=" + seen(e),
		"find?q=" + values("", hostile).Encode()[1:], "entries?id=" + values("", hostile).Encode()[1:]} {
		b.open(path)
		assert.False(t, b.holds(`!!window.hacked || !!document.querySelector('[href^="javascript"], main img, main script')`), path)
		assert.False(t, b.holds(`document.body.innerText.includes("\u202E")`), path)
		b.requireFit(360, path)
		b.quiet(path)
	}
	b.open("entries/" + e.ID.String())
	assert.True(t, b.holds(`document.querySelector("pre.errortext").textContent.includes("<script>window.hacked=1</script>") && document.body.innerText.includes("[U+202E]")`))
	b.photograph("hostile-en-light-360")
	got := w.client("alice").post("reveal", values("id", e.ID.String(), "reason", "look"))
	require.Equal(t, 200, got.status)
	lacks(t, got.text, "<img")
	lacks(t, got.text, "<script>")
}

// Failure: F120
func TestButtonsAreThoseThatLeadSomewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	w.allow(func(_ context.Context, _ admin.Actor, right admin.Right, on admin.Subject) bool {
		return right == admin.SeeOverview || right == admin.SeeEntries || right == admin.Requeue && on.Amount.Minor < 30_000
	})
	alice := w.client("alice")
	for _, e := range w.entriesOf("refund", compensator.Dead) {
		view, err := w.admin.Entry(t.Context(), admin.Actor{ID: "alice"}, e.ID)
		require.NoError(t, err)
		text := alice.get("entries/" + e.ID.String()).text
		assert.Equal(t, view.Amount.Minor < 30_000, strings.Contains(text, "do=requeue"), "%s: %v", e.ID, view.Amount)
		lacks(t, text, "do=cancel")
		lacks(t, text, "do=see")
	}
	w.allow(func(_ context.Context, _ admin.Actor, right admin.Right, _ admin.Subject) bool {
		return right != admin.RequeueSucceeded
	})
	buttons := func(e compensator.Entry) string { return alice.get("entries/" + e.ID.String()).text }
	settled, erased, by := w.entriesOf("refund", compensator.Dead)[0], w.entriesOf("refund", compensator.Dead)[1], admin.AuditInfo{Actor: "host", Reason: "as Lin asked"}
	require.Contains(t, buttons(settled), "do=requeue")
	require.NoError(t, admin.Of(w.c).SettleManually(t.Context(), settled.ID, by))
	lacks(t, buttons(settled), "do=requeue") // The Admin would refuse this action and record the refusal.
	_, err := admin.Of(w.c).Erase(t.Context(), erased.ID, by)
	require.NoError(t, err)
	require.Contains(t, buttons(erased), "do=settle")
	lacks(t, buttons(erased), "do=requeue")
}
