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

// site has what the pages of all logs share.
type site struct {
	servers        []*server // one for each log
	opts           Options
	pages          map[string]*template.Template
	assets         map[string]asset
	reads, actions *limiter
	origins        *http.CrossOriginProtection
	times          times
	unbounded      sync.Once // makes noDeadline log only once
}

// server answers the requests for one log.
type server struct {
	*site
	admin *admin.Admin
	base  string // path of its pages
	made  string // hash of everything from which pages are built, except their data; see makings
}

// The method at returns the server whose pages a request asks for. If the path belongs to none of the servers, it
// returns the first one.
func (s *site) at(r *http.Request) *server {
	for _, log := range s.servers {
		if strings.HasPrefix(r.URL.Path, log.base) {
			return log
		}
	}
	return s.servers[0]
}

const (
	readsASecond   = 20
	actionsASecond = 5
	mostBytes      = 1 << 20
	mostTime       = 30 * time.Second // maximum duration of all queries of one request
	pageSize       = 50
)

// route is one route of the handler. A test lists which actors may use each route.
type route struct {
	pattern string // method and path below the base of a log
	serve   func(s *server, rq *request)
}

// allRoutes lists all routes.
var allRoutes = []route{
	{"GET {$}", (*server).overview},
	{"GET entries", (*server).entries},
	{"GET entries/{id}", (*server).entry},
	{"GET find", (*server).find},
	{"GET cases", (*server).groups},
	{"GET cases/due", (*server).cases},
	{"GET stats", (*server).stats},
	{"GET trail", (*server).auditLog},
	{"GET settings", (*server).settings},
	{"GET confirm", (*server).confirm},
	{"GET done", (*server).done},
	{"POST do", (*server).do},
	{"POST reveal", (*server).reveal},
	{"POST export", (*server).export},
	{"POST preferences", (*server).preferences},
	{"GET assets/{name}", (*server).asset},
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
		rq := s.at(r).request(w, r)
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			rq.fail(http.StatusNotFound, "error.no_page")
		default:
			w.Header().Set("Allow", "GET, HEAD, POST")
			rq.fail(http.StatusMethodNotAllowed, "error.method")
		}
	})
	return mux
}

// register adds the routes of one log.
func (s *server) register(mux *http.ServeMux) {
	for _, r := range allRoutes {
		method, path, _ := strings.Cut(r.pattern, " ")
		serve := r.serve
		mux.HandleFunc(method+" "+s.base+path, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), mostTime)
			defer cancel()
			serve(s, s.request(w, r.WithContext(ctx)))
		})
	}
}

type nonceKey struct{}

// secured sets the security headers of every answer, including errors.
func (s *site) secured(next http.Handler) http.Handler {
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
		r.Body = http.MaxBytesReader(w, r.Body, mostBytes)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), nonceKey{}, nonce)))
	})
}

type actorKey struct{}

// inHeader escapes a text for a quoted string in a header (RFC 9110, 5.6.4).
var inHeader = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// identified answers with an error if Identify names no actor, or if the actor sends too many requests.
func (s *site) identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok := s.opts.Identify(r)
		if !ok || actor.ID == "" {
			if s.opts.Realm != "" {
				w.Header().Set("WWW-Authenticate", `Basic realm="`+inHeader.Replace(s.opts.Realm)+`", charset="UTF-8"`)
			}
			http.Error(w, "not signed in", http.StatusUnauthorized)
			return
		}
		limit := s.actions
		if reads(r) {
			limit = s.reads
		}
		if !limit.admits(actor.ID, time.Now()) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests: try again in a second", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), actorKey{}, actor)))
	})
}
