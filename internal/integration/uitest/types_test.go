package uitest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
)

func TestTypesAreChosenFromAListThatWarnsOfThoseWithoutAHandler(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	w.problem()
	_, err := db.Exec("INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES ('m1', 'mail_v2', X'7B7D', 0, 0, 0)")
	require.NoError(t, err)
	w.until(func() bool { // The pages know a new type some seconds later.
		types, err := w.admin.Types(t.Context(), admin.Actor{ID: "test"}, admin.SeeEntries)
		return assert.NoError(t, err) && slices.Contains(types, "mail_v2")
	})
	w.allow(func(_ context.Context, a admin.Actor, _ admin.Right, on admin.Subject) bool {
		return a.ID != "half" || on.Type == "refund"
	})
	for lang, says := range map[string]struct{ row, page string }{
		"en":    {"no process has a handler", "No live process has a handler for mail_v2. Its entries wait until a process registers one."},
		"zh-CN": {"没有进程注册处理函数", "没有运行中的进程注册 mail_v2 的处理函数。在有进程注册之前，它的条目会一直等待。"},
	} {
		page := func(who, path string) string { return w.client(who).get(path, "Accept-Language", lang).text }
		has(t, plain(page("alice", "")), says.row)
		for _, path := range []string{"entries", "entries?type=mail_v2", "stats?type=mail_v2"} {
			has(t, plain(page("alice", path)), says.page)
			lacks(t, plain(page("half", path)), says.page)
		}
		for _, path := range []string{"entries?type=refund", "stats?type=refund", "entries?state=dead"} {
			lacks(t, plain(page("alice", path)), says.page)
		}
		for _, path := range []string{"entries", "cases/due"} {
			has(t, page("alice", path), `<option value="mail_v2">mail_v2</option>`)
			has(t, page("half", path), `<option value="refund">refund</option>`)
			lacks(t, page("half", path), `<option value="transfer">`)
		}
		has(t, page("alice", "entries?type=not_here_any_more"), `<option value="not_here_any_more" selected>`)
		has(t, page("alice", "settings"), `<option value="mail_v2"></option>`)
	}
	b := openTab(t, w, "alice")
	for _, lang := range []string{"en", "zh-CN"} {
		b.look(lang, "light", 360)
		b.open("entries")
		b.do(chromedp.SetValue(`[name="type"]`, "mail_v2"), chromedp.Click(`.filter > button`))
		b.arrive(`location.search.includes("type=mail_v2") && document.querySelector("#live .banner") !== null`)
		assert.Equal(t, "mail_v2", b.text(`document.querySelector('[name="type"]').value`))
		b.arm()
		b.showWell("no-handler", lang)
		b.look(lang, "light", 360)
		b.open("settings")
		b.arm()
		b.accessible("settings-"+lang, wcag)
		b.requireFit(360, "settings "+lang)
		b.quiet("types-" + lang)
	}
}

func TestPauseForATimeShowsItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	alice, who := w.client("alice"), admin.Actor{ID: "alice"}
	pause := func() []admin.Paused {
		paused, err := w.admin.Paused(t.Context(), who)
		require.NoError(t, err)
		return paused
	}
	for _, until := range []string{"2020-01-31T10:00", "tomorrow"} {
		got := alice.post("do", values("do", "pause", "type", "refund", "reason", "PSP is down", "until", until))
		assert.Equal(t, 422, got.status)
		has(t, got.text, "PSP is down", "the typed text stays")
	}
	require.Empty(t, pause())
	end := time.Now().UTC().Add(3 * time.Hour).Truncate(time.Minute)
	require.Equal(t, 200, alice.post("do", values("do", "pause", "type", "refund", "reason", "PSP is down", "until", end.Format("2006-01-02T15:04"))).status)
	require.WithinDuration(t, end, pause()[0].Until, 10*time.Second) // The pause is stored as a length.
	requeue := "confirm?do=requeue&seen=" + seen(w.entriesOf("refund", compensator.Dead)[0])
	shown := pause()[0].Until.UTC().Format("2006-01-02 15:04:05 UTC")
	for _, path := range []string{"", "settings", requeue} {
		has(t, plain(alice.get(path).text), "until "+shown)
		has(t, plain(alice.get(path, "Accept-Language", "zh-CN").text), shown)
	}
	has(t, plain(alice.get("trail").text), " paused refund until ")
	require.NoError(t, w.admin.Resume(t.Context(), who, pause()[0], admin.Why{Reason: "PSP is back"}))
	b := openTab(t, w, "alice")
	for _, lang := range []string{"en", "zh-CN"} {
		b.look(lang, "light", 360)
		b.open("settings")
		b.do(chromedp.Click(`a[href*="do=pause&type=refund"]`), b.until(`document.querySelector("#asked").open && document.activeElement.name === "reason"`))
		b.arm()
		b.accessible("pause dialog "+lang, wcag)
		b.requireFit(360, "pause "+lang)
		b.photograph("pause-" + lang + "-light-360")
		b.do(chromedp.SetValue(`#asked [name="length"]`, (2*time.Hour).String()), chromedp.SendKeys(`#asked [name="reason"]`, "PSP is down"), chromedp.Click(`#asked button.main`))
		b.arrive(`location.pathname === "/ops/done" && document.querySelector(".answers") !== null`)
		paused := pause()
		require.Len(t, paused, 1)
		require.Equal(t, 2*time.Hour, paused[0].Until.Sub(paused[0].At))
		b.open("")
		assert.True(t, b.holds(fmt.Sprintf(`document.querySelector("#types ~ * .cond .badge.k-paused ~ .sub time")?.dateTime === %q`, paused[0].Until.UTC().Format("2006-01-02T15:04:05.000Z"))))
		b.requireFit(360, "overview "+lang)
		b.quiet("pause " + lang)
		require.NoError(t, w.admin.Resume(t.Context(), who, paused[0], admin.Why{Reason: "PSP is back"}))
	}
}

func TestPageOfATypeShowsItsFailuresAndTheirWorth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	alice := admin.Actor{ID: "alice"}
	groups, _, err := w.admin.GroupsOf(t.Context(), alice, "refund", admin.Fingerprint{})
	require.NoError(t, err)
	require.NotEmpty(t, groups)
	w.allow(func(_ context.Context, a admin.Actor, right admin.Right, _ admin.Subject) bool {
		return a.ID != "half" || right != admin.SeeEntries
	})
	for _, g := range groups {
		link := "failure=" + g.Fingerprint.String()
		has(t, w.client("alice").get("stats?type=refund").text, link)
		lacks(t, w.client("alice").get("stats?type=transfer").text, link)
		lacks(t, w.client("half").get("stats?type=refund").text, link)
	}
	has(t, w.client("alice").get("stats?type=refund").text, `class="big"`)
	b := openTab(t, w, "alice")
	for _, lang := range []string{"en", "zh-CN"} {
		b.look(lang, "light", 1280)
		b.open("stats?type=refund")
		b.arm()
		b.showWell("type-failures", lang)
		b.quiet("failures of a type " + lang)
	}
}

func TestStatesAreOneClickAndThePageOfATypePausesIt(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	w.problem()
	count(t, db, "refund", time.Minute, 1, 1, 0, 0)
	alice := w.client("alice")
	text := alice.get("entries?type=refund&by=batch&state=dead").text
	has(t, text, `<button name="state" value="dead" aria-pressed="true">Dead</button>`)
	has(t, text, `<button name="state" value="">any</button>`)
	show := strings.Index(text, `<button name="state" value="dead">Show</button>`)
	assert.Positive(t, show)
	assert.Equal(t, show, strings.Index(text, `<button name="state"`), "Enter in a field keeps the state")
	w.allow(func(_ context.Context, a admin.Actor, right admin.Right, _ admin.Subject) bool {
		return a.ID != "bob" || right != admin.Pause
	})
	const pause, resume = "do=pause&amp;type=refund", "do=resume&amp;type=refund&amp;version="
	page := func(who string) string { return w.client(who).get("stats?type=refund").text }
	has(t, page("alice"), pause)
	lacks(t, page("alice"), "is paused by")
	lacks(t, page("bob"), pause)
	require.NoError(t, w.admin.Pause(t.Context(), admin.Actor{ID: "alice"}, "refund", admin.Why{Reason: "PSP down"}))
	w.until(func() bool { return strings.Contains(page("alice"), resume) })
	has(t, plain(page("bob")), "refund is paused by alice. Its entries do not run until it is resumed. PSP down")
	lacks(t, page("bob"), resume)
}
