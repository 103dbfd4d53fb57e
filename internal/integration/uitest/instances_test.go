package uitest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
)

func TestProcessesAreListedOnAPage(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	for _, row := range []string{
		"X'0102030405060708', 'api-9', 'v0.0.1', 'v7', seen_at-86400000, seen_at-240000, 0, 1, 'down', '[{\"name\":\"refund\",\"slots\":50,\"running\":12,\"stuck\":2},{\"name\":\"salary\",\"slots\":5,\"running\":0,\"stuck\":0}]'",
		"X'0202030405060708', 'api-8-with-a-long-name.prod.eu-central.example.com:4711', 'v0.0.2', 'v8', seen_at-7200000, seen_at, 0, 1, 'reached', '[{\"name\":\"refund\",\"slots\":50,\"running\":3,\"stuck\":0}]'",
		"X'0402030405060708', 'api-8b', 'v0.0.2', 'v9', seen_at-7200000, seen_at, 0, 1, 'reached', '[]'",
		"X'0302030405060708', 'api-7', 'v0.0.1', 'v6', seen_at-7200000, seen_at-3600000, seen_at-3600000, 0, '', '[]'",
	} {
		_, err := db.Exec("INSERT INTO common_process_log_instance (id, name, `library`, build, started_at, seen_at, ended_at, running, queue, types) SELECT " + row + " FROM common_process_log_instance WHERE name='api-1'")
		require.NoError(t, err)
	}
	text := w.client("alice").get("instances").text
	_, table, isFound := strings.Cut(text, "<tbody")
	require.True(t, isFound)
	last := -1
	for _, want := range []string{"<bdi>api-9</bdi>", "gone", "seen 4 min ago", "queue does not answer", `aria-label="api-9: 12 of 55">12 of 55</a>`, "2 stuck", `<bdi>refund</bdi> <a href="/ops/entries?process=0102030405060708&amp;state=running&amp;type=refund" aria-label="refund: 12 of 50">12 of 50</a>`, "<bdi>salary</bdi> 0 of 5",
		"<bdi>api-1</bdi>", "<bdi>api-8-with-a-long-name", "queue answers", "<bdi>api-7</bdi>", "ended"} {
		at := strings.Index(table, want)
		assert.Greater(t, at, last, "%s comes in its place", want)
		last = at
	}
	has(t, text, "different versions of the service:")
	has(t, plain(text), "3 live 1 gone 3 of")
	has(t, plain(text), "slots in use")
	overview := w.client("alice").get("").text
	has(t, overview, "No queue in this process")
	lacks(t, overview, "Queue answers", "no queue was asked")
	has(t, overview, "3 live, 1 gone")
	has(t, overview, "<bdi>v8, v9</bdi>")
	has(t, overview, "different versions")
	has(t, text, `<a href="/ops/instances" aria-current="page">Processes</a>`)
	dieMany(t, db, "refund", 4)
	_, err := db.Exec("UPDATE common_process_log SET state=0, updated_at=next_at, lease_until=9000000000000, token=CAST(CASE WHEN id%2 THEN X'01020304' ELSE X'02020304' END||X'00112233445566778899AABB' AS BLOB) WHERE business_type='refund' AND idempotent_id LIKE 'refund %'")
	require.NoError(t, err)
	dieMany(t, db, "salary", 50)
	_, err = db.Exec("UPDATE common_process_log SET state=0, next_at=next_at+1000, updated_at=next_at, lease_until=9000000000000, token=CAST(X'01020304'||X'00112233445566778899AABB' AS BLOB) WHERE business_type='salary' AND idempotent_id LIKE 'salary %'")
	require.NoError(t, err)
	held := w.client("alice").get("entries?state=running").text
	assert.Equal(t, []int{48, 2}, []int{strings.Count(held, "<bdi>api-9</bdi>"), strings.Count(held, "<bdi>api-8-with")}, "50 entries, the longest due first")
	has(t, held, `More entries of these types may run now. Choose one: <a href="/ops/entries?state=running&amp;type=salary"><bdi>salary</bdi></a>`)
	lacks(t, held, `action="/ops/export"`, "a page that may lack entries is not exported")
	held = w.client("alice").get("entries?process=0202030405060708&state=running").text
	assert.Equal(t, []int{0, 2}, []int{strings.Count(held, "<bdi>api-9</bdi>"), strings.Count(held, "<bdi>api-8-with")})
	lacks(t, held, "may run now")
	assert.Equal(t, 422, w.client("alice").post("export", values("state", "running", "reason", "x")).status)
	has(t, w.client("alice").get("instances").text, `<a href="/ops/entries?process=0102030405060708&amp;state=running" aria-label="api-9: 12 of 55">12 of 55</a>`)
	held = w.client("alice").get("entries?state=running&type=refund").text
	assert.Equal(t, []int{2, 2}, []int{strings.Count(held, "<bdi>api-9</bdi>"), strings.Count(held, "<bdi>api-8-with")})
	lacks(t, held, `form="all"`, "a list that changes all the time has no action on all")
	held = w.client("alice").get("entries?process=0102030405060708&state=running&type=refund&order=newest").text
	assert.Equal(t, []int{2, 0}, []int{strings.Count(held, "<bdi>api-9</bdi>"), strings.Count(held, "<bdi>api-8-with")})
	has(t, plain(held), "held since 1970-01-01 00:00:00")
	assert.Equal(t, 422, w.client("alice").get("entries?process=x&state=running&type=refund").status)
	w.allow(func(_ context.Context, a admin.Actor, _ admin.Right, on admin.Subject) bool {
		return on.Type == "refund" || on.Type == "" && a.ID == "bob"
	})
	lacks(t, w.client("bob").get("instances").text, "<bdi>salary</bdi>")
	lacks(t, w.client("carol").get("instances").text, "api-9")
	held = w.client("carol").get("entries?state=running&type=refund").text
	has(t, held, "held since")
	lacks(t, held, "api-9", "names of processes need the right to the overview of all types")
	lacks(t, w.client("carol").get("").text, "1 gone")
	w.allow(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })

	b := openTab(t, w, "alice")
	for _, lang := range []string{"en", "zh-CN"} {
		b.look(lang, "light", 1280)
		b.open("instances")
		b.arm()
		b.showWell("processes", lang)
		b.quiet("processes-" + lang)
	}
	b.look("en", "light", 360)
	b.open("")
	click := func(selector string) {
		b.do(chromedp.Evaluate(fmt.Sprintf(`document.querySelector(%q).click()`, selector), nil))
	}
	click(`#main a[href="/ops/entries?state=running"]`)
	b.arrive(`location.search === "?state=running" && document.querySelector("#live").textContent.includes("api-9")`)
	b.requireFit(360, "en")
	click(`#live .banner a`)
	b.arrive(`location.search === "?state=running&type=salary" && document.querySelectorAll("#live tbody tr").length === 50`)
	b.open("entries")
	click(`.states button[value="running"]`)
	b.arrive(`new URLSearchParams(location.search).get("state") === "running" && document.querySelector("#live").textContent.includes("api-8-with")`)
	b.quiet("running")
}
