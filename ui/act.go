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
)

// formAction is the action that a form asks for, before and after its confirmation.
type formAction struct {
	Do                             string
	Seen                           []admin.Seen        // entries in the versions that the page showed
	Cases                          []admin.SeenCase    // open cases of the entries, in the versions that the page showed
	Texts                          []string            // values of entries and cases in the form; see seenText
	ID                             compensator.EntryID // entry of a note or a reveal
	Owner                          string
	Type                           string
	Version                        uint64 // version of the pause to end
	Why                            admin.Why
	Delay                          time.Duration
	Sure                           bool
	Values                         admin.LimitValues // values of a limit; 0: the program's own
	Starts, Per, Burst, Concurrent string            // the same as the form has them
	Ahead                          bool              // whether to pause a type that neither the log nor the process knows
}

var delays = []time.Duration{0, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// readFormAction parses the action from a form. A *FieldError names the field that is wrong.
func readFormAction(r *http.Request) (formAction, error) {
	if err := r.ParseForm(); err != nil {
		return formAction{}, &compensator.FieldError{Field: "form", Reason: err.Error()}
	}
	wi := formAction{Do: r.Form.Get("do"), Owner: typed(r.Form, "owner"), Type: typed(r.Form, "type"), Sure: r.Form.Get("sure") == "yes", Ahead: r.Form.Get("ahead") == "yes", Why: readWhy(r.Form)}
	if len(r.Form["seen"]) > admin.MaxEntries {
		return wi, &compensator.FieldError{Field: "entries", Reason: fmt.Sprintf("%d, want 1 to %d", len(r.Form["seen"]), admin.MaxEntries)}
	}
	wi.Texts = r.Form["seen"]
	for _, text := range wi.Texts {
		seen, ofCase, err := parseSeen(text)
		if err != nil {
			return wi, err
		}
		wi.Seen = append(wi.Seen, seen)
		if ofCase != nil {
			wi.Cases = append(wi.Cases, *ofCase)
		}
	}
	wi.Starts, wi.Per, wi.Burst, wi.Concurrent = typed(r.Form, "starts"), typed(r.Form, "per"), typed(r.Form, "burst"), typed(r.Form, "concurrent")
	var err error
	if text := r.Form.Get("id"); text != "" {
		wi.ID, err = compensator.ParseEntryID(text)
	}
	if text := r.Form.Get("version"); text != "" && err == nil {
		wi.Version, err = strconv.ParseUint(text, 10, 64)
	}
	if text := r.Form.Get("delay"); text != "" && err == nil {
		wi.Delay, err = time.ParseDuration(text)
	}
	if err != nil && !errors.As(err, new(*compensator.FieldError)) {
		err = &compensator.FieldError{Field: "form", Reason: err.Error()}
	}
	return wi, err
}

// readWhy reads the reason and the ticket of a form.
func readWhy(form url.Values) admin.Why {
	return admin.Why{Reason: typed(form, "reason"), Ticket: typed(form, "ticket")}
}

// typed returns the text of a form field. It turns CR LF into LF, because browsers send lines of a form with CR LF.
func typed(form url.Values, name string) string {
	return strings.TrimSpace(strings.ReplaceAll(form.Get(name), "\r\n", "\n"))
}

// seenText returns the value of an entry in a form: id:version. If the case of the entry is open, the value is
// id:version:version of the case.
func seenText(id compensator.EntryID, version uint64, c *admin.Case) string {
	text := id.String() + ":" + strconv.FormatUint(version, 10)
	if open(c) {
		text += ":" + strconv.FormatUint(c.Version, 10)
	}
	return text
}

func parseSeen(text string) (seen admin.Seen, ofCase *admin.SeenCase, err error) {
	parts := strings.Split(text, ":")
	if seen.ID, err = compensator.ParseEntryID(parts[0]); err != nil {
		return seen, nil, err
	}
	wrong := &compensator.FieldError{Field: "seen", Reason: "want id:version, or id:version:version of the case"}
	if len(parts) != 2 && len(parts) != 3 {
		return seen, nil, wrong
	}
	if seen.Version, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return seen, nil, wrong
	}
	if len(parts) == 3 {
		ofCase = &admin.SeenCase{EntryID: seen.ID}
		if ofCase.Version, err = strconv.ParseUint(parts[2], 10, 64); err != nil {
			return seen, nil, wrong
		}
	}
	return seen, ofCase, nil
}

