package main

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"github.com/compensator-go/compensator/examples/internal/live"
)

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.ParseFS(pageFiles, "page/page.html"))

const glance = time.Second

type page struct {
	s        *syncer
	stopping chan struct{} // closed when the service stops, because otherwise an open page would prevent the stop
}

func (p *page) route(mux *http.ServeMux) {
	assets, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // The directory is embedded above.
	}
	mux.HandleFunc("GET /{$}", p.whole)
	mux.HandleFunc("GET /live", p.live)
	mux.HandleFunc("GET /sample", p.sample)
	mux.Handle("GET /assets/", http.StripPrefix("/assets/", http.FileServerFS(assets)))
}

type shown struct {
	W words
	overview
}

func (p *page) whole(w http.ResponseWriter, r *http.Request) {
	html, err := p.render(r.Context(), "page.html", wordsFor(r))
	live.Page(w, html, err)
}

func (p *page) live(w http.ResponseWriter, r *http.Request) {
	words := wordsFor(r)
	live.Stream(w, r, glance, p.stopping, func(ctx context.Context) ([]byte, error) {
		html, err := p.render(ctx, "live", words)
		if err != nil {
			slog.Warn("the page could not be rendered", "err", err)
		}
		return html, err
	})
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

func (p *page) sample(w http.ResponseWriter, r *http.Request) {
	prefix := r.URL.Query().Get("batch")
	if !batchPattern.MatchString(prefix) {
		prefix = "sample"
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	_, _ = w.Write(writeUsers(sample(prefix, 50, p.s.seed)))
}
