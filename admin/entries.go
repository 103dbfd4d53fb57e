package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// EntryPage may be short or empty although further pages follow. Only Next says whether there are more.
type EntryPage struct {
	Entries []compensator.Entry `json:"entries"`        // without content, headers and user names
	Next    string              `json:"next,omitempty"` // Filter.Cursor of the following page; empty at the end

	// Partial names the types of which the page may lack entries, sorted. To see all entries of these types, call
	// Entries for each type. Partial can have names only if Filter.Leased is set and the filter has no type, no id and
	// no created range.
	Partial []string `json:"partial,omitempty"`
}

// Entries lists entries as Log.List does, without content, headers and user names. It asks Access for SeeEntries for
// each type.
//
// A filter by error text also needs SeeErrors, and a filter by user id needs SeeContent.
//
// For an actor who may not see all types, a listing without ids and without a created range is ordered by due time.
//
// The Admin reads the list of types at most every five seconds. So entries of a new type can be missing for up to five
// seconds in these listings:
//
//   - a listing of one state in all types
//   - a listing of the running entries (Filter.Leased) of all types
//   - any listing of all types for an actor who may not see all of them
func (d *Admin) Entries(ctx context.Context, a Actor, filter Filter) (EntryPage, error) {
	page, err := d.entries(ctx, a, filter, SeeEntries)
	seesErrors := d.rightsOf(a, SeeErrors)
	for i := range page.Entries {
		page.Entries[i] = d.visibleEntry(&page.Entries[i], seesErrors.holds(ctx, page.Entries[i].BusinessType))
	}
	return page, err
}

// The errors of the returned entries are complete, even if the actor lacks SeeErrors. The callers of this method hide
// the errors.
func (d *Admin) entries(ctx context.Context, a Actor, filter Filter, rights ...Right) (EntryPage, error) {
	mayRead, types, hasTypes, err := d.searchedTypes(ctx, a, filter, rights...)
	if err != nil || !hasTypes {
		return EntryPage{}, err
	}
	if types == nil && (hasOneState(filter) || filter.LeasedOfAllTypes()) { // Pass the types that visibleTypes has read, so that the log does not read them again.
		if types, err = d.readTypes(ctx); err != nil {
			return EntryPage{}, err
		}
	}
	filter.BusinessTypes, filter.Outline = types, true
	page, err := runQuery(ctx, d, func(ctx context.Context) (Page, error) { return Of(d.c).List(ctx, filter) })
	return EntryPage{Next: page.Next, Entries: keepShown(page.Entries, func(e *compensator.Entry) bool { return mayRead.holds(ctx, e.BusinessType) }), Partial: page.Partial}, err
}

func (d *Admin) searchedTypes(ctx context.Context, a Actor, filter Filter, rights ...Right) (mayRead *typeRights, types []string, ok bool, err error) {
	if filter.BusinessType != "" && !d.mayDo(ctx, a, SeeEntries, Subject{Type: filter.BusinessType}) {
		return nil, nil, false, nil
	}
	var searches []Right // A filter that finds an entry by a text reveals that text, so it needs the right to see the text.
	if filter.LastError != "" {
		searches = append(searches, SeeErrors)
	}
	if filter.UserID != "" {
		searches = append(searches, SeeContent)
	}
	if !d.rightsOf(a, searches...).holds(ctx, filter.BusinessType) {
		return nil, nil, false, ErrNotAllowed
	}
	mayRead = d.rightsOf(a, append(rights, searches...)...)
	types, ok, err = d.visibleTypes(ctx, mayRead, filter.BusinessType, filter.BusinessTypes)
	return mayRead, types, ok, err
}

// A listing of one state reads type after type, each in the order of due time.
func hasOneState(f Filter) bool {
	return len(f.States) == 1 && f.BatchID+f.BusinessID+f.BusinessExtID == "" && f.CreatedFrom.IsZero() && f.CreatedTo.IsZero()
}

// keepShown drops rows of types that the Admin did not know when it sent the query.
func keepShown[T any](page []T, isShown func(*T) bool) []T {
	kept := page[:0]
	for i := range page {
		if isShown(&page[i]) {
			kept = append(kept, page[i])
		}
	}
	return kept
}

