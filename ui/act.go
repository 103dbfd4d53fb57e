package ui

import (
	"crypto/rand"
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

type formAction struct {
	Do                             string
	Seen                           []admin.Seen        // entries in the versions that the page showed
	Cases                          []admin.SeenCase    // open cases of the entries, in the versions that the page showed
	Texts                          []string            // values of entries and cases in the form; see formatSeen
	ID                             compensator.EntryID // entry of a note or a reveal
	Owner                          string
	Type                           string
	Version                        uint64 // version of the pause to end or to replace
	Why                            admin.Why
	Delay                          time.Duration
	Sure                           bool
	Values                         admin.LimitValues // values of a limit; 0: the program's own
	Starts, Per, Burst, Concurrent string            // values of a limit, as the form has them
	First                          bool              // whether to try one entry first
	Key                            string            // random text of the form, so that a form that is sent twice acts once; see admin.BulkOptions
	Ahead                          bool              // whether to pause a type that neither the log nor the process knows
	All                            bool              // whether to act on all entries that match Search
	Search                         admin.Search
	Fields                         []formField   // fields of Search, as the form has them
	Length                         time.Duration // length of a pause; 0: until a person resumes the type
	Until                          string        // time at which a pause ends, as the form has it. It overrides Length
	Zone                           string        // time zone of Until; empty: that of the page
}

var pauseLengths = []time.Duration{0, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

var delays = []time.Duration{0, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// readAction returns a *FieldError that names the wrong field.
func (rq *request) readAction() (formAction, error) {
	action, err := rq.readFormAction()
	if err != nil || !action.All {
		return action, err
	}
	fields := rq.form()
	form, filter, err := rq.readFilter(fields)
	if err != nil {
		return action, err
	}
	action.Search.Filter, action.Fields = filter, form.Fields()
	if text := fields.Get("failure"); text != "" {
		action.Fields = append(action.Fields, formField{"failure", text})
		err = action.Search.Failure.UnmarshalText([]byte(text))
	}
	return action, err
}

func (rq *request) readFormAction() (formAction, error) {
	form := rq.form()
	action := formAction{Do: form.Get("do"), Owner: formText(form, "owner"), Type: formText(form, "type"), Ahead: form.Get("ahead") == "yes", First: form.Get("first") == "yes", All: form.Get("all") == "yes"}
	// Only a form that the person has sent gives a reason, a confirmation and a key. A link must not fill them in.
	if !isRead(rq.r) {
		action.Why, action.Sure = readWhy(form), form.Get("sure") == "yes"
		action.Key = form.Get("key")
	}
	if len(form["seen"]) > admin.MaxEntries {
		return action, &compensator.FieldError{Field: "entries", Reason: fmt.Sprintf("%d, want 1 to %d", len(form["seen"]), admin.MaxEntries)}
	}
	action.Texts = form["seen"]
	for _, text := range action.Texts {
		seen, seenCase, err := parseSeen(text)
		if err != nil {
			return action, err
		}
		action.Seen = append(action.Seen, seen)
		if seenCase != nil {
			action.Cases = append(action.Cases, *seenCase)
		}
	}
	action.Starts, action.Per, action.Burst, action.Concurrent = formText(form, "starts"), formText(form, "per"), formText(form, "burst"), formText(form, "concurrent")
	var err error
	if text := form.Get("id"); text != "" && !action.All {
		action.ID, err = compensator.ParseEntryID(text)
	}
	if text := form.Get("version"); text != "" && err == nil {
		action.Version, err = strconv.ParseUint(text, 10, 64)
	}
	if text := form.Get("delay"); text != "" && err == nil {
		action.Delay, err = time.ParseDuration(text)
	}
	if text := form.Get("length"); text != "" && err == nil {
		action.Length, err = time.ParseDuration(text)
	}
	action.Until, action.Zone = formText(form, "until"), formText(form, "zone")
	if err != nil && !errors.As(err, new(*compensator.FieldError)) {
		err = &compensator.FieldError{Field: "form", Reason: err.Error()}
	}
	return action, err
}

func readWhy(form url.Values) admin.Why {
	return admin.Why{Reason: formText(form, "reason"), Ticket: formText(form, "ticket")}
}

// formText turns CR LF into LF, because browsers send lines of a form with CR LF.
func formText(form url.Values, name string) string {
	return strings.TrimSpace(strings.ReplaceAll(form.Get(name), "\r\n", "\n"))
}

// formatSeen returns the text ID:VERSION for an entry. If the case c is open, formatSeen returns ID:VERSION:CASE. CASE
// stands for the version of the case.
func formatSeen(id compensator.EntryID, version uint64, c *admin.Case) string {
	text := id.String() + ":" + strconv.FormatUint(version, 10)
	if isOpen(c) {
		text += ":" + strconv.FormatUint(c.Version, 10)
	}
	return text
}

func parseSeen(text string) (seen admin.Seen, seenCase *admin.SeenCase, err error) {
	parts := strings.Split(text, ":")
	if seen.ID, err = compensator.ParseEntryID(parts[0]); err != nil {
		return seen, nil, err
	}
	fieldErr := &compensator.FieldError{Field: "seen", Reason: "want id:version, or id:version:version of the case"}
	if len(parts) != 2 && len(parts) != 3 {
		return seen, nil, fieldErr
	}
	if seen.Version, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return seen, nil, fieldErr
	}
	if len(parts) == 3 {
		seenCase = &admin.SeenCase{EntryID: seen.ID}
		if seenCase.Version, err = strconv.ParseUint(parts[2], 10, 64); err != nil {
			return seen, nil, fieldErr
		}
	}
	return seen, seenCase, nil
}

func (action formAction) isEntryAction() bool {
	return slices.Contains(changes, admin.Right(action.Do))
}
func (action formAction) isCaseAction() bool {
	return action.Do == doTake || action.Do == doAssign || action.Do == doGiveBack
}

// isAboutID reports whether the action is about action.ID. Other actions on entries are about action.Seen.
func (action formAction) isAboutID() bool { return action.Do == doNote || action.Do == doReveal }

type confirmData struct {
	formAction
	Lines            []admin.Line
	Matching         *admin.Matching // of an action on all that match; nil for other actions
	Unsure           int             // number of entries whose outcome is unknown
	Again            int             // number of finished entries that would run again
	Moved            int             // number of entries or cases that have changed since the page showed them
	OthersCases      int             // number of cases that other people have
	Futile           int             // number of entries that ended with a permanent error, so that another run will fail too
	Paused           []admin.Paused  // paused types of the entries. Until they are resumed, their entries do not run
	Broken           []admin.Broken
	Sums             []string
	InForce, Program string   // what a limit allows now, and what the program has set
	Problem          string   // what is wrong with the form; empty if nothing is wrong
	Periods          []string // periods of a rate
	NoType           bool     // whether the type to pause is unknown
	Delays, Lengths  []time.Duration
	From             string // address of the page to return to
}

// Target is the address that the form is sent to.
func (d confirmData) Target() string {
	if d.Do == doReveal {
		return "reveal"
	}
	return "do"
}

// Warns reports whether the person must confirm a warning.
func (d confirmData) Warns() bool { return d.Unsure+d.Again > 0 }

// Runs reports whether the action runs the entries again.
func (action formAction) Runs() bool {
	return action.Do == string(admin.Requeue) || action.Do == string(admin.Compensate)
}

// TriesFirst reports whether the page offers to try one entry first. A rescheduled entry may end too late for that.
func (d confirmData) TriesFirst() bool {
	return d.isEntryAction() && (len(d.Lines) > 1 || d.Matching != nil && d.Matching.N > 1) && d.Do != string(admin.Reschedule)
}

// newChange sets Checked and Again from one checkbox.
func (action formAction) newChange() admin.Change {
	return admin.Change{Action: admin.Right(action.Do), Entries: action.Seen, Why: action.Why, Delay: action.Delay, Checked: action.Sure, Again: action.Sure}
}

func (s *server) showConfirm(rq *request) {
	action, err := rq.readAction()
	if err == nil {
		err = action.validate()
	}
	if err != nil {
		rq.showFailure(err)
		return
	}
	if s.admin.ReadOnly() {
		rq.showFailure(admin.ErrReadOnly)
		return
	}
	if action.isLimitAction() {
		s.askLimitValues(rq, action, "", http.StatusOK)
		return
	}
	// The person has only asked for the form of the pause, so the audit log must get no record yet. A call of Admin.Pause
	// would record a refusal. So only ask whether the person may pause the type.
	if (action.Do == doPause || action.Do == doResume) && !rq.MayPause(action.Type) {
		rq.showFailure(admin.ErrNotAllowed)
		return
	}
	s.askReason(rq, action, "", http.StatusOK)
}

func (action formAction) validate() error {
	ok, missing := false, &compensator.FieldError{Field: "entries", Reason: "none is chosen"}
	switch action.Do {
	case doTake, doAssign, doGiveBack:
		ok = len(action.Cases) > 0
	case doNote, doReveal:
		ok = !action.ID.IsZero()
	case doPause, doResume:
		ok = action.Type != "" && (action.Do == doPause || action.Version > 0)
		if action.Type == "" {
			missing = &compensator.FieldError{Field: "business type", Reason: "is empty"}
		}
	case doLimit, doResetLimit:
		ok, missing = action.Type != "", &compensator.FieldError{Field: "limit", Reason: "is empty"}
	default:
		if !action.isEntryAction() {
			return &compensator.FieldError{Field: "action", Reason: fmt.Sprintf("%q is none", action.Do)}
		}
		ok = len(action.Seen) > 0 || action.All
	}
	if !ok {
		return missing
	}
	return nil
}

func (s *server) askReason(rq *request, action formAction, problem string, status int) {
	data, err := s.checkSelection(rq, action)
	if err != nil {
		rq.showFailure(err)
		return
	}
	if data.Matching != nil && data.Matching.N == 0 && !data.Matching.More {
		rq.showError(http.StatusNotFound, "all.none")
		return
	}
	data.Problem = problem
	rq.showPage(status, "confirm", data)
}

func (s *server) checkSelection(rq *request, action formAction) (confirmData, error) {
	data := confirmData{formAction: action, Delays: delays, Lengths: pauseLengths, From: rq.Back()}
	ids := make([]compensator.EntryID, 0, len(action.Seen)+1)
	versions := make(map[compensator.EntryID]uint64, len(action.Seen))
	if action.isAboutID() {
		ids = append(ids, action.ID)
	} else {
		for _, seen := range action.Seen {
			ids = append(ids, seen.ID)
			versions[seen.ID] = seen.Version
		}
	}
	if action.isEntryAction() && action.Key == "" {
		data.Key = rand.Text()
	}
	if action.All {
		return data, s.checkMatching(rq, &data)
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
	if rq.Delays(action.Do) {
		paused, err := s.admin.Paused(rq.ctx, rq.Actor)
		if err != nil {
			return data, err
		}
		isSubject := func(businessType string) bool {
			return slices.ContainsFunc(data.Lines, func(l admin.Line) bool { return l.Entry.BusinessType == businessType })
		}
		data.Paused = slices.DeleteFunc(paused, func(p admin.Paused) bool { return !isSubject(p.Type) })
		data.Broken = slices.DeleteFunc(s.admin.Broken(rq.ctx, rq.Actor), func(b admin.Broken) bool { return !isSubject(b.Type) })
	}
	var risks risk
	var unchanged []admin.Line // The lines of entries that have not changed since the page was shown.
	for _, line := range data.Lines {
		// Warn if other people own cases of the entries. A note or a reveal, the actions of isAboutID, leaves the case
		// with its owner and needs no warning.
		if !action.isAboutID() && rq.OwnedByOther(line.Case) {
			data.OthersCases++
		}
		if line.Amount.Known() {
			risks.addGroup(admin.Group{Sums: []compensator.Amount{line.Amount}})
		}
		if action.isEntryAction() && versions[line.Entry.ID] != line.Entry.Version || action.isCaseAction() && !action.hasSeen(line.Case) {
			data.Moved++
			continue
		}
		unchanged = append(unchanged, line)
		if line.Entry.EndedBy == compensator.EndedByPermanent && action.Do == string(admin.Requeue) && !line.OutcomeUnknown && line.Entry.State == compensator.Dead {
			data.Futile++
		}
	}
	if action.isEntryAction() {
		if unchecked := (admin.Change{Action: admin.Right(action.Do)}).Unchecked(unchanged); unchecked != nil {
			data.Unsure, data.Again = len(unchecked.Unknown), len(unchecked.Finished)
		}
	}
	data.Sums = risks.texts()
	return data, nil
}

func (s *server) checkMatching(rq *request, data *confirmData) error {
	found, err := s.admin.Matching(rq.ctx, rq.Actor, admin.Right(data.Do), data.Search)
	data.Matching, data.Unsure, data.Again = &found, found.Unknown, found.Finished
	data.Sums = newRisk([]admin.Group{{Sums: found.Sums}}, false).Sums
	return err
}

func (s *server) doAction(rq *request) {
	action, err := rq.readAction()
	if err == nil {
		err = action.validate()
	}
	if err != nil {
		rq.showFailure(err)
		return
	}
	result, isAnswered, err := s.performAction(rq, action)
	if isAnswered {
		return
	}
	if errors.As(err, new(*admin.UncheckedError)) {
		problem, _ := rq.T("confirm.be_sure")
		s.askReason(rq, action, problem, http.StatusUnprocessableEntity)
		return
	}
	var unknown *admin.UnknownTypeError
	if errors.As(err, &unknown) {
		s.askUnknownType(rq, action, unknown)
		return
	}
	var field *compensator.FieldError
	if action.isLimitAction() && errors.As(err, &field) {
		s.askLimitValues(rq, action, rq.explainField(field), http.StatusUnprocessableEntity)
		return
	}
	if errors.As(err, &field) && (field.Field == "reason" || field.Field == "ticket" || field.Field == "owner" || field.Field == "length") {
		s.askReason(rq, action, rq.explainField(field), http.StatusUnprocessableEntity)
		return
	}
	if err != nil {
		rq.showFailure(err)
		return
	}
	rq.setOutcome(result)
}

func (s *server) askUnknownType(rq *request, action formAction, unknown *admin.UnknownTypeError) {
	data, err := s.checkSelection(rq, action)
	if err != nil {
		rq.showFailure(err)
		return
	}
	data.NoType = true
	data.Problem, _ = rq.T("pause.unknown", unknown.Type)
	if len(unknown.Near) > 0 {
		suggestions, _ := rq.T("pause.near", strings.Join(unknown.Near, ", "))
		data.Problem += " " + suggestions
	}
	rq.showPage(http.StatusUnprocessableEntity, "confirm", data)
}

func (action formAction) hasSeen(c *admin.Case) bool {
	return isOpen(c) && slices.Contains(action.Cases, admin.SeenCase{EntryID: c.EntryID, Version: c.Version})
}

func (action formAction) entryIDs() []compensator.EntryID {
	if action.isCaseAction() {
		return idsOf(action.Cases, func(c admin.SeenCase) compensator.EntryID { return c.EntryID })
	}
	return idsOf(action.Seen, func(seen admin.Seen) compensator.EntryID { return seen.ID })
}

func idsOf[T any](items []T, id func(T) compensator.EntryID) []compensator.EntryID {
	ids := make([]compensator.EntryID, len(items))
	for i, item := range items {
		ids[i] = id(item)
	}
	return ids
}

// performAction returns isAnswered if it has redirected to the page of the action.
func (s *server) performAction(rq *request, action formAction) (result outcome, isAnswered bool, err error) {
	result = outcome{Do: action.Do, Type: action.Type, Back: rq.Back(), Counts: map[string]int{"done": 1}}
	var answers []error
	if action.Do == doAssign && action.Owner == "" { // An assignment to no owner gives the case back.
		return result, false, &compensator.FieldError{Field: "owner", Reason: "is empty"}
	}
	switch action.Do {
	case doTake:
		answers, err = s.admin.TakeCases(rq.ctx, rq.Actor, action.Cases, action.Why)
	case doAssign:
		answers, err = s.admin.AssignCases(rq.ctx, rq.Actor, action.Cases, action.Owner, action.Why)
	case doGiveBack:
		answers, err = s.admin.AssignCases(rq.ctx, rq.Actor, action.Cases, "", action.Why)
	case doNote:
		err = s.admin.Note(rq.ctx, rq.Actor, action.ID, action.Why)
	case doPause:
		var opts admin.PauseOptions
		if opts, err = rq.pauseOptions(action); err == nil {
			opts.Instead = action.Version
			err = s.admin.PauseWith(rq.ctx, rq.Actor, action.Type, opts, action.Why)
			if opts.For > 0 {
				result.Until = time.Now().Add(opts.For)
			}
		}
	case doResume:
		err = s.admin.Resume(rq.ctx, rq.Actor, admin.Paused{Type: action.Type, Version: action.Version}, action.Why)
	case doLimit, doResetLimit:
		err = s.changeLimit(rq, action)
	case doReveal:
		err = &compensator.FieldError{Field: "action", Reason: "is shown, not done"}
	default:
		if action.All {
			isAnswered, err = s.startMatching(rq, action)
			break
		}
		if len(action.Seen) > 1 {
			answers, isAnswered, err = s.startBulk(rq, action)
			break
		}
		answers, err = s.admin.Change(rq.ctx, rq.Actor, action.newChange())
	}
	if answers != nil {
		result.addResults(action.entryIDs(), answers)
	}
	return result, isAnswered, err
}

func (rq *request) pauseOptions(action formAction) (admin.PauseOptions, error) {
	opts := admin.PauseOptions{For: action.Length, Ahead: action.Ahead}
	if action.Until == "" {
		return opts, nil
	}
	var until time.Time
	if err := rq.readTimes(action.Zone, []timeLimit{{"length", &action.Until, &until}}); err != nil {
		return opts, err
	}
	if opts.For = time.Until(until); opts.For < time.Second {
		return opts, &compensator.FieldError{Field: "length", Reason: "the time is past"}
	}
	return opts, nil
}

// revealContent puts the content into no URL and no cache.
func (s *server) revealContent(rq *request) {
	action, err := rq.readFormAction()
	action.Do = doReveal
	if err == nil {
		err = action.validate()
	}
	if err != nil {
		rq.showFailure(err)
		return
	}
	e, err := s.admin.Reveal(rq.ctx, rq.Actor, action.ID, action.Why)
	var field *compensator.FieldError
	switch {
	case errors.As(err, &field):
		s.askReason(rq, action, rq.explainField(field), http.StatusUnprocessableEntity)
	case err != nil:
		rq.showFailure(err)
	default:
		content := newRevealed(e, s.opts.Types[e.BusinessType])
		s.showEntry(rq, e.ID, &content)
	}
}
