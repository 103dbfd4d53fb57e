package uitest

import (
	"html"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
)

func TestPagesOfAPausedTypeSayThatItIsPaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	alice := w.client("alice")
	lacks(t, alice.get("entries?type=refund").text, "is paused by")
	form := values("do", "pause", "type", "refund", "length", "30m0s", "reason", "PSP is down", "back", "/ops/")
	has(t, alice.get("confirm?"+form.Encode()).text, "for 30 min")
	done := plain(alice.post("do", form).text)
	assert.Regexp(t, `Its entries do not run until \d{4}-`, done)
	for _, path := range []string{"entries?type=refund", "stats?type=refund"} {
		page := alice.get(path).text
		assert.Regexp(t, `refund is paused by alice. Its entries do not run until \d{4}-.* PSP is down`, plain(page), path)
		has(t, page, "Resume refund")
	}
	lacks(t, alice.get("entries?type=mail").text, "is paused by")
	trail := plain(alice.get("trail").text)
	assert.Regexp(t, `alice paused refund until \d{4}-`, trail)
	lacks(t, trail, "for 30m0s")
}

func TestMistypedTimeZoneIsAskedAgain(t *testing.T) {
	t.Parallel()
	alice := newWorld(t, "/ops/").client("alice")
	wrong := alice.post("preferences", values("zone", "shanghai", "back", "/ops/settings"))
	assert.Equal(t, 422, wrong.status)
	has(t, plain(wrong.text), "There is no time zone shanghai. Did you mean Asia/Shanghai?")
	has(t, wrong.text, `name="zone" value="shanghai"`)
	lacks(t, alice.post("preferences", values("zone", "Nowhere", "back", "/ops/settings")).text, "Did you mean")
}

func TestEntriesOfAUserAreOneClickAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	refund := w.entriesOf("refund", compensator.Dead)[0]
	require.NotEmpty(t, refund.UserID)
	alice := w.client("alice")
	link := regexp.MustCompile(`<a href="([^"]*user=[^"]*)"`).FindStringSubmatch(alice.get("entries/" + refund.ID.String()).text)
	require.NotNil(t, link)
	has(t, alice.get(html.UnescapeString(link[1])).text, "#"+refund.ID.String())
	found := alice.get("find?q=" + refund.UserID)
	link = regexp.MustCompile(`<a href="([^"]*user=[^"]*)">Recent entries of the user`).FindStringSubmatch(found.text)
	require.NotNil(t, link)
	recent := alice.get(html.UnescapeString(link[1]))
	assert.Equal(t, 200, recent.status)
	has(t, recent.at, "from=")
	has(t, recent.text, "#"+refund.ID.String())
	newest, err := admin.Of(w.c).List(t.Context(), admin.Filter{Newest: true, Limit: 1})
	require.NoError(t, err)
	far := alice.get("find?q=99999999").text
	assert.Regexp(t, `Did you mean.* #`+newest.Entries[0].ID.String()+` *\?`, plain(far))
}

func TestTimelineSaysThatSuccessesAreNotKept(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	_, err := db.ExecContext(t.Context(), `INSERT INTO common_process_log (idempotent_id, business_type, content, state, ended_by, next_at, created_at, updated_at)
		VALUES ('good', 'many', '{}', 1, 'handler', ?, 1, 1)`, time.Now().UnixMilli())
	require.NoError(t, err)
	good := w.entriesOf("many", compensator.Succeeded)[0]
	alice := w.client("alice")
	page := alice.get("entries/" + good.ID.String()).text
	has(t, page, "Successful attempts are not kept.")
	has(t, plain(page), "Nothing: it has ended.")
	assert.NotRegexp(t, `class="button main"[^>]*do=requeue`, page)
	require.Equal(t, 200, alice.post("do", values("do", "requeue", "seen", seen(good), "reason", "again", "sure", "yes", "back", "/ops/")).status)
	has(t, alice.get("entries/"+good.ID.String()).text, "It had succeeded before.")
}
