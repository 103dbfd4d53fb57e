// Package local serves the operator's pages to whoever has the terminal, and to nobody else: on loopback, and to the one
// browser that has brought the token which is printed there.
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

// Listen listens where nobody of another machine can ask. Any other address is refused with a *FieldError.
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

// stopping is how long requests under way have when Serve is to end.
const stopping = 10 * time.Second

// Serve serves an Admin's pages as the actor's until ctx ends, which is no error, and closes the listener. ready is given the
// address, with a token that one browser may use once; after that a cookie knows it. opts.Identify is Serve's own.
//
// The address has a host of its own beneath localhost, drawn anew each time. Browsers send a cookie to all ports of its host, and
// 127.0.0.1 is everybody's. A request to any other host is refused, whoever sends it. Chromium and Firefox find such a host at
// the loopback address without asking a name server. Some browsers do not, and so cannot open the pages.
func Serve(ctx context.Context, listener net.Listener, d *admin.Admin, actor admin.Actor, opts ui.Options, ready func(link string)) error {
	if opts.Base == "" {
		opts.Base = "/"
	}
	door := &door{actor: actor, base: opts.Base, host: strings.ToLower(rand.Text()) + ".localhost", token: rand.Text(), session: rand.Text()}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	opts.Identify = door.identify
	pages, err := ui.New(d, opts)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle(opts.Base, pages)
	mux.HandleFunc("GET /enter", bodiless(door.enter))
	server := &http.Server{Handler: door.guard(mux), ReadHeaderTimeout: stopping, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute} // pages take half a minute at most
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	ready(fmt.Sprintf("http://%s/enter?token=%s", net.JoinHostPort(door.host, port), door.token))
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopping)
	defer cancel()
	if err = server.Shutdown(last); err != nil {
		err = errors.Join(err, server.Close())
	}
	<-served // as Shutdown and Close have it
	return err
}

// door lets in who has the token, once, and knows the browser by a cookie after that.
type door struct {
	actor          admin.Actor
	base, host     string
	token, session string
	used           atomic.Bool
}

const sessionCookie = "compensator_session"

// guard lets through what is asked of the door's own host. A cookie that has reached another port is of no use by another name, and
// a name that somebody has pointed at the loopback address leads nowhere. The port may differ: it may have been forwarded.
func (d *door) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !same(strings.ToLower(host), d.host) {
			bodiless(misdirected)(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func misdirected(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "these pages answer to the address that was printed, and to no other", http.StatusMisdirectedRequest)
}

// lingering is how long a client may go on sending a body that nobody reads, once the answer is out.
const lingering = time.Second

// bodiless is for what reads no body: it answers at once, and closes the connection of a request that has one.
func bodiless(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			answer(w, r)
			return
		}
		w.Header().Set("Connection", "close") // or net/http reads the body first
		answer(w, r)
		control := http.NewResponseController(w)
		_ = control.Flush()
		_ = control.SetReadDeadline(time.Now().Add(lingering))
	}
}

// onward leads to the pages by itself. It is no redirect: after one that began at another site's link a browser sends no cookie.
const onward = `<!doctype html><html lang="en"><meta charset="utf-8"><title>compensator</title>` +
	`<meta http-equiv="refresh" content="0;url=%[1]s"><a href="%[1]s">to the pages</a></html>`

func (d *door) enter(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet { // HEAD, which a pattern of GET matches as well: a preview of the link does not use it up
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "want GET", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	if !same(r.URL.Query().Get("token"), d.token) || !d.used.CompareAndSwap(false, true) {
		http.Error(w, "this token is wrong, or was used: start the pages again for another one", http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Value: d.session, Path: d.base, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = fmt.Fprintf(w, onward, html.EscapeString(d.base))
}

func (d *door) identify(r *http.Request) (admin.Actor, bool) {
	cookie, err := r.Cookie(sessionCookie)
	return d.actor, err == nil && same(cookie.Value, d.session)
}

func same(is, wanted string) bool { return subtle.ConstantTimeCompare([]byte(is), []byte(wanted)) == 1 }
