package uitest

import (
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
)

// triedFirst requeues the dead entries of a type, and tries the oldest first. It waits until that entry has died again.
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

// A person without scripts requeues six refunds and tries one first. Its page must say how it ended, and offer the others
// only then. A colleague opens the same address and goes on. Each refund must run once more, however often the form is
// sent.
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
	for _, part := range []string{"alice", "is PSP back?", left} {
		has(t, text, part)
	}
	assert.Len(t, w.entriesOf("refund", compensator.Dead), len(refunds), "the others have not run")

	w.shop.PSPWorks.Store(true)
	action := regexp.MustCompile(`<form method="post" action="([^"]*/actions/[^"]*)"`).FindStringSubmatch(page.text)
	require.NotNil(t, action)
	for range 2 {
		require.Equal(t, 200, bob.post(html.UnescapeString(action[1]), values()).status)
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
	has(t, trail.text, fmt.Sprintf("<summary>%d entries</summary>", len(refunds)-1))
	assert.Equal(t, 404, w.client("bob").get("actions/1-0123456789abcdef").status)
}

// In a browser, the page of an action follows its entries without being loaded again. It must announce the counts, and
// offer the others after the first entry has ended, in both languages and on a phone.
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
		b.arrive(fmt.Sprintf(`document.querySelector(".answers")?.textContent.replace(/\s+/g, " ").includes(%q) && document.querySelector("#live form button.main")?.textContent.includes(%q)`, words[1], words[2]))
		b.requireFit(360, lang)
		b.photograph("bulk-followed-" + lang + "-light-360")
		press(`form[action*="/actions/"] button.main`)
		b.arrive(fmt.Sprintf(`location.pathname.startsWith("/ops/actions/") && !document.body.textContent.includes(%q)`, words[2]))
		b.quiet("bulk-" + lang)
	}
}
