package uitest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
	"github.com/compensator-go/compensator/internal/integration/uitest/problems"
	"github.com/compensator-go/compensator/ui"
)

// canary is the text of every field that needs a special right to be seen.
const canary = "cAnArY"

func (w *world) secret(t *testing.T) compensator.Entry {
	t.Helper()
	fails, err := compensator.Handle(t.Context(), w.c, "salary", func(context.Context, *compensator.Entry, map[string]string) error {
		return compensator.Permanent(fmt.Errorf("%s 4711", canary))
	}, nil)
	require.NoError(t, err)
	w.problem()
	require.NoError(t, w.c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := fails.Record(ctx, tx, map[string]string{"name": canary}, compensator.Options{IdempotencyKey: canary + "-key", BatchID: canary, BusinessID: canary,
			BusinessExtID: canary, UserID: canary, UserName: canary, Headers: map[string]string{"x-" + strings.ToLower(canary): canary}})
		return err
	}))
	w.until(func() bool { return len(w.entriesOf("salary", compensator.Dead)) == 1 && w.open() == dead+1 })
	return w.entriesOf("salary", compensator.Dead)[0]
}

type call struct {
	method, path string
	form         func(e compensator.Entry) []string
	ok           int // expected status for an actor with all rights
	none         int // expected status for an actor without rights
	others       int // expected status for an actor with all rights on other types
	readOnly     int // expected status for a read-only Admin
}

func entryForm(more ...string) func(e compensator.Entry) []string {
	return func(e compensator.Entry) []string {
		return append([]string{"seen", seen(e), "reason", "why not"}, more...)
	}
}

// The client of these calls does not follow redirects.
func calls(e compensator.Entry, c *admin.Case, bulk admin.BulkID) map[string][]call {
	of := func(pairs ...string) func(compensator.Entry) []string {
		return func(compensator.Entry) []string { return append(pairs, "reason", "why not") }
	}
	theCase := func(later uint64) string { return fmt.Sprintf("%s:%d", seen(e), c.Version+later) }
	return map[string][]call{
		"GET {$}":          {{"GET", "", nil, 200, 403, 200, 200}},
		"GET entries":      {{"GET", "entries", nil, 200, 200, 200, 200}, {"GET", "entries?type=salary&state=dead&error=4711", nil, 200, 200, 200, 200}},
		"GET entries/{id}": {{"GET", "entries/" + e.ID.String(), nil, 200, 404, 404, 200}},
		"GET find":         {{"GET", "find?q=" + e.ID.String(), nil, 303, 303, 303, 303}},
		"GET cases":        {{"GET", "cases", nil, 200, 200, 200, 200}},
		"GET cases/due":    {{"GET", "cases/due", nil, 200, 200, 200, 200}, {"GET", "cases/due?failure=" + c.Fingerprint.String(), nil, 200, 200, 200, 200}},
		"GET stats":        {{"GET", "stats", nil, 200, 200, 200, 200}, {"GET", "stats?type=salary&over=7d&sort=dead", nil, 200, 200, 200, 200}},
		"GET instances":    {{"GET", "instances", nil, 200, 403, 200, 200}},
		"GET periodic":     {{"GET", "periodic", nil, 200, 403, 200, 200}},
		"GET trail":        {{"GET", "trail", nil, 200, 200, 200, 200}},
		"GET settings":     {{"GET", "settings", nil, 200, 403, 200, 200}},
		"GET confirm": {{"GET", "confirm?do=requeue&seen=" + seen(e), nil, 200, 404, 404, 403}, {"GET", "confirm?do=take+case&seen=" + theCase(0), nil, 200, 404, 404, 403},
			{"GET", "confirm?do=see+content&id=" + e.ID.String(), nil, 200, 404, 404, 403}, {"GET", "confirm?do=pause&type=a", nil, 200, 403, 200, 403},
			{"GET", "confirm?do=requeue&all=yes&state=dead&type=salary", nil, 200, 404, 404, 403}},
		"GET done":          {{"GET", "done?n=x", nil, 404, 404, 404, 404}},
		"POST actions/{id}": {{"POST", "actions/" + bulk.String(), of(), 303, 404, 404, 403}},
		"GET actions/{id}":  {{"GET", "actions/" + bulk.String(), nil, 200, 404, 404, 200}, {"GET", "actions/x", nil, 404, 404, 404, 404}},
		"GET assets/{name}": {{"GET", "assets/x.css", nil, 404, 404, 404, 404}},
		"POST preferences":  {{"POST", "preferences", of("language", "en"), 303, 303, 303, 303}},
		"POST export": {{"POST", "export", of("type", "salary"), 200, 403, 403, 403}, {"POST", "export", of("format", "jsonl"), 200, 403, 200, 403},
			{"POST", "export", of("error", "4711", "type", "salary", "state", "dead"), 200, 403, 403, 403}},
		"POST reveal": {{"POST", "reveal", of("id", e.ID.String()), 200, 404, 404, 403}},
		"POST do": {
			{"POST", "do", of("do", "note", "id", e.ID.String()), 303, 404, 404, 403},
			{"POST", "do", of("do", "take case", "seen", theCase(0)), 303, 303, 303, 403},
			{"POST", "do", of("do", "pause", "type", "salary"), 303, 403, 403, 403},
			{"POST", "do", of("do", "resume", "type", "salary", "version", "1"), 303, 403, 403, 403},
			{"POST", "do", of("do", "assign case", "owner", "bob", "seen", theCase(1)), 303, 303, 303, 403},
			{"POST", "do", of("do", "give back", "seen", theCase(2)), 303, 303, 303, 403},
			{"POST", "do", entryForm("do", "requeue"), 303, 303, 303, 403}, // The answer redirects to the page with the result for each entry.
			{"POST", "do", entryForm("do", "settle by hand"), 303, 303, 303, 403},
			{"POST", "do", entryForm("do", "compensate"), 303, 303, 303, 403},
			{"POST", "do", entryForm("do", "reschedule"), 303, 303, 303, 403},
			{"POST", "do", entryForm("do", "cancel"), 303, 303, 303, 403},
			{"POST", "do", entryForm("do", "complete"), 303, 303, 303, 403},
			{"POST", "do", of("do", "cancel", "all", "yes", "state", "cancelled", "type", "nosuch"), 404, 403, 404, 403},
			{"POST", "do", entryForm("do", "erase"), 422, 422, 422, 422},
		},
	}
}