// onEntries reports whether the action is a Change of entries. onCases reports whether it changes the owners of cases.
func (wi formAction) onEntries() bool { return slices.Contains(changes, admin.Right(wi.Do)) }
func (wi formAction) onCases() bool {
	return wi.Do == doTake || wi.Do == doAssign || wi.Do == doGiveBack
}

// confirmData is the data of the page that asks for confirmation.
type confirmData struct {
	formAction
	Lines            []admin.Line
	Unsure           int            // number of entries whose outcome is unknown
	Again            int            // number of finished entries that would run again
	Moved            int            // number of entries or cases that have changed since the page showed them
	OthersCases      int            // number of cases that other people have
	Futile           int            // number of entries that ended with a permanent error, so that another run will fail too
	Paused           []admin.Paused // paused types of the entries. Until they are resumed, their entries do not run
	Broken           []admin.Broken
	Sums             []string
	InForce, Program string   // what a limit allows now, and what the program has set
	Problem          string   // what is wrong with the form; empty if nothing is wrong
	Periods          []string // periods of a rate
	NoType           bool     // whether the type to pause is unknown
	Delays           []time.Duration
	From             string // address of the page to return to
}

// Target returns the address that the form is sent to.
func (d confirmData) Target() string {
	if d.Do == doReveal {
		return "reveal"
	}
	return "do"
}

// Warns reports whether the person must confirm a warning.
func (d confirmData) Warns() bool { return d.Unsure+d.Again > 0 }

// Runs reports whether the action runs the entries again.
func (wi formAction) Runs() bool {
	return wi.Do == string(admin.Requeue) || wi.Do == string(admin.Compensate)
}

// change returns the admin.Change for the action. One checkbox on the page sets both Checked and Again.
func (wi formAction) change() admin.Change {
	return admin.Change{Action: admin.Right(wi.Do), Entries: wi.Seen, Why: wi.Why, Delay: wi.Delay, Checked: wi.Sure, Again: wi.Sure}
}

func (s *server) confirm(rq *request) {
	wi, err := readFormAction(rq.r)
	if err == nil {
		err = wi.complete()
	}
	if err != nil {
		rq.failed(err)
		return
	}
	if s.admin.ReadOnly() {
		rq.failed(admin.ErrReadOnly)
		return
	}
	if wi.onLimit() {
		s.askLimit(rq, wi, "", http.StatusOK)
		return
	}
	if (wi.Do == doPause || wi.Do == doResume) && !rq.MayPause(wi.Type) { // Refuse here, because the Admin would record its refusal.
		rq.failed(admin.ErrNotAllowed)
		return
	}
	s.askFor(rq, wi, "", http.StatusOK)
}

// complete returns an error if the form lacks something other than the reason.
func (wi formAction) complete() error {
	ok, lacks := false, &compensator.FieldError{Field: "entries", Reason: "none is chosen"}
	switch wi.Do {
	case doTake, doAssign, doGiveBack:
		ok = len(wi.Cases) > 0
	case doNote, doReveal:
		ok = !wi.ID.IsZero()
	case doPause, doResume:
		ok = wi.Type != "" && (wi.Do == doPause || wi.Version > 0)
		if wi.Type == "" {
			lacks = &compensator.FieldError{Field: "business type", Reason: "is empty"}
		}
	case doLimit, doResetLimit:
		ok, lacks = wi.Type != "", &compensator.FieldError{Field: "limit", Reason: "is empty"}
	default:
		if !wi.onEntries() {
			return &compensator.FieldError{Field: "action", Reason: fmt.Sprintf("%q is none", wi.Do)}
		}
		ok = len(wi.Seen) > 0
	}
	if !ok {
		return lacks
	}
	return nil
}

