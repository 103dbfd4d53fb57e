package uitest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

func (w *world) overTheWire(who, path string, set ...string) (*http.Response, []byte) {
	w.t.Helper()
	home, err := url.Parse(w.url)
	require.NoError(w.t, err)
	conn, err := new(net.Dialer).DialContext(w.t.Context(), "tcp", home.Host)
	require.NoError(w.t, err)
	defer conn.Close()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+path, nil)
	require.NoError(w.t, err)
	r.Close = true
	r.Header.Set(whoHeader, who)
	r.Header.Set("Accept-Encoding", "gzip, deflate, br")
	for i := 0; i < len(set); i += 2 {
		r.Header.Set(set[i], set[i+1])
	}
	require.NoError(w.t, r.Write(conn))
	all, err := io.ReadAll(conn)
	require.NoError(w.t, err)
	got, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(all)), r)
	require.NoError(w.t, err)
	require.NoError(w.t, got.Body.Close())
	return got, all
}

// Failure: F133
func TestRefreshOfWhatHasNotChangedIsAFewBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	for _, path := range []string{"", "cases", "cases/due", "entries"} {
		round := 0
		w.until(func() bool { // Try again, because durations on the page may change between two requests.
			round++
			who := fmt.Sprint("reader ", round, path) // Use a new name each time, so that no limit applies.
			first, _ := w.overTheWire(who, path)
			require.Equal(t, 200, first.StatusCode)
			tag := first.Header.Get("ETag")
			require.NotEmpty(t, tag)
			again, all := w.overTheWire(who, path, "If-None-Match", tag)
			if again.StatusCode == 200 {
				require.NotEqual(t, tag, again.Header.Get("ETag"))
				return false
			}
			require.Equal(t, 304, again.StatusCode)
			assert.Less(t, len(all), 300, string(all))
			assert.Equal(t, "no-store", again.Header.Get("Cache-Control"))
			weak, _ := w.overTheWire(who, path, "If-None-Match", "W/"+tag) // A proxy that compresses answers makes the tag weak.
			return weak.StatusCode == 304
		})
	}
	overview, _ := w.overTheWire("alice", "")
	require.NoError(t, w.admin.Pause(t.Context(), admin.Actor{ID: "alice"}, "refund", admin.Why{Reason: "PSP down"}))
	changed, _ := w.overTheWire("alice", "", "If-None-Match", overview.Header.Get("ETag"))
	assert.Equal(t, 200, changed.StatusCode)
	_, err := http.ParseTime(changed.Header.Get("Last-Modified"))
	require.NoError(t, err, "as of when what it tells is")
	still, _ := w.overTheWire("bob", "", "If-None-Match", changed.Header.Get("ETag"))
	assert.NotEmpty(t, still.Header.Get("Last-Modified"), "%d", still.StatusCode)
}

// ownOfAnswer matches the parts that differ in every answer: the nonce, and the time.
var ownOfAnswer = regexp.MustCompile(`nonce="[^"]*"|<p class="live"><span>.*?</time></span>`)