var routeLine = regexp.MustCompile(`\{"((?:GET|POST) [^"]*)", \(\*server\)`)

// A route that is missing from the table fails the test.
// Failure: F122
func TestEveryRouteRefusesWhoHasNoRight(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../../ui/server.go")
	require.NoError(t, err)
	var routes []string
	for _, match := range routeLine.FindAllStringSubmatch(string(source), -1) {
		routes = append(routes, match[1])
	}
	for name, may := range map[string]admin.AccessFunc{
		"nobody": nil,
		"none":   func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return false },
		"others": func(_ context.Context, _ admin.Actor, _ admin.Right, on admin.Subject) bool {
			return on.Type != "salary"
		},
		"read only": func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true },
		"ok":        func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "/ops/", func(o *admin.Options) { o.ReadOnly = name == "read only" })
			e := w.secret(t)
			bulk := w.requeued(t, &e)
			view, err := w.admin.Entry(t.Context(), admin.Actor{ID: "test"}, e.ID)
			require.NoError(t, err)
			who := w.client("eve")
			if name == "nobody" {
				who.name = ""
			} else {
				w.allow(may)
			}
			who.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			table := calls(e, view.Case, bulk)
			require.ElementsMatch(t, routes, keysOf(table), "each route has its line")
			for _, route := range routes {
				for i, call := range table[route] {
					if who.name != "" {
						who.name = fmt.Sprint(route, i) // Use a new name for each request, so that no limit applies.
					}
					want := map[string]int{"nobody": 401, "none": call.none, "others": call.others, "read only": call.readOnly, "ok": call.ok}[name]
					var got answer
					if call.form == nil {
						got = who.get(call.path)
					} else {
						got = who.post(call.path, values(call.form(e)...))
					}
					what := fmt.Sprint(name, " ", call.method, " ", call.path)
					assert.Equal(t, want, got.status, what)
					if name == "nobody" || name == "none" || name == "others" {
						assert.NotContains(t, told(got), strings.ToLower(canary), what)
					}
					secured(t, got, what)
					for _, wrong := range []string{"PUT", "DELETE", "PATCH"} {
						assert.Contains(t, []int{401, 405}, who.ask(wrong, call.path, nil).status, wrong+" "+what)
					}
				}
			}
			// The requests above were refused, and the audit log has recorded this. Request the pages again, because
			// they must also hide the secret in these records.
			if name == "none" || name == "others" {
				for _, path := range []string{"", "entries", "entries?state=dead", "entries?by=batch&id=" + canary, "entries?from=2001-01-01", "cases", "cases/due", "trail", "trail?entry=" + e.ID.String(), "settings"} {
					assert.NotContains(t, told(answer{text: mine(who.get(path).text)}), strings.ToLower(canary), path)
				}
			}
			assert.Equal(t, name == "ok", w.changed(t, e), name)
		})
	}
}

func (w *world) requeued(t *testing.T, e *compensator.Entry) admin.BulkID {
	t.Helper()
	set, err := admin.New(w.c, admin.Options{Access: problems.Everything})
	require.NoError(t, err)
	id, answers, err := set.StartBulk(t.Context(), admin.Actor{ID: "ann"}, admin.Change{Action: admin.Requeue, Why: admin.Why{Reason: "again"}, Checked: true,
		Entries: []admin.Seen{{ID: e.ID, Version: e.Version}}}, admin.BulkOptions{})
	require.NoError(t, joined(answers, nil))
	require.NoError(t, err)
	w.until(func() bool {
		now, err := w.c.Get(t.Context(), e.ID)
		require.NoError(t, err)
		*e = *now
		return now.State == compensator.Dead && now.Epoch > 0
	})
	return id
}

func (w *world) changed(t *testing.T, e compensator.Entry) bool {
	t.Helper()
	now, err := w.c.Get(t.Context(), e.ID)
	require.NoError(t, err)
	return now.Version != e.Version
}

// told returns all texts of an answer in lower case, with its cookies and cursors decoded.
func told(got answer) string {
	all := got.text + fmt.Sprint(got.header)
	for _, word := range base64Word.FindAllString(all, -1) {
		for len(word)%4 == 1 {
			word = word[:len(word)-1]
		}
		if text, err := base64.RawURLEncoding.DecodeString(word); err == nil {
			all += " " + string(text)
		}
	}
	return strings.ToLower(all)
}

var base64Word = regexp.MustCompile(`[A-Za-z0-9_-]{8,}`)

// mine returns a page without the texts that the person typed into its forms.
func mine(page string) string {
	return regexp.MustCompile(`value="[^"]*"|<link[^>]*>|back=[^"]*"|user=[^"]*"`).ReplaceAllString(page, "")
}

func keysOf[V any](m map[string]V) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	return keys
}

func secured(t *testing.T, got answer, what string) {
	t.Helper()
	csp := got.header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'nonce-", "style-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		assert.Contains(t, csp, part, what)
	}
	assert.NotContains(t, csp, "unsafe", what)
	for name, value := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store"} {
		assert.Equal(t, value, got.header.Get(name), what)
	}
	lacks(t, got.text, " style=", what)
	lacks(t, got.text, "onclick", what)
}

// Failure: F130
func TestOutcomeIsShownToWhoActedAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	refund := w.entriesOf("refund", compensator.Dead)[0]
	browser := w.client("alice")
	done := browser.post("do", values("do", "note", "id", refund.ID.String(), "reason", "they call back"))
	require.Equal(t, 200, done.status)
	require.Contains(t, done.at, "/ops/done?n=")
	assert.Equal(t, 200, browser.get(done.at).status)
	browser.name = "bob"
	assert.Equal(t, 404, browser.get(done.at).status)
}

// Failure: F130
func TestPagesAreThereForWhoMaySeeNoHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	alice := w.client("alice")
	has(t, alice.get("").text, `class="health"`)
	has(t, alice.get("").text, "No queue in this process", "none is asked")
	lacks(t, alice.get("").text, "Queue answers")
	w.allow(func(_ context.Context, _ admin.Actor, _ admin.Right, on admin.Subject) bool {
		return on.Type == "refund"
	})
	for _, path := range []string{"", "settings", "cases", "trail"} {
		got := alice.get(path)
		assert.Equal(t, 200, got.status, path)
		lacks(t, got.text, `class="health"`, path)
	}
	has(t, alice.get("").text, "refund")
}

