package admin

import (
	"context"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// A case, what selects cases, and a page of them.
type (
	Case        = processlog.Case
	CaseFilter  = processlog.CaseFilter
	CasePage    = processlog.CasePage
	CaseKind    = processlog.CaseKind
	Fingerprint = processlog.Fingerprint
)

// The kinds of cases.
const (
	CaseDead    = processlog.CaseDead
	CaseUnknown = processlog.CaseUnknown
)

// Group is the open cases of one type whose failures are alike.
type Group struct {
	Type        string               `json:"type"`
	Fingerprint Fingerprint          `json:"fingerprint"`
	Error       string               `json:"error"` // of one of them
	Kind        CaseKind             `json:"kind"`  // the same one's
	N           int                  `json:"n"`
	Sums        []compensator.Amount `json:"sums,omitempty"`  // by currency, of those whose amount is known
	NoAmount    int                  `json:"no_amount_known"` // how many others there are
	First       time.Time            `json:"first"`           // opened
	Last        time.Time            `json:"last"`            // opened
	Example     compensator.EntryID  `json:"example"`         // one of them
}

// groupsMost is how many sums, by type, failure and currency, the log tells.
const groupsMost = 1000

// Groups sums up the open cases by failure, most cases first. It wants SeeEntries, asked for each type. All who may see every
// type share what was read, as of Overview; for anybody else it is read each time. The log tells the 1,000 sums, by type, failure
// and currency, with most cases: more, there may be others, and all come to more than these do.
func (d *Admin) Groups(ctx context.Context, a Actor) (groups []Group, more bool, err error) {
	return d.sumUp(ctx, a, "", d.failures)
}

// GroupsOf is Groups of one failure, or of any where that is zero, and of one type or, where that is empty, of each that has it. It
// is read each time.
func (d *Admin) GroupsOf(ctx context.Context, a Actor, businessType string, failure Fingerprint) (groups []Group, more bool, err error) {
	return d.sumUp(ctx, a, businessType, func(ctx context.Context, types []string) ([]processlog.CaseGroup, error) {
		return d.readFailures(ctx, types, failure)
	})
}

// sumUp makes groups of sums, which are by currency as well, of the types that an actor may see.
func (d *Admin) sumUp(ctx context.Context, a Actor, businessType string, ask func(ctx context.Context, types []string) ([]processlog.CaseGroup, error)) (groups []Group, more bool, err error) {
	sees, inFull := d.sight(a, SeeEntries), d.sight(a, SeeErrors)
	types, some, err := d.within(ctx, sees, businessType, nil)
	if err != nil || !some {
		return nil, false, err
	}
	sums, err := ask(ctx, types)
	if err != nil {
		return nil, false, err
	}
	type alike struct {
		businessType string
		fingerprint  Fingerprint
	}
	places := make(map[alike]int)
	found := make([]Group, 0, len(sums))
	for _, sum := range sums {
		if !sees.sees(ctx, sum.BusinessType) { // of a type that the Admin has not known of
			continue
		}
		key := alike{sum.BusinessType, sum.Fingerprint}
		place, known := places[key]
		if !known {
			place = len(found)
			places[key] = place
			found = append(found, Group{Type: sum.BusinessType, Fingerprint: sum.Fingerprint, Error: shape(sum.Error, inFull.sees(ctx, sum.BusinessType)),
				Kind: sum.Kind, First: sum.First, Last: sum.Last, Example: sum.Example})
		}
		found[place].add(sum)
	}
	slices.SortStableFunc(found, func(a, b Group) int { return b.N - a.N })
	return found, len(sums) >= groupsMost, nil
}

// add takes in the group's cases of one currency.
func (g *Group) add(sum processlog.CaseGroup) {
	g.N += sum.N
	amount := inCapitals(compensator.Amount{Minor: sum.Sum, Currency: sum.Currency})
	same := slices.IndexFunc(g.Sums, func(s compensator.Amount) bool { return s.Currency == amount.Currency })
	switch {
	case amount.Currency == "":
		g.NoAmount += sum.N
	case same >= 0: // written in small letters and in capitals
		g.Sums[same].Minor += amount.Minor
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

// Cases lists open cases, the one due earliest first. It wants SeeEntries, asked for each type.
func (d *Admin) Cases(ctx context.Context, a Actor, filter CaseFilter) (CasePage, error) {
	page, err := d.cases(ctx, a, filter)
	inFull := d.sight(a, SeeErrors)
	for i, c := range page.Cases {
		page.Cases[i] = d.maskedCase(c, inFull.sees(ctx, c.BusinessType))
	}
	return page, err
}

// cases are Cases with their errors as they are.
func (d *Admin) cases(ctx context.Context, a Actor, filter CaseFilter) (CasePage, error) {
	sees := d.sight(a, SeeEntries)
	types, some, err := d.within(ctx, sees, filter.BusinessType, filter.BusinessTypes)
	if err != nil || !some {
		return CasePage{}, err
	}
	filter.BusinessTypes = types
	page, err := read(ctx, d, func(ctx context.Context) (CasePage, error) { return d.log.Operations().Cases(ctx, filter) })
	page.Cases = shown(page.Cases, func(c *Case) bool {
		c.Amount = inCapitals(c.Amount)
		return sees.sees(ctx, c.BusinessType)
	})
	return page, err
}

func (d *Admin) maskedCase(c Case, errorInFull bool) Case {
	c.Error = d.told(c.Error, errorInFull)
	return c
}

// caseAmong finds an entry's case; nil: it has none.
func (d *Admin) caseAmong(cases []Case, id compensator.EntryID, inFull bool) *Case {
	i := slices.IndexFunc(cases, func(c Case) bool { return c.EntryID == id })
	if i < 0 {
		return nil
	}
	c := d.maskedCase(cases[i], inFull)
	return &c
}

// SeenCase names a case as it was seen: Case.EntryID and Case.Version.
type SeenCase = processlog.SeenCase

// TakeCases makes up to MaxEntries open cases the actor's own, also from somebody else, whom the version then names, in one
// transaction with the records, and answers for each in their order: nil, or why it was left alone.
// compensator.ErrNotFound: there is no open case, or it may not be seen; ErrNotAllowed: the right is missing for this type or
// amount; ErrChanged. What is the actor's own already is answered nil, so that a call may be repeated. It wants SeeEntries and
// TakeCase. With another error nothing was done, or all, when the answer to COMMIT was lost.
func (d *Admin) TakeCases(ctx context.Context, a Actor, seen []SeenCase, why Why) ([]error, error) {
	return d.assign(ctx, a, seen, a.ID, TakeCase, why)
}

// AssignCases gives open cases to somebody, or, with no owner, back. It wants SeeEntries and AssignCase; TakeCase will do
// to give back what is one's own. Otherwise it is as TakeCases, but that a repeated call finds ErrChanged.
func (d *Admin) AssignCases(ctx context.Context, a Actor, seen []SeenCase, owner string, why Why) ([]error, error) {
	return d.assign(ctx, a, seen, owner, AssignCase, why)
}

func (d *Admin) assign(ctx context.Context, a Actor, seen []SeenCase, owner string, right Right, why Why) ([]error, error) {
	if d.readOnly {
		return nil, ErrReadOnly
	}
	if a.invalid() {
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
	if err := named(ids); err != nil {
		return nil, err
	}
	if owner != "" && (Actor{owner}).invalid() {
		return nil, &compensator.FieldError{Field: "owner", Reason: "want at most 191 characters, or none"}
	}
	ctx = acting(ctx)
	found, err := d.casesOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	cases := make(map[compensator.EntryID]Case, len(found))
	for _, c := range found {
		cases[c.EntryID] = c
	}
	answers := make([]error, len(seen))
	refused := rejected{of: len(seen)}
	var these []SeenCase
	var places []int
	sees := d.sight(a, SeeEntries)
	for i, v := range seen {
		c, found := cases[v.EntryID]
		on := Subject{Type: c.BusinessType, Amount: c.Amount, Count: len(seen)}
		gives := right == AssignCase && owner == "" && c.Owner == a.ID && c.Version == v.Version
		switch {
		case !found || !sees.sees(ctx, c.BusinessType):
			answers[i] = notFound(v.EntryID)
			refused.add(v.EntryID, "")
		case !c.ClosedAt.IsZero():
			answers[i] = notFound(v.EntryID)
		case !d.may(ctx, a, right, on) && !(gives && d.may(ctx, a, TakeCase, on)):
			answers[i] = ErrNotAllowed
			refused.add(v.EntryID, c.BusinessType)
		case right == TakeCase && c.Owner == a.ID: // who presses twice has done it once
		default:
			these, places = append(these, v), append(places, i)
		}
	}
	op := processlog.Operation{Actor: a.ID, Action: string(right), Subject: owner, Reason: reason}
	if err := d.refuseSome(ctx, a, op, refused); err != nil {
		return nil, err
	}
	if len(these) == 0 {
		return answers, nil
	}
	done, err := d.log.Operations().AssignCases(ctx, these, owner, op)
	if err != nil {
		return nil, err
	}
	for i, place := range places {
		answers[place] = done[i]
	}
	return answers, nil
}

// Note puts words of a person beside an entry, with a case or without. It wants SeeEntries and NoteCase.
func (d *Admin) Note(ctx context.Context, a Actor, ref compensator.Ref, why Why) error {
	_, op, err := d.entryFor(ctx, a, ref, NoteCase, why)
	if err != nil {
		return err
	}
	return d.log.Operations().Operate(ctx, op)
}
