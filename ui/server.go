package ui

import (
	"context"
	"crypto/rand"
	"html/template"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/compensator-go/compensator/admin"
)

type site struct {
	servers        []*server // one for each log
	opts           Options
	pages          map[string]*template.Template
	assets         map[string]asset
	reads, actions *limiter
	origins        *http.CrossOriginProtection
	times          times
	deadlineLogged sync.Once // makes logMissingDeadline log only once
}

type server struct {
	*site
	admin       *admin.Admin
	base        string // path of the pages of this log
	makingsHash string // hash of everything from which pages are built, except their data; see makings
}

// serverOf returns the server of the log whose pages have the path of the request. For any other path it returns the
// first server.
func (s *site) serverOf(r *http.Request) *server {
	for _, log := range s.servers {
		if strings.HasPrefix(r.URL.Path, log.base) {
			return log
		}
	}
	return s.servers[0]
}

const (
	maxReadsPerSecond   = 20
	maxActionsPerSecond = 5
	maxRequestBytes     = 256 << 10
	maxAddress          = 16 << 10         // maximum length of an address, except of a confirmation
	maxConfirmation     = 64 << 10         // maximum length of the address of a confirmation, which may name admin.MaxEntries entries
	maxQueryTime        = 30 * time.Second // maximum duration of all queries of one request
	pageSize            = 50
)

// A test lists which actors may use each route.
type route struct {
	pattern string // method and path below the base of a log
	serve   func(s *server, rq *request)
}

var allRoutes = []route{
	{"GET {$}", (*server).showOverview},
	{"GET entries", (*server).showEntries},
	{"GET entries/{id}", (*server).showEntryPage},
	{"GET find", (*server).findEntry},
	{"GET cases", (*server).showGroups},
	{"GET cases/due", (*server).showCases},
	{"GET stats", (*server).showStats},
	{"GET instances", (*server).showInstances},
	{"GET periodic", (*server).showPeriodic},
	{"GET trail", (*server).showAuditLog},
	{"GET settings", (*server).showSettings},
	{"GET confirm", (*server).showConfirm},
	{"GET done", (*server).showDone},
	{"GET actions/{id}", (*server).showBulk},
	{"POST actions/{id}", (*server).continueBulk},
	{"POST do", (*server).doAction},
	{"POST reveal", (*server).revealContent},
	{"POST export", (*server).exportEntries},
	{"POST preferences", (*server).savePreferences},
	{"GET assets/{name}", (*server).sendAsset},
}

func (s *site) routes() http.Handler {
	mux := http.NewServeMux()
	for _, log := range s.servers {
		log.register(mux)
	}
	if len(s.servers) > 1 {
		mux.Handle("GET "+s.opts.Base+"{$}", http.RedirectHandler(s.servers[0].base, http.StatusSeeOther))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		rq := s.serverOf(r).request(w, r)
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			rq.showError(http.StatusNotFound, "error.no_page")
		default:
			w.Header().Set("Allow", "GET, HEAD, POST")
			rq.showError(http.StatusMethodNotAllowed, "error.method")
		}
	})
	return mux
}

func (s *server) register(mux *http.ServeMux) {
	for _, r := range allRoutes {
		method, path, _ := strings.Cut(r.pattern, " ")
		serve := r.serve
		mux.HandleFunc(method+" "+s.base+path, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), maxQueryTime)
			defer cancel()
			serve(s, s.request(w, r.WithContext(ctx)))
		})
	}
}

type nonceKey struct{}

func (s *site) setSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nonce := rand.Text()
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'nonce-"+nonce+"'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types compensator")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		// Limit the address, because a page repeats its address in many links. A long address would make a huge page.
		if n := len(r.URL.Path) + len(r.URL.RawQuery); n > maxConfirmation || n > maxAddress && !strings.HasSuffix(r.URL.Path, "/confirm") {
			http.Error(w, "the address is too long", http.StatusRequestURITooLong)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxRequestBytes)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), nonceKey{}, nonce)))
	})
}

type actorKey struct{}

// headerEscaper escapes a text for a quoted string in a header (RFC 9110, 5.6.4).
var headerEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (s *site) requireActor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok := s.opts.Identify(r)
		if !ok || actor.ID == "" {
			if s.opts.Realm != "" {
				w.Header().Set("WWW-Authenticate", `Basic realm="`+headerEscaper.Replace(s.opts.Realm)+`", charset="UTF-8"`)
			}
			http.Error(w, "not signed in", http.StatusUnauthorized)
			return
		}
		limit := s.actions
		if isRead(r) {
			limit = s.reads
		}
		if !limit.allowRequest(actor.ID, time.Now()) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests: try again in a second", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), actorKey{}, actor)))
	})
}
