package desk

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
	N           int                  `json:"n"`
	Sums        []compensator.Amount `json:"sums,omitempty"`  // by currency, of those whose amount is known
	NoAmount    int                  `json:"no_amount_known"` // how many others there are
	First       time.Time            `json:"first"`           // opened
	Last        time.Time            `json:"last"`            // opened
	Example     compensator.EntryID  `json:"example"`         // one of them
}

// Groups sums up the open cases by failure, most cases first. It wants SeeEntries, asked for each type.
func (d *Desk) Groups(ctx context.Context, a Actor) ([]Group, error) {
	sums, err := d.log.Operations().CaseGroups(ctx)
	if err != nil {
		return nil, err
	}
	sees := d.sight(a, SeeEntries)
	type alike struct {
		businessType string
		fingerprint  Fingerprint
	}
	var order []alike
	groups := make(map[alike]*Group)
	for _, sum := range sums {
		if !sees.sees(ctx, sum.BusinessType) {
			continue
		}
		key := alike{sum.BusinessType, sum.Fingerprint}
		g := groups[key]
		if g == nil {
			g = &Group{Type: sum.BusinessType, Fingerprint: sum.Fingerprint, First: sum.First, Last: sum.Last, Example: sum.Example}
			groups[key] = g
			order = append(order, key)
		}
		g.add(sum)
	}
	found := make([]Group, len(order))
	for i, key := range order {
		found[i] = *groups[key]
	}
	slices.SortStableFunc(found, func(a, b Group) int { return b.N - a.N })
	return found, d.nameGroups(ctx, a, found)
}

// add takes in the group's cases of one currency.
func (g *Group) add(sum processlog.CaseGroup) {
	g.N += sum.N
	if sum.Currency == "" {
		g.NoAmount += sum.N
	} else {
		g.Sums = append(g.Sums, compensator.Amount{Minor: sum.Sum, Currency: sum.Currency})
	}
	if sum.First.Before(g.First) {
		g.First = sum.First
	}
	if sum.Last.After(g.Last) {
		g.Last = sum.Last
	}
}

// nameGroups gives groups the error of their examples.
func (d *Desk) nameGroups(ctx context.Context, a Actor, groups []Group) error {
	errors := d.sight(a, SeeErrors)
	for chunk := range slices.Chunk(groups, MaxEntries) {
		ids := make([]compensator.EntryID, len(chunk))
		for i := range chunk {
			ids[i] = chunk[i].Example
		}
		cases, err := d.log.Operations().CasesOf(ctx, ids)
		if err != nil {
			return err
		}
		for _, c := range cases {
			i := slices.Index(ids, c.EntryID)
			chunk[i].Error = maskedCase(c, errors.sees(ctx, c.BusinessType)).Error
		}
	}
	return nil
}

// Cases lists open cases, the one due earliest first. It wants SeeEntries, asked for each type.
func (d *Desk) Cases(ctx context.Context, a Actor, filter CaseFilter) (CasePage, error) {
	sees, errors := d.sight(a, SeeEntries), d.sight(a, SeeErrors)
	var page CasePage
	for range listRounds {
		found, err := d.log.Operations().Cases(ctx, filter)
		if err != nil {
			return CasePage{}, err
		}
		for _, c := range found.Cases {
			if sees.sees(ctx, c.BusinessType) {
				page.Cases = append(page.Cases, maskedCase(c, errors.sees(ctx, c.BusinessType)))
			}
		}
		page.Next, filter.Cursor = found.Next, found.Next
		if len(page.Cases) > 0 || found.Next == "" {
			break
		}
	}
	return page, nil
}

func maskedCase(c Case, errorInFull bool) Case {
	if !errorInFull {
		c.Error = shape(c.Error)
	}
	return c
}

// caseOf reads an entry's case; nil: it has none.
func (d *Desk) caseOf(ctx context.Context, id compensator.EntryID, inFull bool) (*Case, error) {
	cases, err := d.log.Operations().CasesOf(ctx, []compensator.EntryID{id})
	if err != nil || len(cases) == 0 {
		return nil, err
	}
	c := maskedCase(cases[0], inFull)
	return &c, nil
}

// SeenCase names a case as it was seen: Case.EntryID and Case.Version.
type SeenCase struct {
	EntryID compensator.EntryID
	Version uint64
}

// TakeCase makes an open case the actor's own, also from somebody else, whom the version then names. It wants TakeCase.
// ErrNotFound: there is no open case; ErrChanged.
func (d *Desk) TakeCase(ctx context.Context, a Actor, seen SeenCase, why Why) error { return errNotYet }

// AssignCase gives an open case to somebody, or, with no owner, back. It wants AssignCase, or TakeCase to give back what
// is one's own. Its errors are TakeCase's.
func (d *Desk) AssignCase(ctx context.Context, a Actor, seen SeenCase, owner string, why Why) error {
	return errNotYet
}

// Note puts words of a person beside an entry, with a case or without. It wants NoteCase.
func (d *Desk) Note(ctx context.Context, a Actor, ref compensator.Ref, why Why) error {
	return errNotYet
}