func (d *Admin) visibleEntry(e *compensator.Entry, isErrorFull bool) compensator.Entry {
	m := *e
	m.Content, m.Result, m.Headers, m.UserName = nil, nil, nil, ""
	m.LastError = d.scrubText(m.LastError, isErrorFull)
	return m
}

// EntryView is one entry with its case, its failed attempts, its audit log and related entries.
type EntryView struct {
	Entry         compensator.Entry  `json:"entry"`                 // without content, headers and user name
	ContentSize   int                `json:"content_size"`          // size in bytes
	ContentSHA256 string             `json:"content_sha256"`        // first 16 hexadecimal digits of the content's SHA-256; empty without SeeContent
	HasResult     bool               `json:"has_result,omitempty"`  // whether the handler returned a result. Reveal shows it
	ResultSize    int                `json:"result_size,omitempty"` // size of the result in bytes
	Amount        compensator.Amount `json:"amount"`                // amount of the entry; zero if it is unknown
	Case          *Case              `json:"case,omitempty"`        // the entry's case, open or closed; nil if the entry has no case

	OutcomeUnknown bool `json:"outcome_unknown,omitempty"` // same as Line.OutcomeUnknown

	AuditLog     []AuditLogRecord `json:"trail,omitempty"`         // audit records of the entry, newest first; empty without SeeAuditLog
	AttemptsKept bool             `json:"attempts_kept,omitempty"` // whether failed attempts are kept: Operations.Attempts
	Attempts     []FailedAttempt  `json:"attempts,omitempty"`      // the last failed attempts, the oldest first. Without SeeErrors their errors are masked

	Siblings     []compensator.Entry `json:"siblings,omitempty"`      // up to 20 other entries with the same business id
	MoreSiblings bool                `json:"more_siblings,omitempty"` // whether there are more siblings than Siblings holds
}

const siblingsShown = 20

// Entry reads one entry. It needs SeeEntries. If the actor lacks this right, Entry returns compensator.ErrNotFound.
func (d *Admin) Entry(ctx context.Context, a Actor, ref compensator.Ref) (EntryView, error) {
	row, err := d.visibleRow(ctx, a, ref)
	if err != nil {
		return EntryView{}, err
	}
	return d.viewEntry(ctx, a, row)
}

// ExplainedEntry returns what Entry and Explain return. It reads the entry once, so both describe the same version.
func (d *Admin) ExplainedEntry(ctx context.Context, a Actor, ref compensator.Ref) (EntryView, Explanation, error) {
	row, err := d.visibleRow(ctx, a, ref)
	if err != nil {
		return EntryView{}, Explanation{}, err
	}
	at := time.Now()
	view, err := d.viewEntry(ctx, a, row)
	if err != nil {
		return EntryView{}, Explanation{}, err
	}
	explanation, err := d.explain(ctx, a, row, at, &view)
	return view, explanation, err
}

func (d *Admin) viewEntry(ctx context.Context, a Actor, row *processlog.Row) (EntryView, error) {
	e, err := d.withResult(ctx, row)
	if err != nil {
		return EntryView{}, err
	}
	isFull := d.mayDo(ctx, a, SeeErrors, Subject{Type: e.BusinessType})
	view := EntryView{Entry: d.visibleEntry(e, isFull), ContentSize: len(e.Content), HasResult: e.Result != nil, ResultSize: len(e.Result)}
	if d.mayDo(ctx, a, SeeContent, Subject{Type: e.BusinessType}) { // Show the hash only with SeeContent, because the hash of a short content lets people guess the content.
		hash := sha256.Sum256(e.Content)
		view.ContentSHA256 = hex.EncodeToString(hash[:8])
	}
	amounts, cases, err := d.readAmountsAndCases(ctx, []processlog.Row{{ID: e.ID, BusinessType: e.BusinessType}})
	if err != nil {
		return EntryView{}, err
	}
	unknownOutcomes, err := d.outcomesUnknown(ctx, []compensator.Entry{*e}, cases)
	if err != nil {
		return EntryView{}, err
	}
	view.Amount, view.Case, view.OutcomeUnknown = amounts[e.ID], d.caseOf(cases, e.ID, isFull), unknownOutcomes[e.ID]
	if d.mayDo(ctx, a, SeeAuditLog, Subject{Type: e.BusinessType}) {
		page, err := d.AuditLog(ctx, a, AuditLogFilter{EntryID: e.ID, Limit: 200})
		if err != nil {
			return EntryView{}, err
		}
		view.AuditLog = page.Records
	}
	if err := d.attempts(ctx, &view, isFull); err != nil {
		return EntryView{}, err
	}
	return view, d.addSiblings(ctx, a, e, &view)
}

