// Package live keeps a page up to date with server-sent events.
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

// sendTime is how long a client may take an event.
const sendTime = 30 * time.Second

// Stream sends what render makes, as one JSON string, at once and then each time it is another, until whoever looks has
// gone or stopping is closed: a page that is looked at would keep the service from stopping. What fails is tried again. A
// client that does not take an event within sendTime is gone.
func Stream(w http.ResponseWriter, r *http.Request, every time.Duration, stopping <-chan struct{}, render func(context.Context) ([]byte, error)) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	control, ticks := http.NewResponseController(w), time.NewTicker(every)
	defer ticks.Stop()
	_ = control.SetReadDeadline(time.Time{}) // the server's would end a stream that is looked at for long
	var last []byte
	for {
		_ = control.SetWriteDeadline(time.Now().Add(every + sendTime))
		html, err := render(r.Context())
		if err == nil && !bytes.Equal(html, last) {
			line, _ := json.Marshal(string(html)) // one line, whatever it holds; a string always encodes
			if _, err := fmt.Fprintf(w, "data: %s\n\n", line); err != nil {
				return
			}
			last = html
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

// Page answers with a page that was rendered, or could not be.
func Page(w http.ResponseWriter, html []byte, err error) {
	if err != nil {
		slog.Warn("page not shown", "err", err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'self'; img-src data:")
	_, _ = w.Write(html)
}