// askFor shows the page that asks for a reason. If the action needs a confirmation, the page asks for it too.
func (s *server) askFor(rq *request, wi formAction, problem string, status int) {
	data, err := s.weigh(rq, wi)
	if err != nil {
		rq.failed(err)
		return
	}
	data.Problem = problem
	rq.show(status, "confirm", data)
}

// weigh reads the entries of an action, and counts what the confirmation page warns about.
func (s *server) weigh(rq *request, wi formAction) (confirmData, error) {
	data := confirmData{formAction: wi, Delays: delays, From: rq.Back()}
	ids := make([]compensator.EntryID, 0, len(wi.Seen)+1)
	versions := make(map[compensator.EntryID]uint64, len(wi.Seen))
	for _, seen := range wi.Seen {
		ids = append(ids, seen.ID)
		versions[seen.ID] = seen.Version
	}
	if !wi.ID.IsZero() {
		ids = append(ids, wi.ID)
	}
	if len(ids) == 0 {
		return data, nil
	}
	var err error
	if data.Lines, err = s.admin.Lines(rq.ctx, rq.Actor, ids); err != nil {
		return data, err
	}
	if len(data.Lines) == 0 {
		return data, compensator.ErrNotFound
	}
	if rq.Delays(wi.Do) {
		paused, err := s.admin.Paused(rq.ctx, rq.Actor)
		if err != nil {
			return data, err
		}
		about := func(businessType string) bool {
			return slices.ContainsFunc(data.Lines, func(l admin.Line) bool { return l.Entry.BusinessType == businessType })
		}
		data.Paused = slices.DeleteFunc(paused, func(p admin.Paused) bool { return !about(p.Type) })
		data.Broken = slices.DeleteFunc(s.admin.Broken(rq.ctx, rq.Actor), func(b admin.Broken) bool { return !about(b.Type) })
	}
	var worth risk
	var standing []admin.Line // standing holds the lines of entries that have not changed since the page was shown.
	for _, line := range data.Lines {
		if wi.ID.IsZero() && rq.OwnedByOther(line.Case) { // A note or a reveal does not take the case from its owner, so do not warn of other owners.
			data.OthersCases++
		}
		if line.Amount.Known() {
			worth.add(admin.Group{Sums: []compensator.Amount{line.Amount}})
		}
		if wi.onEntries() && versions[line.Entry.ID] != line.Entry.Version || wi.onCases() && !wi.sees(line.Case) {
			data.Moved++
			continue
		}
		standing = append(standing, line)
		if line.Entry.EndedBy == compensator.EndedByPermanent && wi.Do == string(admin.Requeue) && !line.OutcomeUnknown && line.Entry.State == compensator.Dead {
			data.Futile++
		}
	}
	if wi.onEntries() {
		if unchecked := (admin.Change{Action: admin.Right(wi.Do)}).Unchecked(standing); unchecked != nil {
			data.Unsure, data.Again = len(unchecked.Unknown), len(unchecked.Finished)
		}
	}
	data.Sums = worth.texts()
	return data, nil
}

// The method do carries out the action of a form.
func (s *server) do(rq *request) {
	wi, err := readFormAction(rq.r)
	if err == nil {
		err = wi.complete()
	}
	if err != nil {
		rq.failed(err)
		return
	}
	result, err := s.perform(rq, wi)
	if errors.As(err, new(*admin.UncheckedError)) {
		problem, _ := rq.T("confirm.be_sure")
		s.askFor(rq, wi, problem, http.StatusUnprocessableEntity)
		return
	}
	var unknown *admin.UnknownTypeError
	if errors.As(err, &unknown) {
		s.askAhead(rq, wi, unknown)
		return
	}
	var field *compensator.FieldError
	if wi.onLimit() && errors.As(err, &field) {
		s.askLimit(rq, wi, rq.wrong(field), http.StatusUnprocessableEntity)
		return
	}
	if errors.As(err, &field) && (field.Field == "reason" || field.Field == "ticket" || field.Field == "owner") {
		s.askFor(rq, wi, rq.wrong(field), http.StatusUnprocessableEntity)
		return
	}
	if err != nil {
		rq.failed(err)
		return
	}
	rq.tell(result)
}

