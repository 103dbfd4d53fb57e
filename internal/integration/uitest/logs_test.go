package uitest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
	"github.com/compensator-go/compensator/internal/integration/uitest/problems"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/ui"
)

// newLogs returns two logs whose pages one server shows, each under its own address. The fields base and url of a
// returned world lead to the pages of its log.
func newLogs(t *testing.T, base string) (orders, stock *world) {
	t.Helper()
	name := func(name string) func(cfg *compensator.Config) {
		return func(cfg *compensator.Config) { configure(cfg); cfg.Name = name }
	}
	first, _ := sqlitetest.New(t, name("orders"))
	second := openServerLog(t, testservers.Database(t), nil, name("stock"))
	orders, stock = worldOf(t, first, base), worldOf(t, second, base)
	pages, err := ui.New(ui.Options{Identify: identify, Base: base, Title: "shop", Types: problems.Views()}, orders.admin, stock.admin)
	require.NoError(t, err)
	server := httptest.NewServer(pages)
	t.Cleanup(server.Close)
	for name, w := range map[string]*world{"orders": orders, "stock": stock} {
		w.base = base + name + "/"
		w.url = server.URL + w.base
	}
	return orders, stock
}

func (w *world) pause(businessType string) {
	w.t.Helper()
	require.NoError(w.t, w.c.InTx(w.t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := w.c.Record(ctx, tx, compensator.NewEntry{BusinessType: businessType, Content: []byte("{}")})
		return err
	}))
	require.NoError(w.t, w.admin.Pause(w.t.Context(), admin.Actor{ID: "mei"}, businessType, admin.Why{Reason: "stocktaking"}))
}

// Failure: F120
func TestPagesOfSeveralLogsStayApart(t *testing.T) {
	t.Parallel()
	orders, stock := newLogs(t, "/ops/")
	stock.problem()
	one, other := orders.client("alice"), stock.client("alice")
	root := strings.TrimSuffix(orders.url, "orders/")
	for from, to := range map[string]string{root: "/ops/orders/", root + "stock": "/ops/stock/"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, from, nil)
		require.NoError(t, err)
		r.Header.Set(whoHeader, "alice")
		answer, err := http.DefaultTransport.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		assert.Equal(t, to, answer.Header.Get("Location"), from)
	}
	for _, path := range []string{"", "cases", "entries", "trail", "settings", "nowhere"} {
		mine, theirs := one.get(path), other.get(path)
		has(t, mine.text, "· shop · orders</title>", path)
		has(t, theirs.text, "· shop · stock</title>", path)
		has(t, mine.text, `<a href="/ops/orders/" aria-current="true"><bdi>orders</bdi></a><a href="/ops/stock/"><bdi>stock</bdi></a>`, path)
		has(t, theirs.text, `<a href="/ops/orders/"><bdi>orders</bdi></a><a href="/ops/stock/" aria-current="true"><bdi>stock</bdi></a>`, path)
		lacks(t, strings.ReplaceAll(theirs.text, `href="/ops/orders/"`, ""), "/ops/orders/", path)
	}
	assert.Equal(t, 404, other.get("/ops/nowhere").status)
	e := stock.entriesOf("refund", compensator.Dead)[0]
	assert.Equal(t, 404, one.get("entries/"+e.ID.String()).status)
	has(t, other.get("confirm?do=requeue&seen="+seen(e)).text, "Log: <b><bdi>stock</bdi></b>")
	form := url.Values{"do": {"requeue"}, "seen": {seen(e)}, "reason": {"the bank is back"}, "back": {"/ops/orders/"}}
	one.post("do", form)
	epoch := func() uint32 { return compensator.Must(stock.c.Get(t.Context(), e.ID)).Epoch }
	require.Equal(t, e.Epoch, epoch())
	done := other.post("do", form)
	require.Equal(t, 200, done.status)
	lacks(t, strings.ReplaceAll(done.text, `href="/ops/orders/"`, ""), "/ops/orders/", "a page leads back into its own log")
	require.Equal(t, e.Epoch+1, epoch())
	exported := other.post("export", url.Values{"reason": {"the audit"}, "format": {"csv"}})
	require.Equal(t, 200, exported.status)
	require.Regexp(t, `filename="entries-stock-\d{8}T`, exported.header.Get("Content-Disposition"))
}