func TestNothingWaitsIsSaidToWhoWouldSeeIt(t *testing.T) {
	t.Parallel()
	has(t, newWorld(t, "/ops/").client("alice").get("").text, "Nothing waits for a person</span>")
	w := newWorld(t, "/ops/")
	w.problem()
	for _, may := range []admin.AccessFunc{
		func(_ context.Context, _ admin.Actor, right admin.Right, _ admin.Subject) bool {
			return right != admin.SeeEntries
		},
		func(_ context.Context, _ admin.Actor, right admin.Right, on admin.Subject) bool {
			return right != admin.SeeEntries || on.Type == "calm"
		},
	} {
		w.allow(may)
		alice := w.client("alice")
		has(t, alice.get("").text, "state=dead&amp;type=refund", "counts")
		for _, path := range []string{"", "cases", "cases/due"} {
			has(t, alice.get(path).text, "Nothing waits for a person that you may see.", path)
			lacks(t, alice.get(path).text, "Nothing waits for a person<", path)
			has(t, alice.get(path, "Accept-Language", "zh").text, "在您有权查看的范围内，没有待处理的工单。", path)
		}
	}
	w.allow(func(_ context.Context, _ admin.Actor, right admin.Right, on admin.Subject) bool {
		return right != admin.SeeEntries || on.Type == ""
	})
	lacks(t, w.client("alice").get("").text, "Nothing waits for a person<", "of its types he sees none")
}

// Failure: F132
func TestContentIsShownOnlyToWhoRevealsItAndOnlyWhatTheViewNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	refund := w.entriesOf("refund", compensator.Dead)[0]
	alice := w.client("alice")
	before := alice.get("entries/" + refund.ID.String())
	lacks(t, before.text, "Quay Street")
	lacks(t, before.text, "4111111111111111")

	require.Equal(t, 422, alice.post("reveal", values("id", refund.ID.String())).status, "a reason is wanted")
	got := alice.post("reveal", values("id", refund.ID.String(), "reason", "buyer called", "ticket", "OPS-1"))
	require.Equal(t, 200, got.status)
	has(t, got.text, html.EscapeString(`"currency": "`))
	has(t, got.text, html.EscapeString(`"card": `)+"•••")
	for _, hidden := range []string{"Quay Street", "4111111111111111", "lin@example"} {
		lacks(t, got.text, hidden)
	}
	auditLog := alice.get("trail")
	has(t, auditLog.text, "revealed the content")
	has(t, auditLog.text, "[OPS-1] buyer called")

	w.allow(func(_ context.Context, _ admin.Actor, right admin.Right, _ admin.Subject) bool {
		return right != admin.SeeErrors && right != admin.SeeContent
	})
	require.Equal(t, 403, alice.post("reveal", values("id", refund.ID.String(), "reason", "again")).status)
	for _, path := range []string{"", "cases", "cases/due", "entries", "entries/" + refund.ID.String()} {
		assert.False(t, regexp.MustCompile(`order o-\d`).MatchString(alice.get(path).text), "%q: errors show as their shape", path)
	}
}

func TestTimelineOfAnEntryIsReadableWithoutScript(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	transfer := w.entriesOf("transfer", compensator.Dead)[0]
	view, err := w.admin.Entry(t.Context(), admin.Actor{ID: "alice"}, transfer.ID)
	require.NoError(t, err)
	require.NotEmpty(t, view.Attempts)
	last := view.Attempts[len(view.Attempts)-1]
	require.NotEmpty(t, last.Error)
	page := w.client("alice").get("entries/" + transfer.ID.String()).text
	_, timeline, found := strings.Cut(page, `<h2 id="timeline">Timeline</h2>`)
	require.True(t, found)
	timeline, _, _ = strings.Cut(timeline, "</section>")
	require.Contains(t, timeline, "<ol", "a list")
	at := -1
	for _, next := range []string{"Recorded", "Attempt 1", "timed out", last.Instance, "Dead"} {
		i := strings.Index(timeline[at+1:], next)
		require.NotEqual(t, -1, i, "%q comes next in %s", next, timeline)
		at += 1 + i
	}
	assert.Equal(t, len(view.Attempts), strings.Count(timeline, "<b>Attempt"))
	w.allow(func(_ context.Context, _ admin.Actor, right admin.Right, _ admin.Subject) bool {
		return right == admin.SeeEntries
	})
	view, err = w.admin.Entry(t.Context(), admin.Actor{ID: "bob"}, transfer.ID)
	require.NoError(t, err)
	page = w.client("bob").get("entries/" + transfer.ID.String()).text
	require.Contains(t, page, `<h2 id="timeline">`)
	require.NotContains(t, page, html.EscapeString(last.Error))
	require.Contains(t, page, html.EscapeString(view.Attempts[len(view.Attempts)-1].Error), "the masked error is shown")
}

// Failure: F130
func TestGETChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	refund := w.entriesOf("refund", compensator.Dead)[0]
	alice := w.client("alice")
	form := values("do", "settle by hand", "seen", seen(refund), "reason", "because", "sure", "yes", "id", refund.ID.String(), "type", "refund", "version", "1", "language", "zh-CN").Encode()
	for _, path := range []string{"", "entries", "entries/" + refund.ID.String(), "cases", "cases/due", "trail", "settings", "confirm", "done", "do", "reveal", "export", "preferences", "find"} {
		for _, method := range []string{"GET", "HEAD"} {
			alice.ask(method, path+"?"+form, nil)
		}
	}
	assert.False(t, w.changed(t, refund))
	auditLog, err := w.admin.AuditLog(t.Context(), admin.Actor{ID: "test"}, admin.AuditLogFilter{})
	require.NoError(t, err)
	assert.Empty(t, auditLog.Records)
}

