package shop

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"crypto/rand"

	"github.com/compensator-go/compensator/examples/internal/crowd"
	"github.com/compensator-go/compensator/examples/internal/live"
)

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.ParseFS(pageFiles, "page/page.html"))

const (
	glance      = time.Second // interval at which an open page is updated
	mostInCrowd = 5000
	crowdSpan   = 15 * time.Second
)

// page shows the sale, sells a piece and starts a crowd.
type page struct {
	s        *Shop
	api      *API
	address  string   // address that the crowd calls
	wanted   chan int // receives the number of buyers of the next crowd
	stopping chan struct{}
}

func newPage(s *Shop, a *API, address string, stopping chan struct{}) *page {
	return &page{s: s, api: a, address: address, wanted: make(chan int), stopping: stopping}
}

func (p *page) routes() {
	assets, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // The directory is embedded above.
	}
	mux := p.api.Mux
	mux.HandleFunc("GET /{$}", p.whole)
	mux.HandleFunc("GET /live", p.live)
	mux.HandleFunc("POST /crowd", answer(http.StatusAccepted, p.crowdRequest))
	mux.Handle("GET /assets/", http.StripPrefix("/assets/", http.FileServerFS(assets)))
}

type shown struct {
	W     Words
	Intro Intro
	overview
}

func (p *page) whole(w http.ResponseWriter, r *http.Request) {
	html, err := p.render(r.Context(), "page.html", wordsFor(r))
	live.Page(w, html, err)
}

func (p *page) live(w http.ResponseWriter, r *http.Request) {
	words := wordsFor(r)
	live.Stream(w, r, glance, p.stopping, func(ctx context.Context) ([]byte, error) { return p.render(ctx, "live", words) })
}

func (p *page) render(ctx context.Context, part string, w Words) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, LongestRequest)
	defer cancel()
	now, err := p.s.overview(ctx)
	if err != nil {
		return nil, err
	}
	var html bytes.Buffer
	err = pageTemplate.ExecuteTemplate(&html, part, shown{w, p.s.Look.In(w.Lang), now})
	return html.Bytes(), err
}

func (p *page) crowdRequest(_ context.Context, r *http.Request) (any, error) {
	var wanted struct {
		Buyers int `json:"buyers"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, MostBytes)).Decode(&wanted); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBad, err)
	}
	if wanted.Buyers < 1 || wanted.Buyers > mostInCrowd {
		return nil, fmt.Errorf("%w: buyers %d: want 1 to %d", ErrBad, wanted.Buyers, mostInCrowd)
	}
	select {
	case p.wanted <- wanted.Buyers:
		return wanted, nil
	default:
		return nil, ErrCrowded
	}
}

func (p *page) letIn(ctx context.Context) {
	for {
		select {
		case buyers := <-p.wanted:
			c := &crowd.Crowd{Client: crowd.NewClient(func() string { return p.address }), Goods: p.s.Goods, Buyers: buyers, Span: crowdSpan,
				Name: "guest-" + strings.ToLower(rand.Text()[:6]), Seed: uint64(time.Now().UnixNano())}
			c.Run(ctx)
			c.Client.Close()
		case <-ctx.Done():
			return
		}
	}
}
