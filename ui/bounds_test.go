package ui

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest/memory"
)

const waitTimeout = time.Minute

func pagesWith(t *testing.T, within times, access admin.AccessFunc) (*site, http.Handler) {
	t.Helper()
	c, err := compensator.New(t.Context(), compensator.Config{Store: memory.NewStore(), Queue: memory.NewQueue().Client(),
		Logger: slog.New(slog.DiscardHandler), Operations: &compensator.Operations{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	d, err := admin.New(c, admin.Options{Access: access})
	if err != nil {
		t.Fatal(err)
	}
	identify := func(r *http.Request) (admin.Actor, bool) {
		who := r.Header.Get("Who")
		return admin.Actor{ID: who}, who != ""
	}
	s, err := newSite(Options{Identify: identify, Base: "/ops/"}, []*admin.Admin{d})
	if err != nil {
		t.Fatal(err)
	}
	s.times = within
	return s, s.handler()
}

func anything(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true }

func raw(t *testing.T, address, text string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(waitTimeout))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	got, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("%s: the connection stays open: %q, %v", strings.SplitN(text, "\r\n", 2)[0], rest, err)
	}
	return got, string(body)
}

// Failure: F133
func TestSlowBodyHoldsNoConnection(t *testing.T) {
	t.Parallel()
	_, pages := pagesWith(t, times{50 * time.Millisecond, waitTimeout, 50 * time.Millisecond}, anything)
	_, slow := pagesWith(t, times{10 * waitTimeout, waitTimeout, 50 * time.Millisecond}, anything)
	const form, length, chunked = "Content-Type: application/x-www-form-urlencoded\r\n", "Content-Length: 1000\r\n\r\nreason=x", "Transfer-Encoding: chunked\r\n\r\n8\r\nreason=x\r\n"
	for _, tt := range []struct {
		name, head string
		pages      http.Handler
		status     int
	}{
		{"nobody", "POST /ops/do HTTP/1.1\r\n" + form + length, slow, 401},
		{"nobody, in chunks", "POST /ops/do HTTP/1.1\r\n" + form + chunked, slow, 401},
		{"nobody, elsewhere", "PUT /ops/nowhere HTTP/1.1\r\n" + length, slow, 401},
		{"another site", "POST /ops/do HTTP/1.1\r\nWho: ann\r\nSec-Fetch-Site: cross-site\r\n" + form + length, slow, 403},
		{"a GET", "GET /ops/settings HTTP/1.1\r\nWho: ann\r\n" + length, slow, 200},
		{"a GET of many parts", "GET /ops/settings HTTP/1.1\r\nWho: ann\r\nContent-Type: multipart/form-data; boundary=x\r\n" + length, slow, 200},
		{"no form", "POST /ops/do HTTP/1.1\r\nWho: ann\r\nContent-Type: text/plain\r\n" + length, slow, 422},
		{"many parts", "POST /ops/do HTTP/1.1\r\nWho: ann\r\nContent-Type: multipart/form-data; boundary=x\r\n" + length, slow, 422},
		{"no page", "POST /ops/nowhere HTTP/1.1\r\nWho: ann\r\n" + length, slow, 405},
		{"ann", "POST /ops/do HTTP/1.1\r\nWho: ann\r\n" + form + length, pages, 408},
		{"ann, in chunks", "POST /ops/reveal HTTP/1.1\r\nWho: ann\r\n" + form + chunked, pages, 408},
		{"ann, on HTTP/1.0", "POST /ops/do HTTP/1.0\r\nConnection: keep-alive\r\nWho: ann\r\n" + form + length, pages, 408},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(tt.pages)
			defer server.Close()
			got, text := raw(t, server.Listener.Addr().String(), strings.Replace(tt.head, "\r\n", "\r\nHost: x\r\n", 1))
			if got.StatusCode != tt.status || !got.Close {
				t.Errorf("%s, close: %t, want %d: %s", got.Status, got.Close, tt.status, text)
			}
		})
	}
}

