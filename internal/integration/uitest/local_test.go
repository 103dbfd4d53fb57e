package uitest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/ui"
	"github.com/compensator-go/compensator/ui/local"
)

// servedLocally returns the link with the token.
func servedLocally(t *testing.T, w *world) string {
	t.Helper()
	listener, err := local.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	links, served := make(chan string, 1), make(chan error, 1)
	go func() {
		served <- local.Serve(ctx, listener, admin.Actor{ID: "alice"}, ui.Options{Base: "/ops/"}, func(link string) { links <- link }, w.admin)
	}()
	t.Cleanup(func() { stop(); assert.NoError(t, <-served) })
	return <-links
}

// A person follows the link from a page of another site, such as a chat.
// Failure: F136
func TestLinkOnAnotherSitesPageLetsIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	link := servedLocally(t, w)
	b := openTab(t, w, "nobody")
	b.do(chromedp.Navigate(`data:text/html,<a id="in" href="`+link+`">in</a>`), chromedp.Click("#in"))
	b.arrive(`location.pathname === "/ops/" && document.body.innerText.includes("Overview")`)
}

// Failure: F136
func TestCookieOfTheSessionReachesNoOtherPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	link := servedLocally(t, w)
	var mu sync.Mutex
	var sent []string
	asked := make(chan struct{}, 100)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		for _, cookie := range r.Cookies() {
			sent = append(sent, cookie.Name)
		}
		asked <- struct{}{}
	}))
	defer other.Close()
	b := openTab(t, w, "somebody")
	b.do(chromedp.Navigate(link))
	b.arrive(`location.pathname === "/ops/" && document.body.innerText.includes("Overview")`)
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		cookies, err := network.GetCookies().Do(ctx)
		for _, cookie := range cookies {
			if cookie.Name == "compensator_session" {
				assert.False(t, cookie.Session, "the cookie survives the end of the browser")
				assert.Equal(t, "/ops/", cookie.Path)
			}
		}
		return err
	}))
	elsewhere, err := url.Parse(other.URL)
	require.NoError(t, err)
	for _, host := range []string{"127.0.0.1", "other.localhost"} {
		b.do(chromedp.Navigate("http://" + host + ":" + elsewhere.Port() + "/ops/"))
		<-asked
	}
	mu.Lock()
	defer mu.Unlock()
	assert.NotContains(t, sent, "compensator_session")
	at, err := url.Parse(link)
	require.NoError(t, err)
	for _, path := range []string{"/ops/", at.RequestURI()} {
		got, err := http.Get("http://127.0.0.1:" + at.Port() + path)
		require.NoError(t, err)
		require.NoError(t, got.Body.Close())
		assert.Equal(t, http.StatusMisdirectedRequest, got.StatusCode, path)
	}
	assert.True(t, strings.HasSuffix(at.Hostname(), ".localhost"))
}
