package local

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/compensator-go/compensator/desk"
)

// The browser that has brought the token is known by a cookie that no script reads, that no other site has sent, and that lets in
// nobody who does not know it.
func TestCookieOfTheBrowserIsItsOwn(t *testing.T) {
	d := &door{actor: desk.Actor{ID: "ann"}, base: "/ops/", cookie: "compensator_1", token: "t", session: "s"}
	enter := func(token string) []*http.Cookie {
		w := httptest.NewRecorder()
		d.enter(w, httptest.NewRequest(http.MethodGet, "/enter?token="+token, nil))
		return w.Result().Cookies()
	}
	if got := enter("wrong"); len(got) != 0 {
		t.Errorf("%v", got)
	}
	got := enter("t")
	if len(got) != 1 || !got[0].HttpOnly || got[0].SameSite != http.SameSiteStrictMode || got[0].Path != "/ops/" || got[0].Name != d.cookie {
		t.Fatalf("%v", got)
	}
	for value, known := range map[string]bool{got[0].Value: true, "": false, "t": false} {
		r := httptest.NewRequest(http.MethodGet, "/ops/", nil)
		r.AddCookie(&http.Cookie{Name: d.cookie, Value: value})
		if actor, ok := d.identify(r); ok != known || ok && actor.ID != "ann" {
			t.Errorf("%q: %v, %v", value, actor, ok)
		}
	}
	if again := enter("t"); len(again) != 0 {
		t.Errorf("a token lets in once: %v", again)
	}
}
