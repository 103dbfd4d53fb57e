package sqlstore

import (
	"cmp"
	"context"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// readStep is how many rows one statement looks at: a page whose rows stand close together costs no more than a few.
const readStep = 1000

// lookedAt is a row that the index gave.
type lookedAt struct {
	listPosition
	matches bool
}

// readNarrowed looks at rows in the order of the index until the page is full, and one more is known, or MaxRead are
// looked at. Where it stops the next page goes on, whatever was found.
func (l *listing) readNarrowed(ctx context.Context) (page processlog.Page, err error) {
	var front []listPosition
	most := cmp.Or(l.f.MaxRead, processlog.DefaultRead)
	for page.Read < most && len(front) <= l.limit {
		n := min(readStep, most-page.Read)
		looked, err := l.look(ctx, n)
		if err != nil {
			return page, err
		}
		for i := range looked {
			l.after = &looked[i].listPosition
			if looked[i].matches {
				front = append(front, *l.after)
			}
			page.Read++
			if len(front) > l.limit {
				break
			}
		}
		page.Next = ""
		if len(looked) < n {
			break
		}
		page.Next = l.cursor(*l.after)
	}
	if len(front) > l.limit {
		front = front[:l.limit]
		page.Next = l.cursor(front[l.limit-1])
	}
	page.Rows, err = l.load(ctx, front)
	return page, err
}

// look reads the next n positions, and whether their rows are what the filter asks for.
func (l *listing) look(ctx context.Context, n int) ([]lookedAt, error) {
	rows, err := l.s.read(ctx, l.lookQuery(n))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	looked := make([]lookedAt, 0, n)
	for rows.Next() {
		var row lookedAt
		var id uint64
		if err := rows.Scan(&row.at, &id, &row.matches); err != nil {
			return nil, err
		}
		row.id = processlog.RowID(id)
		looked = append(looked, row)
	}
	return looked, rows.Err()
}

// lookQuery has the conditions among its columns: in the WHERE clause a server would read on until one holds.
func (l *listing) lookQuery(n int) string {
	at := "0"
	switch l.order {
	case orderCreated:
		at = l.s.d.stampMS("created_at")
	case orderDue:
		at = l.s.d.numbers("next_at")
	}
	return l.along(at+", id, ("+strings.Join(l.narrows(), " AND ")+")", n)
}

// narrows lists what the rows of the index must hold beside.
func (l *listing) narrows() (all []string) {
	is := func(column, value string) {
		if value != "" {
			all = append(all, column+"="+l.s.d.text(value))
		}
	}
	if l.order != orderDue {
		is("business_type", l.f.BusinessType)
		if len(l.f.States) > 0 {
			all = append(all, "state IN ("+stateList(l.f.States)+")")
		}
	}
	if l.key != "" {
		all = append(all, l.created()...)
	}
	is("ended_by", string(l.f.EndedBy))
	is("user_id", l.f.UserID)
	if l.f.LastError != "" { // a text, and no pattern: nothing in it has a meaning
		all = append(all, "INSTR(last_error, "+l.s.d.text(l.f.LastError)+")>0")
	}
	return all
}