// Failure: F132
func TestListingIsTakenAwayByRightAndOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	e := w.secret(t)
	alice := w.client("alice")
	has(t, alice.get("entries?type=salary").text, "CSV")
	got := alice.post("export", values("type", "salary", "state", "dead", "reason", "for the auditor", "ticket", "OPS-988"))
	require.Equal(t, 200, got.status)
	assert.Regexp(t, `^attachment; filename="entries-\d{8}T\d{6}Z\.csv"$`, got.header.Get("Content-Disposition"))
	assert.Equal(t, "text/csv; charset=utf-8", got.header.Get("Content-Type"))
	assert.Equal(t, 2, strings.Count(got.text, "\n"), "a head and one entry")
	assert.Contains(t, got.text, e.ID.String()+",")
	got = alice.post("export", values("type", "refund", "format", "jsonl", "reason", "for the auditor"))
	assert.Contains(t, got.text, `"amount":{"minor":"`)
	assert.Equal(t, got.text[:1], "{")
	assert.NotContains(t, got.text, "salary")
	assert.Equal(t, 422, alice.post("export", values("type", "salary")).status, "no reason")
	auditLog, err := w.admin.AuditLog(t.Context(), admin.Actor{ID: "test"}, admin.AuditLogFilter{Action: "export"})
	require.NoError(t, err)
	require.Len(t, auditLog.Records, 2)
	assert.Equal(t, []string{"alice", "salary", "1 entry", "[OPS-988] for the auditor"}, []string{auditLog.Records[1].Actor, auditLog.Records[1].BusinessType, auditLog.Records[1].Subject, auditLog.Records[1].Reason})

	w.allow(func(_ context.Context, _ admin.Actor, right admin.Right, on admin.Subject) bool {
		return right != admin.Export || on.Type == "refund"
	})
	assert.NotContains(t, alice.get("entries?type=salary").text, "CSV")
	assert.Equal(t, 403, alice.post("export", values("type", "salary", "reason", "for the auditor")).status)
	got = alice.post("export", values("reason", "for the auditor"))
	assert.Contains(t, got.text, "refund")
	assert.NotContains(t, got.text, "salary")
}

// Failure: F130
func TestPostFromAnotherOriginIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	refund := w.entriesOf("refund", compensator.Dead)[0]
	alice := w.client("alice")
	for _, foreign := range [][]string{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "null"}} {
		for _, path := range []string{"do", "reveal", "export", "preferences"} {
			got := alice.post(path, values("do", "requeue", "seen", seen(refund), "reason", "because", "id", refund.ID.String()), foreign...)
			assert.Equal(t, 403, got.status, "%s %v", path, foreign)
		}
	}
	assert.False(t, w.changed(t, refund))
	got := alice.post("do", values("do", "requeue", "seen", seen(refund), "reason", "because"), "Origin", strings.TrimSuffix(w.url, w.base), "Sec-Fetch-Site", "same-origin")
	assert.Equal(t, 200, got.status)
	has(t, got.text, "Done")
}

var (
	linkIn  = regexp.MustCompile(`(?:href|action|src)="([^"]*)"`)
	seenBox = regexp.MustCompile(`name="seen" value="([^"]*)"`)
)

// Failure: F131
func TestOperatorWithoutScriptPutsRefundsRight(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, base string) *world{
		"SQLite": func(t *testing.T, base string) *world { return newWorld(t, base) }, "server": newServerWorld,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			putRefundsRight(t, open(t, "/ops/"))
		})
	}
}

func putRefundsRight(t *testing.T, w *world) {
	w.problem()
	alice := w.client("alice")
	overview := alice.get("")
	require.Equal(t, 200, overview.status)
	var group string
	for _, link := range linkIn.FindAllStringSubmatch(overview.text, -1) {
		if group == "" && strings.Contains(link[1], "failure=") {
			group = html.UnescapeString(link[1])
		}
	}
	require.NotEmpty(t, group, "the failure with most cases stands first")
	cases := alice.get(group)
	has(t, cases.text, "503 Service Unavailable")
	boxes := seenBox.FindAllStringSubmatch(cases.text, -1)
	require.Len(t, boxes, theSum.Refunds)

	form := values("do", "requeue", "seen", boxes[0][1], "seen", boxes[1][1], "seen", boxes[2][1], "back", group)
	confirm := alice.get("confirm?" + form.Encode())
	require.Equal(t, 200, confirm.status)
	has(t, confirm.text, "3 entries")
	assert.Equal(t, form["seen"], []string{boxes[0][1], boxes[1][1], boxes[2][1]})

	w.shop.PSPWorks.Store(true)
	id, err := compensator.ParseEntryID(strings.Split(boxes[1][1], ":")[0])
	require.NoError(t, err)
	require.NoError(t, admin.Of(w.c).SettleManually(t.Context(), id, admin.AuditInfo{Actor: "bob", Reason: "paid in cash"}))

	require.Equal(t, 422, alice.post("do", form).status, "a reason is wanted")
	form.Set("reason", "PSP is back")
	form.Set("ticket", "OPS 991")
	refused := alice.post("do", form)
	require.Equal(t, 422, refused.status, "a ticket has no blanks")
	has(t, refused.text, "PSP is back", "the typed text stays")
	form.Set("ticket", "OPS-991")
	done := alice.post("do", form)
	require.Equal(t, 200, done.status)
	assert.Contains(t, done.at, "/ops/actions/")
	assert.Regexp(t, `Changed meanwhile\s+1\b`, plain(done.text))
	w.until(func() bool { return len(w.entriesOf("refund", compensator.Succeeded)) >= theSum.Fine+2 })
	assert.Contains(t, plain(alice.get("trail?action=requeue&actor=alice").text), "[OPS-991] PSP is back")
	assert.Regexp(t, `succeeded\s+2\b`, plain(alice.get(done.at).text), "the page follows the entries")
	assert.Regexp(t, `Changed meanwhile\s+3\b`, plain(alice.post("do", form).text), "a form that is sent again does nothing again")
}

func TestAnIncidentIsPutRightAtOnePress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	_, err := w.shop.Record(t.Context(), 2, problems.Sum{Refunds: 60})
	require.NoError(t, err)
	w.until(func() bool { return w.open() == dead+60 })
	alice := w.client("alice")
	link := regexp.MustCompile(`href="([^"]*failure=[^"]*)"`).FindStringSubmatch(alice.get("cases").text)
	require.NotNil(t, link)
	incident := html.UnescapeString(link[1])
	boxes := seenBox.FindAllStringSubmatch(alice.get(incident).text, -1)
	require.Len(t, boxes, theSum.Refunds+60)
	assert.Len(t, seenBox.FindAllString(alice.get(strings.Replace(incident, "rows=200", "rows=1000", 1)).text, -1), 50, "no other page than those that there are")

	w.shop.PSPWorks.Store(true)
	form := values("do", "requeue", "reason", "PSP is back", "back", incident)
	for _, box := range boxes {
		form.Add("seen", box[1])
	}
	confirm := alice.get("confirm?" + form.Encode())
	require.Equal(t, 200, confirm.status)
	has(t, confirm.text, "66 entries")
	done := alice.post("do", form)
	require.Equal(t, 200, done.status)
	w.until(func() bool { return len(w.entriesOf("refund", compensator.Succeeded)) >= theSum.Fine+66 })
	assert.Regexp(t, `succeeded\s+66\b`, plain(alice.get(done.at).text))
	after := plain(alice.get(incident).text)
	has(t, after, "No open case that you may see matches.")
	lacks(t, after, "Nothing waits for a person", "of others some wait")
}

