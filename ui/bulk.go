package ui

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

type bulkData struct {
	admin.BulkView
	Counts  []bulkCount       // changed entries by outcome
	Sum     int               // sum of Counts
	Skips   []skipCount       // entries that were not changed
	Show    admin.BulkOutcome // outcome whose entries the page lists
	Lines   []admin.Line      // the listed entries
	Actions []string
	Going   bool   // whether the script of the page continues the action by itself
	Problem string // what is wrong with the form; empty if nothing is wrong
	pager
	allForm // empty, because the page offers no action on all of its entries; the templates read these fields
}

type bulkCount struct {
	Outcome admin.BulkOutcome
	N       int
	Link    string // address of the page that lists the entries with this outcome
	Before  int    // number of entries in the earlier elements of Counts; this outcome's part of the bar begins there
}

type skipCount struct {
	Why string
	N   int
	IDs []compensator.EntryID // entries that were left out for this reason, at most maxSkipsNamed
}

const maxSkipsNamed = 20

var bulkIcons = map[admin.BulkOutcome]string{admin.BulkDead: "dead", admin.BulkRetrying: "retrying", admin.BulkRunning: "compensating", admin.BulkWaiting: "pending", admin.BulkSucceeded: "succeeded",
	admin.BulkCompensated: "compensated", admin.BulkSettled: "settled", admin.BulkCancelled: "cancelled", admin.BulkOverridden: "unknown", admin.BulkGone: "cancelled"}

// Icon returns the icon of an outcome.
func (bulkData) Icon(o admin.BulkOutcome) string { return bulkIcons[o] }

func (rq *request) bulkLink(id admin.BulkID, query ...any) string {
	to, _ := rq.Link("actions/"+id.String(), query...)
	return to
}

// BulkLink does the same as bulkLink for templates.
func (rq *request) BulkLink(id admin.BulkID) string { return rq.bulkLink(id) }

// The address of the page holds no secret, so people can send it to each other.
func (s *server) showBulk(rq *request) {
	id, err := admin.ParseBulkID(rq.r.PathValue("id"))
	if err != nil { // For people a wrong address is a missing page.
		rq.showFailure(compensator.ErrNotFound)
		return
	}
	view, err := s.admin.Bulk(rq.ctx, rq.Actor, id)
	if err != nil {
		rq.showFailure(err)
		return
	}
	s.showBulkView(rq, view, "", http.StatusOK)
}

func (s *server) showBulkView(rq *request, view admin.BulkView, problem string, status int) {
	id := view.ID
	data := bulkData{BulkView: view, Problem: problem, Show: admin.BulkOutcome(rq.r.URL.Query().Get("show"))}
	for _, outcome := range admin.BulkOutcomes {
		if n := view.Outcomes[outcome]; n > 0 {
			data.Counts = append(data.Counts, bulkCount{outcome, n, rq.bulkLink(id, "show", outcome), data.Sum})
			data.Sum += n
		}
	}
	if data.Show == "" && len(data.Counts) > 0 {
		data.Show = data.Counts[0].Outcome
	}
	data.addSkips()
	cookie, err := rq.r.Cookie(goingCookie)
	// If Going is true, the script of the page continues the action. An action may first try a few entries, and Tried
	// is then their outcome. After such a trial the person must decide, so the script does not continue the action.
	data.Going = err == nil && cookie.Value == rq.goingValue(id) && view.ActedLast && view.Search != nil && data.GoesOn() && data.Tried == ""
	if err := s.addBulkLines(rq, &data); err != nil {
		rq.showFailure(err)
		return
	}
	rq.showPage(status, "bulk", data)
}

func (d *bulkData) addSkips() {
	for _, why := range slices.Sorted(maps.Keys(d.LeftOut)) {
		skips := skipCount{Why: why, N: d.LeftOut[why]}
		for _, skip := range d.Skipped {
			if skip.Why == why && len(skips.IDs) < maxSkipsNamed {
				skips.IDs = append(skips.IDs, skip.ID)
			}
		}
		d.Skips = append(d.Skips, skips)
	}
}

func (s *server) addBulkLines(rq *request, data *bulkData) (err error) {
	ids := data.Entries[data.Show]
	from, _ := strconv.Atoi(rq.r.URL.Query().Get("from"))
	from = max(0, min(from, len(ids)))
	to := min(from+pageSize, len(ids))
	if data.Lines, err = s.admin.Lines(rq.ctx, rq.Actor, ids[from:to]); err != nil {
		return err
	}
	if to < len(ids) {
		data.Older = rq.bulkLink(data.ID, "show", data.Show, "from", to)
	}
	if from > 0 {
		data.First = rq.bulkLink(data.ID, "show", data.Show)
		data.Newer = rq.bulkLink(data.ID, "show", data.Show, "from", max(0, from-pageSize))
	}
	data.Actions = append(rq.offeredActions(data.Lines), rq.caseActions(data.Lines)...)
	return nil
}

