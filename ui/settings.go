package ui

import (
	"net/http"
	"slices"
	"strings"

	"github.com/compensator-go/compensator/admin"
)

// settingsData is the data of the page of settings. The page has a button for each type in Others, which pauses the
// type. To pause a type that is not in Others, the person enters its name. The browser suggests the names in Known.
type settingsData struct {
	Paused []admin.Paused
	Others []string // types with open entries that are not paused
	Known  []string // all types that the person may pause and that are not paused
	Limits []admin.Limit

	WrongZone, NearZone string // time zone that the person named although it does not exist, and one that he may have meant
}

func (s *server) showSettings(rq *request) { s.showSettingsWith(rq, "") }

func (s *server) showSettingsWith(rq *request, wrongZone string) {
	paused, err := s.admin.Paused(rq.ctx, rq.Actor)
	if err != nil {
		rq.showFailure(err)
		return
	}
	overview, err := s.admin.Overview(rq.ctx, rq.Actor)
	if err != nil {
		rq.showFailure(err)
		return
	}
	limits, err := s.admin.Limits(rq.ctx, rq.Actor)
	if err != nil {
		rq.showFailure(err)
		return
	}
	known, err := s.admin.Types(rq.ctx, rq.Actor, admin.SeeOverview)
	if err != nil {
		rq.showFailure(err)
		return
	}
	data := settingsData{Paused: paused, Limits: limits, WrongZone: wrongZone, NearZone: nearZone(wrongZone)}
	status := http.StatusOK
	if wrongZone != "" {
		status = http.StatusUnprocessableEntity
	}
	mayPause := func(name string) bool {
		return rq.MayPause(name) && !slices.ContainsFunc(paused, func(p admin.Paused) bool { return p.Type == name })
	}
	for _, t := range overview.Types {
		if mayPause(t.Type) {
			data.Others = append(data.Others, t.Type)
		}
	}
	for _, name := range known {
		if mayPause(name) {
			data.Known = append(data.Known, name)
		}
	}
	rq.showPage(status, "settings", data)
}

func (s *server) savePreferences(rq *request) {
	form := rq.form()
	if lang := form.Get("language"); slices.ContainsFunc(languages, func(w words) bool { return w.Lang == lang }) {
		rq.setCookie(languageCookie, lang, 365*24*60*60)
	}
	switch theme := form.Get("theme"); {
	case slices.Contains(themes, theme):
		rq.setCookie(themeCookie, theme, 365*24*60*60)
	case theme == "system":
		rq.setCookie(themeCookie, "", -1)
	}
	if name := form.Get("zone"); name != "" {
		if _, err := loadZone(name); err != nil {
			s.showSettingsWith(rq, name)
			return
		}
		rq.setCookie(zoneCookie, name, 365*24*60*60)
	}
	rq.redirect(rq.Back())
}

// setCookie must not be used for secrets. Browsers send the cookie only to and from these pages.
func (rq *request) setCookie(name, value string, seconds int) {
	http.SetCookie(rq.w, &http.Cookie{Name: name, Value: value, Path: rq.s.opts.Base, MaxAge: seconds, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: rq.r.TLS != nil || strings.HasPrefix(rq.r.Header.Get("Origin"), "https://")})
}
