package ui

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

// entriesData is the data of one page of the list of entries.
type entriesData struct {
	Filter filterForm
	Lines  []admin.Line
	pager
	Actions []string
	Refused string          // what is wrong with the filter; empty if the filter is valid
	Limited []admin.Limited // types on the page whose entries wait for a limit
}

// filterForm is the filter as the URL of the page contains it. So a link shows the same list to everyone with the
// rights.
type filterForm struct {
	State, Type, By, ID, Error, EndedBy, From, To, Order string
}

// States and Ends return the words that a person can choose in the filter.
func (filterForm) States() []string {
	return []string{"dead", "retrying", "compensating", "pending", "succeeded", "compensated", "settled by hand", "cancelled"}
}
func (filterForm) Ends() []string {
	return []string{"exhausted", "permanent", "crash", "handler", "complete", "cancel", "person"}
}

func readFilter(q url.Values) filterForm {
	return filterForm{State: q.Get("state"), Type: q.Get("type"), By: q.Get("by"), ID: strings.TrimSpace(q.Get("id")), Error: q.Get("error"),
		EndedBy: q.Get("ended_by"), From: q.Get("from"), To: q.Get("to"), Order: q.Get("order")}
}

// filter converts the form into a compensator.Filter.
func (f filterForm) filter() (admin.Filter, error) {
	filter := admin.Filter{BusinessType: f.Type, LastError: f.Error, EndedBy: compensator.EndedBy(f.EndedBy), Newest: f.Order != "oldest", Limit: pageSize}
	if f.State != "" {
		state, err := processlog.ParseState(f.State)
		if err != nil {
			return filter, newNoneError("state", f.State)
		}
		filter.States = []compensator.State{state}
	}
	switch f.By {
	case "batch":
		filter.BatchID = f.ID
	case "ext":
		filter.BusinessExtID = f.ID
	default:
		filter.BusinessID = f.ID
	}
	if f.EndedBy != "" && !slices.Contains(f.Ends(), f.EndedBy) {
		return filter, newNoneError("ended by", f.EndedBy)
	}
	var err error
	if filter.CreatedFrom, err = parseDay("from", f.From); err == nil {
		filter.CreatedTo, err = parseDay("to", f.To)
	}
	return filter, err
}

// newNoneError returns the error for a word that a person cannot choose in the filter.
func newNoneError(field, word string) error {
	return &compensator.FieldError{Field: field, Reason: fmt.Sprintf("%q is none", word)}
}

// parseDay parses a UTC time as the form sends it.
func parseDay(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02", time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, &compensator.FieldError{Field: field, Reason: "want a time as 2006-01-02T15:04"}
}

// pager holds the links to the next and the previous page. A link contains the cursors of all earlier pages.
type pager struct {
	Older, Newer, First string // addresses of these pages; empty: there is no such page
}

const maxCursors = 40

// cursor returns the cursor of the current page.
func cursor(q url.Values) string {
	if cursors := q["c"]; len(cursors) > 0 {
		return cursors[len(cursors)-1]
	}
	return ""
}

func newPager(u *url.URL, next string) pager {
	at := func(cursors []string) string {
		q := u.Query()
		q["c"] = cursors
		return u.Path + withQuery(q)
	}
	var p pager
	cursors := u.Query()["c"]
	if next != "" {
		p.Older = at(append(slices.Clone(cursors[max(0, len(cursors)-maxCursors):]), next))
	}
	if len(cursors) > 0 {
		p.Newer, p.First = at(cursors[:len(cursors)-1]), at(nil)
	}
	return p
}

func (s *server) showEntries(rq *request) {
	q := rq.r.URL.Query()
	data := entriesData{Filter: readFilter(q)}
	filter, err := data.Filter.filter()
	filter.Cursor = cursor(q)
	var page admin.LinePage
	if err == nil {
		page, err = s.admin.EntryLines(rq.ctx, rq.Actor, filter)
	}
	var field *compensator.FieldError
	status := http.StatusOK
	switch {
	case errors.As(err, &field):
		status, data.Refused = http.StatusUnprocessableEntity, rq.explainField(field)
	case err != nil:
		rq.showFailure(err)
		return
	}
	data.Lines = page.Lines
	data.pager = newPager(rq.r.URL, page.Next)
	data.Actions = rq.offeredActions(data.Lines)
	for _, l := range s.admin.Limited(rq.ctx, rq.Actor) {
		if slices.ContainsFunc(data.Lines, func(line admin.Line) bool {
			return line.Entry.BusinessType == l.BusinessType && !line.Entry.State.Terminal()
		}) {
			data.Limited = append(data.Limited, l)
		}
	}
	rq.showPage(status, "entries", data)
}

// findEntry redirects to one entry. The text may be an id, an idempotency key, or the key that a handler has sent with
// its calls. If no entry matches, findEntry redirects to the list of the entries that have the text as their business
// id.
func (s *server) findEntry(rq *request) {
	text := strings.TrimSpace(rq.r.FormValue("q"))
	refs := []compensator.Ref{compensator.IdempotencyKey(text)}
	if id, err := compensator.ParseEntryID(strings.TrimPrefix(text, "#")); err == nil {
		refs = []compensator.Ref{id, compensator.IdempotencyKey(text)}
	}
	for _, ref := range refs {
		if view, err := s.admin.Entry(rq.ctx, rq.Actor, ref); err == nil {
			to, _ := rq.Link("entries/" + view.Entry.ID.String())
			rq.redirect(to)
			return
		}
	}
	if id, ok := s.findByKey(rq, text); ok {
		rq.redirect(rq.EntryLink(id))
		return
	}
	to, _ := rq.Link("entries", "by", "business", "id", text)
	rq.redirect(to)
}

// findByKey finds the entry whose call key is text now, or was text before a requeue. A business id that looks like such a
// key finds no entry.
func (s *server) findByKey(rq *request, text string) (compensator.EntryID, bool) {
	firstPart, secondPart, _ := strings.Cut(text, "-")
	id, err := compensator.ParseEntryID(firstPart)
	epoch, wrong := strconv.ParseUint(secondPart, 10, 32)
	if err != nil || wrong != nil {
		return id, false
	}
	if page, err := s.admin.Entries(rq.ctx, rq.Actor, admin.Filter{BusinessID: text, Limit: 1}); err != nil || len(page.Entries) > 0 {
		return id, false
	}
	view, err := s.admin.Entry(rq.ctx, rq.Actor, id)
	return id, err == nil && epoch <= uint64(view.Entry.Epoch)
}
