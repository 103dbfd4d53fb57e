package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

type leasedPosition struct {
	listPosition
	businessType string
}

// readLeased lists the running entries of all types. This listing has one page only. No index contains the leases, so
// readLeased must check row by row. It checks the first rows of each group in the order of the listing. Each group has
// an equal share of MaxRead rows, so a large backlog of one type does not hide the entries of other types. One
// statement reads rangesPerStatement groups.
func (l *listing) readLeased(ctx context.Context) (page processlog.Page, err error) {
	groups, err := l.groups(ctx)
	if err != nil || len(groups) == 0 {
		return page, err
	}
	share := max(1, cmp.Or(l.f.MaxRead, processlog.DefaultRead)/len(groups))
	var held []leasedPosition
	for part := range slices.Chunk(groups, rangesPerStatement) {
		found, err := l.readShares(ctx, part, share, &page)
		if err != nil {
			return page, err
		}
		held = append(held, found...)
	}
	slices.SortFunc(held, func(a, b leasedPosition) int { return l.compare(a.listPosition, b.listPosition) })
	positions := make([]listPosition, 0, min(len(held), l.limit))
	for i, p := range held {
		if i >= l.limit {
			page.Partial = append(page.Partial, p.businessType)
			continue
		}
		positions = append(positions, p.listPosition)
	}
	if page.Partial = distinct(page.Partial); len(positions) > 0 {
		page.Rows, err = l.load(ctx, positions)
	}
	return page, err
}

// readShares reads the first rows of each group, at most share rows, and returns those that match the filter. It adds
// the number of rows that it has read to page.Read. If a group may have more rows than share, readShares adds the type
// of the group to page.Partial.
func (l *listing) readShares(ctx context.Context, groups []group, share int, page *processlog.Page) (held []leasedPosition, err error) {
	rows, err := l.s.read(ctx, l.sharesQuery(groups, share))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	read := make([]int, len(groups))
	for rows.Next() {
		var place int
		var id uint64
		var p leasedPosition
		var isHeld bool
		if err := rows.Scan(&place, &p.at, &id, &isHeld); err != nil {
			return nil, err
		}
		read[place]++
		if isHeld {
			p.id, p.businessType = processlog.RowID(id), groups[place].businessType
			held = append(held, p)
		}
	}
	for place, n := range read {
		if page.Read += n; n == share {
			page.Partial = append(page.Partial, groups[place].businessType)
		}
	}
	return held, rows.Err()
}

const shareOfGroup = "SELECT {place}, head_at, head_id, matches FROM ({look}) AS g{place}"

func (l *listing) sharesQuery(groups []group, share int) string {
	columns := l.s.d.numbers("next_at") + " AS head_at, id AS head_id, (" + strings.Join(l.narrows(), " AND ") + ") AS matches"
	parts := make([]string, len(groups))
	for i, g := range groups {
		one := *l
		one.f.States, one.f.BusinessType, one.f.BusinessTypes = []processlog.State{g.state}, g.businessType, nil
		parts[i] = l.s.sql(shareOfGroup, "place", strconv.Itoa(i), "look", one.along(columns, share))
	}
	return strings.Join(parts, " UNION ALL ")
}
