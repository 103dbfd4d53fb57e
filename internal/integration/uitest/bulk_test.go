package uitest

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
)

func (w *world) triedFirst(businessType string, a admin.Actor) admin.BulkID {
	w.t.Helper()
	var entries []admin.Seen
	for _, e := range w.entriesOf(businessType, compensator.Dead) {
		entries = append(entries, admin.Seen{ID: e.ID, Version: e.Version})
	}
	id, _, err := w.admin.StartBulk(w.t.Context(), a, admin.Change{Action: admin.Requeue, Entries: entries, Why: admin.Why{Reason: "again"}, Checked: true}, admin.BulkOptions{TryFirst: true})
	require.NoError(w.t, err)
	w.until(func() bool {
		view, err := w.admin.Bulk(w.t.Context(), a, id)
		require.NoError(w.t, err)
		return view.Tried == admin.BulkDead
	})
	return id
}

func TestOneIsTriedFirstWithoutScript(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, base string) *world{
		"SQLite": func(t *testing.T, base string) *world { return newWorld(t, base) }, "server": newServerWorld,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tryOneFirst(t, open(t, "/ops/"))
		})
	}
}

func tryOneFirst(t *testing.T, w *world) {
	w.problem()
	alice, bob := w.client("alice"), w.client("bob")
	refunds := w.entriesOf("refund", compensator.Dead)
	form := values("do", "requeue", "back", "/ops/entries")
	for _, e := range refunds {
		form.Add("seen", seen(e))
	}
	confirm := alice.get("confirm?" + form.Encode())
	has(t, confirm.text, `name="first"`)
	lacks(t, alice.get("confirm?do=requeue&seen="+seen(refunds[0])).text, `name="first"`, "one entry needs no trial")
	form.Set("reason", "is PSP back?")
	form.Set("first", "yes")
	form.Set("sure", "yes")
	tried := alice.post("do", form)
	require.Equal(t, 200, tried.status)
	require.Contains(t, tried.at, "/ops/actions/")
	w.until(func() bool { return strings.Contains(plain(alice.get(tried.at).text), "How it ended: dead") })
	page := bob.get(tried.at)
	text := plain(page.text)
	assert.Regexp(t, `dead\s+1\b`, text)
	left := fmt.Sprintf("Go on with the other %d", len(refunds)-1)
	for _, part := range []string{"alice", "is PSP back?", left, "The others may end in the same way", "Go on anyway?"} {
		has(t, text, part)
	}
	assert.Regexp(t, `How it ended: dead #\d+ POST https://psp.example/v2/refund: status`, text)
	lacks(t, page.text, `<button class="main">`, "after a failed trial, going on is not the main action")
	assert.Len(t, w.entriesOf("refund", compensator.Dead), len(refunds), "the others have not run")

	w.shop.PSPWorks.Store(true)
	action := regexp.MustCompile(`<form method="post" action="([^"]*/actions/[^"]*)"`).FindStringSubmatch(page.text)
	require.NotNil(t, action)
	unsure := bob.post(html.UnescapeString(action[1]), values())
	require.Equal(t, 422, unsure.status)
	has(t, plain(unsure.text), "Confirm that you want to go on although the tried entry did not succeed")
	assert.Len(t, w.entriesOf("refund", compensator.Dead), len(refunds), "without a confirmation the others have not run")
	for range 2 {
		require.Equal(t, 200, bob.post(html.UnescapeString(action[1]), values("anyway", "yes")).status)
	}
	done := fmt.Sprintf(`succeeded\s+%d\b`, len(refunds)-1)
	w.until(func() bool { return regexp.MustCompile(done).MatchString(plain(alice.get(tried.at).text)) })
	after := plain(alice.get(tried.at).text)
	lacks(t, after, "Go on with")
	for _, e := range refunds {
		history, err := admin.Of(w.c).History(t.Context(), e.ID)
		require.NoError(t, err)
		require.Len(t, history, 1)
	}
	trail := alice.get("trail?action=requeue")
	has(t, trail.text, strings.TrimPrefix(tried.at, "/ops/"))
	has(t, plain(trail.text), fmt.Sprintf("requeued %d entries", len(refunds)-1))
	lacks(t, trail.text, "#"+refunds[0].ID.String(), "the line of the action stands for its entries")
	has(t, plain(alice.get("trail?entry="+refunds[0].ID.String()).text), "#"+refunds[0].ID.String())
	has(t, plain(alice.get("entries/"+refunds[0].ID.String()).text), "requeued")
	assert.Equal(t, 404, w.client("bob").get("actions/1-0123456789abcdef").status)
}

