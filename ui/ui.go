package ui

import (
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// Options say who gets in, and how things look.
type Options struct {
	// Identify says who a request is from; false: nobody, who is answered 401. Required. It is called for each request,
	// concurrently, and must not read the body.
	Identify func(r *http.Request) (admin.Actor, bool)

	// Realm has the browser ask for a name and a password, for an Identify that reads r.BasicAuth: a 401 carries
	// WWW-Authenticate: Basic, with this realm, of printable ASCII. Default: no challenge, for a login of your own.
	Realm string

	// Base is the path under which the handler is mounted, which it is given whole, with no StripPrefix: "/ops/log/".
	// Default "/".
	Base string

	// Title stands in the head of each page. Default "compensator".
	Title string

	// Types says what of contents is shown, by business type.
	Types map[string]TypeView

	// TrustedOrigins may post as well, "https://ops.example.com": for a proxy that rewrites Host.
	TrustedOrigins []string

	// Logger is told what failed. Default slog.Default().
	Logger *slog.Logger
}

// TypeView says what of a type's content is shown to who reveals it. The rest shows as the names of its fields.
type TypeView struct {
	// Show lists the fields of JSON content whose values are shown, with all that is beneath: "order.id"; an array's
	// elements have the array's name. "." shows all, also what is no JSON. Default: none.
	Show []string
}

var bases = regexp.MustCompile(`^/([A-Za-z0-9._~-]+/)*$`)

// New makes the pages of an Admin. A *FieldError names what is missing or will not do. The handler may be called concurrently.
func New(d *admin.Admin, opts Options) (http.Handler, error) {
	s, err := newServer(d, opts)
	if err != nil {
		return nil, err
	}
	return s.handler(), nil
}

func newServer(d *admin.Admin, opts Options) (*server, error) {
	if opts.Base == "" {
		opts.Base = "/"
	}
	if opts.Title == "" {
		opts.Title = "compensator"
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	switch {
	case d == nil:
		return nil, &compensator.FieldError{Field: "Admin", Reason: "is nil"}
	case opts.Identify == nil:
		return nil, &compensator.FieldError{Field: "Identify", Reason: "is nil: nobody gets in without"}
	case strings.ContainsFunc(opts.Realm, func(c rune) bool { return c < ' ' || c > '~' }):
		return nil, &compensator.FieldError{Field: "Realm", Reason: fmt.Sprintf("%q: want printable ASCII, which a header can hold", opts.Realm)}
	case !bases.MatchString(opts.Base):
		return nil, &compensator.FieldError{Field: "Base", Reason: fmt.Sprintf("%q: want a path that begins and ends with /, of letters, digits and . _ ~ -", opts.Base)}
	}
	s := &server{admin: d, opts: opts, reads: newLimiter(readsASecond), actions: newLimiter(actionsASecond),
		origins: http.NewCrossOriginProtection(), times: times{bodyTime, mostTime + sendTime, lingerTime}}
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
	if s.made, err = makings(opts.Title, d.ReadOnly()); err != nil {
		return nil, err
	}
	return s, nil
}

// handler is the way in: how long a client may take, what browsers are told, no other site, nobody unknown, then the form.
func (s *server) handler() http.Handler {
	return s.bounded(s.secured(s.origins.Handler(s.identified(s.received(s.routes())))))
}
