package ui

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/admin"
)

// groupsData is the open cases by failure.
type groupsData struct {
	Groups  []admin.Group
	Risk    risk
	SeesAll bool // see seesAll
}

func (s *server) groups(rq *request) {
	groups, more, err := s.admin.Groups(rq.ctx, rq.Actor)
	if err != nil {
		rq.failed(err)
		return
	}
	rq.show(http.StatusOK, "groups", groupsData{groups, riskOf(groups, more), rq.seesAll(nil)})
}

// casesData is a page of cases, the one due earliest first.
type casesData struct {
	Type, Kind, Owner, Who, Failure string
	Rows                            int          // of a page
	Group                           *admin.Group // of the failure
	GroupSums                       []string
	Lines                           []admin.Line // each with its case
	pager
	Actions []string
	SeesAll bool // see seesAll
}

// All reports whether all cases that are open would be listed: only then does an empty list say that nothing waits.
func (d casesData) All() bool { return d.Type+d.Kind+d.Owner+d.Who+d.Failure == "" && d.First == "" }

// manyRows is a page for an incident: what failed alike is put right at one press. The address of the page that asks names
// as many entries in less than the 8 KB that proxies take.
const manyRows = 200

// RowChoices are how many rows a page may have.
func (casesData) RowChoices() []int { return []int{pageSize, manyRows} }

func (s *server) cases(rq *request) {
	q := rq.r.URL.Query()
	data := casesData{Type: q.Get("type"), Kind: q.Get("kind"), Owner: q.Get("owner"), Who: strings.TrimSpace(q.Get("who")), Failure: q.Get("failure"), Rows: pageSize}
	if q.Get("rows") == strconv.Itoa(manyRows) {
		data.Rows = manyRows
	}
	filter := admin.CaseFilter{BusinessType: data.Type, Limit: data.Rows, Cursor: cursor(q)}
	switch {
	case data.Who != "": // a name says more than the choice beside it
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
			rq.failed(err)
			return
		}
	}
	page, err := s.admin.CaseLines(rq.ctx, rq.Actor, filter)
	if err == nil && data.Failure != "" {
		err = s.groupOf(rq, &data, filter.Fingerprint)
	}
	if err != nil {
		rq.failed(err)
		return
	}
	data.Lines, data.SeesAll = page.Lines, rq.seesAll(nil)
	data.pager = pages(rq.r.URL, page.Next)
	data.Actions = append(rq.actionsOn(data.Lines), rq.onCases(data.Lines)...)
	rq.show(http.StatusOK, "cases", data)
}

// groupOf finds the sums of the failure that a page is about.
func (s *server) groupOf(rq *request, data *casesData, failure admin.Fingerprint) error {
	groups, _, err := s.admin.GroupsOf(rq.ctx, rq.Actor, data.Type, failure)
	if len(groups) > 0 {
		data.Group = &groups[0]
		data.GroupSums = riskOf(groups[:1], false).Sums
	}
	return err
}
