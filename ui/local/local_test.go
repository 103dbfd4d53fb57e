package local

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/compensator-go/compensator/admin"
)

func TestCookieOfTheBrowserIsItsOwn(t *testing.T) {
	d := &localSession{actor: admin.Actor{ID: "ann"}, base: "/ops/", host: "x.localhost", token: "t", session: "s"}
	enter := func(token string) []*http.Cookie {
		w := httptest.NewRecorder()
		d.serveToken(w, httptest.NewRequest(http.MethodGet, "/enter?token="+token, nil))
		return w.Result().Cookies()
	}
	if got := enter("wrong"); len(got) != 0 {
		t.Errorf("%v", got)
	}
	got := enter("t")
	if len(got) != 1 || !got[0].HttpOnly || got[0].SameSite != http.SameSiteStrictMode || got[0].Path != "/ops/" || got[0].Domain != "" || got[0].Name != sessionCookie || got[0].MaxAge <= 0 {
		t.Fatalf("%v", got)
	}
	for value, known := range map[string]bool{got[0].Value: true, "": false, "t": false} {
		r := httptest.NewRequest(http.MethodGet, "/ops/", nil)
		r.AddCookie(&http.Cookie{Name: sessionCookie, Value: value})
		if actor, ok := d.identify(r); ok != known || ok && actor.ID != "ann" {
			t.Errorf("%q: %v, %v", value, actor, ok)
		}
	}
	if again := enter("t"); len(again) != 0 {
		t.Errorf("a token lets in once: %v", again)
	}
}

// Failure: F136
func TestPagesAnswerToTheirOwnHostAlone(t *testing.T) {
	d := &localSession{actor: admin.Actor{ID: "ann"}, base: "/", host: "k7wq.localhost", token: "t", session: "s"}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /enter", d.serveToken)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if _, known := d.identify(r); !known {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	pages := d.newGuard(mux)
	ask := func(host, path string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = host
		r.AddCookie(&http.Cookie{Name: sessionCookie, Value: "s"})
		pages.ServeHTTP(w, r)
		return w.Code
	}
	for _, host := range []string{"127.0.0.1:7070", "127.0.0.1", "localhost:7070", "[::1]:7070", "other.localhost:7070", "k7wq.localhost.evil.example", "x.k7wq.localhost:7070", ""} {
		if got := ask(host, "/"); got != http.StatusMisdirectedRequest {
			t.Errorf("%q: %d", host, got)
		}
		if got := ask(host, "/enter?token=t"); got != http.StatusMisdirectedRequest {
			t.Errorf("%q: %d", host, got)
		}
	}
	for _, host := range []string{"k7wq.localhost:7070", "K7WQ.localhost:8080", "k7wq.localhost"} {
		if got := ask(host, "/"); got != http.StatusOK {
			t.Errorf("%q: %d", host, got)
		}
	}
	if got := ask("k7wq.localhost:7070", "/enter?token=t"); got != http.StatusOK {
		t.Errorf("the token was not used up by another name: %d", got)
	}
}

// Failure: F133
func TestSlowBodyIsWaitedForByNobody(t *testing.T) {
	t.Parallel()
	d := &localSession{actor: admin.Actor{ID: "ann"}, base: "/", host: "k7wq.localhost", token: "t", session: "s"}
	server := httptest.NewServer(d.newGuard(closeAfter(d.serveToken)))
	defer server.Close()
	for host, status := range map[string]string{"evil.example": "421", "k7wq.localhost": "403"} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := fmt.Fprintf(conn, "GET /enter?token=guess HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n\r\nslowly..", host); err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 "+status) {
			t.Errorf("%s: %v, %q", host, err, all)
		}
	}
}
