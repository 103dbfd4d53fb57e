package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"time"
)

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.ParseFS(pageFiles, "page/page.html"))

// glance is how often a page that somebody looks at is told what is new.
const glance = time.Second

// page shows the batches to operators. Its parts are rendered here, and sent again and again as server-sent events.
type page struct {
	s        *syncer
	stopping chan struct{} // closed when the service stops: a page that is looked at would keep it from stopping
}

func (p *page) route(mux *http.ServeMux) {
	assets, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	mux.HandleFunc("GET /{$}", p.whole)
	mux.HandleFunc("GET /live", p.live)
	mux.HandleFunc("GET /sample", p.sample)
	mux.Handle("GET /assets/", http.StripPrefix("/assets/", http.FileServerFS(assets)))
}

// shown is what the templates are given.
type shown struct {
	W words
	overview
}

func (p *page) whole(w http.ResponseWriter, r *http.Request) {
	html, err := p.render(r.Context(), "page.html", wordsFor(r))
	if err != nil {
		slog.Warn("page not shown", "err", err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'self'; img-src data:")
	_, _ = w.Write(html)
}

// live sends the page's changing part each time it is another. What fails is tried again at the next glance.
func (p *page) live(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	flush, ticks, words := http.NewResponseController(w), time.NewTicker(glance), wordsFor(r)
	defer ticks.Stop()
	var last []byte
	for {
		html, err := p.render(r.Context(), "live", words)
		if err != nil {
			slog.Warn("page not shown", "err", err)
		} else if !bytes.Equal(html, last) {
			line, _ := json.Marshal(string(html)) // one line, whatever it holds; a string always encodes
			if _, err := fmt.Fprintf(w, "data: %s\n\n", line); err != nil {
				return
			}
			last = html
		}
		if flush.Flush() != nil {
			return
		}
		select {
		case <-ticks.C:
		case <-p.stopping:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (p *page) render(ctx context.Context, part string, w words) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, longestRequest)
	defer cancel()
	now, err := p.s.overview(ctx)
	if err != nil {
		return nil, err
	}
	var html bytes.Buffer
	err = pageTemplate.ExecuteTemplate(&html, part, shown{w, now})
	return html.Bytes(), err
}

// sample fills the form with users made up.
func (p *page) sample(w http.ResponseWriter, r *http.Request) {
	prefix := r.URL.Query().Get("batch")
	if !batchPattern.MatchString(prefix) {
		prefix = "sample"
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	_, _ = w.Write(writeUsers(sample(prefix, 50, p.s.seed)))
}
