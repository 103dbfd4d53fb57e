package uitest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
	"github.com/compensator-go/compensator/internal/integration/uitest/problems"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/ui"
)

func TestMain(m *testing.M) {
	code := testservers.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

type world struct {
	t     *testing.T
	c     *compensator.Compensator
	shop  *problems.Shop
	admin *admin.Admin
	base  string // for example "/ops/"
	url   string // address of the first page

	mu     sync.Mutex // guards access
	access admin.AccessFunc
}

// whoHeader names the actor of a test's request.
const whoHeader, whoCookie = "X-Who", "who"

func identify(r *http.Request) (admin.Actor, bool) {
	name := r.Header.Get(whoHeader)
	if cookie, err := r.Cookie(whoCookie); name == "" && err == nil {
		name = cookie.Value
	}
	return admin.Actor{ID: name}, name != ""
}

// Every actor has all rights unless the test changes that.
func newWorld(t *testing.T, base string, change ...func(o *admin.Options)) *world {
	t.Helper()
	c, _ := sqlitetest.New(t, configure)
	return worldOf(t, c, base, change...)
}

func configure(cfg *compensator.Config) {
	cfg.Operations, cfg.Logger = problems.Operations(), slog.New(slog.DiscardHandler) // Log nothing, because entries die on purpose.
}

func newServerWorld(t *testing.T, base string) *world {
	t.Helper()
	return worldOf(t, openServerLog(t, testservers.Database(t), nil), base)
}

func worldOf(t *testing.T, c *compensator.Compensator, base string, change ...func(o *admin.Options)) *world {
	t.Helper()
	w := &world{t: t, c: c, base: base, access: problems.Everything}
	var err error
	w.shop, err = problems.New(w.c, problems.Speed{Timeout: 100 * time.Millisecond, Again: time.Millisecond})
	require.NoError(t, err)
	opts := admin.Options{Access: admin.AccessFunc(func(ctx context.Context, a admin.Actor, right admin.Right, on admin.Subject) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.access(ctx, a, right, on)
	})}
	for _, set := range change {
		set(&opts)
	}
	w.admin, err = admin.New(w.c, opts)
	require.NoError(t, err)
	views := problems.Views()
	views[bookType] = bookView
	pages, err := ui.New(ui.Options{Identify: identify, Base: base, Title: "shop", Types: views}, w.admin)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(base, pages)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.url = server.URL + base
	return w
}

func (w *world) allow(access admin.AccessFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.access = access
}

var theSum = problems.Sum{Refunds: 6, Closed: 2, Transfers: 2, Mails: 2, Locked: 2, Parcels: 1, Shelves: 1, Fine: 1}

// dead is the number of entries in theSum that end as dead. They are the Refunds, Closed, Transfers, Mails and Parcels.
const dead = 6 + 2 + 2 + 2 + 1

// problem runs the shop until everything that can fail has failed.
func (w *world) problem() {
	w.t.Helper()
	compensatortest.Run(w.t, w.c)
	_, err := w.shop.Record(w.t.Context(), 1, theSum)
	require.NoError(w.t, err)
	w.until(func() bool { return w.open() == dead })
}

func (w *world) open() (n int) {
	groups, _, err := w.admin.Groups(w.t.Context(), admin.Actor{ID: "test"})
	assert.NoError(w.t, err)
	for _, g := range groups {
		n += g.N
	}
	return n
}

func (w *world) until(holds func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) { // Do not use assert.Eventually, which runs its condition on another goroutine, where require must not be called.
		require.True(w.t, time.Now().Before(deadline), "it has not come in a minute")
	}
}

// A client runs no scripts.
func (w *world) client(name string) *client {
	jar, err := cookiejar.New(nil)
	require.NoError(w.t, err)
	c := &client{w: w, name: name, http: &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}}
	return c
}

type client struct {
	w     *world
	name  string
	http  *http.Client
	hasty bool // whether the client ignores a wait that an answer asks for
}

func (w *world) entriesOf(businessType string, state compensator.State) []compensator.Entry {
	w.t.Helper()
	page, err := admin.Of(w.c).List(w.t.Context(), admin.Filter{BusinessType: businessType, States: []compensator.State{state}, Limit: 100})
	require.NoError(w.t, err)
	return page.Entries
}

func values(pairs ...string) url.Values {
	v := make(url.Values)
	for i := 0; i < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return v
}

type answer struct {
	status int
	text   string
	header http.Header
	at     string // address after redirects
}

func (c *client) ask(method, path string, form url.Values, set ...string) answer {
	c.w.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	address := c.w.url + path
	if strings.HasPrefix(path, "/") {
		address = strings.TrimSuffix(c.w.url, c.w.base) + path
	}
	r, err := http.NewRequestWithContext(c.w.t.Context(), method, address, body)
	require.NoError(c.w.t, err)
	r.Header.Set(whoHeader, c.name)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(set); i += 2 {
		r.Header.Set(set[i], set[i+1])
	}
	for {
		got, err := c.http.Do(r)
		require.NoError(c.w.t, err)
		text, err := io.ReadAll(got.Body)
		require.NoError(c.w.t, err)
		require.NoError(c.w.t, got.Body.Close())
		if got.StatusCode == http.StatusTooManyRequests && !c.hasty {
			select { // Wait as long as the answer asks for.
			case <-time.After(time.Second / 4):
			case <-c.w.t.Context().Done():
			}
			if r.GetBody != nil {
				r.Body, err = r.GetBody()
				require.NoError(c.w.t, err)
			}
			continue
		}
		return answer{got.StatusCode, string(text), got.Header, got.Request.URL.RequestURI()}
	}
}

func (c *client) get(path string, set ...string) answer { return c.ask("GET", path, nil, set...) }
func (c *client) post(path string, form url.Values, set ...string) answer {
	return c.ask("POST", path, form, set...)
}

func seen(e compensator.Entry) string { return fmt.Sprintf("%s:%d", e.ID, e.Version) }
