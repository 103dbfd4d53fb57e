package uitest

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
)

// count stores counts for the present minute minus age, and returns the start of that minute.
func count(t *testing.T, db *sql.DB, businessType string, age time.Duration, recorded, succeeded, failed, dead int) time.Time {
	t.Helper()
	at := time.Now().UTC().Truncate(time.Minute).Add(-age)
	_, err := db.Exec("INSERT INTO common_process_log_stat (instance, `at`, business_type, recorded, succeeded, failed, dead, took_20ms, took_5s, late_100ms) VALUES ('', ?, ?, ?, ?, ?, ?, 90, 10, 100)",
		at.UnixMilli(), businessType, recorded, succeeded, failed, dead)
	require.NoError(t, err)
	return at
}

func TestTrendIsReadableWithoutScript(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	at := count(t, db, "refund", 30*time.Minute, 41, 30, 12, 3)
	count(t, db, "refund", 90*time.Minute, 1000, 1000, 0, 0)
	count(t, db, "salary", 30*time.Minute, 7, 7, 0, 0)
	alice := w.client("alice")
	for _, page := range []struct{ path, minute, recorded string }{
		{"", at.Format("2006-01-02 15:04 UTC") + ": 48 recorded, 37 succeeded, 12 failed attempts, 3 dead", "<b>1,048</b>"},
		{"stats?type=refund", at.Format("2006-01-02 15:04 UTC") + ": 41 recorded, 30 succeeded, 12 failed attempts, 3 dead", "<b>1,041</b>"},
	} {
		text := alice.get(page.path).text
		_, trend, found := strings.Cut(text, `<h2 id="trend">Over time</h2>`)
		require.True(t, found, page.path)
		trend, _, _ = strings.Cut(trend, "</section>")
		assert.Contains(t, trend, page.minute)
		assert.Contains(t, trend, page.recorded)
		assert.Equal(t, 4, strings.Count(trend, `<path class="c-`), "a series each")
		assert.Contains(t, trend, "from="+strings.ReplaceAll(at.Format("2006-01-02T15:04"), ":", "%3A"))
		assert.Contains(t, trend, "to="+strings.ReplaceAll(at.Add(time.Minute).Format("2006-01-02T15:04"), ":", "%3A"))
		_, numbers, _ := strings.Cut(trend, "<details")
		assert.Contains(t, numbers, ">1,000</td>", "the numbers are text, too")
		dead := "entries?ended_from=" + strings.ReplaceAll(at.Format("2006-01-02T15:04"), ":", "%3A")
		assert.Contains(t, trend, dead, "the lane of dead entries links to those that died in the minute")
		assert.Regexp(t, `ended_from=[^"]*&amp;state=dead[^"]*">3</a></td>`, numbers)
		assert.Regexp(t, `15 min until \d\d:\d\d UTC: 0 died, 0 attempts failed. 15 min before: 3 died, 12 attempts failed.`, trend)
	}
	assert.Contains(t, alice.get("?over=7d").text, `<a href="/ops/?over=7d" aria-current="true">7 days</a>`)
	rates := alice.get("stats?sort=ended").text
	refund, salary := strings.Index(rates, "<bdi>refund</bdi>"), strings.Index(rates, "<bdi>salary</bdi>")
	require.Positive(t, refund)
	assert.Less(t, refund, salary, "the type with the highest rate comes first")
	for _, want := range []string{"1.2 %", "11.4", `aria-sort="descending"`} { // 12 of 1042 attempts failed; 1,033 entries ended in the 91 minutes since the first one
		has(t, rates, want)
	}
	has(t, alice.get("entries?type=refund").text, `href="/ops/stats?type=refund"`)
	w.allow(func(_ context.Context, _ admin.Actor, _ admin.Right, on admin.Subject) bool {
		return on.Type != "salary"
	})
	bob := w.client("bob")
	for _, path := range []string{"", "stats", "stats?over=7d"} {
		lacks(t, bob.get(path).text, "<bdi>salary</bdi>")
	}
	has(t, bob.get("stats?type=salary").text, "Nothing was counted")
	has(t, bob.get("").text, "<b>1,041</b>")
}

func TestTrendIsAccessible(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	for i := range 170 {
		ago := time.Duration(i+1) * time.Minute
		count(t, db, "refund", ago, 40+i%23, 30+i%19, i%7, max(0, i%40-37))
		count(t, db, "invoice_mail", ago, 5+i%3, 5, 0, 0)
	}
	b := openTab(t, w, "alice")
	for _, lang := range []string{"en", "zh-CN"} {
		for name, path := range map[string]string{"trend": "", "rates": "stats", "type": "stats?type=refund"} {
			b.look(lang, "light", 1280)
			b.open(path)
			b.arm()
			b.showWell(name, lang)
			assert.True(t, b.holds(`document.querySelectorAll("*").length <= 1500`), "%s has too many nodes", name)
			b.quiet(name + "-" + lang)
		}
	}
}

