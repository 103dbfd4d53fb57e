package ui

import (
	"net/http"
	"slices"
	"strings"

	"github.com/compensator-go/compensator/admin"
)

// settingsData is the types that are paused, and could be. Others can be named: rights are asked by type, and none of somebody's
// types may have anything open ahead of a maintenance.
type settingsData struct {
	Paused []admin.Paused
	Others []string // that are not, of those with something open
}

func (s *server) settings(rq *request) {
	paused, err := s.admin.Paused(rq.ctx, rq.Actor)
	if err != nil {
		rq.failed(err)
		return
	}
	found, err := s.admin.Overview(rq.ctx, rq.Actor)
	if err != nil {
		rq.failed(err)
		return
	}
	data := settingsData{Paused: paused}
	for _, t := range found.Types {
		if rq.MayPause(t.Type) && !slices.ContainsFunc(paused, func(p admin.Paused) bool { return p.Type == t.Type }) {
			data.Others = append(data.Others, t.Type)
		}
	}
	rq.show(http.StatusOK, "settings", data)
}

// preferences remembers a language or a theme, in a cookie of these pages.
func (s *server) preferences(rq *request) {
	if err := rq.r.ParseForm(); err != nil {
		rq.fail(http.StatusBadRequest, "error.form")
		return
	}
	if lang := rq.r.PostFormValue("language"); slices.ContainsFunc(languages, func(w words) bool { return w.Lang == lang }) {
		rq.remember(languageCookie, lang, 365*24*60*60)
	}
	switch theme := rq.r.PostFormValue("theme"); {
	case slices.Contains(themes, theme):
		rq.remember(themeCookie, theme, 365*24*60*60)
	case theme == "system":
		rq.remember(themeCookie, "", -1)
	}
	rq.redirect(rq.Back())
}

// remember sets a cookie that only these pages are sent, and only from themselves. None holds a secret.
func (rq *request) remember(name, value string, seconds int) {
	http.SetCookie(rq.w, &http.Cookie{Name: name, Value: value, Path: rq.s.opts.Base, MaxAge: seconds, HttpOnly: true,
		SameSite: http.SameSiteStrictMode, Secure: rq.r.TLS != nil || strings.HasPrefix(rq.r.Header.Get("Origin"), "https://")})
}
