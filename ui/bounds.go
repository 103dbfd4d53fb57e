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
	sendTime   = 2 * time.Minute  // maximum time to receive an answer, in addition to maxQueryTime, which limits building the answer
	lingerTime = time.Second      // how long after the answer a client may go on sending a body that the handler did not read
)

type times struct{ bodyTime, answerTime, lingerTime time.Duration }

type incomingKey struct{}

// requestState holds the state of a request's body. limitTimes creates it, and limitBody uses it.
type requestState struct {
	control    *http.ResponseController
	startedAt  time.Time
	serverTime time.Duration // the server's own ReadTimeout; 0: none
	hasBody    bool
}

// limitTimes limits how long a client can hold its connection by sending or reading slowly. If limitBody has not read
// the body, limitTimes closes an HTTP/1 connection. At the end limitTimes restores the server's deadlines, because
// other handlers may use the connection next.
func (s *site) limitTimes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state := &requestState{control: http.NewResponseController(w), startedAt: time.Now(), hasBody: r.ContentLength != 0}
		var write time.Duration
		if httpServer, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
			state.serverTime, write = httpServer.ReadTimeout, httpServer.WriteTimeout
		}
		isShorter := write == 0 || write > s.times.answerTime
		if isShorter {
			s.logMissingDeadline(state.control.SetWriteDeadline(state.startedAt.Add(s.times.answerTime)))
		}
		if state.hasBody {
			if state.serverTime == 0 || state.serverTime > s.times.bodyTime {
				s.logMissingDeadline(state.control.SetReadDeadline(state.startedAt.Add(s.times.bodyTime)))
			}
			if r.ProtoMajor == 1 {
				w.Header().Set("Connection", "close") // Without this header net/http would read the body before it sends the answer.
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), incomingKey{}, state)))
		if isShorter {
			_ = state.control.Flush() // Flush before the deadlines are restored, so that the shorter deadline also limits the sending.
			_ = state.control.SetWriteDeadline(remainingDeadline(state.startedAt, write))
		}
		if state.hasBody && r.ProtoMajor == 1 { // net/http continues to read before it closes the connection, so that the client receives the answer. Limit this time.
			_ = state.control.Flush()
			_ = state.control.SetReadDeadline(time.Now().Add(s.times.lingerTime))
		}
	})
}

func remainingDeadline(startedAt time.Time, timeout time.Duration) time.Time {
	if timeout == 0 {
		return time.Time{}
	}
	return startedAt.Add(timeout)
}

func (s *site) logMissingDeadline(err error) {
	if errors.Is(err, http.ErrNotSupported) {
		s.deadlineLogged.Do(func() {
			s.opts.Logger.Warn("compensator ui: the http.ResponseWriter takes no deadlines, so a slow client holds its connection: give the writer of your middleware an Unwrap method")
		})
	}
}

// limitBody reads the form in the body of a request, and then restores the server's read deadline. limitBody must run
// after the client was identified.
func (s *site) limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state := r.Context().Value(incomingKey{}).(*requestState)
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); state.hasBody && r.Method == http.MethodPost && kind == "application/x-www-form-urlencoded" {
			switch err := r.ParseForm(); {
			case errors.Is(err, os.ErrDeadlineExceeded):
				s.serverOf(r).request(w, r).showError(http.StatusRequestTimeout, "error.slow")
				return
			case errors.As(err, new(*http.MaxBytesError)):
				s.serverOf(r).request(w, r).showError(http.StatusRequestEntityTooLarge, "error.form")
				return
			case err != nil:
				s.serverOf(r).request(w, r).showError(http.StatusBadRequest, "error.form")
				return
			}
			state.hasBody = false
			w.Header().Del("Connection")
			_ = state.control.SetReadDeadline(remainingDeadline(state.startedAt, state.serverTime))
		}
		r.Body = http.NoBody
		next.ServeHTTP(w, r)
	})
}
