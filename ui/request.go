package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

type request struct {
	words
	s     *server
	w     http.ResponseWriter
	r     *http.Request
	ctx   context.Context
	Actor admin.Actor
	Nonce string
	Now   time.Time // time at which the page is built, or at which its data was read
}

func (s *server) request(w http.ResponseWriter, r *http.Request) *request {
	actor, _ := r.Context().Value(actorKey{}).(admin.Actor)
	nonce, _ := r.Context().Value(nonceKey{}).(string)
	texts := wordsFor(r)
	texts.zone = s.zoneFor(r)
	return &request{words: texts, s: s, w: w, r: r, ctx: r.Context(), Actor: actor, Nonce: nonce, Now: time.Now()}
}

type view struct {
	*request
	Page string // name of the template
	Data any
}

func parsePages() (map[string]*template.Template, error) {
	frame, err := template.New("").ParseFS(files, "pages/frame.html", "pages/parts.html")
	if err != nil {
		return nil, err
	}
	dirEntries, err := files.ReadDir("pages")
	if err != nil {
		return nil, err
	}
	pages := make(map[string]*template.Template)
	for _, f := range dirEntries {
		name := strings.TrimSuffix(f.Name(), path.Ext(f.Name()))
		if name == "frame" || name == "parts" {
			continue
		}
		page, err := frame.Clone()
		if err == nil {
			_, err = page.ParseFS(files, "pages/"+f.Name())
		}
		if err != nil {
			return nil, err
		}
		pages[name] = page
	}
	return pages, nil
}