var tags = regexp.MustCompile(`<[^>]*>`)

func plain(text string) string {
	return html.UnescapeString(regexp.MustCompile(`\s+`).ReplaceAllString(tags.ReplaceAllString(text, " "), " "))
}

// Failure: F119
func TestWhatMayHaveHappenedAsksOnceMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	_, err := w.shop.Record(t.Context(), 2, problems.Sum{Transfers: 5})
	require.NoError(t, err)
	w.until(func() bool { return w.open() == dead+5 })
	alice := w.client("alice")
	transfers, refunds := w.entriesOf("transfer", compensator.Dead), w.entriesOf("refund", compensator.Dead)
	for i, do := range []string{"requeue", "compensate", "settle by hand", "cancel", "complete", "requeue succeeded"} {
		e := transfers[i]
		form := values("do", do, "seen", seen(e), "reason", "because")
		if do == "requeue succeeded" {
			e = w.entriesOf("refund", compensator.Succeeded)[0]
			form = values("do", "requeue", "seen", seen(e), "reason", "because")
		} else {
			// Add a second entry, whose outcome is known. The unknown outcome of the first entry must still be
			// confirmed.
			form.Add("seen", seen(refunds[i]))
		}
		for lang, says := range map[string]string{"en": "I have checked", "zh-CN": "我已与下游服务核实"} {
			asked := alice.get("confirm?"+form.Encode(), "Accept-Language", lang)
			has(t, asked.text, `name="sure"`, do)
			has(t, plain(asked.text), says, do)
		}
		refused := alice.post("do", form)
		assert.Equal(t, 422, refused.status, do)
		has(t, plain(refused.text), "Confirm that you have checked", do)
		has(t, refused.text, "because", "the typed text stays")
		assert.False(t, w.changed(t, e), do)
		form.Set("sure", "yes")
		assert.Equal(t, 200, alice.post("do", form).status, do)
		assert.True(t, w.changed(t, e), do)
	}
	form := values("do", "settle by hand", "seen", seen(refunds[5]), "reason", "because")
	lacks(t, alice.get("confirm?"+form.Encode()).text, `name="sure"`, "a known outcome needs no confirmation")
	assert.Equal(t, 200, alice.post("do", form).status)
}

// Failure: F120
func TestCasesAndPausesGoByWhatWasSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	alice, bob := w.client("alice"), w.client("bob")
	refund := w.entriesOf("refund", compensator.Dead)[0]
	at := func(version int) string { return fmt.Sprintf("%s:%d", seen(refund), version) }
	view, err := w.admin.Entry(t.Context(), admin.Actor{ID: "test"}, refund.ID)
	require.NoError(t, err)
	v := int(view.Case.Version)
	assert.Equal(t, 422, alice.post("do", values("do", "take case", "seen", seen(refund), "reason", "mine")).status, "it names no case")
	has(t, plain(alice.post("do", values("do", "take case", "seen", at(v), "reason", "mine")).text), "Done 1")
	has(t, plain(bob.post("do", values("do", "take case", "seen", at(v), "reason", "mine, too")).text), "Changed meanwhile 1")
	assert.Contains(t, plain(bob.get("entries/"+refund.ID.String()).text), "Owner alice")
	has(t, alice.get("cases/due?owner=me").text, "#"+refund.ID.String())
	lacks(t, bob.get("cases/due?owner=me").text, "#"+refund.ID.String())
	assert.Equal(t, 422, alice.post("do", values("do", "assign case", "owner", strings.Repeat("x", 200), "seen", at(v+1), "reason", "r")).status)
	has(t, plain(alice.post("do", values("do", "give back", "seen", at(v+1), "reason", "going home")).text), "Done 1")

	// Take several cases in one request, as the page of cases does.
	page := bob.get("cases/due?type=refund")
	has(t, page.text, `name="do" value="take case"`)
	lacks(t, page.text, `name="do" value="give back"`, "none is his")
	all := []string{"do", "take case", "reason", "all of these"}
	for _, match := range regexp.MustCompile(`name="seen" value="(\d+:\d+:\d+)"`).FindAllStringSubmatch(page.text, -1) {
		all = append(all, "seen", match[1])
	}
	n := (len(all) - 4) / 2
	require.Greater(t, n, 1)
	has(t, plain(bob.get("confirm?"+values(all...).Encode()).text), fmt.Sprintf("Take %d entries", n))
	has(t, plain(bob.post("do", values(all...)).text), fmt.Sprintf("Done %d", n))
	has(t, plain(bob.post("do", values(all...)).text), fmt.Sprintf("Done %d", n), "pressed twice")
	has(t, plain(alice.post("do", values(all...)).text), fmt.Sprintf("Changed meanwhile %d", n))
	has(t, plain(alice.get("confirm?"+values(all...).Encode()).text), fmt.Sprintf("%d of these have changed since you looked", n))
	again := values("do", "assign case", "owner", "  ", "reason", "to whom?", "seen", all[5])
	has(t, plain(alice.post("do", again).text), "Owner: is empty")
	has(t, alice.get("trail?entry="+refund.ID.String()).text, "gave the case back")
	has(t, alice.get("cases/due?who=bob&owner=me").text, "#"+refund.ID.String())
	lacks(t, alice.get("cases/due?who=mei").text, "#"+refund.ID.String())
	has(t, bob.get("cases/due?owner=me").text, `name="do" value="give back"`)
	assert.Equal(t, 200, alice.post("do", values("do", "note", "id", refund.ID.String(), "reason", "call at six")).status)
	has(t, bob.get("entries/"+refund.ID.String()).text, "call at six")

	assert.Equal(t, 200, alice.post("do", values("do", "pause", "type", "refund", "reason", "PSP down")).status)
	assert.Equal(t, 409, bob.post("do", values("do", "pause", "type", "refund", "reason", "PSP down")).status)
	assert.Contains(t, plain(bob.get("").text), "paused by alice PSP down")
	has(t, bob.get("").text, "confirm?back=%2Fops%2F&amp;do=resume&amp;type=refund&amp;version=", "beside the type")
	has(t, bob.get("").text, "confirm?back=%2Fops%2F&amp;do=pause&amp;type=transfer")
	w.allow(func(_ context.Context, _ admin.Actor, right admin.Right, on admin.Subject) bool {
		return right != admin.Pause || on.Type == "transfer"
	})
	lacks(t, bob.get("").text, "do=resume", "it would be in vain")
	has(t, bob.get("").text, "do=pause&amp;type=transfer")
	w.allow(problems.Everything)
	paused, err := w.admin.Paused(t.Context(), admin.Actor{ID: "test"})
	require.NoError(t, err)
	require.Len(t, paused, 1)
	resume := values("do", "resume", "type", "refund", "version", fmt.Sprint(paused[0].Version), "reason", "PSP back")
	assert.Equal(t, 200, bob.post("do", resume).status)
	assert.Equal(t, 409, bob.post("do", resume).status)
}