// Two requests with the same form must try one entry.
func TestAnotherOneIsTriedBeforeTheOthers(t *testing.T) {
	t.Parallel()
	w := newServerWorld(t, "/ops/")
	w.problem()
	refunds := w.entriesOf("refund", compensator.Dead)
	id := w.triedFirst("refund", admin.Actor{ID: "alice"})
	path := "actions/" + id.String()
	bob := w.client("bob")
	page := bob.get(path)
	form := regexp.MustCompile(`<button name="another" value="(\d+)" formnovalidate>Try another one</button>`).FindStringSubmatch(page.text)
	require.NotNil(t, form, page.text)
	for range 2 {
		require.Equal(t, 200, bob.post(path, values("another", form[1])).status)
	}
	w.until(func() bool { return strings.Contains(plain(bob.get(path).text), "How they ended: dead #") })
	text := plain(bob.get(path).text)
	assert.Regexp(t, `2 entries were tried first\. How they ended: dead #\d+ POST https://psp\.example/v2/refund: status[^#]*, dead #\d+ `, text)
	has(t, text, fmt.Sprintf("Go on with the other %d", len(refunds)-2))
	has(t, text, "Go on anyway?")
	assert.Equal(t, 422, bob.post(path, values("another", "x")).status)
	assert.Equal(t, 422, bob.post(path, values()).status, "the others wait for a confirmation")

	w.shop.PSPWorks.Store(true)
	b := openTab(t, w, "alice")
	b.quicken()
	b.look("en", "light", 360)
	b.open(path)
	b.do(chromedp.Evaluate(`document.querySelector("[name=another]").click()`, nil))
	b.arrive(`document.querySelector("#live").textContent.includes("3 entries were tried first. How they ended")`)
	b.requireFit(360, "en")
	b.photograph("bulk-another-en-light-360")
	b.quiet("another")
	view, err := w.admin.Bulk(t.Context(), admin.Actor{ID: "alice"}, id)
	require.NoError(t, err)
	assert.Equal(t, []any{3, len(refunds) - 3, 1, 2}, []any{view.Changed, view.Left, view.Outcomes[admin.BulkSucceeded], view.Outcomes[admin.BulkDead]})
	has(t, plain(bob.post(path, values("anyway", "yes")).text), fmt.Sprintf("requeued %d entries", len(refunds)))
	for _, e := range refunds {
		history, err := admin.Of(w.c).History(t.Context(), e.ID)
		require.NoError(t, err)
		require.Len(t, history, 1, "each entry is changed once")
	}
	lacks(t, bob.get(path).text, `name="another"`, "the others have been changed")
}

func TestPageOfAnActionFollowsItsEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	w.shop.PSPWorks.Store(true)
	b := openTab(t, w, "alice")
	b.quicken()
	for lang, words := range map[string][3]string{"en": {"refund", "succeeded 1", "Go on with the other"}, "zh-CN": {"invoice_mail", "死信 1", "继续处理其余"}} {
		b.look(lang, "light", 360)
		b.open("cases/due?type=" + words[0])
		press := func(selector string) { // The pointer must not move, because a pointer over a row holds the refresh up.
			b.do(chromedp.Evaluate(fmt.Sprintf(`document.querySelectorAll(%q).forEach(element => element.click())`, selector), nil))
		}
		press(`input[name="seen"]`)
		press(`form[data-lines] button[value="requeue"]`)
		b.do(b.until(`document.querySelector("#asked").open`), chromedp.Evaluate(`document.querySelector('#asked [name="reason"]').value = "again"`, nil))
		press(`#asked [name="sure"]`)
		press(`#asked [name="first"]`)
		b.arrive(`location.pathname.startsWith("/ops/actions/")`)
		b.arrive(fmt.Sprintf(`document.querySelector(".answers")?.textContent.replace(/\s+/g, " ").includes(%q) && document.querySelector("#live form[method=post] button:not([value])")?.textContent.includes(%q)`, words[1], words[2]))
		if words[1] == "死信 1" {
			press(`[name="anyway"]`)
		}
		b.requireFit(360, lang)
		b.photograph("bulk-followed-" + lang + "-light-360")
		press(`form[action*="/actions/"] button:not([value])`)
		b.arrive(fmt.Sprintf(`location.pathname.startsWith("/ops/actions/") && !document.body.textContent.includes(%q)`, words[2]))
		b.quiet("bulk-" + lang)
	}
}

