package ui

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// periods holds the names of periods in forms. The key of a period's translated text is "per." and the name, for
// example "per.hour".
var periods = []string{"second", "minute", "hour", "day"}

var periodOf = map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}

func (action formAction) isLimitAction() bool {
	return action.Do == doLimit || action.Do == doResetLimit
}

// MayChangeLimit reports whether the person may change a limit.
func (rq *request) MayChangeLimit(l admin.Limit) bool {
	return rq.s.admin.MayChangeLimit(rq.ctx, rq.Actor, l)
}

// LimitText says in words what a limit allows.
func (rq *request) LimitText(v admin.LimitValues) (string, error) {
	var parts []string
	var problems []error
	add := func(key string, args ...any) {
		text, err := rq.T(key, args...)
		parts, problems = append(parts, text), append(problems, err)
	}
	if v.Interval > 0 {
		n, unit := v.Rate()
		span, err := rq.Span(unit)
		problems = append(problems, err)
		add("limits.rate", rq.Number(n), span)
		add("limits.burst", rq.Number(v.Burst))
	}
	if v.Concurrent > 0 {
		add("limits.concurrent", rq.Number(v.Concurrent))
	}
	return strings.Join(parts, " · "), errors.Join(problems...)
}

func (s *server) askLimitValues(rq *request, action formAction, problem string, status int) {
	limit, err := s.limitNamed(rq, action.Type)
	// The person has only asked for the form. Refuse here, because the Admin would record a refusal in the audit log.
	if err == nil && !rq.MayChangeLimit(limit) {
		err = admin.ErrNotAllowed
	}
	if err != nil {
		rq.showFailure(err)
		return
	}
	data := confirmData{formAction: action, Problem: problem, Periods: periods, From: rq.Back()}
	if data.Version == 0 && status == http.StatusOK {
		data.Version = limit.Version
	}
	if status == http.StatusOK {
		data.setValues(limit.Person)
	}
	if data.InForce, err = rq.LimitText(limit.LimitValues); err == nil {
		data.Program, err = rq.LimitText(limit.Program)
	}
	if err != nil {
		rq.showFailure(err)
		return
	}
	rq.showPage(status, "confirm", data)
}

func (action *formAction) setValues(v admin.LimitValues) {
	formatNumber := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	starts, unit := v.Rate()
	action.Starts, action.Burst, action.Concurrent = formatNumber(starts), formatNumber(v.Burst), formatNumber(v.Concurrent)
	for name, period := range periodOf {
		if period == unit {
			action.Per = name
		}
	}
}

func (s *server) limitNamed(rq *request, name string) (admin.Limit, error) {
	limits, err := s.admin.Limits(rq.ctx, rq.Actor)
	at := slices.IndexFunc(limits, func(l admin.Limit) bool { return l.Name == name })
	switch {
	case err != nil:
		return admin.Limit{}, err
	case at < 0:
		return admin.Limit{}, compensator.ErrNotFound
	}
	return limits[at], nil
}

func (s *server) changeLimit(rq *request, action formAction) error {
	var values admin.LimitValues
	if action.Do == doLimit {
		var err error
		if values, err = action.limitValues(); err != nil {
			return err
		}
	}
	return s.admin.ChangeLimit(rq.ctx, rq.Actor, admin.Limit{Name: action.Type, Version: action.Version}, values, action.Why)
}

// limitValues reads the values of the form. An empty field stands for the value that the program has set. At least one
// field must have a value.
func (action formAction) limitValues() (v admin.LimitValues, err error) {
	parseNumber := func(field, text string) (n int) {
		if text == "" || err != nil {
			return 0
		}
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			err = &compensator.FieldError{Field: field, Reason: "want a number of at least 1"}
		}
		return n
	}
	starts := parseNumber("rate", action.Starts)
	v.Burst, v.Concurrent = parseNumber("burst", action.Burst), parseNumber("concurrent", action.Concurrent)
	unit := periodOf[action.Per]
	switch {
	case err != nil:
	case starts > 0 && unit == 0:
		err = &compensator.FieldError{Field: "rate", Reason: "has no period"}
	case starts > 0:
		v.Interval = admin.Interval(int64(starts), unit)
	case v == admin.LimitValues{}:
		err = &compensator.FieldError{Field: "limit", Reason: "has no value"}
	}
	return v, err
}