func TestTypeIsPausedBeforeAnythingOfItIsOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.allow(func(_ context.Context, _ admin.Actor, right admin.Right, on admin.Subject) bool {
		return right != admin.Pause || on.Type == "refund"
	})
	alice := w.client("alice")
	has(t, alice.get("settings").text, `name="type"`)
	pause := values("do", "pause", "type", " refund ", "reason", "PSP is down tonight")
	has(t, alice.get("confirm?"+pause.Encode()).text, `name="type" value="refund"`)
	require.Equal(t, 200, alice.post("do", pause).status)
	has(t, alice.get("settings").text, "PSP is down tonight")
	assert.Equal(t, 403, alice.get("confirm?do=pause&type=mail").status)
	empty := alice.get("confirm?do=pause&type=+")
	assert.Equal(t, 422, empty.status)
	has(t, plain(empty.text), "Type: is empty")
	auditLog, err := w.admin.AuditLog(t.Context(), admin.Actor{ID: "test"}, admin.AuditLogFilter{})
	require.NoError(t, err)
	assert.Len(t, auditLog.Records, 1, "the pause")
}

// Failure: F124
func TestMistypedTypeIsPausedOnlyByWhoMeansIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	alice := w.client("alice")
	pause := values("do", "pause", "type", "refnud", "reason", "PSP is down")
	for lang, says := range map[string]string{"en": "Did you mean refund?", "zh-CN": "您要找的是不是 refund？"} {
		got := alice.post("do", pause, "Accept-Language", lang)
		assert.Equal(t, 422, got.status)
		has(t, plain(got.text), says)
		has(t, got.text, `name="ahead"`)
		has(t, got.text, "PSP is down", "the typed text stays")
	}
	paused, err := w.admin.Paused(t.Context(), admin.Actor{ID: "test"})
	require.NoError(t, err)
	assert.Empty(t, paused)
	pause.Set("ahead", "yes")
	assert.Equal(t, 200, alice.post("do", pause).status)
}

func TestActionsTellWhatStandsInTheirWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	alice, bob := w.client("alice"), w.client("bob")
	refunds := w.entriesOf("refund", compensator.Dead)
	refund := refunds[slices.IndexFunc(refunds, func(e compensator.Entry) bool { return e.EndedBy == compensator.EndedByExhausted })]
	view, err := w.admin.Entry(t.Context(), admin.Actor{ID: "test"}, refund.ID)
	require.NoError(t, err)
	require.NoError(t, joined(w.admin.TakeCases(t.Context(), admin.Actor{ID: "bob"}, []admin.SeenCase{{EntryID: refund.ID, Version: view.Case.Version}}, admin.Why{Reason: "mine"})))
	require.NoError(t, w.admin.Pause(t.Context(), admin.Actor{ID: "mei"}, "refund", admin.Why{Reason: "paid twice"}))

	const theirs, paused = "Another person has the case of 1 of these", "refund is paused by mei. Its entries do not run until it is resumed. paid twice"
	requeue := values("do", "requeue", "seen", seen(refund), "reason", "PSP is back", "delay", "1h0m0s", "back", "/ops/entries?type=refund")
	asked := plain(alice.get("confirm?" + requeue.Encode()).text)
	for _, part := range []string{theirs, "Owner bob", paused, refund.BusinessID} {
		has(t, asked, part)
	}
	lacks(t, plain(bob.get("confirm?"+requeue.Encode()).text), theirs, "it is his own")
	lacks(t, plain(alice.get("confirm?do=note&id="+refund.ID.String()).text), theirs, "a note takes nothing away")
	settle := values("do", "settle by hand", "seen", seen(refund))
	lacks(t, plain(alice.get("confirm?"+settle.Encode()).text), paused, "nothing would run")
	lacks(t, plain(alice.get("entries/"+refund.ID.String()).text), paused, "it would not run anyway")
	const futile = "ended with a permanent error"
	lacks(t, asked, futile)
	mail := values("do", "requeue", "seen", seen(w.entriesOf("invoice_mail", compensator.Dead)[0]))
	has(t, plain(alice.get("confirm?"+mail.Encode()).text), "1 of these "+futile)

	done := plain(alice.post("do", requeue).text)
	assert.Regexp(t, `Done\s+1\s+The work has not run yet`, done)
	has(t, done, "#"+refund.ID.String()+" requeued")
	assert.Regexp(t, `mei paused the type at .{23} : paid twice`, plain(alice.get("entries/"+refund.ID.String()).text), "it waits")
	lacks(t, plain(alice.get("entries/"+w.entriesOf("close_order", compensator.Retrying)[0].ID.String()).text), "paused the type")

	wrong := alice.get("confirm?do=requeue&back=%2Fops%2Fentries%3Ftype%3Drefund")
	assert.Equal(t, 422, wrong.status, "nothing is chosen")
	has(t, wrong.text, `href="/ops/entries?type=refund">Back`)
}

func TestAKeyFindsItsEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	alice := w.client("alice")
	refund := w.entriesOf("refund", compensator.Dead)[0]
	id, page := refund.ID.String(), "/ops/entries/"+refund.ID.String()
	assert.Equal(t, page, alice.get("find?q="+refund.CallKey()).at)
	assert.Equal(t, "/ops/entries?by=business&id="+id+"-1", alice.get("find?q="+id+"-1").at, "it has not had this one yet")
	require.Equal(t, 200, alice.post("do", values("do", "requeue", "seen", seen(refund), "reason", "again")).status)
	for _, key := range []string{id + "-0", id + "-1"} {
		assert.Equal(t, page, alice.get("find?q="+key).at)
	}
	require.NoError(t, w.c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := w.c.Record(ctx, tx, compensator.NewEntry{BusinessType: "close_order", Content: []byte("{}"), Options: compensator.Options{IdempotencyKey: "like a key", BusinessID: id + "-0"}})
		return err
	}))
	assert.Equal(t, "/ops/entries?by=business&id="+id+"-0", alice.get("find?q="+id+"-0").at, "a business id is one first")
}

func TestNoteOfManyLinesKeepsThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	alice := w.client("alice")
	refund := w.entriesOf("refund", compensator.Dead)[0]
	note := values("do", "note", "id", refund.ID.String(), "reason", "asked the bank:\r\n- paid\r\n- not booked\r\n", "ticket", "OPS 991")
	refused := alice.post("do", note)
	require.Equal(t, 422, refused.status, "a ticket has no blanks")
	has(t, refused.text, ">asked the bank:\n- paid\n- not booked</textarea>")
	note.Set("ticket", "")
	require.Equal(t, 200, alice.post("do", note).status)
	auditLog, err := w.admin.AuditLog(t.Context(), admin.Actor{ID: "test"}, admin.AuditLogFilter{Action: "note"})
	require.NoError(t, err)
	require.Len(t, auditLog.Records, 1)
	assert.Equal(t, "asked the bank:\n- paid\n- not booked", auditLog.Records[0].Reason)
	for _, path := range []string{"trail", "entries/" + refund.ID.String()} {
		text := alice.get(path).text
		has(t, text, "asked the bank:\n- paid", path)
		lacks(t, text, "[U+", path)
	}
}

// Failure: F133
func TestLinksOfAListingShowTheSameRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	_, err := w.shop.Record(t.Context(), 2, many)
	require.NoError(t, err)
	w.until(func() bool { return len(w.entriesOf("refund", compensator.Succeeded)) >= many.Fine+theSum.Fine })
	alice := w.client("alice")
	first := alice.get("entries?type=refund&state=succeeded")
	next := regexp.MustCompile(`href="([^"]*)" rel="next"`).FindStringSubmatch(first.text)
	require.NotNil(t, next)
	second := alice.get(html.UnescapeString(next[1]))
	ids := seenBox.FindAllString(second.text, -1)
	require.NotEmpty(t, ids)
	_, err = w.shop.Record(t.Context(), 3, many)
	require.NoError(t, err)
	w.until(func() bool { return len(w.entriesOf("refund", compensator.Succeeded)) > many.Fine+theSum.Fine })
	assert.Equal(t, ids, seenBox.FindAllString(alice.get(html.UnescapeString(next[1])).text, -1))
	back := regexp.MustCompile(`href="([^"]*)" rel="prev"`).FindStringSubmatch(second.text)
	require.NotNil(t, back)
	assert.Equal(t, 200, alice.get(html.UnescapeString(back[1])).status)
	assert.Equal(t, 422, alice.get("entries?from=yesterday").status)
	assert.Equal(t, 422, alice.get("trail?entry=first").status)
	assert.Contains(t, alice.get("find?q="+seen(w.entriesOf("refund", compensator.Dead)[0])[:2]).at, "/ops/e")
}

func TestAuditLogWithoutARowSaysWhy(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	alice := w.client("alice")
	says := func(path string) string {
		return plain(none.FindString(alice.get(path).text)) + plain(none.FindString(alice.get(path, "Accept-Language", "zh").text))
	}
	assert.Equal(t, " There is no record that you may see.  没有您可查看的审计日志。 ", says("trail"))
	require.NoError(t, w.admin.Pause(t.Context(), admin.Actor{ID: "bob"}, "refund", admin.Why{Reason: "PSP down"}))
	const nothing = " No record that you may see matches.  没有符合条件且您可查看的审计日志。 "
	assert.Equal(t, nothing, says("trail?actor=mei"))
	_, err := db.ExecContext(t.Context(), "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<10000) "+
		"INSERT INTO common_process_log_operation(at, actor, action) SELECT i, 'carol', 'export' FROM n")
	require.NoError(t, err)
	assert.Equal(t, " None on this page. There are further pages.  本页没有，后面还有。 ", says("trail?actor=bob"))
	next := regexp.MustCompile(`href="([^"]*)" rel="next"`).FindStringSubmatch(alice.get("trail?actor=bob").text)
	require.NotNil(t, next)
	second := html.UnescapeString(next[1])
	has(t, alice.get(second).text, "PSP down")
	_, err = db.ExecContext(t.Context(), "DELETE FROM common_process_log_operation WHERE actor='bob'")
	require.NoError(t, err)
	assert.Equal(t, " None on this page. This is the last page.  本页没有，后面也没有了。 ", says(second))
	w.allow(func(_ context.Context, _ admin.Actor, right admin.Right, _ admin.Subject) bool {
		return right != admin.SeeAuditLog
	})
	assert.Equal(t, nothing, says("trail?actor=bob"))
}

var none = regexp.MustCompile(`<p class="none">.*</p>`)

// Failure: F133
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	alice := w.client("alice")
	all := values("do", "requeue", "reason", "all")
	for i := range 501 {
		all.Add("seen", fmt.Sprintf("%d:1", i+1))
	}
	assert.Equal(t, 422, alice.post("do", all).status)
	assert.Equal(t, 413, alice.post("do", values("do", "requeue", "reason", strings.Repeat("x", 1<<20))).status)
	alice.hasty = true
	refused := false
	for range 10_000 {
		if refused = alice.post("preferences", values()).status == http.StatusTooManyRequests; refused {
			break
		}
	}
	assert.True(t, refused, "more than 5 actions a second")
	assert.Equal(t, 404, w.client("bob").get("assets/x").status, "each for himself")
}

// An unknown client announces a thousand bytes and sends eight.
func TestSlowBodyIsAnsweredBeforeItArrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(w.url, "http://"), w.base))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(conn, "POST /ops/do HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nreason=x")
	require.NoError(t, err)
	all, err := io.ReadAll(conn)
	require.NoError(t, err, "the connection stays open")
	assert.Contains(t, string(all), "HTTP/1.1 401 Unauthorized")
	assert.Contains(t, string(all), "Connection: close")
}

