package admin

import (
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// These are the types of cases. Package processlog describes them in full.

type (
	Case        = processlog.Case        // an entry that waits for a person, or waited for one
	CaseFilter  = processlog.CaseFilter  // selects open cases; the zero value selects all
	CasePage    = processlog.CasePage    // one page of cases. The case that is due first comes first
	CaseKind    = processlog.CaseKind    // why an entry waits for a person
	CaseCount   = processlog.CaseCount   // open cases of a type and kind
	Fingerprint = processlog.Fingerprint // hash of a failure's text. Failures that differ only in ids, numbers, times and quoted words have the same one
)

// These are the kinds of cases.
const (
	CaseDead    = processlog.CaseDead    // the entry is dead, and each attempt of its epoch is known to have failed
	CaseUnknown = processlog.CaseUnknown // the entry is dead. The outcome of an attempt is unknown (see Line.OutcomeUnknown), so its effect may have happened
)

// Group holds the open cases of one type that have the same failure.
type Group struct {
	Type        string               `json:"type"`            // business type of the cases
	Fingerprint Fingerprint          `json:"fingerprint"`     // hash of the failure that the cases have in common
	Title       string               `json:"title"`           // error without ids, numbers, times and quoted words, which differ between the cases
	Error       string               `json:"error"`           // error of Example
	Kind        CaseKind             `json:"kind"`            // kind of the case of Example
	N           int                  `json:"n"`               // number of open cases
	Sums        []compensator.Amount `json:"sums,omitempty"`  // sums by currency, over the cases whose amount is known
	NoAmount    int                  `json:"no_amount_known"` // number of cases whose amount is unknown
	First       time.Time            `json:"first"`           // when the first of the open cases was opened. A requeue closes a case, and a later death opens it again
	Last        time.Time            `json:"last"`            // when the last of the open cases was opened
	Example     compensator.EntryID  `json:"example"`         // entry of one of these cases
}

// maxGroups is the maximum number of rows that the log returns for Groups. The log returns one row for each type,
// failure and currency.
const maxGroups = 1000

// Groups sums up the open cases by failure. The groups with the most cases come first. Groups asks Access for
// SeeEntries for each type.
//
// Groups adds up rows of the log. The log returns one row for each type, failure and currency. It returns at most
// 1,000 rows, those with the most cases first. The second result is true if the log has returned 1,000 rows. Groups may
// then be missing, and the numbers of cases may be too small.
//
// Actors who may see every type share one result, as for Overview. For other actors Groups reads the log each time.
func (d *Admin) Groups(ctx context.Context, a Actor) (groups []Group, more bool, err error) {
	return d.listGroups(ctx, a, "", d.cachedFailures)
}

// GroupsOf does the same as Groups for one failure and one type. A zero failure means any failure, and an empty type
// means every type. GroupsOf reads the log each time.
func (d *Admin) GroupsOf(ctx context.Context, a Actor, businessType string, failure Fingerprint) (groups []Group, more bool, err error) {
	return d.listGroups(ctx, a, businessType, func(ctx context.Context, types []string) ([]processlog.CaseGroup, error) {
		return d.readFailures(ctx, types, failure)
	})
}

// listGroups joins the sums of all currencies of one type and failure to one group.
func (d *Admin) listGroups(ctx context.Context, a Actor, businessType string, readSums func(ctx context.Context, types []string) ([]processlog.CaseGroup, error)) (groups []Group, more bool, err error) {
	mayRead, seesErrors := d.rightsOf(a, SeeEntries), d.rightsOf(a, SeeErrors)
	types, hasTypes, err := d.visibleTypes(ctx, mayRead, businessType, nil)
	if err != nil || !hasTypes {
		return nil, false, err
	}
	sums, err := readSums(ctx, types)
	if err != nil {
		return nil, false, err
	}
	type groupKey struct {
		businessType string
		fingerprint  Fingerprint
	}
	indexByKey := make(map[groupKey]int)
	result := make([]Group, 0, len(sums))
	for _, sum := range sums {
		if !mayRead.holds(ctx, sum.BusinessType) { // Another service has recorded this type since the Admin last read the types.
			continue
		}
		key := groupKey{sum.BusinessType, sum.Fingerprint}
		index, isKnown := indexByKey[key]
		if !isKnown {
			index = len(result)
			indexByKey[key] = index
			result = append(result, Group{Type: sum.BusinessType, Fingerprint: sum.Fingerprint, Title: shortenText(sum.Error, false), Error: shortenText(sum.Error, seesErrors.holds(ctx, sum.BusinessType)),
				Kind: sum.Kind, First: sum.First, Last: sum.Last, Example: sum.Example})
		}
		result[index].addSums(sum)
	}
	slices.SortStableFunc(result, func(a, b Group) int { return b.N - a.N })
	return result, len(sums) >= maxGroups, nil
}

func (g *Group) addSums(sum processlog.CaseGroup) {
	g.N += sum.N
	amount := withUpperCurrency(compensator.Amount{Minor: sum.Sum, Currency: sum.Currency})
	index := slices.IndexFunc(g.Sums, func(s compensator.Amount) bool { return s.Currency == amount.Currency })
	switch {
	case amount.Currency == "":
		g.NoAmount += sum.N
	case index >= 0: // The log has this currency both in capital and in small letters.
		g.Sums[index].Minor += amount.Minor
	default:
		g.Sums = append(g.Sums, amount)
	}
	if sum.First.Before(g.First) {
		g.First = sum.First
	}
	if sum.Last.After(g.Last) {
		g.Last = sum.Last
	}
}

// Cases lists open cases. The case that is due first comes first. Cases asks Access for SeeEntries for each type.
func (d *Admin) Cases(ctx context.Context, a Actor, filter CaseFilter) (CasePage, error) {
	page, err := d.cases(ctx, a, filter)
	seesErrors := d.rightsOf(a, SeeErrors)
	for i, c := range page.Cases {
		page.Cases[i] = d.visibleCase(c, seesErrors.holds(ctx, c.BusinessType))
	}
	return page, err
}

// The method cases returns errors in full, also to actors without SeeErrors. Its callers hide them.
func (d *Admin) cases(ctx context.Context, a Actor, filter CaseFilter) (CasePage, error) {
	mayRead := d.rightsOf(a, SeeEntries)
	types, hasTypes, err := d.visibleTypes(ctx, mayRead, filter.BusinessType, filter.BusinessTypes)
	if err != nil || !hasTypes {
		return CasePage{}, err
	}
	filter.BusinessTypes = types
	page, err := runQuery(ctx, d, func(ctx context.Context) (CasePage, error) { return d.log.Operations().Cases(ctx, filter) })
	page.Cases = keepShown(page.Cases, func(c *Case) bool {
		c.Amount = withUpperCurrency(c.Amount)
		return mayRead.holds(ctx, c.BusinessType)
	})
	return page, err
}

func (d *Admin) visibleCase(c Case, isErrorFull bool) Case {
	c.Error = d.scrubText(c.Error, isErrorFull)
	return c
}

// caseOf masks the error of the case if isFull is false.
func (d *Admin) caseOf(cases []Case, id compensator.EntryID, isFull bool) *Case {
	c := caseOf(cases, id)
	if c == nil {
		return nil
	}
	visible := d.visibleCase(*c, isFull)
	return &visible
}

func caseOf(cases []Case, id compensator.EntryID) *Case {
	i := slices.IndexFunc(cases, func(c Case) bool { return c.EntryID == id })
	if i < 0 {
		return nil
	}
	return &cases[i]
}

// SeenCase identifies a case in the version that the actor saw: Case.EntryID and Case.Version.
type SeenCase = processlog.SeenCase

// TakeCases assigns up to MaxEntries open cases to the actor, including cases that another person has. It needs
// SeeEntries and TakeCase. One transaction changes the cases and writes the audit records.
//
// TakeCases returns one answer per case, in the order of seen:
//   - nil: the case belongs to the actor now. You may repeat a call, because the answer for a case that the actor has
//     already is nil too.
//   - compensator.ErrNotFound: there is no open case, or the actor may not see it.
//   - ErrNotAllowed: the actor lacks the right for this type or amount.
//   - ErrChanged: the case changed since the actor saw it.
//
// If the second result is an error, TakeCases changed nothing. There is one exception: if the answer to COMMIT was
// lost, TakeCases may have changed all cases. If Options.ReadOnly is set, it returns ErrReadOnly. An invalid argument
// is a *FieldError.
func (d *Admin) TakeCases(ctx context.Context, a Actor, seen []SeenCase, why Why) ([]error, error) {
	return d.assignCases(ctx, a, seen, a.ID, TakeCase, why)
}

// AssignCases assigns open cases to owner. If owner is empty, the cases have no owner afterwards. AssignCases needs
// SeeEntries and AssignCase. An actor with SeeEntries and TakeCase may give back their own cases: for these cases owner
// must be empty. AssignCases returns the same answers and errors as TakeCases, but a repeated call returns ErrChanged.
func (d *Admin) AssignCases(ctx context.Context, a Actor, seen []SeenCase, owner string, why Why) ([]error, error) {
	return d.assignCases(ctx, a, seen, owner, AssignCase, why)
}

func (d *Admin) assignCases(ctx context.Context, a Actor, seen []SeenCase, owner string, right Right, why Why) ([]error, error) {
	if d.readOnly {
		return nil, ErrReadOnly
	}
	if a.isInvalid() {
		return nil, ErrNotAllowed
	}
	reason, err := why.text()
	if err != nil {
		return nil, err
	}
	ids := make([]compensator.EntryID, len(seen))
	for i := range seen {
		ids[i] = seen[i].EntryID
	}
	if err := validateNames(ids); err != nil {
		return nil, err
	}
	if owner != "" && (Actor{owner}).isInvalid() {
		return nil, &compensator.FieldError{Field: "owner", Reason: "want at most 191 characters, or none"}
	}
	ctx = withAction(ctx)
	ownCases, err := d.casesOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	cases := make(map[compensator.EntryID]Case, len(ownCases))
	for _, c := range ownCases {
		cases[c.EntryID] = c
	}
	answers := make([]error, len(seen))
	rejections := refusedEntries{total: len(seen)}
	var writable []SeenCase
	var indexes []int
	mayRead := d.rightsOf(a, SeeEntries)
	for i, v := range seen {
		c, ownCases := cases[v.EntryID]
		subject := Subject{Type: c.BusinessType, Amount: c.Amount, Count: len(seen)}
		isHandover := right == AssignCase && owner == "" && c.Owner == a.ID && c.Version == v.Version
		switch {
		case !ownCases || !mayRead.holds(ctx, c.BusinessType):
			answers[i] = newNotFoundError(v.EntryID)
			rejections.addRefusal(v.EntryID, "")
		case !c.ClosedAt.IsZero():
			answers[i] = newNotFoundError(v.EntryID)
		case !d.mayDo(ctx, a, right, subject) && !(isHandover && d.mayDo(ctx, a, TakeCase, subject)):
			answers[i] = ErrNotAllowed
			rejections.addRefusal(v.EntryID, c.BusinessType)
		case right == TakeCase && c.Owner == a.ID: // If the actor presses the button twice, the second request succeeds and changes nothing.
		default:
			writable, indexes = append(writable, v), append(indexes, i)
		}
	}
	op := processlog.Operation{Actor: a.ID, Action: string(right), Subject: owner, Reason: reason}
	if err := d.recordRefusals(ctx, a, op, rejections); err != nil {
		return nil, err
	}
	if len(writable) == 0 {
		return answers, nil
	}
	results, err := d.log.Operations().AssignCases(ctx, writable, owner, op)
	if err != nil {
		return nil, err
	}
	for i, index := range indexes {
		answers[index] = results[i]
	}
	return answers, nil
}

// Note adds a person's note to an entry, also to an entry without a case. It needs SeeEntries and NoteCase. It returns
// compensator.ErrNotFound for an entry that the actor may not see. It returns ErrNotAllowed without NoteCase,
// ErrReadOnly if Options.ReadOnly is set, and a *FieldError for an invalid reason.
func (d *Admin) Note(ctx context.Context, a Actor, ref compensator.Ref, why Why) error {
	_, op, err := d.readEntryFor(ctx, a, ref, NoteCase, why)
	if err != nil {
		return err
	}
	return d.log.Operations().Operate(ctx, op)
}