// GoesOn reports whether the page offers to continue the action. If the action has first tried a few entries, the page
// waits until these entries have ended.
func (d bulkData) GoesOn() bool { return d.MayContinue && d.TriesEnded() }

// TryFailed reports whether an entry that the action has tried first did not succeed.
func (d bulkData) TryFailed() bool {
	return slices.ContainsFunc(d.Trials, hasFailed)
}

func hasFailed(t admin.BulkTrial) bool {
	return t.Outcome == admin.BulkDead || t.Outcome == admin.BulkOverridden
}

// TriedError returns the error of an entry that the action has tried first, if the entry did not succeed. It returns an
// empty text if the page does not list the entry.
func (d bulkData) TriedError(trial admin.BulkTrial) string {
	at := slices.IndexFunc(d.Lines, func(l admin.Line) bool { return l.Entry.ID == trial.ID })
	if at < 0 || !hasFailed(trial) {
		return ""
	}
	return d.Lines[at].Entry.LastError
}

// SearchLink returns the address of the entries that match the search of an action.
func (rq *request) SearchLink(search admin.Search) (string, error) {
	f := search.Filter
	if search.Failure != (admin.Fingerprint{}) {
		return rq.Link("cases/due", "failure", search.Failure, "type", f.BusinessType)
	}
	form := newSearchForm(rq.words, f)
	form.Zone = rq.Zone()
	pairs := []any{}
	for _, field := range form.Fields() {
		pairs = append(pairs, field.Name, field.Value)
	}
	return rq.Link("entries", pairs...)
}

// News returns a text that changes when the counts change.
func (d bulkData) News() string { return fmt.Sprint(d.Counts, d.Left) }

// As long as this cookie is set, the script of the action's page continues the action. A link cannot set the cookie,
// but a page on a sibling subdomain can. The prefix __Host- in the cookie's name would prevent this, but needs the path
// "/" and HTTPS. So the server also checks in the audit log that the same person stored the last batch. No cookie can
// change the audit log. So the script continues only an action that the person began or continued himself.
const (
	goingCookie  = "compensator_going"
	goingSeconds = 600
)

func (rq *request) goingValue(id admin.BulkID) string { return id.String() + "-" + hashActor(rq.Actor) }

// Many returns a text such as "5 entries". If the parameter more is true, the text is "more than 5 entries".
func (rq *request) Many(n int, more bool) (string, error) {
	if more {
		return rq.T("more_entries", rq.Number(n))
	}
	return rq.Entries(n)
}

func (action formAction) bulkOptions() admin.BulkOptions {
	return admin.BulkOptions{TryFirst: action.First, Key: action.Key}
}

func (s *server) startMatching(rq *request, action formAction) (isAnswered bool, err error) {
	id, err := s.admin.StartMatching(rq.ctx, rq.Actor, action.newChange(), action.Search, action.bulkOptions())
	switch {
	case id != (admin.BulkID{}):
		rq.setCookie(goingCookie, rq.goingValue(id), goingSeconds)
		rq.redirect(rq.bulkLink(id))
		return true, nil
	case err == nil:
		rq.showError(http.StatusNotFound, "all.none")
		return true, nil
	}
	return false, err
}

func (s *server) continueBulk(rq *request) {
	id, err := admin.ParseBulkID(rq.r.PathValue("id"))
	if err != nil {
		rq.showFailure(compensator.ErrNotFound)
		return
	}
	next, going := s.admin.ContinueBulk, goingSeconds
	if text := rq.form().Get("another"); text != "" {
		last, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			rq.showFailure(&compensator.FieldError{Field: "form", Reason: err.Error()})
			return
		}
		next, going = func(ctx context.Context, a admin.Actor, id admin.BulkID) error {
			return s.admin.TryAnother(ctx, a, id, last)
		}, -1
	} else if rq.form().Get("stop") == "yes" {
		next, going = s.admin.StopBulk, -1
	} else if rq.r.PostFormValue("anyway") != "yes" {
		view, err := s.admin.Bulk(rq.ctx, rq.Actor, id)
		// After a failed trial, the person must confirm with the checkbox "anyway". The form came without this
		// confirmation, so show the page again.
		if err == nil && (bulkData{BulkView: view}).TryFailed() {
			problem, _ := rq.T("bulk.confirm")
			s.showBulkView(rq, view, problem, http.StatusUnprocessableEntity)
			return
		}
	}
	if err := next(rq.ctx, rq.Actor, id); err != nil && !errors.Is(err, admin.ErrContinued) {
		rq.showFailure(err)
		return
	}
	rq.setCookie(goingCookie, rq.goingValue(id), going)
	rq.redirect(rq.bulkLink(id))
}

// startBulk returns answers only if no entry was changed.
func (s *server) startBulk(rq *request, action formAction) (answers []error, isAnswered bool, err error) {
	id, answers, err := s.admin.StartBulk(rq.ctx, rq.Actor, action.newChange(), action.bulkOptions())
	if err != nil || id == (admin.BulkID{}) {
		return answers, false, err
	}
	rq.redirect(rq.bulkLink(id))
	return answers, true, nil
}