// Failure: F133
func TestEveryLinkIsUnderTheBase(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"/", "/a/", "/a/b/"} {
		t.Run(base, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, base)
			w.problem()
			refund := w.entriesOf("refund", compensator.Dead)[0]
			alice := w.client("alice")
			seenLinks := make(map[string]bool)
			for _, path := range []string{"", "entries?type=refund&state=dead", "entries/" + refund.ID.String(), "cases", "trail", "settings", "confirm?do=requeue&seen=" + seen(refund)} {
				page := alice.get(path)
				require.Equal(t, 200, page.status, path)
				for _, link := range linkIn.FindAllStringSubmatch(page.text, -1) {
					to := html.UnescapeString(link[1])
					if strings.HasPrefix(to, "#") || seenLinks[to] {
						continue
					}
					seenLinks[to] = true
					if assert.True(t, strings.HasPrefix(to, base), to) && strings.HasPrefix(link[0], "href") && len(seenLinks) < 40 {
						assert.Equal(t, 200, alice.get(to).status, to)
					}
				}
			}
			css := regexp.MustCompile(`href="([^"]*app-[0-9a-f]{12}\.css)"`).FindStringSubmatch(alice.get("").text)
			require.NotNil(t, css)
			assert.Contains(t, alice.get(css[1]).header.Get("Cache-Control"), "immutable")
			for _, elsewhere := range []string{"https://evil.example/", "//evil.example/", `/\evil.example`, "javascript:alert(1)", base + "../../evil"} {
				got := alice.get("confirm?do=pause&type=a&back=" + values("", elsewhere).Encode()[1:])
				lacks(t, got.text, `href="`+html.EscapeString(elsewhere), elsewhere)
				lacks(t, got.text, `href="https:`)
			}
		})
	}
}

func TestPagesSpeakTheReadersLanguage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	alice := w.client("alice")
	has(t, alice.get("").text, `lang="en"`)
	has(t, alice.get("", "Accept-Language", "de, zh-TW;q=0.8").text, `lang="zh-CN"`)
	has(t, alice.post("preferences", values("language", "zh-CN", "theme", "dark", "back", "/ops/trail")).text, `lang="zh-CN" data-theme="dark"`)
	has(t, alice.get("settings").text, "已暂停的类型")
}

func TestRefusalsSpeakTheReadersLanguage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	alice := w.client("alice")
	long := strings.Repeat("x", 65)
	for _, path := range []string{"entries?from=yesterday", "entries?to=yesterday", "entries?state=broken", "entries?ended_by=magic", "entries?c=x",
		"entries?type=a&c=" + base64.RawURLEncoding.EncodeToString([]byte("0.id<.1.1")), "entries?type=%ff", "trail?entry=first", "trail?from=yesterday", "trail?c=x", "cases/due?c=x",
		"cases/due?failure=x", "confirm?do=requeue", "confirm?do=magic", "confirm?do=pause&type=+"} {
		english, chinese := alice.get(path), alice.get(path, "Accept-Language", "zh")
		assert.Equal(t, []int{422, 422}, []int{english.status, chinese.status}, path)
		said := func(a answer) string { return plain(badBanner.FindString(a.text)) }
		assert.Regexp(t, `: [A-Z][a-z ]+: .`, said(english), path)
		assert.NotRegexp(t, `compensator:|LastError`, said(english), path)
		words := regexp.MustCompile(`"[^"]*"|UTF-8|ID|2006-01-02T15:04`).ReplaceAllString(said(chinese), "")
		assert.Regexp(t, `\p{Han}：.*\p{Han}`, words, path)
		assert.NotRegexp(t, `[A-Za-z]`, words, path)
	}
	refused := alice.post("do", values("do", "pause", "type", long, "reason", "down"), "Accept-Language", "zh")
	has(t, plain(refused.text), "未做任何更改：类型：应为 1 至 64 个字符")
	has(t, plain(alice.post("do", values("do", "pause", "type", "a"), "Accept-Language", "zh").text), "原因：不能为空")
}

var badBanner = regexp.MustCompile(`<p class="banner bad".*</p>`)

// Failure: F122
func TestNewRefusesWhatLetsEverybodyIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	for field, opts := range map[string]ui.Options{
		"Identify":       {Base: "/"},
		"Base":           {Identify: identify, Base: "ops"},
		"TrustedOrigins": {Identify: identify, TrustedOrigins: []string{"nowhere/at/all"}},
	} {
		_, err := ui.New(opts, w.admin)
		var refused *compensator.FieldError
		require.ErrorAs(t, err, &refused, field)
		assert.Equal(t, field, refused.Field)
	}
	_, err := ui.New(ui.Options{Identify: identify}, nil)
	require.Error(t, err)
}

var many = problems.Sum{Fine: 60}

// has checks that text contains part. A failure message contains only part and not text, because a page is long.
func has(t *testing.T, text, part string, what ...any) {
	t.Helper()
	assert.True(t, strings.Contains(text, part), "no %q %v", part, what)
}

func lacks(t *testing.T, text, part string, what ...any) {
	t.Helper()
	assert.False(t, strings.Contains(text, part), "%q %v", part, what)
}

func TestOverviewLeadsToTheTypesThatItLeavesOut(t *testing.T) {
	t.Parallel()
	c, _ := sqlitetest.New(t, configure)
	for n := range 12 {
		_, err := compensator.Handle(t.Context(), c, fmt.Sprintf("calm_%02d", n), func(context.Context, *compensator.Entry, struct{}) error { return nil }, nil)
		require.NoError(t, err)
	}
	w := worldOf(t, c, "/ops/")
	w.problem()
	require.NoError(t, w.c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		for n := range 12 {
			e := compensator.NewEntry{BusinessType: fmt.Sprintf("calm_%02d", n), Content: []byte("{}"), Options: compensator.Options{Delay: time.Hour}}
			if _, err := w.c.Record(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	}))
	alice := w.client("alice")
	short, whole := alice.get("").text, alice.get("?types=all").text
	assert.Contains(t, short, `href="/ops/?types=all#types"`)
	assert.NotContains(t, short, "calm_11")
	for n := range 12 {
		assert.Contains(t, whole, fmt.Sprintf("calm_%02d", n))
	}
	assert.NotContains(t, whole, "types=all#types")
	for _, page := range []string{short, whole} {
		assert.Contains(t, page, "type=refund", "dead entries stand on both pages")
	}
	for n := range 12 {
		require.NoError(t, w.admin.Pause(t.Context(), admin.Actor{ID: "alice"}, fmt.Sprintf("calm_%02d", n), admin.Why{Reason: "the shipper is down"}))
	}
	short = alice.get("").text
	for n := range 12 {
		assert.Contains(t, short, fmt.Sprintf("calm_%02d", n), "types with problems are never left out")
	}
}

func joined(answers []error, err error) error { return errors.Join(append(answers, err)...) }