// The server computes the overview's ETag without making the page.
func TestTagOfTheOverviewStandsForAllThatItSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	w.allow(func(_ context.Context, a admin.Actor, right admin.Right, on admin.Subject) bool {
		switch a.ID {
		case "half":
			return on.Type != "refund"
		case "watcher":
			return right != admin.Pause
		case "blind":
			return right != admin.SeeErrors
		case "narrow":
			return right == admin.SeeOverview && on.Type == "refund"
		}
		return true
	})
	pages := make(map[string]string) // pages by tag
	look := func() {
		for _, who := range []string{"alice", "half", "watcher", "blind", "narrow"} {
			for _, how := range [][]string{{}, {"Accept-Language", "zh-CN"}, {"Cookie", "compensator_theme=dark"}, {"Cookie", "compensator_theme=light; compensator_language=zh-CN"}} {
				for _, path := range []string{"", "?from=elsewhere"} {
					got := w.client(who).get(path, how...)
					require.Equal(t, 200, got.status, got.text)
					page, tag := ownOfAnswer.ReplaceAllString(got.text, ""), got.header.Get("ETag")
					require.NotEmpty(t, tag)
					if before, known := pages[tag]; known {
						require.Equal(t, before, page, "two pages have one tag")
					}
					pages[tag] = page
				}
			}
		}
	}
	look()
	require.Len(t, pages, 5*4*2, "whoever looks, in every way, sees another page")
	alice, why := admin.Actor{ID: "alice"}, admin.Why{Reason: "PSP down"}
	require.NoError(t, w.admin.Pause(t.Context(), alice, "refund", why))
	look()
	e := w.entriesOf("refund", compensator.Dead)[0]
	answers, err := w.admin.Change(t.Context(), alice, admin.Change{Action: admin.SettleManually, Entries: []admin.Seen{{ID: e.ID, Version: e.Version}}, Why: why})
	require.NoError(t, err)
	require.NoError(t, answers[0])
	look()
	require.Greater(t, len(pages), 5*4*2, "what was done shows")
	w.allow(func(_ context.Context, _ admin.Actor, right admin.Right, _ admin.Subject) bool {
		return right != admin.Pause
	})
	look()
}

// Another site can make a browser request any address, and the length of a compressed answer could tell that site
// something.
// Failure: F130
func TestPagesAreCompressedOnlyWhereNobodyElseHasAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	plain, _ := w.overTheWire("bob", "entries?type=refund", "Accept-Encoding", "identity")
	assert.Empty(t, plain.Header.Get("Content-Encoding"))
	for site, want := range map[string]string{"same-origin": "gzip", "none": "gzip", "same-site": "", "cross-site": "", "": ""} {
		got, _ := w.overTheWire("bob", "entries?type=refund", "Sec-Fetch-Site", site)
		assert.Equal(t, 200, got.StatusCode)
		assert.Equal(t, want, got.Header.Get("Content-Encoding"), "%q", site)
	}
	for accepts, want := range map[string]string{"gzip": "gzip", "br, GZIP ; q=0.5": "gzip", "gzip;q=0": "", "br": "", "": ""} {
		got, _ := w.overTheWire("carol", "", "Sec-Fetch-Site", "none", "Accept-Encoding", accepts)
		assert.Equal(t, want, got.Header.Get("Content-Encoding"), accepts)
	}
	e := w.entriesOf("refund", -2)[0]
	post := w.client("alice").post("reveal", values("id", e.ID.String(), "reason", "buyer called"), "Sec-Fetch-Site", "same-origin", "Accept-Encoding", "gzip")
	require.Equal(t, 200, post.status)
	assert.Empty(t, post.header.Get("Content-Encoding"))
	has(t, post.text, "currency")
}

var assetIn = regexp.MustCompile(`(?:href|src)="/ops/(assets/[^"]+)"`)

// Failure: F133
func TestFirstLoadIsSmall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.problem()
	page, all := w.overTheWire("carol", "", "Sec-Fetch-Site", "none")
	require.Equal(t, "gzip", page.Header.Get("Content-Encoding"))
	_, body, found := bytes.Cut(all, []byte("\r\n\r\n"))
	require.True(t, found)
	unpacked, err := gzip.NewReader(bytes.NewReader(body))
	require.NoError(t, err)
	text, err := io.ReadAll(unpacked)
	require.NoError(t, err)
	assert.Less(t, len(all), 12_000, "html")
	requests, sum := 1, len(all)
	for _, asset := range assetIn.FindAllStringSubmatch(string(text), -1) {
		got, all := w.overTheWire("carol", asset[1])
		assert.Equal(t, "gzip", got.Header.Get("Content-Encoding"), asset[1])
		assert.Less(t, len(all), 10_000, asset[1])
		requests++
		sum += len(all)
	}
	assert.Equal(t, 4, requests)
	assert.Less(t, sum, 50_000)
}
