package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// rangesPerStatement is the maximum number of index ranges that one statement reads. Each range is a part of a UNION.
// SQLite accepts 500 parts, so 100 leaves a margin.
const rangesPerStatement = 100

// readMerged reads a page from several ranges of the due index. One statement reads at most rangesPerStatement ranges.
// The last statement reads the rows of the page. The statements before it read only positions. Of all positions so far,
// the variable front keeps those that the page can need: the first l.limit+1 in the order of the listing.
func (l *listing) readMerged(ctx context.Context) (page processlog.Page, err error) {
	groups, err := l.groups(ctx)
	if err != nil || len(groups) == 0 {
		return page, err
	}
	var front []listPosition
	for ; len(groups) > rangesPerStatement; groups = groups[rangesPerStatement:] {
		heads, err := l.heads(ctx, groups[:rangesPerStatement], front)
		if err != nil {
			return page, err
		}
		front = append(front, heads...)
		slices.SortFunc(front, l.compare)
		front = front[:min(len(front), l.limit+1)]
	}
	rows, err := l.s.read(ctx, l.foremost(groups, front))
	if err != nil {
		return page, err
	}
	defer rows.Close()
	scan := newRowScanner()
	for n := 1; rows.Next(); n++ {
		row, err := scan.row(rows)
		switch {
		case err != nil:
			return page, err
		case n > l.limit:
			page.Next = l.cursor(*l.after)
		default:
			l.after = &listPosition{at: scan.nextAt, id: row.ID}
			// Leave out a row that has changed since its position was read and no longer matches the filter.
			if l.f.Admits(&row) {
				page.Rows = append(page.Rows, row)
			}
		}
	}
	return page, rows.Err()
}

func (l *listing) groups(ctx context.Context) ([]group, error) {
	types := l.f.BusinessTypes
	if named := l.f.BusinessType; named != "" {
		if types != nil && !slices.Contains(types, named) {
			return nil, nil
		}
		types = []string{named}
	}
	return l.s.groups(ctx, nil, l.f.States, types)
}

func (l *listing) heads(ctx context.Context, groups []group, front []listPosition) ([]listPosition, error) {
	rows, err := l.s.read(ctx, l.merged(groups, front))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var heads []listPosition
	for rows.Next() {
		var at int64
		var id uint64
		if err := rows.Scan(&at, &id); err != nil {
			return nil, err
		}
		heads = append(heads, listPosition{at: at, id: processlog.RowID(id)})
	}
	return heads, rows.Err()
}

// The fragment {heads} in listMerged stands for a UNION. For each group that the last statement reads, the UNION has a
// part with the text headsOfGroup. If earlier statements have found positions, the last part has the text headsKnown,
// and adds these positions.
const (
	listMerged   = "SELECT {what} FROM ({heads} ORDER BY {order} LIMIT {limit}) AS heads {then join} {log} ON id=head_id ORDER BY {order} LIMIT {limit}"
	headsOfGroup = "SELECT {number next_at} AS head_at, id AS head_id FROM (SELECT next_at, id FROM {log}{by due}" +
		" WHERE state={state} AND business_type={type}{bounds} ORDER BY {order} LIMIT {limit}) AS g{place}"
	headsKnown = " UNION SELECT {number next_at}, id FROM {log} WHERE id IN ({ids})"
)

func (l *listing) foremost(groups []group, front []listPosition) string {
	heads := l.merged(groups, front)
	if len(front) > 0 {
		heads += l.s.sql(headsKnown, "ids", idList(idsOf(front)))
	}
	return l.s.sql(listMerged, "what", l.columns(), "heads", heads, "order", l.directed("head_at, head_id"), "limit", strconv.Itoa(l.limit+1))
}

// merged returns a UNION that reads positions. For each group, the UNION has a part with the text headsOfGroup. If the
// slice front already fills the page, each part leaves out the rows whose next_at comes after all positions in front.
func (l *listing) merged(groups []group, front []listPosition) string {
	bounds := ""
	for _, condition := range l.next() {
		bounds += " AND " + condition
	}
	if l.after != nil {
		bounds += " AND " + l.beyond("next_at", fmt.Sprint(l.after.at))
	}
	if len(front) > l.limit {
		// l.direction() returns < if the list begins with the newest rows, and > otherwise.
		bounds += fmt.Sprintf(" AND %d%s=next_at", front[l.limit].at, l.direction())
	}
	parts := make([]string, len(groups))
	for i, g := range groups {
		parts[i] = l.s.sql(headsOfGroup, "state", signed(int64(g.state)), "type", l.s.d.text(g.businessType), "bounds", bounds,
			"order", l.directed("next_at, id"), "limit", strconv.Itoa(l.limit+1), "place", strconv.Itoa(i))
	}
	return strings.Join(parts, " UNION ALL ")
}

func (l *listing) compare(a, b listPosition) int {
	order := cmp.Or(cmp.Compare(a.at, b.at), a.id.Compare(b.id))
	if l.f.Newest {
		return -order
	}
	return order
}