func (rq *request) showPage(status int, page string, data any) {
	var html bytes.Buffer
	if err := rq.s.pages[page].ExecuteTemplate(&html, "frame", view{rq, page, data}); err != nil {
		rq.s.opts.Logger.Error("compensator ui: a page was not made", "page", page, "err", err)
		http.Error(rq.w, "this page was not made: "+http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	rq.sendPage(status, showInvisible(html.Bytes()))
}

func (rq *request) showError(status int, key string, args ...any) {
	text, err := rq.T(key, args...)
	if err != nil {
		text = http.StatusText(status)
	}
	rq.showPage(status, "error", text)
}

// Only the Logger gets a driver's error, which may contain anything.
func (rq *request) showFailure(err error) {
	var field *compensator.FieldError
	switch {
	case errors.Is(err, admin.ErrReadOnly):
		rq.showError(http.StatusForbidden, "error.read_only")
	case errors.Is(err, admin.ErrNotAllowed):
		rq.showError(http.StatusForbidden, "error.not_allowed")
	case errors.Is(err, compensator.ErrNotFound):
		rq.showError(http.StatusNotFound, "error.not_found")
	case errors.Is(err, admin.ErrChanged):
		rq.showError(http.StatusConflict, "error.changed")
	case errors.Is(err, compensator.ErrBusy):
		rq.showError(http.StatusConflict, "error.busy")
	case errors.As(err, &field):
		rq.showError(http.StatusUnprocessableEntity, "error.field", rq.explainField(field))
	case rq.r.Method == http.MethodPost:
		rq.s.opts.Logger.Error("compensator ui: an action failed", "path", rq.r.URL.Path, "actor", rq.Actor.ID, "err", err)
		rq.showError(http.StatusServiceUnavailable, "error.action")
	default:
		rq.s.opts.Logger.Error("compensator ui: a page failed", "path", rq.r.URL.Path, "err", err)
		rq.showError(http.StatusServiceUnavailable, "error.read")
	}
}

// Link returns an address of these pages. query alternates names and values. If a value is empty, Link leaves the name
// out.
func (rq *request) Link(path string, query ...any) (string, error) {
	if len(query)%2 != 0 {
		return "", errors.New("ui: a link wants names and values")
	}
	values := make(url.Values)
	for i := 0; i < len(query); i += 2 {
		switch value := query[i+1].(type) {
		case []string:
			values[query[i].(string)] = value
		default:
			if text := fmt.Sprint(value); text != "" {
				values.Set(query[i].(string), text)
			}
		}
	}
	return rq.s.base + path + withQuery(values), nil
}

func withQuery(values url.Values) string {
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}

// Asset returns the address of a file.
func (rq *request) Asset(name string) string { return rq.s.base + rq.s.assets[name].url }

// Title returns the title of all pages.
func (rq *request) Title() string { return rq.s.opts.Title }

type logLink struct {
	Name, To string
	Here     bool // whether this page belongs to the log
}

// Logs returns links to all logs. It returns none if there is only one log.
func (rq *request) Logs() (links []logLink) {
	for _, log := range rq.s.servers {
		if len(rq.s.servers) > 1 {
			links = append(links, logLink{log.admin.Name(), log.base, log == rq.s})
		}
	}
	return links
}

// Log returns the name of the log that this page shows. It returns an empty string if there is only one log.
func (rq *request) Log() string {
	if len(rq.s.servers) == 1 {
		return ""
	}
	return rq.s.admin.Name()
}

// ReadOnly reports whether changes are forbidden.
func (rq *request) ReadOnly() bool { return rq.s.admin.ReadOnly() }

// KeepsStatistics reports whether the pages show counts over time.
func (rq *request) KeepsStatistics() bool { return rq.s.admin.KeepsStatistics() }

// HasPeriodic reports whether the process that serves the pages has periodic types, or may know those of other processes.
func (rq *request) HasPeriodic() bool { return rq.s.admin.HasPeriodic() || rq.s.admin.KeepsInstances() }

// KeepsInstances reports whether the pages show all processes.
func (rq *request) KeepsInstances() bool { return rq.s.admin.KeepsInstances() }

// TypesWith returns the types among which a person may choose: all types whose entries the actor may see. The parameter
// chosen is the type that the person has chosen before. TypesWith adds this type if it is missing. If the types cannot
// be read, the result has only this type.
func (rq *request) TypesWith(chosen string) []string {
	types, _ := rq.s.admin.Types(rq.ctx, rq.Actor, admin.SeeEntries)
	if chosen != "" && !slices.Contains(types, chosen) {
		types = append(types, chosen)
	}
	return types
}

// Theme returns the chosen theme, or an empty string.
func (rq *request) Theme() string {
	if cookie, err := rq.r.Cookie(themeCookie); err == nil && slices.Contains(themes, cookie.Value) {
		return cookie.Value
	}
	return ""
}

var themes = []string{"light", "dark"}

// Languages returns the languages to choose from.
func (rq *request) Languages() []words { return languages }

// Here returns the address of this page, for links that return to it. For a POST, Here returns the address of the page
// with the form.
func (rq *request) Here() string {
	if rq.r.Method == http.MethodPost {
		return rq.Back()
	}
	q := rq.r.URL.Query()
	if !rq.ChoosesAll() {
		return rq.r.URL.RequestURI()
	}
	q.Del("chosen") // A person who returns chooses again.
	return rq.r.URL.Path + withQuery(q)
}

// ChosenLink returns the address of this page with all its rows chosen. ChoosesAll reports whether this request has such an
// address.
func (rq *request) ChosenLink() string {
	q := rq.r.URL.Query()
	q.Set("chosen", "all")
	return rq.r.URL.Path + withQuery(q)
}
func (rq *request) ChoosesAll() bool { return rq.r.URL.Query().Get("chosen") == "all" }

// Back returns the address of the page from which the person came, as the form says.
func (rq *request) Back() string { return rq.safeReturnPath(rq.form().Get("back")) }

// form returns the fields of a form. The form of a GET is in the address. The form of a POST must be in the body,
// because proxies log addresses, so form ignores the address of a POST.
func (rq *request) form() url.Values {
	if isRead(rq.r) {
		return rq.r.URL.Query()
	}
	return rq.r.PostForm // limitBody has parsed it. It is nil if there is no form.
}

// safeReturnPath returns the path and query of an address to which a page may return. If the address is not one of
// these pages, safeReturnPath returns the base of the pages.
func (rq *request) safeReturnPath(address string) string {
	base := rq.s.base
	u, err := url.Parse(address)
	if err != nil || len(address) > maxAddress || u.Scheme != "" || u.Host != "" || u.Opaque != "" {
		return base
	}
	cleanPath := path.Clean(u.Path)
	if cleanPath+"/" == base { // Clean removes the trailing slash, but the address of the first page needs it.
		cleanPath = base
	}
	if !strings.HasPrefix(cleanPath, base) {
		return base
	}
	return (&url.URL{Path: cleanPath, RawQuery: u.RawQuery}).RequestURI()
}

// May reports whether the actor has a right.
func (rq *request) May(right admin.Right, subject admin.Subject) bool {
	return rq.s.admin.May(rq.ctx, rq.Actor, right, subject)
}

// MayPause reports whether the actor may pause and resume a type.
func (rq *request) MayPause(businessType string) bool {
	return !rq.ReadOnly() && rq.May(admin.Pause, admin.Subject{Type: businessType})
}

func (rq *request) redirect(to string) { http.Redirect(rq.w, rq.r, to, http.StatusSeeOther) }