// Failure: F133
func TestDeadlinesAreTakenBack(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"a server without timeouts": 0, "a server that is patient": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const short = 50 * time.Millisecond
			var working atomic.Bool
			_, pages := pagesWith(t, times{short, 10 * short, short}, func(ctx context.Context, _ admin.Actor, right admin.Right, _ admin.Subject) bool {
				if right != admin.Pause || !working.CompareAndSwap(false, true) {
					return true
				}
				select {
				case <-ctx.Done():
					t.Errorf("the request was ended: %v", context.Cause(ctx))
				case <-time.After(4 * short): // This is longer than the limit for a body.
				}
				return true
			})
			mux := http.NewServeMux()
			mux.Handle("/ops/", pages)
			mux.HandleFunc("POST /host", func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Errorf("the host reads: %v", err)
				}
				select {
				case <-time.After(10 * short):
				case <-r.Context().Done():
					t.Errorf("the host's request was ended")
				}
				_, _ = w.Write(body)
			})
			server := httptest.NewUnstartedServer(mux)
			server.Config.ReadTimeout, server.Config.WriteTimeout = timeout, timeout
			server.Start()
			defer server.Close()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(waitTimeout))
			in := bufio.NewReader(conn)
			answered := func(status int) string {
				t.Helper()
				got, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(got.Body)
				if err != nil || got.StatusCode != status || got.Close {
					t.Fatalf("%s, close: %t, %v: %s", got.Status, got.Close, err, text)
				}
				return string(text)
			}
			form := url.Values{"do": {"pause"}, "type": {"refund"}, "reason": {"PSP is down"}, "ahead": {"yes"}}.Encode()
			fmt.Fprintf(conn, "POST /ops/do HTTP/1.1\r\nHost: x\r\nWho: ann\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", len(form), form)
			answered(303)
			if !working.Load() {
				t.Fatal("it was not worked on")
			}
			fmt.Fprint(conn, "POST /host HTTP/1.1\r\nHost: x\r\nContent-Length: 16\r\n\r\nslowly, ")
			<-time.After(4 * short)
			fmt.Fprint(conn, "the rest")
			if text := answered(200); text != "slowly, the rest" {
				t.Error(text)
			}
		})
	}
}

// Failure: F133
func TestClientThatReadsNothingHoldsNoHandler(t *testing.T) {
	t.Parallel()
	_, pages := pagesWith(t, times{waitTimeout, 100 * time.Millisecond, 50 * time.Millisecond}, anything)
	closed := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(pages)
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		_ = conn.(*net.TCPConn).SetWriteBuffer(1 << 12)
		return ctx
	}
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(1 << 12)
	asked := make(chan struct{})
	go func() { // Send until the client's buffers are full.
		defer close(asked)
		for range 100_000 {
			if _, err := io.WriteString(conn, "GET /ops/settings HTTP/1.1\r\nHost: x\r\nWho: ann\r\n\r\n"); err != nil {
				return
			}
		}
	}()
	select {
	case <-closed:
	case <-time.After(waitTimeout):
		t.Error("the connection stays open")
	}
	_ = conn.Close()
	<-asked
}

// Failure: F133
func TestSlowBodyHoldsNoStream(t *testing.T) {
	t.Parallel()
	_, pages := pagesWith(t, times{50 * time.Millisecond, waitTimeout, 50 * time.Millisecond}, anything)
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(pages)
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	client := server.Client()
	ask := func(who string, body io.Reader, status int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/ops/do", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if who != "" {
			r.Header.Set("Who", who)
		}
		got, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.ProtoMajor != 2 || got.StatusCode != status {
			t.Errorf("%s %s, want %d", got.Proto, got.Status, status)
		}
	}
	for _, tt := range []struct {
		who    string
		status int
	}{{"", 401}, {"ann", 408}} {
		reads, writes := io.Pipe()
		go func() { _, _ = io.WriteString(writes, "reason=x") }()
		ask(tt.who, reads, tt.status)
		_ = writes.Close()
	}
	ask("ann", strings.NewReader("do=nothing"), 422)
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// Failure: F133
func TestWriterWithoutDeadlinesIsToldOfOnce(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	s, pages := pagesWith(t, times{waitTimeout, waitTimeout, waitTimeout}, anything)
	s.opts.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	for range 3 {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/ops/preferences", strings.NewReader("theme=dark"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Who", "ann")
		pages.ServeHTTP(w, r)
		if w.Code != http.StatusSeeOther {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
	}
	if n := strings.Count(logged.String(), "Unwrap"); n != 1 {
		t.Errorf("%d times: %s", n, logged.String())
	}
}
