// Package live updates a page with server-sent events.
package live

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

const sendTime = 30 * time.Second

// Stream sends the result of render as one JSON string, first at once and then after each change. It drops a client
// that does not accept an event within sendTime.
//
// Stream returns when the client disconnects or the channel stopping is closed.
func Stream(w http.ResponseWriter, r *http.Request, interval time.Duration, stopping <-chan struct{}, render func(context.Context) ([]byte, error)) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	control, ticks := http.NewResponseController(w), time.NewTicker(interval)
	defer ticks.Stop()
	_ = control.SetReadDeadline(time.Time{}) // The read timeout of the server would end a long stream.
	var previous []byte
	for {
		_ = control.SetWriteDeadline(time.Now().Add(interval + sendTime))
		html, err := render(r.Context())
		if err == nil && !bytes.Equal(html, previous) {
			line, _ := json.Marshal(string(html)) // The JSON is one line. Ignore the error, because every string can be encoded.
			if _, err := fmt.Fprintf(w, "data: %s\n\n", line); err != nil {
				return
			}
			previous = html
		}
		if control.Flush() != nil {
			return
		}
		select {
		case <-ticks.C:
		case <-stopping:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// Page answers with a rendered page, or with status 503 if err is set.
func Page(w http.ResponseWriter, html []byte, err error) {
	if err != nil {
		slog.Warn("the page could not be rendered", "err", err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'self'; img-src data:")
	_, _ = w.Write(html)
}