func dieMany(t *testing.T, db *sql.DB, businessType string, n int) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `INSERT INTO common_process_log (idempotent_id, business_type, content, state, next_at, created_at, updated_at)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<?) SELECT ?||' '||i, ?, '{}', -2, i, 1, 1 FROM n`, n, businessType, businessType)
	require.NoError(t, err)
}

func TestAllThatMatchAreChangedWithoutScript(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	dieMany(t, db, "many", 2300)
	alice := w.client("alice")
	offer := alice.get("entries?state=dead&type=many").text
	has(t, offer, `name="all"`)
	assert.Regexp(t, `(?s)class="chosen".*form="all" name="do" value="requeue".*<table`, offer, "the actions on all are beside those on chosen rows")
	stateless := alice.get("entries?type=many&ended_from=1970-01-01T00:00").text
	lacks(t, stateless, `name="all"`, "without a state")
	has(t, stateless, "To act on all that match, choose a state.")
	form := values("do", "cancel", "all", "yes", "state", "dead", "type", "many", "back", "/ops/entries")
	confirm := alice.get("confirm?" + form.Encode())
	has(t, plain(confirm.text), "2,300 entries")
	assert.Equal(t, 404, alice.get("confirm?do=cancel&all=yes&state=dead&type=nosuch").status)
	assert.Equal(t, 422, alice.get("confirm?do=cancel&all=yes&type=many").status)
	assert.Equal(t, 422, alice.post("do", form).status, "without a reason")
	form.Set("reason", "a wrong import")
	form.Set("first", "yes")
	tried := alice.post("do", form)
	require.Equal(t, 200, tried.status)
	require.Contains(t, tried.at, "/ops/actions/")
	has(t, plain(tried.text), "Changed so far: 1. Left: 2,299 entries")
	path := strings.TrimPrefix(tried.at, "/ops/")
	went := alice.post(path, values())
	has(t, plain(went.text), "Changed so far: 2,001. Left: 299 entries")
	has(t, went.text, "data-go-on")
	lacks(t, w.client("bob").get(path).text, "data-go-on", "only the person who pressed the button goes on")
	has(t, plain(alice.post(path, values()).text), "All entries that matched")
	for range 2 {
		lacks(t, alice.post(path, values()).text, "Go on with the rest")
	}

	dieMany(t, db, "other", 1100)
	form.Set("type", "other")
	form.Set("ended_from", "1970-01-01T00:00")
	form.Del("first")
	stopped := alice.post("do", form)
	has(t, plain(stopped.text), "Changed so far: 500. Left: 600 entries") // The person can stop after one batch.
	text := alice.post(strings.TrimPrefix(stopped.at, "/ops/"), values("stop", "yes")).text
	has(t, plain(text), "Stopped by alice. No further entry is changed. The action did not get to 600 entries.")
	lacks(t, text, "Go on with the rest")
	again := regexp.MustCompile(`<a href="([^"]*)">Search for them again`).FindStringSubmatch(text)
	require.NotNil(t, again)
	form.Del("ended_from")
	left := alice.get(html.UnescapeString(again[1]))
	require.Equal(t, 200, left.status)
	for _, part := range []string{"state=dead", "type=other", "ended_from=1970-01-01T00%3A00"} {
		has(t, left.at, part)
	}
	has(t, left.text, `<bdi class="type">other</bdi>`)
	trail := plain(alice.get("trail").text)
	assert.Regexp(t, "cancelled 2,300 entries", trail)
	assert.Regexp(t, "stopped an action", trail)
	lacks(t, trail, "cancelled 0 entries")
	lacks(t, trail, "many")
	has(t, plain(alice.get("trail?action=stop").text), "alice stopped an action")
}

// A program on a sibling subdomain can set a cookie for the pages, and the address of an action is no secret among
// colleagues. The cookie must make nobody continue an action that he did not begin or continue himself.
func TestPlantedCookieContinuesNothing(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	dieMany(t, db, "many", 4600)
	alice, bob := w.client("alice"), w.client("bob")
	began := alice.post("do", values("do", "cancel", "all", "yes", "state", "dead", "type", "many", "back", "/ops/entries", "reason", "a wrong import"))
	path := strings.TrimPrefix(began.at, "/ops/")
	has(t, began.text, "data-go-on")
	planted := func(who string) []string {
		sum := sha256.Sum256([]byte(who))
		return []string{"Cookie", "compensator_going=" + strings.TrimPrefix(path, "actions/") + "-" + hex.EncodeToString(sum[:8])}
	}
	lacks(t, bob.get(path, planted("bob")...).text, "data-go-on", "alice has begun the action, and bob has pressed no button")
	lacks(t, bob.get(path, planted("alice")...).text, "data-go-on")
	has(t, bob.post(path, values()).text, "data-go-on")
	lacks(t, alice.get(path).text, "data-go-on", "bob continues the action now, so the page of alice only follows")
	lacks(t, alice.get(path, planted("alice")...).text, "data-go-on")
}