// visibleRow returns the same error for an entry that the actor may not see and for an absent one.
func (d *Admin) visibleRow(ctx context.Context, a Actor, ref compensator.Ref) (*processlog.Row, error) {
	id, err := d.visibleID(ctx, a, ref)
	if err != nil {
		return nil, err
	}
	row, err := runQuery(ctx, d, func(ctx context.Context) (processlog.Row, error) { return d.log.Row(ctx, id) })
	if err != nil {
		return nil, err
	}
	if !d.mayDo(ctx, a, SeeEntries, Subject{Type: row.BusinessType}) { // Another program may have changed the type.
		return nil, newNotFoundError(ref)
	}
	return &row, nil
}

// visibleID returns the same error for an entry that the actor may not see and for an absent one. It reads no content
// before it asks for the right. Otherwise the time of the answer would tell that a hidden entry exists, because reading
// a large content takes longer.
func (d *Admin) visibleID(ctx context.Context, a Actor, ref compensator.Ref) (compensator.EntryID, error) {
	rows, err := runQuery(ctx, d, func(ctx context.Context) ([]processlog.Row, error) {
		if id, isID := ref.(compensator.EntryID); isID {
			return d.log.Operations().Outlines(ctx, []compensator.EntryID{id})
		}
		key, _ := ref.(compensator.IdempotencyKey)
		return d.log.Operations().OutlinesByKey(ctx, []string{string(key)})
	})
	if err != nil {
		return compensator.EntryID{}, err
	}
	if len(rows) == 0 || !d.mayDo(ctx, a, SeeEntries, Subject{Type: rows[0].BusinessType}) {
		return compensator.EntryID{}, newNotFoundError(ref)
	}
	return rows[0].ID, nil
}

// withResult returns the entry of a row. The result of a succeeded entry takes a statement of its own.
func (d *Admin) withResult(ctx context.Context, row *processlog.Row) (*compensator.Entry, error) {
	e := d.log.Entry(row).(*compensator.Entry)
	if e.State != compensator.Succeeded {
		return e, nil
	}
	rowsAtEnd, err := runQuery(ctx, d, func(ctx context.Context) ([]processlog.Row, error) {
		return d.log.Store().Ends(ctx, []compensator.EntryID{e.ID})
	})
	for _, rowAtEnd := range rowsAtEnd {
		if rowAtEnd.Version == e.Version {
			e.Result = rowAtEnd.Result
		}
	}
	return e, err
}

func newNotFoundError(ref compensator.Ref) error {
	return fmt.Errorf("%v: %w", ref, compensator.ErrNotFound)
}

func (d *Admin) addSiblings(ctx context.Context, a Actor, e *compensator.Entry, view *EntryView) error {
	if e.BusinessID == "" {
		return nil
	}
	page, err := d.Entries(ctx, a, Filter{BusinessID: e.BusinessID, Limit: siblingsShown + 1, Newest: true})
	for i := range page.Entries {
		switch {
		case page.Entries[i].ID == e.ID:
		case len(view.Siblings) == siblingsShown:
			view.MoreSiblings = true
		default:
			view.Siblings = append(view.Siblings, page.Entries[i])
		}
	}
	view.MoreSiblings = view.MoreSiblings || page.Next != ""
	return err
}