func TestPagesOfOneLogShowNoName(t *testing.T) {
	t.Parallel()
	c, _ := sqlitetest.New(t, func(cfg *compensator.Config) { configure(cfg); cfg.Name = "orders" })
	w := worldOf(t, c, "/ops/")
	for _, path := range []string{"", "entries", "settings"} {
		got := w.client("alice").get(path)
		require.Equal(t, 200, got.status)
		lacks(t, got.text, "orders", path)
		lacks(t, got.text, `class="logs"`, path)
	}
}

func TestLogsThatTheirNamesDoNotDistinguishAreRefused(t *testing.T) {
	t.Parallel()
	open := func(name string) *admin.Admin {
		c, _ := sqlitetest.New(t, func(cfg *compensator.Config) { configure(cfg); cfg.Name = name })
		return worldOf(t, c, "/").admin
	}
	one, same, nameless := open("orders"), open("orders"), open("")
	for reason, logs := range map[string][]*admin.Admin{
		"two logs have this name":                   {one, same},
		"log 2 of 2 has none: set it in the Config": {one, nameless},
		"is nil":  {one, nil},
		"is nil ": {},
	} {
		_, err := ui.New(ui.Options{Identify: identify}, logs...)
		var refused *compensator.FieldError
		require.ErrorAs(t, err, &refused)
		assert.Contains(t, refused.Error(), strings.TrimSpace(reason))
	}
}

// Failure: F131
func TestSwitcherLeadsFromLogToLogOnAWideScreenAndOnAPhone(t *testing.T) {
	t.Parallel()
	orders, stock := newLogs(t, "/ops/")
	stock.problem()
	orders.pause("close_order")
	b := openTab(t, orders, "alice")
	b.root = strings.TrimSuffix(orders.url, "orders/")
	for _, width := range []int64{1280, 360} {
		for _, lang := range []string{"en", "zh-CN"} {
			where := fmt.Sprintf("switcher-%s-%d", lang, width)
			b.look(lang, "light", width)
			b.open("")
			require.True(t, b.holds(`document.querySelector("nav.logs [aria-current]").textContent === "orders"`), where)
			require.False(t, b.holds(`document.querySelector("main").innerText.includes("refund")`), where)
			b.do(chromedp.Click(`nav.logs a:not([aria-current])`, chromedp.ByQuery))
			b.arrive(`document.title.endsWith("stock") && document.querySelector("main").innerText.includes("refund") && !document.querySelector("#help").hidden`)
			assert.True(t, b.holds(`location.pathname === "/ops/stock/"`), where)
			b.requireFit(width, where)
			assert.True(t, b.holds(`document.querySelector("nav.logs").offsetHeight < 60`), where)
			b.arm()
			for _, scheme := range []string{"light", "dark"} {
				b.look(lang, scheme, width)
				b.photograph(where + "-" + scheme)
				b.accessible(where+"-"+scheme, wcag)
			}
			b.do(chromedp.Focus(`nav.logs a:not([aria-current])`, chromedp.ByQuery))
			b.press("\r")
			b.arrive(`document.title.endsWith("orders") && !document.querySelector("#help").hidden`)
			b.quiet(where)
		}
	}
	b.look("en", "light", 360)
	b.open("")
	b.do(chromedp.Click(`form.look button[name=language]`, chromedp.ByQuery))
	b.arrive(`document.documentElement.lang === "zh-CN" && !document.querySelector("#help").hidden`)
	b.do(chromedp.Click(`nav.logs a:not([aria-current])`, chromedp.ByQuery))
	b.arrive(`document.title.endsWith("stock")`)
	assert.True(t, b.holds(`document.documentElement.lang === "zh-CN"`), "the language is chosen once for all logs")
	b.quiet("language")
}