func TestPageOfAnActionOnAllGoesOnByItself(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	b := openTab(t, w, "alice")
	b.quicken()
	for lang, words := range map[string][3]string{"en": {"one", "4,100 entries", "All entries that matched"}, "zh-CN": {"two", "4,100", "所有匹配的条目均已处理"}} {
		dieMany(t, db, words[0], 4100)
		b.look(lang, "light", 360)
		b.open("entries?state=dead&type=" + words[0])
		press := func(selector string) {
			b.do(chromedp.Evaluate(fmt.Sprintf(`document.querySelector(%q).click()`, selector), nil))
		}
		press(`details:has([form="all"]) summary`)
		b.requireFit(360, lang)
		b.photograph("all-offered-" + lang + "-light-360")
		press(`button[form="all"][value="cancel"]`)
		b.do(b.until(`document.querySelector("#asked").open`), chromedp.Evaluate(`document.querySelector('#asked [name="reason"]').value = "a wrong import"`, nil))
		b.requireFit(360, lang)
		b.photograph("all-confirm-" + lang + "-light-360")
		press(`#asked button.main`)
		b.arrive(fmt.Sprintf(`location.pathname.startsWith("/ops/actions/") && document.querySelector("#live")?.textContent.includes(%q)`, words[2]))
		b.requireFit(360, lang)
		b.photograph("all-ended-" + lang + "-light-360")
		assert.Empty(t, w.entriesOf(words[0], compensator.Dead))
		b.quiet("all-" + lang)
	}
}

// A form that was opened again is another form.
func TestFormThatIsSentTwiceBeginsOneAction(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	b := openTab(t, w, "alice")
	b.look("en", "light", 1280)
	dieMany(t, db, "many", 30)
	const send = `(async () => {
		const form = document.querySelector("#confirm form");
		form.querySelector("[name=reason]").value = "PSP is back";
		const body = new URLSearchParams(new FormData(form));
		body.set("sure", "yes");
		body.set("first", "yes");
		const one = () => fetch(form.action, { method: "POST", body, credentials: "same-origin" });
		const answers = [...await Promise.all([one(), one()]), await one()];
		return [...new Set(answers.map((answer) => new URL(answer.url).pathname))];
	})()`
	chosen := values()
	for _, e := range w.entriesOf("many", compensator.Dead)[27:] {
		chosen.Add("seen", seen(e))
	}
	opened := make(map[string]bool)
	for _, entries := range []string{"all=yes&state=dead&type=many", "all=yes&state=dead&type=many", chosen.Encode()} {
		b.open("confirm?do=requeue&" + entries)
		var pages []string
		b.do(chromedp.Evaluate(send, &pages, awaiting))
		require.Len(t, pages, 1, entries)
		require.Contains(t, pages[0], "/ops/actions/")
		require.False(t, opened[pages[0]], "the form was opened again")
		opened[pages[0]] = true
	}
	log, err := w.admin.AuditLog(t.Context(), admin.Actor{ID: "test"}, admin.AuditLogFilter{Action: "requeue"})
	require.NoError(t, err)
	require.Len(t, log.Records, len(opened))
	for _, r := range log.Records {
		assert.Equal(t, 1, r.N, "each action has tried one entry")
	}
}

func TestAllShownAreChosenWithoutScript(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	dieMany(t, db, "many", 60)
	alice := w.client("alice")
	page := alice.get("entries?state=dead&type=many")
	has(t, page.text, "Choose entries to act on")
	lacks(t, page.text, " checked aria-label")
	link := regexp.MustCompile(`<noscript><a href="([^"]*)">Choose all on this page`).FindStringSubmatch(page.text)
	require.NotNil(t, link)
	chosen := alice.get(html.UnescapeString(link[1])).text
	assert.Equal(t, 50, strings.Count(chosen, " checked aria-label"))
	has(t, chosen, "All rows of this page are chosen.")
	next := regexp.MustCompile(`<a href="([^"]*)" rel="next"`).FindStringSubmatch(chosen)
	require.NotNil(t, next)
	lacks(t, alice.get(html.UnescapeString(next[1])).text, " checked aria-label", "the next page chooses nothing")
}