// began stores the row of a process that began this long ago, and that was last seen a minute ago.
func began(t *testing.T, db *sql.DB, name, build string, ago time.Duration) {
	t.Helper()
	now := time.Now()
	_, err := db.Exec("INSERT INTO common_process_log_instance (id, name, `library`, build, started_at, seen_at, running, queue, types) VALUES (?, ?, 'v0.1.0', ?, ?, ?, 1, '', '[]')",
		[]byte((name + "        ")[:8]), name, build, now.Add(-ago).UnixMilli(), now.Add(-time.Minute).UnixMilli())
	require.NoError(t, err)
}

func TestDeploysAreMarkedOverTime(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	for i := range 170 {
		count(t, db, "refund", time.Duration(i+1)*time.Minute, 40+i%23, 30+i%19, i%7, 0)
	}
	began(t, db, "api-1a", "v1.2.2", 50*time.Hour)
	began(t, db, "api-2a", "v1.2.3", 160*time.Minute)
	began(t, db, "api-2b", "v1.2.3", 150*time.Minute)
	began(t, db, "api-3a", "v0.0.0-20261128043210-abcdef123456", 20*time.Minute)
	alice := w.client("alice")
	for _, page := range []string{"", "stats", "stats?type=refund"} {
		text := alice.get(page).text
		assert.Equal(t, 2, strings.Count(text, "<line "), page)
		has(t, text, time.Now().Add(-160*time.Minute).UTC().Format("2006-01-02 15:04")+" UTC build v1.2.3")
		has(t, text, "<tspan> build</tspan> v1.2.3</text>")
		has(t, text, "build v0.0.0-20261128043210-abcdef123456")
		lacks(t, text, "v1.2.2.")
	}
	assert.Equal(t, 3, strings.Count(alice.get("stats?over=7d").text, "<line "))
	w.allow(func(_ context.Context, _ admin.Actor, _ admin.Right, on admin.Subject) bool {
		return on.Type == "refund"
	})
	lacks(t, w.client("bob").get("stats").text, "v1.2.3")
	w.allow(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })

	b := openTab(t, w, "alice")
	for _, lang := range []string{"en", "zh-CN"} {
		for name, path := range map[string]string{"deploys": "stats", "deploys-week": "stats?over=7d", "deploys-type": "stats?type=refund"} {
			b.look(lang, "light", 1280)
			b.open(path)
			b.arm()
			b.showWell(name, lang)
			for _, width := range []int64{360, 800, 1280} {
				for _, scheme := range []string{"light", "dark"} {
					b.look(lang, scheme, width)
					assert.True(t, b.holds(`(() => {
						const texts = [...document.querySelectorAll(".marks text")], panel = document.querySelector(".chart").getBoundingClientRect();
						const ground = getComputedStyle(document.querySelector(".chart")).backgroundColor;
						return texts.length >= 2 && texts.every((text, i) => {
							const at = text.getBoundingClientRect(), line = text.previousElementSibling.getBoundingClientRect();
							return at.width > 20 && at.left >= panel.left && at.right <= panel.right && line.height > 144 && getComputedStyle(text).fill !== ground &&
								texts.slice(i + 1).every((other) => other.getBoundingClientRect().top >= at.bottom - 2);
						});
					})()`), "%s in %s at %d in %s", name, lang, width, scheme)
				}
			}
			b.quiet(name + "-" + lang)
		}
	}
}

// The pages themselves count at most 1,000 waiting entries.
func TestPagesSayHowManyEntriesWait(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{10 * time.Minute, 2 * time.Minute} {
		c, db := sqlitetest.New(t, configure)
		_, err := db.Exec("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<1500) INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at)" +
			" SELECT 'waits '||i, 'close_order', '{}', 9000000000000, '2026-01-01 00:00:00.000', '2026-01-01 00:00:00.000' FROM n")
		require.NoError(t, err)
		counted := time.Now().Add(-age).UnixMilli()
		_, err = db.Exec("INSERT INTO common_process_log_stat (instance, `at`, business_type, last_at, recorded, started) VALUES (' backlog', 0, '', ?, 0, 0), (' backlog', ?, 'close_order', 0, 1234567, 1234)", counted, counted)
		require.NoError(t, err)
		alice := worldOf(t, c, "/ops/").client("alice")
		for _, page := range []string{"", "stats"} {
			text := alice.get(page).text
			if age > 5*time.Minute {
				has(t, text, "at least 1,000")
				lacks(t, text, "were counted")
				continue
			}
			has(t, text, "1,234,567")
			has(t, text, "Numbers above 1,000 were counted 2 min ago.")
			lacks(t, text, "at least 1,000")
		}
		if age < 5*time.Minute {
			has(t, alice.get("stats").text, ">1,234</td>")
		}
	}
}
