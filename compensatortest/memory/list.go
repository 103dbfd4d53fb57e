package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// List implements processlog.Store: in the orders of the store on SQL, and with cursors of its own.
func (s *Store) List(ctx context.Context, filter processlog.Filter) (processlog.Page, error) {
	if err := ctx.Err(); err != nil {
		return processlog.Page{}, err
	}
	l, err := newListing(filter)
	if err != nil {
		return processlog.Page{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.matchingLocked(func(v *version) bool { return v.listed(filter) && l.behindCursor(v) })
	slices.SortFunc(found, func(a, b *version) int { return l.compare(l.position(a), l.position(b)) })
	var page processlog.Page
	for _, v := range found[:min(len(found), l.limit)] {
		page.Rows = append(page.Rows, v.row(s.nowLocked()))
	}
	if len(found) > l.limit {
		page.Next = l.cursor(l.position(found[l.limit-1]))
	}
	return page, nil
}

// listing is how one List call sorts.
type listing struct {
	filter processlog.Filter
	order  string // "id", "created" or "due"
	limit  int
	after  *listPosition // where the page before ended
}

// listPosition is a place in a listing.
type listPosition struct{ at, id int64 }

func newListing(filter processlog.Filter) (*listing, error) {
	l := &listing{filter: filter, order: listOrder(filter), limit: cmp.Or(filter.Limit, 50)}
	given := slices.DeleteFunc([]string{filter.BatchID, filter.BusinessID, filter.BusinessExtID}, func(id string) bool { return id == "" })
	noState := func(state processlog.State) bool { return !slices.Contains(processlog.States[:], state) }
	switch {
	case l.limit < 1 || l.limit > 1000:
		return nil, &processlog.FieldError{Field: "limit", Reason: fmt.Sprintf("%d: want 1 to 1000, or 0 for 50", filter.Limit)}
	case slices.ContainsFunc(filter.States, noState):
		return nil, &processlog.FieldError{Field: "states", Reason: fmt.Sprintf("%v: one is no state", filter.States)}
	case len(given) > 1:
		return nil, &processlog.FieldError{Field: "filter", Reason: "want at most one of batch id, business id and external business id"}
	case filter.Cursor != "":
		l.after = new(listPosition)
		if n, err := fmt.Sscanf(filter.Cursor, l.cursorFormat(), &l.after.at, &l.after.id); n != 2 || err != nil {
			return nil, &processlog.FieldError{Field: "cursor", Reason: "is not one of Page.Next, or belongs to another listing"}
		}
	}
	return l, nil
}

func listOrder(filter processlog.Filter) string {
	switch {
	case filter.BatchID+filter.BusinessID+filter.BusinessExtID != "":
		return "id"
	case !filter.CreatedFrom.IsZero() || !filter.CreatedTo.IsZero():
		return "created"
	case len(filter.States) > 0 || filter.BusinessType != "":
		return "due"
	}
	return "id"
}

func (l *listing) position(v *version) listPosition {
	p := listPosition{id: int64(v.entry.ID.Row())}
	switch l.order {
	case "created":
		p.at = v.entry.CreatedAt.UnixMilli()
	case "due":
		p.at = v.nextAt
	}
	return p
}

func (l *listing) compare(a, b listPosition) int {
	order := cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
	if l.filter.Newest {
		return -order
	}
	return order
}

func (l *listing) behindCursor(v *version) bool {
	return l.after == nil || l.compare(l.position(v), *l.after) > 0
}

func (l *listing) cursor(p listPosition) string {
	return fmt.Sprintf(l.cursorFormat(), p.at, p.id)
}

func (l *listing) cursorFormat() string {
	direction := "up"
	if l.filter.Newest {
		direction = "down"
	}
	return strings.Join([]string{l.order, direction, "%d", "%d"}, ".")
}

func (v *version) listed(filter processlog.Filter) bool {
	e := &v.entry
	return (len(filter.States) == 0 || slices.Contains(filter.States, e.State)) &&
		anyOr(filter.BusinessType, e.BusinessType) && anyOr(filter.BatchID, e.BatchID) &&
		anyOr(filter.BusinessID, e.BusinessID) && anyOr(filter.BusinessExtID, e.BusinessExtID) &&
		(filter.CreatedFrom.IsZero() || !e.CreatedAt.Before(filter.CreatedFrom)) &&
		(filter.CreatedTo.IsZero() || e.CreatedAt.Before(filter.CreatedTo))
}

// anyOr reports whether want, when it is given, is got.
func anyOr(want, got string) bool { return want == "" || want == got }
