package ui

import (
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// Options configure the pages.
type Options struct {
	// Identify returns the actor of a request. If Identify returns false, the answer is 401. Identify is required.
	// Identify is called for each request, concurrently, and must not read the body.
	Identify func(r *http.Request) (admin.Actor, bool)

	// Realm makes the browser ask for a name and a password. Set Realm if Identify reads r.BasicAuth. An answer 401
	// then has the header WWW-Authenticate: Basic with the realm. Realm consists of printable ASCII characters. If
	// Realm is empty, an answer 401 does not have this header, and your application provides a login page.
	Realm string

	// Base is the path at which you serve the pages, for example "/ops/log/". Base begins and ends with a slash. The
	// handler needs the full path of requests, so do not use http.StripPrefix. The default is "/".
	Base string

	// Title is the heading of each page. The default is "compensator".
	Title string

	// Zone is the time zone of all times on the pages, unless a person has chosen another time zone. The default is
	// UTC.
	Zone *time.Location

	// Types says for each business type which fields of a content the pages show after a person has revealed the
	// content.
	Types map[string]TypeView

	// TrustedOrigins lists further origins from which the pages accept forms, for example "https://ops.example.com".
	// Set TrustedOrigins if a proxy rewrites the Host header.
	TrustedOrigins []string

	// Logger logs failures. The default is slog.Default().
	Logger *slog.Logger
}

// TypeView says which values of a type the pages show when a person reveals an entry. A reveal needs the right
// SeeContent. For all other fields the pages show only the names.
type TypeView struct {
	// Show lists fields of JSON content. A reveal shows their values and everything below them, for example "order.id".
	// Elements of an array have the name of the array. "." shows the whole content, also if it is not JSON. By default
	// a reveal shows no values.
	Show []string

	// ShowResult does the same as Show for the result of the handler.
	ShowResult []string
}

var bases = regexp.MustCompile(`^/([A-Za-z0-9._~-]+/)*$`)

// New returns the pages of one or several logs, each with its Admin. A *FieldError names the option that is missing or
// wrong. The handler may be called concurrently.
//
// One log has its pages below Options.Base. With several logs, the pages of each are below Base and the log's name, for
// example /ops/stock/, and the head of each page links to the other logs. Base itself leads to the first log. The name
// is compensator.Config.Name. Each log needs a different one.
func New(opts Options, logs ...*admin.Admin) (http.Handler, error) {
	s, err := newSite(opts, logs)
	if err != nil {
		return nil, err
	}
	return s.handler(), nil
}

func newSite(opts Options, logs []*admin.Admin) (*site, error) {
	if opts.Base == "" {
		opts.Base = "/"
	}
	if opts.Title == "" {
		opts.Title = "compensator"
	}
	if opts.Zone == nil {
		opts.Zone = time.UTC
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	switch {
	case opts.Identify == nil:
		return nil, &compensator.FieldError{Field: "Identify", Reason: "is nil: set a function that returns the actor of a request"}
	case strings.ContainsFunc(opts.Realm, func(c rune) bool { return c < ' ' || c > '~' }):
		return nil, &compensator.FieldError{Field: "Realm", Reason: fmt.Sprintf("%q: want printable ASCII, which a header can hold", opts.Realm)}
	case !bases.MatchString(opts.Base):
		return nil, &compensator.FieldError{Field: "Base", Reason: fmt.Sprintf("%q: want a path that begins and ends with /, of letters, digits and . _ ~ -", opts.Base)}
	}
	if err := checkNames(logs); err != nil {
		return nil, err
	}
	s := &site{opts: opts, reads: newLimiter(maxReadsPerSecond), actions: newLimiter(maxActionsPerSecond),
		origins: http.NewCrossOriginProtection(), times: times{bodyTime, maxQueryTime + sendTime, lingerTime}}
	for _, origin := range opts.TrustedOrigins {
		if err := s.origins.AddTrustedOrigin(origin); err != nil {
			return nil, &compensator.FieldError{Field: "TrustedOrigins", Reason: err.Error()}
		}
	}
	var err error
	if s.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	if s.pages, err = parsePages(); err != nil {
		return nil, err
	}
	names := make([]string, len(logs))
	for i, d := range logs {
		base := opts.Base
		if len(logs) > 1 {
			names[i] = d.Name()
			base += d.Name() + "/"
		}
		s.servers = append(s.servers, &server{site: s, admin: d, base: base})
	}
	for _, log := range s.servers {
		if log.makingsHash, err = hashMakings(opts.Title, log.admin.ReadOnly(), names); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func checkNames(logs []*admin.Admin) error {
	if len(logs) == 0 || slices.Contains(logs, nil) {
		return &compensator.FieldError{Field: "Admin", Reason: "is nil"}
	}
	for i, d := range logs {
		switch {
		case len(logs) == 1:
		case d.Name() == "":
			return &compensator.FieldError{Field: "Name", Reason: fmt.Sprintf("log %d of %d has none: set it in the Config of its Compensator", i+1, len(logs))}
		case slices.ContainsFunc(logs[:i], func(other *admin.Admin) bool { return other.Name() == d.Name() }):
			return &compensator.FieldError{Field: "Name", Reason: fmt.Sprintf("%q: two logs have this name", d.Name())}
		}
	}
	return nil
}

func (s *site) handler() http.Handler {
	return s.limitTimes(s.setSecurityHeaders(s.origins.Handler(s.requireActor(s.limitBody(s.routes())))))
}
