package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// List implements processlog.Store. It sorts as the SQL store does. Its cursors have a different format.
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
	reachable := s.matchingLocked(func(v *version) bool { return l.isReachable(v) && l.isBehindCursor(v) })
	slices.SortFunc(reachable, func(a, b *version) int { return l.compare(l.position(a), l.position(b)) })
	if filter.LeasedOfAllTypes() {
		return l.leasedPage(reachable, s.nowLocked()), nil
	}
	return l.page(reachable, s.nowLocked()), nil
}

// page looks for one version more than the limit, to know whether there is another page.
func (l *listing) page(reachable []*version, now int64) (page processlog.Page) {
	var last *version
	for _, v := range reachable {
		if l.isNarrowed && page.Read == cmp.Or(l.filter.MaxRead, processlog.DefaultRead) {
			page.Next = l.cursor(l.position(reachable[page.Read-1]))
			return page
		}
		page.Read++
		if row := v.row(now); l.filter.Admits(&row) {
			if l.filter.Outline {
				row.Content = nil
			}
			if len(page.Rows) == l.limit {
				page.Next = l.cursor(l.position(last))
				return page
			}
			page.Rows, last = append(page.Rows, row), v
		}
	}
	return page
}

// leasedPage returns the page of a listing with Filter.Leased over all types. Filter.MaxRead limits the number of rows
// that leasedPage compares with the filter. Each pair of a state and a type gets an equal share of this number. If a
// pair has more rows than its share, page.Partial names the type.
func (l *listing) leasedPage(reachable []*version, now int64) (page processlog.Page) {
	type group struct {
		state        processlog.State
		businessType string
	}
	due, groups := slices.DeleteFunc(reachable, func(v *version) bool { return !v.isDue(now) || v.entry.State.Terminal() }), make(map[group]int)
	for _, v := range due {
		groups[group{v.entry.State, v.entry.BusinessType}] = 0
	}
	share := max(1, cmp.Or(l.filter.MaxRead, processlog.DefaultRead)/max(1, len(groups)))
	for _, v := range due {
		g := group{v.entry.State, v.entry.BusinessType}
		if groups[g]++; groups[g] > share {
			page.Partial = append(page.Partial, g.businessType)
			continue
		}
		page.Read++
		row := v.row(now)
		switch {
		case !l.filter.Admits(&row):
		case len(page.Rows) == l.limit:
			page.Partial = append(page.Partial, g.businessType)
		default:
			if l.filter.Outline {
				row.Content = nil
			}
			page.Rows = append(page.Rows, row)
		}
	}
	slices.Sort(page.Partial)
	page.Partial = slices.Compact(page.Partial)
	return page
}

// isReachable reports whether the SQL store would read the row of v to answer the filter. For each order of listing,
// the SQL store searches one index by some fields of the filter. It then compares the other fields with each row that
// it reads, and Filter.MaxRead limits the number of these rows.
func (l *listing) isReachable(v *version) bool {
	index := processlog.Filter{States: l.filter.States, BusinessType: l.filter.BusinessType,
		EndedFrom: l.filter.EndedFrom, EndedTo: l.filter.EndedTo, DueFrom: l.filter.DueFrom, DueTo: l.filter.DueTo}
	switch l.order {
	case "id", "key":
		index = processlog.Filter{BatchID: l.filter.BatchID, BusinessID: l.filter.BusinessID, BusinessExtID: l.filter.BusinessExtID, Prefix: l.filter.Prefix}
	case "created":
		index = processlog.Filter{CreatedFrom: l.filter.CreatedFrom, CreatedTo: l.filter.CreatedTo}
	}
	index.BusinessTypes = l.filter.BusinessTypes
	row := v.entry
	row.NextAt = millisToTime(v.nextAt)
	return index.Admits(&row)
}

type listing struct {
	filter         processlog.Filter
	order          string // "id", "key", "created" or "due"
	limit          int
	cursorPosition *listPosition // end of the previous page

	isNarrowed bool // whether some fields of the filter are not in the index, so that the SQL store compares them with each row that it reads
}

type listPosition struct {
	at, id int64
	key    string // the id by which a listing with Filter.Prefix is sorted
}

func newListing(filter processlog.Filter) (*listing, error) {
	l := &listing{filter: filter, order: listOrder(filter), limit: cmp.Or(filter.Limit, 50)}
	idFilters := slices.DeleteFunc([]string{filter.BatchID, filter.BusinessID, filter.BusinessExtID}, func(id string) bool { return id == "" })
	noState := func(state processlog.State) bool { return !slices.Contains(processlog.States[:], state) }
	switch {
	case l.limit < 1 || l.limit > 1000:
		return nil, &processlog.FieldError{Field: "limit", Reason: fmt.Sprintf("%d: want 1 to 1000, or 0 for 50", filter.Limit)}
	case slices.ContainsFunc(filter.States, noState):
		return nil, &processlog.FieldError{Field: "states", Reason: fmt.Sprintf("%v: one is no state", filter.States)}
	case len(idFilters) > 1:
		return nil, &processlog.FieldError{Field: "filter", Reason: "want at most one of batch id, business id and external business id"}
	case filter.Cursor != "":
		l.cursorPosition = new(listPosition)
		if n, err := fmt.Sscanf(filter.Cursor, l.cursorFormat(), &l.cursorPosition.at, &l.cursorPosition.id, &l.cursorPosition.key); n != 3 || err != nil {
			return nil, &processlog.FieldError{Field: "cursor", Reason: "is not one of Page.Next, or belongs to another listing"}
		}
	}
	var err error
	l.isNarrowed, err = filter.Narrowed()
	return l, err
}

func listOrder(filter processlog.Filter) string {
	switch {
	case filter.BatchID+filter.BusinessID+filter.BusinessExtID != "" && filter.Prefix:
		return "key"
	case filter.BatchID+filter.BusinessID+filter.BusinessExtID != "":
		return "id"
	case !filter.CreatedFrom.IsZero() || !filter.CreatedTo.IsZero():
		return "created"
	case len(filter.States) > 0 || filter.BusinessType != "" || filter.BusinessTypes != nil || len(filter.Reached()) < len(processlog.States):
		return "due"
	}
	return "id"
}

func (l *listing) position(v *version) listPosition {
	p := listPosition{id: int64(v.entry.ID.Row())}
	switch l.order {
	case "key":
		switch {
		case l.filter.BatchID != "":
			p.key = v.entry.BatchID
		case l.filter.BusinessID != "":
			p.key = v.entry.BusinessID
		default:
			p.key = v.entry.BusinessExtID
		}
	case "created":
		p.at = v.entry.CreatedAt.UnixMilli()
	case "due":
		p.at = v.nextAt
	}
	return p
}

func (l *listing) compare(a, b listPosition) int {
	order := cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
	if l.filter.Newest {
		return -order
	}
	return order
}

func (l *listing) isBehindCursor(v *version) bool {
	return l.cursorPosition == nil || l.compare(l.position(v), *l.cursorPosition) > 0
}

func (l *listing) cursor(p listPosition) string {
	return fmt.Sprintf(l.cursorFormat(), p.at, p.id, p.key)
}

func (l *listing) cursorFormat() string {
	direction := "up"
	if l.filter.Newest {
		direction = "down"
	}
	return strings.Join([]string{l.order, direction, "%d", "%d", "%q"}, ".")
}
