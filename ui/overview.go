package ui

import (
	"cmp"
	"math/big"
	"net/http"
	"slices"
	"strings"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

type overviewData struct {
	Health *admin.Health
	// Rows are the types that need attention, and further types up to maxOverviewTypes. If the person asks for all
	// types, Rows are all types.
	Rows   []typeRow
	More   int           // number of types not in Rows
	Groups []admin.Group // the groups with the most cases
	Others int           // number of groups not in Groups
	Risk   risk

	// Processes is nil if processes do not store descriptions of themselves, or if the actor may not see the processes.
	Processes *processesLine

	Trend *trend // nil if no statistics are kept

	// Backlog says how long ago the numbers above 1,000 were counted. When the page is shown, the Admin counts up to
	// 1,000 entries of each type and state. A larger number comes from the last count of the backlog. Backlog is empty
	// if no process has counted the backlog within the last five minutes.
	Backlog string

	SeesAll bool // whether the actor may see all entries, see seesAllTypes
}

type processesLine struct {
	Live, Gone int
	Builds     string // versions of the service in live processes; empty if none is known
	Differ     bool   // whether there is more than one version
}

// readInstances returns no processes in these cases:
//
//   - The processes do not store descriptions of themselves.
//   - The actor may not see the processes.
//   - Reading fails. A page that calls readInstances is useful without processes, so the page ignores the error.
func (s *server) readInstances(rq *request) admin.Instances {
	if !s.admin.KeepsInstances() {
		return admin.Instances{}
	}
	found, err := s.admin.Instances(rq.ctx, rq.Actor)
	if err != nil {
		return admin.Instances{}
	}
	return found
}

func newProcessesLine(found admin.Instances) *processesLine {
	if found.List == nil {
		return nil
	}
	line := &processesLine{Builds: strings.Join(found.Builds, ", "), Differ: len(found.Builds) > 1}
	for _, i := range found.List {
		switch i.State() {
		case admin.InstanceLive:
			line.Live++
		case admin.InstanceGone:
			line.Gone++
		}
	}
	return line
}

type typeRow struct {
	Type      string
	Cells     []cell // one cell for each state in overviewStates
	Overdue   string // how long entries have been overdue; empty: no entry is overdue
	Unknown   bool   // see admin.TypeOverview.Unknown
	NoHandler bool   // see admin.TypeOverview.Unregistered
	Paused    *admin.Paused
	Broken    *admin.Broken
	Limited   *admin.Limited
	MayPause  bool
}

var overviewStates = [...]compensator.State{compensator.Dead, compensator.Compensating, compensator.Retrying, compensator.Pending}

type cell struct {
	State   compensator.State
	N       int
	More    bool
	X, Part int // start and width of the segment in percent
}

// Bars returns the cells whose count is not 0.
func (r typeRow) Bars() []cell {
	return slices.DeleteFunc(slices.Clone(r.Cells), func(c cell) bool { return c.N == 0 })
}

func (r typeRow) hasProblems() bool {
	return r.Cells[0].N > 0 || r.Overdue != "" || r.Paused != nil || r.Broken != nil || r.NoHandler
}

type risk struct {
	Cases, NoAmount int
	More            bool // whether further cases exist, so that the sums are lower bounds
	Sums            []string
	sums            map[string]*big.Int
}

func (r *risk) addGroup(g admin.Group) {
	r.Cases += g.N
	r.NoAmount += g.NoAmount
	if r.sums == nil {
		r.sums = make(map[string]*big.Int)
	}
	for _, sum := range g.Sums {
		if r.sums[sum.Currency] == nil {
			r.sums[sum.Currency] = new(big.Int)
		}
		r.sums[sum.Currency].Add(r.sums[sum.Currency], big.NewInt(sum.Minor))
	}
}

func newRisk(groups []admin.Group, hasMore bool) risk {
	r := risk{More: hasMore}
	for _, g := range groups {
		r.addGroup(g)
	}
	r.Sums = r.texts()
	return r
}

func (r *risk) texts() []string {
	var texts []string
	for currency, sum := range r.sums {
		texts = append(texts, formatMoney(sum, currency))
	}
	slices.Sort(texts)
	return texts
}

const (
	maxOverviewGroups = 6
	// maxOverviewTypes is the number of types that the page shows at first. If more types need attention, the page
	// shows all types that need attention.
	maxOverviewTypes = 10
)

func (s *server) showOverview(rq *request) {
	overview, err := s.admin.Overview(rq.ctx, rq.Actor)
	if err != nil {
		rq.showFailure(err)
		return
	}
	rq.setTime(overview.At)
	instances := s.readInstances(rq)
	data := overviewData{Health: overview.Health, SeesAll: rq.seesAllTypes(overview.Types), Processes: newProcessesLine(instances)}
	groups, hasMore, err := s.admin.Groups(rq.ctx, rq.Actor)
	if err != nil {
		rq.showFailure(err)
		return
	}
	data.Risk = newRisk(groups, hasMore)
	data.Groups = groups[:min(len(groups), maxOverviewGroups)]
	data.Others = len(groups) - len(data.Groups)
	rows, err := rq.typeRows(overview.Types)
	if err == nil && overview.BacklogAge > 0 {
		data.Backlog, err = rq.Span(overview.BacklogAge)
	}
	if err != nil {
		rq.showFailure(err)
		return
	}
	data.Rows = rows
	if rq.r.URL.Query().Get("types") != "all" {
		data.Rows = firstRows(rows)
	}
	data.More = len(rows) - len(data.Rows)
	if s.admin.KeepsStatistics() {
		adminTrend, err := s.admin.Trend(rq.ctx, rq.Actor, rq.chosenSpan().length, "")
		if err != nil {
			rq.showFailure(err)
			return
		}
		chart, err := rq.newTrend(adminTrend, instances.Deploys, "", func(spanName string) (string, error) {
			return rq.Link("", "over", spanName, "types", rq.r.URL.Query().Get("types"))
		})
		if err != nil {
			rq.showFailure(err)
			return
		}
		data.Trend = &chart
	}
	if !rq.unchanged("overview", data) {
		rq.showPage(http.StatusOK, "overview", data)
	}
}

// seesAllTypes must be true before a page says that no case is open.
func (rq *request) seesAllTypes(types []admin.TypeOverview) bool {
	return rq.May(admin.SeeEntries, admin.Subject{}) &&
		!slices.ContainsFunc(types, func(t admin.TypeOverview) bool { return !rq.May(admin.SeeEntries, admin.Subject{Type: t.Type}) })
}

// firstRows returns the rows that the page shows at first: all types that need attention, and further types up to
// maxOverviewTypes. The page does not draw the other rows, because a browser is slow to draw many.
func firstRows(rows []typeRow) []typeRow {
	firstCalm := slices.IndexFunc(rows, func(r typeRow) bool { return !r.hasProblems() })
	if firstCalm < 0 {
		return rows
	}
	return rows[:min(max(firstCalm, maxOverviewTypes), len(rows))]
}

// typeRows sorts types: the types with the most dead entries come first, then other types that need attention.
func (rq *request) typeRows(types []admin.TypeOverview) (rows []typeRow, err error) {
	rows = make([]typeRow, len(types))
	maximum := 1
	for i, t := range types {
		rows[i] = typeRow{Type: t.Type, Cells: make([]cell, len(overviewStates)), Unknown: t.Unknown, NoHandler: t.Unregistered, Paused: t.Paused, Broken: t.Broken, Limited: t.Limited, MayPause: rq.MayPause(t.Type)}
		if t.Overdue > 0 {
			if rows[i].Overdue, err = rq.Span(t.Overdue); err != nil {
				return nil, err
			}
		}
		sum := 0
		for j, state := range overviewStates {
			c := &rows[i].Cells[j]
			c.State = state
			if at := slices.IndexFunc(t.Counts, func(c admin.StateCount) bool { return c.State == state }); at >= 0 {
				c.N, c.More = t.Counts[at].N, t.Counts[at].More
			}
			sum += c.N
		}
		maximum = max(maximum, sum)
	}
	for i := range rows {
		x := 0
		for j := range rows[i].Cells {
			c := &rows[i].Cells[j]
			c.X, c.Part = x, (c.N*100+maximum-1)/maximum
			x += c.Part
		}
	}
	slices.SortStableFunc(rows, func(a, b typeRow) int {
		if a.hasProblems() != b.hasProblems() {
			if a.hasProblems() {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Cells[0].N, a.Cells[0].N)
	})
	return rows, nil
}