// Reveal returns an entry with its content, result, headers and user name. Before it returns them, it records the actor
// and the reason. Reveal needs SeeEntries and SeeContent. If the actor lacks SeeErrors, the field LastError of the
// entry is masked, as in the result of Entry.
//
// Reveal returns these errors:
//
//   - ErrReadOnly, if ReadOnly is set. Reveal could not write the record.
//   - ErrNotAllowed, if the actor lacks SeeContent.
//   - compensator.ErrNotFound, if the actor lacks SeeEntries.
//   - a *FieldError, if the reason is invalid.
func (d *Admin) Reveal(ctx context.Context, a Actor, ref compensator.Ref, why Why) (compensator.Entry, error) {
	e, op, err := d.readEntryFor(ctx, a, ref, SeeContent, why)
	if err != nil {
		return compensator.Entry{}, err
	}
	err = d.log.Operations().Operate(ctx, op)
	if err != nil {
		return compensator.Entry{}, err
	}
	e.LastError = d.scrubText(e.LastError, d.mayDo(ctx, a, SeeErrors, Subject{Type: e.BusinessType}))
	return *e, nil
}

func (d *Admin) readEntryFor(ctx context.Context, a Actor, ref compensator.Ref, right Right, why Why) (*compensator.Entry, processlog.Operation, error) {
	var op processlog.Operation
	if d.readOnly {
		return nil, op, ErrReadOnly
	}
	reason, err := why.text()
	if err != nil {
		return nil, op, err
	}
	ctx = withAction(ctx)
	op = processlog.Operation{Actor: a.ID, Action: string(right), Reason: reason}
	row, err := d.visibleRow(ctx, a, ref)
	if errors.Is(err, compensator.ErrNotFound) {
		return nil, op, d.refuseHidden(ctx, a, op, ref)
	}
	if err != nil {
		return nil, op, err
	}
	e, err := d.withResult(ctx, row)
	if err != nil {
		return nil, op, err
	}
	op.EntryID, op.BusinessType = e.ID, e.BusinessType
	amounts, _, err := d.readAmountsAndCases(ctx, []processlog.Row{{ID: e.ID, BusinessType: e.BusinessType}})
	if err != nil {
		return nil, op, err
	}
	if !d.mayDo(ctx, a, right, Subject{Type: e.BusinessType, Amount: amounts[e.ID], Count: 1}) {
		return nil, op, d.recordRefusal(ctx, a, op)
	}
	return e, op, nil
}

// Export returns the same page as EntryLines. Use it for a listing that leaves the system, because Export records each
// page with the reason. Export needs SeeEntries and the right Export for each type. It leaves out types for which one
// of these rights is missing. Export returns ErrNotAllowed if the actor has the rights for no type, or may not use this
// Filter. It returns ErrReadOnly if Options.ReadOnly is set. An invalid reason or filter is a *FieldError. With an
// error Export returns no entries.
func (d *Admin) Export(ctx context.Context, a Actor, filter Filter, why Why) (LinePage, error) {
	if d.readOnly {
		return LinePage{}, ErrReadOnly
	}
	reason, err := why.text()
	if err != nil {
		return LinePage{}, err
	}
	if filter.LeasedOfAllTypes() { // The page may lack entries, and nothing in a file would say so.
		return LinePage{}, &compensator.FieldError{Field: "filter", Reason: "an export of what runs wants a type"}
	}
	mayRead := d.rightsOf(a, SeeEntries, Export)
	_, hasTypes, err := d.visibleTypes(ctx, mayRead, filter.BusinessType, filter.BusinessTypes)
	if err != nil {
		return LinePage{}, err
	}
	isEmptyList := filter.BusinessTypes != nil && len(filter.BusinessTypes) == 0
	var entryPage EntryPage
	if err = ErrNotAllowed; (hasTypes || isEmptyList) && (filter.BusinessType == "" || mayRead.holds(ctx, filter.BusinessType)) {
		entryPage, err = d.entries(ctx, a, filter, SeeEntries, Export)
	}
	if errors.Is(err, ErrNotAllowed) {
		return LinePage{}, d.recordTypeRefusal(ctx, a, filter.BusinessType, processlog.Operation{Action: string(Export), Reason: reason})
	}
	if err != nil || len(entryPage.Entries) == 0 {
		return LinePage{Next: entryPage.Next}, err
	}
	page, err := d.newLinePage(ctx, a, entryPage)
	if err != nil {
		return LinePage{}, err
	}
	err = d.log.Operations().Operate(ctx, processlog.Operation{Actor: a.ID, Action: string(Export),
		BusinessType: filter.BusinessType, Subject: processlog.EntryCount(len(page.Lines)), Reason: reason})
	if err != nil {
		return LinePage{}, err
	}
	return page, nil
}