// askAhead asks whether the person really means an unknown type, or a type with a similar name.
func (s *server) askAhead(rq *request, wi formAction, unknown *admin.UnknownTypeError) {
	data, err := s.weigh(rq, wi)
	if err != nil {
		rq.failed(err)
		return
	}
	data.NoType = true
	data.Problem, _ = rq.T("pause.unknown", unknown.Type)
	if len(unknown.Near) > 0 {
		near, _ := rq.T("pause.near", strings.Join(unknown.Near, ", "))
		data.Problem += " " + near
	}
	rq.show(http.StatusUnprocessableEntity, "confirm", data)
}

// sees reports whether a case is open and in the version that the page showed.
func (wi formAction) sees(c *admin.Case) bool {
	return open(c) && slices.Contains(wi.Cases, admin.SeenCase{EntryID: c.EntryID, Version: c.Version})
}

// named returns the ids of the entries that the result page lists.
func (wi formAction) named() []compensator.EntryID {
	if wi.onCases() {
		return idsOf(wi.Cases, func(c admin.SeenCase) compensator.EntryID { return c.EntryID })
	}
	return idsOf(wi.Seen, func(seen admin.Seen) compensator.EntryID { return seen.ID })
}

func idsOf[T any](all []T, id func(T) compensator.EntryID) []compensator.EntryID {
	ids := make([]compensator.EntryID, len(all))
	for i, one := range all {
		ids[i] = id(one)
	}
	return ids
}

// perform calls the Admin.
func (s *server) perform(rq *request, wi formAction) (outcome, error) {
	result := outcome{Do: wi.Do, Type: wi.Type, Back: rq.Back(), Counts: map[string]int{"done": 1}}
	var answers []error
	var err error
	if wi.Do == doAssign && wi.Owner == "" { // An assignment to no owner gives the case back.
		return result, &compensator.FieldError{Field: "owner", Reason: "is empty"}
	}
	switch wi.Do {
	case doTake:
		answers, err = s.admin.TakeCases(rq.ctx, rq.Actor, wi.Cases, wi.Why)
	case doAssign:
		answers, err = s.admin.AssignCases(rq.ctx, rq.Actor, wi.Cases, wi.Owner, wi.Why)
	case doGiveBack:
		answers, err = s.admin.AssignCases(rq.ctx, rq.Actor, wi.Cases, "", wi.Why)
	case doNote:
		err = s.admin.Note(rq.ctx, rq.Actor, wi.ID, wi.Why)
	case doPause:
		pause := s.admin.Pause
		if wi.Ahead {
			pause = s.admin.PauseAhead
		}
		err = pause(rq.ctx, rq.Actor, wi.Type, wi.Why)
	case doResume:
		err = s.admin.Resume(rq.ctx, rq.Actor, admin.Paused{Type: wi.Type, Version: wi.Version}, wi.Why)
	case doLimit, doResetLimit:
		err = s.changeLimit(rq, wi)
	case doReveal:
		err = &compensator.FieldError{Field: "action", Reason: "is shown, not done"}
	default:
		answers, err = s.admin.Change(rq.ctx, rq.Actor, wi.change())
	}
	if answers != nil {
		result.answered(wi.named(), answers)
	}
	return result, err
}

// reveal shows an entry with its content. No URL contains the content, and no cache stores it.
func (s *server) reveal(rq *request) {
	wi, err := readFormAction(rq.r)
	wi.Do = doReveal
	if err == nil {
		err = wi.complete()
	}
	if err != nil {
		rq.failed(err)
		return
	}
	e, err := s.admin.Reveal(rq.ctx, rq.Actor, wi.ID, wi.Why)
	var field *compensator.FieldError
	switch {
	case errors.As(err, &field):
		s.askFor(rq, wi, rq.wrong(field), http.StatusUnprocessableEntity)
	case err != nil:
		rq.failed(err)
	default:
		shown := reveal(e, s.opts.Types[e.BusinessType])
		s.showEntry(rq, e.ID, &shown)
	}
}
