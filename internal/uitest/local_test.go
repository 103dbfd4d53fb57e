package uitest

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/desk"
	"github.com/compensator-go/compensator/ui"
	"github.com/compensator-go/compensator/ui/local"
)

// Who follows the link from a page of another site, a chat's for one, is let in as who types it.
func TestLinkOnAnotherSitesPageLetsIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	listener, err := local.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	links, served := make(chan string, 1), make(chan error, 1)
	go func() {
		served <- local.Serve(ctx, listener, w.desk, desk.Actor{ID: "alice"}, ui.Options{Base: "/ops/"}, func(link string) { links <- link })
	}()
	t.Cleanup(func() { stop(); assert.NoError(t, <-served) })
	b := openTab(t, w, "nobody")
	b.do(chromedp.Navigate(`data:text/html,<a id="in" href="`+<-links+`">in</a>`), chromedp.Click("#in"))
	b.arrive(`location.pathname === "/ops/" && document.body.innerText.includes("Overview")`)
}
