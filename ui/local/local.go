// Package local serves the operator's pages to the person at the terminal. It listens on loopback. It prints an address
// with a token in the terminal, and serves only the browser that has sent this token.
package local

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/ui"
)

// Listen listens on a loopback address. For any other address it returns a *FieldError.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tcp, ok := listener.Addr().(*net.TCPAddr)
	var reason string
	switch {
	case !ok || !tcp.IP.IsLoopback():
		reason = " is not on loopback, and there is no sign-in: forward a port to it, as ssh -L does"
	case !tcp.IP.Equal(net.IPv4(127, 0, 0, 1)) && !tcp.IP.Equal(net.IPv6loopback):
		reason = ": browsers find *.localhost at 127.0.0.1 and ::1 alone"
	default:
		return listener, nil
	}
	return nil, errors.Join(&compensator.FieldError{Field: "listen", Reason: address + reason}, listener.Close())
}

// stopTimeout is how long Serve waits for running requests when it ends.
const stopTimeout = 10 * time.Second

// Serve serves the pages of one or several logs to the actor until ctx ends, and then closes the listener. The end of
// ctx is no error. Serve calls onReady with the address, which contains a token. One browser may use the token once.
// After that a cookie identifies the browser, also after the browser was closed. Serve sets opts.Identify itself. An
// invalid option is a *compensator.FieldError. Running requests have 10 seconds to end.
//
// The address has a random host name below localhost, which is new for each call. A browser sends a cookie of a host to
// every port of that host, and every program on the machine can listen on a port of 127.0.0.1. With a fixed host name,
// another program could therefore receive the cookie. Serve refuses requests to any other host name. Chromium and
// Firefox resolve a random name below localhost to the loopback address. Other browsers may not open the pages.
func Serve(ctx context.Context, listener net.Listener, actor admin.Actor, opts ui.Options, onReady func(link string), logs ...*admin.Admin) error {
	if opts.Base == "" {
		opts.Base = "/"
	}
	if opts.Zone == nil {
		opts.Zone = time.Local // The person is at this machine.
	}
	session := &localSession{actor: actor, base: opts.Base, host: strings.ToLower(rand.Text()) + ".localhost", token: rand.Text(), session: rand.Text()}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	opts.Identify = session.identify
	pages, err := ui.New(opts, logs...)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle(opts.Base, pages)
	mux.HandleFunc("GET /enter", closeAfter(session.serveToken))
	server := &http.Server{Handler: session.newGuard(mux), ReadHeaderTimeout: stopTimeout, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute} // The timeouts allow for a page that takes half a minute to build.
	serveErr := make(chan error, 1)
	go func() { serveErr <- server.Serve(listener) }()
	onReady(fmt.Sprintf("http://%s/enter?token=%s", net.JoinHostPort(session.host, port), session.token))
	select {
	case err := <-serveErr:
		return err
	case <-ctx.Done():
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err = server.Shutdown(stopCtx); err != nil {
		err = errors.Join(err, server.Close())
	}
	<-serveErr // Wait for the goroutine that serves. Shutdown or Close has ended it.
	return err
}

type localSession struct {
	actor          admin.Actor
	base, host     string
	token, session string
	isUsed         atomic.Bool
}

const sessionCookie = "compensator_session"

const sessionAge = 30 * 24 * time.Hour

// newGuard returns a handler that refuses each request whose host name is not the random name of this session. Other
// host names can resolve to a loopback address too. The handler ignores the port in the request, because a forwarded
// port has another number.
func (d *localSession) newGuard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !equalSecret(strings.ToLower(host), d.host) {
			closeAfter(refuseHost)(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func refuseHost(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "these pages answer to the address that was printed, and to no other", http.StatusMisdirectedRequest)
}

const maxLinger = time.Second

// closeAfter closes the connection after the answer if the request has a body.
func closeAfter(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			handler(w, r)
			return
		}
		w.Header().Set("Connection", "close") // Without this header net/http would read the body before it sends the answer.
		handler(w, r)
		control := http.NewResponseController(w)
		_ = control.Flush()
		_ = control.SetReadDeadline(time.Now().Add(maxLinger))
	}
}

// forwardPage leads the browser on to the pages, after the answer has set the session cookie. A redirect would not
// work. If the person has clicked a link on another site, the browser follows a redirect without the session cookie,
// because this cookie is SameSite=Strict.
const forwardPage = `<!doctype html><html lang="en"><meta charset="utf-8"><title>compensator</title>` +
	`<meta http-equiv="refresh" content="0;url=%[1]s"><a href="%[1]s">to the pages</a></html>`

func (d *localSession) serveToken(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet { // A GET pattern also matches HEAD. A HEAD request for a preview of the link must not use up the token.
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "want GET", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	if !equalSecret(r.URL.Query().Get("token"), d.token) || !d.isUsed.CompareAndSwap(false, true) {
		http.Error(w, "this token is wrong, or was used: start the pages again for another one", http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Value: d.session, Path: d.base, MaxAge: int(sessionAge.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = fmt.Fprintf(w, forwardPage, html.EscapeString(d.base))
}

func (d *localSession) identify(r *http.Request) (admin.Actor, bool) {
	cookie, err := r.Cookie(sessionCookie)
	return d.actor, err == nil && equalSecret(cookie.Value, d.session)
}

func equalSecret(value, wanted string) bool {
	return subtle.ConstantTimeCompare([]byte(value), []byte(wanted)) == 1
}
