package ui

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"os"
	"time"
)

// How long a client may take. The handler bounds this itself, because the server around it may have no timeouts.
const (
	bodyTime   = 10 * time.Second // to send the body of a request
	sendTime   = 2 * time.Minute  // to take an answer, beside mostTime for making it
	lingerTime = time.Second      // to go on sending a body that nobody reads, once the answer is out
)

// times are those of a server. A test shortens them.
type times struct{ body, answer, linger time.Duration }

type incomingKey struct{}

// incoming is a request that has a body, until the body is read.
type incoming struct {
	control *http.ResponseController
	began   time.Time
	server  time.Duration // the server's own ReadTimeout; 0: none
	unread  bool
}

// bounded limits how long a client holds its connection by sending or reading slowly. It answers before a body has arrived, and
// closes the connection of HTTP/1 unless received has read the body. The deadlines that it sets are taken back, for the
// connection may serve other handlers afterwards.
func (s *server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in := &incoming{control: http.NewResponseController(w), began: time.Now(), unread: r.ContentLength != 0}
		var write time.Duration
		if own, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
			in.server, write = own.ReadTimeout, own.WriteTimeout
		}
		shorter := write == 0 || write > s.times.answer
		if shorter {
			s.noDeadline(in.control.SetWriteDeadline(in.began.Add(s.times.answer)))
		}
		if in.unread {
			if in.server == 0 || in.server > s.times.body {
				s.noDeadline(in.control.SetReadDeadline(in.began.Add(s.times.body)))
			}
			if r.ProtoMajor == 1 {
				w.Header().Set("Connection", "close") // or net/http reads the body before it answers
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), incomingKey{}, in)))
		if shorter {
			_ = in.control.Flush() // while the deadline still holds
			_ = in.control.SetWriteDeadline(restored(in.began, write))
		}
		if in.unread && r.ProtoMajor == 1 { // net/http reads on before it closes, so that the client sees the answer
			_ = in.control.Flush()
			_ = in.control.SetReadDeadline(time.Now().Add(s.times.linger))
		}
	})
}

// restored is the deadline that a server with this timeout has set; zero: none.
func restored(began time.Time, timeout time.Duration) time.Time {
	if timeout == 0 {
		return time.Time{}
	}
	return began.Add(timeout)
}

// noDeadline says once that slow clients are not bounded here.
func (s *server) noDeadline(err error) {
	if errors.Is(err, http.ErrNotSupported) {
		s.unbounded.Do(func() {
			s.opts.Logger.Warn("compensator ui: the http.ResponseWriter takes no deadlines, so a slow client holds its connection: give the writer of your middleware an Unwrap method")
		})
	}
}

// received reads the form of somebody who is known, and takes the read deadline back.
func (s *server) received(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in := r.Context().Value(incomingKey{}).(*incoming)
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); in.unread && r.Method == http.MethodPost && kind == "application/x-www-form-urlencoded" {
			switch err := r.ParseForm(); {
			case errors.Is(err, os.ErrDeadlineExceeded):
				s.request(w, r).fail(http.StatusRequestTimeout, "error.slow")
				return
			case errors.As(err, new(*http.MaxBytesError)):
				s.request(w, r).fail(http.StatusRequestEntityTooLarge, "error.form")
				return
			case err != nil:
				s.request(w, r).fail(http.StatusBadRequest, "error.form")
				return
			}
			in.unread = false
			w.Header().Del("Connection")
			_ = in.control.SetReadDeadline(restored(in.began, in.server))
		}
		r.Body = http.NoBody
		next.ServeHTTP(w, r)
	})
}
