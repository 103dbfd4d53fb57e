package ui

import (
	"cmp"
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

type entriesData struct {
	Filter filterForm
	Lines  []admin.Line
	pager
	allForm
	Actions []string
	Near    []admin.NearID  // ids that the person may have meant, if no entry has the id of the filter
	Refused string          // what is wrong with the filter; empty if the filter is valid
	Limited []admin.Limited // types on the page whose entries wait for a limit

	Partial []string // types whose running entries the list may not show completely; set if the list is about all types

	Paused []admin.Paused // types of the page that are paused
	OfUser string         // address of a user's recent entries, if the id in the filter may be a user's id; empty: no link

	NoHandler []string // types of the page whose entries wait although no process has a handler
}

type filterForm struct {
	State, Type, By, ID, Prefix, User, Error, EndedBy, Order string
	Process                                                  string // id of the process that holds the entries, if State is running
	From, To, EndedFrom, EndedTo, DueFrom, DueTo             string // times of recording, of the end, and due times
	Zone                                                     string // zone of the times above; empty: that of the page
}

type formField struct {
	Name, Value string
}

func (f *filterForm) fields() map[string]*string {
	return map[string]*string{"state": &f.State, "process": &f.Process, "type": &f.Type, "by": &f.By, "id": &f.ID, "prefix": &f.Prefix, "user": &f.User, "error": &f.Error, "ended_by": &f.EndedBy, "order": &f.Order, "zone": &f.Zone,
		"from": &f.From, "to": &f.To, "ended_from": &f.EndedFrom, "ended_to": &f.EndedTo, "due_from": &f.DueFrom, "due_to": &f.DueTo}
}

// Fields returns the fields that have a value, sorted by name.
func (f filterForm) Fields() (fields []formField) {
	for name, value := range f.fields() {
		if *value != "" {
			fields = append(fields, formField{name, *value})
		}
	}
	slices.SortFunc(fields, func(a, b formField) int { return strings.Compare(a.Name, b.Name) })
	return fields
}

// UsesMore reports whether a field has a value that the page shows only on request.
func (f filterForm) UsesMore() bool {
	return f.Error+f.EndedBy+f.User+f.From+f.To+f.EndedFrom+f.EndedTo+f.DueFrom+f.DueTo != ""
}

// States and Ends return the words that a person can choose in the filter.
func (filterForm) States() []string {
	return []string{"dead", stateRunning, "retrying", "compensating", "pending", "succeeded", "compensated", "settled by hand", "cancelled"}
}
func (filterForm) Ends() []string {
	return []string{"exhausted", "permanent", "crash", "handler", "complete", "cancel", "person"}
}

const stateRunning = "running"

func newSearchForm(w words, filter admin.Filter) filterForm {
	f := filterForm{Type: filter.BusinessType, User: filter.UserID, Error: filter.LastError, EndedBy: string(filter.EndedBy)}
	if len(filter.States) > 0 {
		f.State = filter.States[0].String()
	}
	if filter.Leased {
		f.State = stateRunning
	}
	for kind, id := range map[admin.IDKind]string{admin.KindBusiness: filter.BusinessID, admin.KindBusinessExt: filter.BusinessExtID, admin.KindBatch: filter.BatchID} {
		if id != "" {
			f.By, f.ID = string(kind), id
		}
	}
	if filter.Prefix {
		f.Prefix = "yes"
	}
	for _, limit := range f.times(&filter) {
		if !limit.target.IsZero() {
			*limit.text = w.fieldValue(*limit.target)
		}
	}
	return f
}

func newFilterForm(q url.Values) (f filterForm) {
	for name, value := range f.fields() {
		*value = q.Get(name)
	}
	f.ID, f.User = strings.TrimSpace(f.ID), strings.TrimSpace(f.User)
	// List running entries from the oldest due time on, because the entry with the oldest due time usually runs first.
	if f.State == stateRunning {
		f.Order = "oldest"
	}
	return f
}

func (f filterForm) filter() (admin.Filter, error) {
	kind := admin.IDKind(f.By)
	if kind != admin.KindBusinessExt && kind != admin.KindBatch {
		kind = admin.KindBusiness
	}
	filter := kind.Filter(f.ID, f.Prefix != "" && f.ID != "")
	filter.BusinessType, filter.LastError, filter.EndedBy, filter.UserID = f.Type, f.Error, compensator.EndedBy(f.EndedBy), f.User
	filter.Newest, filter.Limit = f.Order != "oldest", pageSize
	switch {
	case f.State == stateRunning:
		filter.Leased = true
		if f.Process != "" {
			if err := filter.LeasedBy.UnmarshalText([]byte(f.Process)); err != nil {
				return filter, err
			}
		}
	case f.State != "":
		state, err := processlog.ParseState(f.State)
		if err != nil {
			return filter, newNoneError("state", f.State)
		}
		filter.States = []compensator.State{state}
	}
	if f.EndedBy != "" && !slices.Contains(f.Ends(), f.EndedBy) {
		return filter, newNoneError("ended by", f.EndedBy)
	}
	return filter, nil
}

func (f *filterForm) times(filter *admin.Filter) []timeLimit {
	return []timeLimit{{"from", &f.From, &filter.CreatedFrom}, {"to", &f.To, &filter.CreatedTo}, {"ended from", &f.EndedFrom, &filter.EndedFrom}, {"ended to", &f.EndedTo, &filter.EndedTo},
		{"due from", &f.DueFrom, &filter.DueFrom}, {"due to", &f.DueTo, &filter.DueTo}}
}

// Times returns the fields of the filter that take a time.
func (f filterForm) Times() []timeField {
	return []timeField{{"from", "created_from", f.From}, {"to", "created_to", f.To}, {"ended_from", "ended_from", f.EndedFrom}, {"ended_to", "ended_to", f.EndedTo},
		{"due_from", "due_from", f.DueFrom}, {"due_to", "due_to", f.DueTo}}
}

func (rq *request) readFilter(q url.Values) (form filterForm, filter admin.Filter, err error) {
	form = newFilterForm(q)
	if filter, err = form.filter(); err == nil {
		err = rq.readTimes(form.Zone, form.times(&filter))
	}
	form.Zone = rq.Zone()
	return form, filter, err
}

func newNoneError(field, word string) error {
	return &compensator.FieldError{Field: field, Reason: fmt.Sprintf("%q is none", word)}
}

// Links of a pager contain the cursors of all earlier pages.
type pager struct {
	Older, Newer, First string // addresses of these pages; empty: there is no such page
}

const maxCursors = 40

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
		q.Del("chosen")
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

func countIfAll(lines []admin.Line, p pager) int {
	if p.Older != "" || p.First != "" {
		return 0
	}
	return len(lines)
}

func (s *server) showEntries(rq *request) {
	q := rq.r.URL.Query()
	if isTooWide(newFilterForm(q)) {
		q.Set("from", rq.fieldValue(time.Now().Add(-recently)))
		q.Set("zone", rq.Zone())
		rq.redirect(rq.r.URL.Path + withQuery(q))
		return
	}
	form, filter, err := rq.readFilter(q)
	data := entriesData{Filter: form}
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
	data.Lines, data.Partial = page.Lines, page.Partial
	if err == nil && len(data.Lines) == 0 && data.Filter.ID != "" && page.Next == "" && filter.Cursor == "" {
		if rq.May(admin.SeeContent, admin.Subject{}) {
			data.OfUser, _ = rq.Link("entries", "user", data.Filter.ID)
		}
		if data.Near, err = s.admin.Near(rq.ctx, rq.Actor, data.Filter.ID); err != nil {
			rq.showFailure(err)
			return
		}
	}
	data.pager = newPager(rq.r.URL, page.Next)
	data.Actions = rq.offeredActions(data.Lines)
	if form.State != "" && form.State != stateRunning {
		data.allForm = allForm{AllActions: data.Actions, AllFields: form.Fields(), AllN: countIfAll(data.Lines, data.pager)}
	}
	data.ChooseState = form.State == "" || form.State == stateRunning
	for _, l := range s.admin.Limited(rq.ctx, rq.Actor) {
		if slices.ContainsFunc(data.Lines, func(line admin.Line) bool {
			return line.Entry.BusinessType == l.BusinessType && !line.Entry.State.Terminal()
		}) {
			data.Limited = append(data.Limited, l)
		}
	}
	if data.Paused, err = s.admin.PausedOf(rq.ctx, rq.Actor, typesOf(data)...); err != nil {
		rq.showFailure(err)
		return
	}
	if data.NoHandler, err = s.admin.Unregistered(rq.ctx, rq.Actor, typesOf(data)...); err != nil {
		rq.showFailure(err)
		return
	}
	rq.showPage(status, "entries", data)
}

// RunsInAllTypes reports whether the page lists the running entries of all types. Such a page may lack entries.
func (f filterForm) RunsInAllTypes() bool {
	return f.State == stateRunning && f.Type+f.ID+f.From+f.To == ""
}

// recently is the period of a filter that is too wide without a period. The page then shows only entries that were
// recorded in the last 24 hours.
const recently = 24 * time.Hour

func isTooWide(f filterForm) bool {
	return f.User+f.Error+f.EndedBy != "" && f.Type+f.ID+f.From+f.To == ""
}

// typesOf returns the type of the filter and the types of open entries, sorted.
func typesOf(data entriesData) (types []string) {
	if data.Filter.Type != "" {
		types = append(types, data.Filter.Type)
	}
	for _, line := range data.Lines {
		if !line.Entry.State.Terminal() && line.Entry.State != compensator.Dead {
			types = append(types, line.Entry.BusinessType)
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// findEntry searches for a text. If the text is the id, the idempotency key or a call key of an entry, findEntry shows
// that entry. Otherwise findEntry lists the entries that have the text as business id, external business id or batch
// id. If no entry has it, findEntry lists the entries for which one of these ids begins with the text.
func (s *server) findEntry(rq *request) {
	text := strings.TrimSpace(rq.form().Get("q"))
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
	match, err := s.admin.Find(rq.ctx, rq.Actor, text)
	if err != nil {
		rq.showFailure(err)
		return
	}
	prefix := ""
	if match.Prefix {
		prefix = "yes"
	}
	to, _ := rq.Link("entries", "by", cmp.Or(match.Kind, admin.KindBusiness), "id", text, "prefix", prefix)
	rq.redirect(to)
}

// NearLink returns the address of the entries with a similar id.
func (rq *request) NearLink(near admin.NearID) (string, error) {
	if near.Kind == admin.KindEntry {
		return rq.Link("entries/" + near.ID)
	}
	return rq.Link("entries", "by", near.Kind, "id", near.ID)
}

// findByKey finds the entry that has text as its call key, or had it before a requeue. It finds nothing if text is also
// a business id, which the person may mean.
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
