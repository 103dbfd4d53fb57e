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
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/desk"
	"github.com/compensator-go/compensator/ui"
)

// Listen listens where nobody of another machine can ask. Any other address is refused with a *FieldError.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := listener.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		refused := &compensator.FieldError{Field: "listen", Reason: address + " is not on loopback, and there is no sign-in: forward a port to it, as ssh -L does"}
		return nil, errors.Join(refused, listener.Close())
	}
	return listener, nil
}

// stopping is how long requests under way have when Serve is to end.
const stopping = 10 * time.Second

// Serve serves a desk's pages as the actor's until ctx ends, which is no error, and closes the listener. ready is given the
// address, with a token that one browser may use once; after that a cookie knows it. opts.Identify is Serve's own.
func Serve(ctx context.Context, listener net.Listener, d *desk.Desk, actor desk.Actor, opts ui.Options, ready func(link string)) error {
	if opts.Base == "" {
		opts.Base = "/"
	}
	door := &door{actor: actor, base: opts.Base, token: rand.Text(), session: rand.Text()}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	door.cookie = "compensator_" + port // browsers send a host's cookies to all its ports
	opts.Identify = door.identify
	pages, err := ui.New(d, opts)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle(opts.Base, pages)
	mux.HandleFunc("GET /enter", door.enter)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: stopping, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute} // pages take half a minute at most
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	ready(fmt.Sprintf("http://%s/enter?token=%s", listener.Addr(), door.token))
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
	actor          desk.Actor
	base, cookie   string
	token, session string
	used           atomic.Bool
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
	http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.session, Path: d.base, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = fmt.Fprintf(w, onward, html.EscapeString(d.base))
}

func (d *door) identify(r *http.Request) (desk.Actor, bool) {
	cookie, err := r.Cookie(d.cookie)
	return d.actor, err == nil && same(cookie.Value, d.session)
}

func same(is, wanted string) bool { return subtle.ConstantTimeCompare([]byte(is), []byte(wanted)) == 1 }
