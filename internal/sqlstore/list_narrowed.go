package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// readStep is the number of rows that one statement reads.
const readStep = 1000

type lookedAt struct {
	listPosition
	matches bool
}

// readNarrowed stops at one row more than fits the page, or after MaxRead rows. The next page goes on from there.
func (l *listing) readNarrowed(ctx context.Context) (page processlog.Page, err error) {
	var front []listPosition
	most := cmp.Or(l.f.MaxRead, processlog.DefaultRead)
	step := readStep
	if l.order == orderDue {
		// For each state, lookQuery reads up to step rows. So divide the number of rows by the number of states.
		step /= len(l.states())
	}
	for page.Read < most && len(front) <= l.limit {
		n := min(step, most-page.Read)
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
		if err := rows.Scan(&row.at, &row.key, &id, &row.matches); err != nil {
			return nil, err
		}
		row.id = processlog.RowID(id)
		looked = append(looked, row)
	}
	return looked, rows.Err()
}

// lookedInStates reads entries of several states. The fragment {looks} stands for a UNION. For each state, the UNION
// has a part with the text lookedInState.
const (
	lookedInState  = "SELECT head_at, head_id, matches FROM ({look}) AS g{place}"
	lookedInStates = "SELECT head_at, {empty}, head_id, matches FROM ({looks}) AS looked ORDER BY {order} LIMIT {limit}"
)

// lookQuery has the filter's condition among its columns. In the WHERE clause it would make the server read on until a row
// matches.
func (l *listing) lookQuery(n int) string {
	matches := "(" + strings.Join(l.narrows(), " AND ") + ")"
	switch l.order {
	case orderCreated:
		return l.along(l.s.d.stampMS("created_at")+", "+l.s.d.empty+", id, "+matches, n)
	case orderID:
		return l.along("0, "+l.s.d.empty+", id, "+matches, n)
	case orderKey:
		return l.along("0, "+l.s.d.texts(l.key)+", id, "+matches, n)
	}
	at, states := l.s.d.numbers("next_at"), l.states()
	if len(states) == 1 {
		return l.along(at+", "+l.s.d.empty+", id, "+matches, n)
	}
	looks := make([]string, len(states))
	for i, state := range states {
		one := *l
		one.f.States = []processlog.State{state}
		look := one.along(at+" AS head_at, id AS head_id, "+matches+" AS matches", n)
		looks[i] = l.s.sql(lookedInState, "look", look, "place", strconv.Itoa(i))
	}
	return l.s.sql(lookedInStates, "looks", strings.Join(looks, " UNION ALL "), "empty", l.s.d.empty, "order", l.directed("head_at, head_id"), "limit", strconv.Itoa(n))
}

func (l *listing) states() []processlog.State {
	if len(l.f.States) == 0 {
		return processlog.States[:]
	}
	return distinct(l.f.States)
}

// narrows returns the conditions of the filter that the index does not cover.
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
	if l.order != orderDue {
		all = append(all, l.next()...)
	}
	is("ended_by", string(l.f.EndedBy))
	is("user_id", l.f.UserID)
	if l.f.Leased {
		all = append(all, l.s.sql("lease_until>{now}"))
	}
	if mark := l.f.LeasedBy.LeaseMark(); l.f.LeasedBy != (processlog.InstanceID{}) {
		all = append(all, fmt.Sprintf("SUBSTR(token,1,%d)=%s", len(mark), l.s.d.binary(mark)))
	}
	if l.f.LastError != "" {
		// The SQL function in the field instr looks for a plain text, not for a pattern. So no character of LastError
		// has a special meaning.
		all = append(all, l.s.d.instr+"(last_error, "+l.s.d.text(l.f.LastError)+")>0")
	}
	return all
}
