package ui

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"os"
	"time"
)

// Time limits for slow clients. The handler sets them itself, because the http.Server around it may have no timeouts.
const (
	bodyTime   = 10 * time.Second // maximum time to send the body of a request
	sendTime   = 2 * time.Minute  // maximum time to receive an answer, in addition to mostTime, which limits building the answer
	lingerTime = time.Second      // how long after the answer a client may go on sending a body that the handler did not read
)

// times holds the limits of a server. A test shortens them.
type times struct{ body, answer, linger time.Duration }

type incomingKey struct{}

// incoming holds the state of a request's body. The handlers of the methods bounded and received both use it.
type incoming struct {
	control *http.ResponseController
	began   time.Time
	server  time.Duration // the server's own ReadTimeout; 0: none
	unread  bool
}

// bounded limits how long a client can hold its connection by sending or reading slowly. The handler may answer before
// the body has arrived. If received has not read the body, bounded closes an HTTP/1 connection. At the end bounded
// restores the server's deadlines, because other handlers may use the connection next.
func (s *site) bounded(next http.Handler) http.Handler {
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
				w.Header().Set("Connection", "close") // Without this header net/http would read the body before it sends the answer.
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), incomingKey{}, in)))
		if shorter {
			_ = in.control.Flush() // Flush before the deadlines are restored, so that the shorter deadline also limits the sending.
			_ = in.control.SetWriteDeadline(restored(in.began, write))
		}
		if in.unread && r.ProtoMajor == 1 { // net/http continues to read before it closes the connection, so that the client receives the answer. Limit this time.
			_ = in.control.Flush()
			_ = in.control.SetReadDeadline(time.Now().Add(s.times.linger))
		}
	})
}

// restored returns the deadline that a server with this timeout has set for a request. Zero means no deadline.
func restored(began time.Time, timeout time.Duration) time.Time {
	if timeout == 0 {
		return time.Time{}
	}
	return began.Add(timeout)
}

// noDeadline logs a warning if err says that the http.ResponseWriter cannot set deadlines. Slow clients are then not
// limited. It logs only once.
func (s *site) noDeadline(err error) {
	if errors.Is(err, http.ErrNotSupported) {
		s.unbounded.Do(func() {
			s.opts.Logger.Warn("compensator ui: the http.ResponseWriter takes no deadlines, so a slow client holds its connection: give the writer of your middleware an Unwrap method")
		})
	}
}

// received reads the form of a client that was identified, and restores the read deadline.
func (s *site) received(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in := r.Context().Value(incomingKey{}).(*incoming)
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); in.unread && r.Method == http.MethodPost && kind == "application/x-www-form-urlencoded" {
			switch err := r.ParseForm(); {
			case errors.Is(err, os.ErrDeadlineExceeded):
				s.at(r).request(w, r).fail(http.StatusRequestTimeout, "error.slow")
				return
			case errors.As(err, new(*http.MaxBytesError)):
				s.at(r).request(w, r).fail(http.StatusRequestEntityTooLarge, "error.form")
				return
			case err != nil:
				s.at(r).request(w, r).fail(http.StatusBadRequest, "error.form")
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
