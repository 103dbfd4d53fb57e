package uitest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
)

func TestPartOfAnIDFindsEntriesAndAWrongOneNamesSimilarIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	refund := w.entriesOf("refund", compensator.Dead)[0]
	id := refund.BusinessID
	require.Greater(t, len(id), 4)
	wrong := id[:len(id)-2] + "zz"
	b := openTab(t, w, "alice")
	for lang, says := range map[string]string{"en": "Did you mean", "zh-CN": "您要找的是否是"} {
		b.look(lang, "light", 360)
		b.open("")
		b.press("/")
		b.do(b.until(`document.activeElement.id === "find"`), chromedp.Evaluate(`document.activeElement.value = ""`, nil)) // The keys of a test type the slash, too.
		b.press(id[:len(id)-1])
		b.press(kb.Enter)
		b.arrive(`location.pathname === "/ops/entries" && location.search.includes("prefix=yes")`)
		assert.True(t, b.holds(fmt.Sprintf(`[...document.querySelectorAll("#live tbody .id .sub")].some(e => e.textContent === %q)`, id)), lang)
		assert.True(t, b.holds(`document.querySelector('[name="prefix"]').checked`))
		b.arm()
		b.accessible("prefix-"+lang, wcag)
		b.requireFit(360, "find "+lang)
		b.press("/")
		b.do(b.until(`document.activeElement.id === "find"`), chromedp.Evaluate(`document.activeElement.value = ""`, nil))
		b.press(wrong)
		b.press(kb.Enter)
		b.arrive(fmt.Sprintf(`document.querySelector("#live .none")?.textContent.includes(%q)`, says))
		b.photograph("near-" + lang + "-light-360")
		b.do(chromedp.Focus(`#live .none a`))
		b.press(kb.Enter)
		b.arrive(`location.search.includes("by=business") && document.querySelectorAll("#live tbody tr").length > 0`)
		b.quiet("find " + lang)
	}
}

func TestSearchesWorkWithoutScript(t *testing.T) {
	t.Parallel()
	w := newServerWorld(t, "/ops/")
	w.problem()
	refund := w.entriesOf("refund", compensator.Dead)[0]
	alice := w.client("alice")
	id := refund.BusinessID
	found := alice.get("find?q=" + id[:len(id)-1])
	assert.Contains(t, found.at, "prefix=yes")
	has(t, found.text, refund.ID.String())
	has(t, found.text, `<input type="hidden" name="prefix" value="yes">`)
	assert.NotContains(t, alice.get("find?q="+id).at, "prefix", "the whole id finds it without looking for others")
	for _, wildcard := range []string{"%25", "_", id[:2] + "%25"} {
		assert.Contains(t, alice.get("find?q="+wildcard).at, "by=business")
		assert.NotContains(t, alice.get("entries?prefix=yes&id="+wildcard).text, `name="seen"`, "a wildcard is a letter as any other")
	}
	missing := alice.get("find?q=" + id[:len(id)-1] + "zz").text
	has(t, missing, "Did you mean")
	has(t, missing, ">"+id+"</bdi>")
	user := alice.get("entries?type=refund&user=" + refund.UserID).text
	has(t, user, refund.ID.String())
	assert.NotContains(t, alice.get("entries?type=refund&user=nobody").text, `name="seen"`)
	recent := alice.get("entries?user=" + refund.UserID)
	has(t, recent.at, "from=")
	has(t, recent.text, refund.ID.String())
}

func TestEntriesAreListedByTheirEndAndTheirDueTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	alice := w.client("alice")
	const minute = "2006-01-02T15:04"
	from, to := time.Now().UTC().Add(-time.Hour).Format(minute), time.Now().UTC().Add(time.Hour).Format(minute)
	ended := alice.get("entries?state=dead&ended_from=" + from + "&ended_to=" + to).text
	assert.Equal(t, dead, strings.Count(ended, `name="seen"`))
	has(t, ended, `name="ended_from" value="`+from+`"`)
	assert.NotContains(t, alice.get("entries?state=dead&ended_to="+from).text, `name="seen"`)
	assert.NotContains(t, alice.get("entries?due_to="+from).text, `name="seen"`)
	refused := alice.get("entries?state=dead&due_to=" + to)
	assert.Equal(t, 422, refused.status)
	has(t, refused.text, "an entry has a due time until it has ended")
}
