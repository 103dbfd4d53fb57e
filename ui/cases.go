package ui

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

type groupsData struct {
	Groups  []admin.Group
	Risk    risk
	SeesAll bool // whether the actor may see all entries, see seesAllTypes
}

func (s *server) showGroups(rq *request) {
	groups, hasMore, err := s.admin.Groups(rq.ctx, rq.Actor)
	if err != nil {
		rq.showFailure(err)
		return
	}
	rq.showPage(http.StatusOK, "groups", groupsData{groups, newRisk(groups, hasMore), rq.seesAllTypes(nil)})
}

type casesData struct {
	Type, Kind, Owner, Who, Failure string
	Rows                            int          // number of rows per page
	Group                           *admin.Group // group of the failure; set on the page of one failure
	GroupSums                       []string
	Lines                           []admin.Line // lines of the entries, each with its case
	pager
	allForm
	Actions []string
	SeesAll bool // whether the actor may see all entries, see seesAllTypes
}

// All reports whether the page shows all open cases.
func (d casesData) All() bool { return d.Type+d.Kind+d.Owner+d.Who+d.Failure == "" && d.First == "" }

// longPage is the largest number of rows per page. When a person acts on chosen rows, the browser opens the
// confirmation page. The address of the confirmation page names each chosen row. Even for longPage rows, this address
// is shorter than 8 KB, the limit of many proxies.
const longPage = 200

// RowChoices returns the possible numbers of rows per page.
func (casesData) RowChoices() []int { return []int{pageSize, longPage} }

func (s *server) showCases(rq *request) {
	q := rq.r.URL.Query()
	data := casesData{Type: q.Get("type"), Kind: q.Get("kind"), Owner: q.Get("owner"), Who: strings.TrimSpace(q.Get("who")), Failure: q.Get("failure"), Rows: pageSize}
	if q.Get("rows") == strconv.Itoa(longPage) {
		data.Rows = longPage
	}
	filter := admin.CaseFilter{BusinessType: data.Type, Limit: data.Rows, Cursor: cursor(q)}
	switch {
	case data.Who != "": // A typed name overrides the selected owner.
		filter.Owner, data.Owner = data.Who, ""
	case data.Owner == "me":
		filter.Owner = rq.Actor.ID
	case data.Owner == "nobody":
		filter.Unowned = true
	}
	switch data.Kind {
	case admin.CaseDead.String():
		filter.Kind = admin.CaseDead
	case admin.CaseUnknown.String():
		filter.Kind = admin.CaseUnknown
	}
	if data.Failure != "" {
		if err := filter.Fingerprint.UnmarshalText([]byte(data.Failure)); err != nil {
			rq.showFailure(err)
			return
		}
	}
	page, err := s.admin.CaseLines(rq.ctx, rq.Actor, filter)
	if err == nil && data.Failure != "" {
		err = s.addGroup(rq, &data, filter.Fingerprint)
	}
	if err != nil {
		rq.showFailure(err)
		return
	}
	data.Lines, data.SeesAll = page.Lines, rq.seesAllTypes(nil)
	data.pager = newPager(rq.r.URL, page.Next)
	offered := rq.offeredActions(data.Lines)
	data.Actions = append(slices.Clone(offered), rq.caseActions(data.Lines)...)
	if data.Failure != "" && data.Kind+data.Owner+data.Who == "" {
		data.allForm = allForm{AllActions: offered, AllFields: []formField{{"state", compensator.Dead.String()}, {"type", data.Type}, {"failure", data.Failure}}}
		if data.Group != nil {
			data.AllN = data.Group.N
		}
	}
	rq.showPage(http.StatusOK, "cases", data)
}

func (s *server) addGroup(rq *request, data *casesData, failure admin.Fingerprint) error {
	groups, _, err := s.admin.GroupsOf(rq.ctx, rq.Actor, data.Type, failure)
	if len(groups) > 0 {
		data.Group = &groups[0]
		data.GroupSums = newRisk(groups[:1], false).Sums
	}
	return err
}
