package ui

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/admin"
)

// trend is a chart of the counts of entries over time. The page also shows the counts as text, in a table of the Rows.
type trend struct {
	Type  string // empty: all types
	Over  string // name of the span of time that the chart shows
	Spans []span
	Lanes []lane
	Bins  []bin
	Width int    // width of the chart's view box, in bins
	Every string // time that a bin covers, for people
	Ticks []tick
	Grid  string // a line for each tick and a line below each lane, as an SVG path
	Marks []mark // deploys, newest first
	Rows  []trendRow
	Since string // sentence that compares the newest failures with those before; empty if nothing was counted
	None  bool   // nothing was counted
}

type span struct {
	Name string
	Link string
	Here bool
}

type lane struct {
	Name      string // recorded, succeeded, failed or dead
	Sum, Most string
	Path      string // bars, as an SVG path
	Y         int    // upper end of the lane in the chart's view box
}

type bin struct {
	X    int
	Link string
	Text string

	DeadLink, DeadText string
}

type mark struct {
	X     string // place of the line, in percent of the chart's width
	Top   int    // upper end of the line, and of its label
	Label bool   // whether the line has a label
	Left  bool   // whether the label is left of the line
	Time  string // time in the label
	Build string // version in the label, see shortBuild
	Text  string // full time and version
}

type tick struct {
	X    string // place in percent of the chart's width
	Text string
}

type trendRow struct {
	From   time.Time
	Link   string
	Values [len(lanes)]trendValue
}

type trendValue struct{ N, Link string }

const (
	laneHeight   = 30
	laneGap      = 6
	maxChartRows = 12 // rows of the table with the numbers of a chart

	markHeight    = 15 // height of a label of a deploy
	maxMarkLabels = 4  // number of deploys with a label. The newest deploys have one
	maxMarkBuild  = 12 // characters of the version in a label
)

var lanes = [...]string{"recorded", "succeeded", "failed", "dead"}

const deadLane = len(lanes) - 1

// DeadY and DeadHeight are the place of the last lane in the chart.
func (trend) DeadY() int      { return deadLane * (laneHeight + laneGap) }
func (trend) DeadHeight() int { return laneHeight + laneGap }

func valuesOf(p admin.TrendPoint) [len(lanes)]uint64 {
	return [...]uint64{p.Recorded, p.Succeeded, p.Failed, p.Dead}
}

type trendSpan struct {
	name     string // value of the parameter "over" in the URL
	length   time.Duration
	compared time.Duration // length of the newest span of time, which the page compares with an equally long one
}

var trendSpans = []trendSpan{{"3h", admin.TrendHours, 15 * time.Minute}, {"24h", admin.TrendDay, time.Hour}, {"7d", admin.TrendWeek, 24 * time.Hour}}

func (rq *request) chosenSpan() trendSpan {
	for _, o := range trendSpans {
		if rq.r.URL.Query().Get("over") == o.name {
			return o
		}
	}
	return trendSpans[0]
}

func (rq *request) newTrend(adminTrend admin.Trend, deploys []admin.Deploy, businessType string, link func(spanName string) (string, error)) (t trend, err error) {
	t.Type = businessType
	if t.Marks, err = rq.newMarks(adminTrend, deploys); err != nil {
		return t, err
	}
	t.Over = rq.chosenSpan().name
	for _, o := range trendSpans {
		s := span{Name: o.name, Here: o.name == t.Over}
		if s.Link, err = link(o.name); err != nil {
			return t, err
		}
		t.Spans = append(t.Spans, s)
	}
	if t.Every, err = rq.Span(adminTrend.Period); err != nil {
		return t, err
	}
	t.Width, t.None = len(adminTrend.Points), true
	t.addTicks(adminTrend.From, adminTrend.To, rq.location())
	for i, name := range lanes {
		t.Lanes = append(t.Lanes, newLane(name, i, adminTrend.Points))
		t.None = t.None && t.Lanes[i].Path == ""
	}
	for i, p := range adminTrend.Points {
		if p == (admin.TrendPoint{At: p.At}) {
			continue
		}
		b := bin{X: i}
		if b.Link, err = rq.recordedLink(businessType, p.At, p.At.Add(adminTrend.Period)); err != nil {
			return t, err
		}
		values := valuesOf(p)
		if b.Text, err = rq.T("trend.point", rq.formatTime(p.At, "2006-01-02 15:04"), values[0], values[1], values[2], values[3]); err != nil {
			return t, err
		}
		if p.Dead > 0 {
			if b.DeadLink, err = rq.deadLink(businessType, p.At, p.At.Add(adminTrend.Period)); err != nil {
				return t, err
			}
			if b.DeadText, err = rq.T("trend.point_dead", rq.formatTime(p.At, "2006-01-02 15:04"), p.Dead); err != nil {
				return t, err
			}
		}
		t.Bins = append(t.Bins, b)
	}
	if t.Since, err = rq.compareNewest(adminTrend); err != nil {
		return t, err
	}
	for points := range slices.Chunk(adminTrend.Points, (len(adminTrend.Points)+maxChartRows-1)/maxChartRows) {
		row, err := rq.newTrendRow(businessType, points, adminTrend.Period)
		if err != nil {
			return t, err
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// addTicks gives a tick at midnight the date.
func (t *trend) addTicks(from, to time.Time, zone *time.Location) {
	minutes := 30
	switch length := to.Sub(from); {
	case length > admin.TrendDay:
		minutes = 24 * 60
	case length > admin.TrendHours:
		minutes = 4 * 60
	}
	var grid strings.Builder
	year, month, day := from.In(zone).Date()
	for n := 0; ; n++ {
		at := time.Date(year, month, day, 0, n*minutes, 0, 0, zone)
		if !at.Before(to) {
			break
		}
		if at.Before(from) {
			continue
		}
		part := float64(at.Sub(from)) / float64(to.Sub(from))
		fmt.Fprintf(&grid, "M%.2f 0V%d", part*float64(t.Width), t.Height())
		layout := "15:04"
		if at.Hour() == 0 && at.Minute() == 0 {
			layout = "01-02"
		}
		t.Ticks = append(t.Ticks, tick{percent(part), at.Format(layout)})
	}
	for i := range lanes {
		fmt.Fprintf(&grid, "M0 %dH%d", (i+1)*(laneHeight+laneGap), t.Width)
	}
	t.Grid = grid.String()
}

func percent(part float64) string { return strconv.FormatFloat(100*part, 'f', 2, 64) + "%" }

// uncounted is the age below which counts may be incomplete, because each process stores its counts only once a minute.
const uncounted = 2 * time.Minute

// compareNewest compares the failures of the newest complete periods with those of as many periods before.
func (rq *request) compareNewest(t admin.Trend) (string, error) {
	length := rq.chosenSpan().compared
	end := len(t.Points) - int(max(1, uncounted/t.Period))
	n := int(length / t.Period)
	newest, before := sumOf(t.Points[end-n:end]), sumOf(t.Points[end-2*n:end-n])
	if newest == before && newest == (admin.TrendPoint{}) {
		return "", nil
	}
	span, err := rq.Span(length)
	if err != nil {
		return "", err
	}
	return rq.T("trend.compared", span, rq.formatTime(t.Points[end].At, "15:04"), newest.Dead, newest.Failed, before.Dead, before.Failed)
}

// sumOf returns a sum without a time.
func sumOf(points []admin.TrendPoint) (sum admin.TrendPoint) {
	for _, p := range points {
		sum.Recorded += p.Recorded
		sum.Succeeded += p.Succeeded
		sum.Failed += p.Failed
		sum.Dead += p.Dead
	}
	return sum
}

// newMarks gives each label its own row, so that labels do not overlap.
func (rq *request) newMarks(t admin.Trend, deploys []admin.Deploy) (marks []mark, err error) {
	layout := "15:04"
	if t.To.Sub(t.From) > admin.TrendDay {
		layout = "01-02 15:04"
	}
	for _, d := range slices.Backward(deploys) {
		if d.At.Before(t.From) || !d.At.Before(t.To) {
			continue
		}
		part := float64(d.At.Sub(t.From)) / float64(t.To.Sub(t.From))
		m := mark{X: percent(part), Top: min(len(marks), maxMarkLabels) * markHeight, Label: len(marks) < maxMarkLabels,
			Left: part > .25, Time: d.At.In(rq.location()).Format(layout), Build: shortBuild(d.Build)}
		if m.Text, err = rq.T("trend.deploy", rq.formatTime(d.At, "2006-01-02 15:04"), d.Build); err != nil {
			return nil, err
		}
		marks = append(marks, m)
	}
	return marks, nil
}

// commitVersion finds the commit in the version that Go gives to a program built from a commit without a tag.
var commitVersion = regexp.MustCompile(`[-.]\d{14}-([0-9a-f]{12})(\+|$)`)

func shortBuild(build string) string {
	if commit := commitVersion.FindStringSubmatch(build); commit != nil {
		build = commit[1]
	}
	if runes := []rune(build); len(runes) > maxMarkBuild {
		return string(runes[:maxMarkBuild-1]) + "…"
	}
	return build
}

// MarksHeight returns the height of the labels of all marks.
func (t trend) MarksHeight() int { return min(len(t.Marks), maxMarkLabels) * markHeight }

// MarksEnd returns the lower end of the lines of all marks.
func (t trend) MarksEnd() int { return t.MarksHeight() + t.Height() }

// Height returns the height of the chart's view box.
func (trend) Height() int { return len(lanes) * (laneHeight + laneGap) }

func (rq *request) newTrendRow(businessType string, points []admin.TrendPoint, period time.Duration) (row trendRow, err error) {
	sum, to := sumOf(points), points[len(points)-1].At.Add(period)
	row.From = points[0].At
	for i, n := range valuesOf(sum) {
		row.Values[i].N = groupDigits(strconv.FormatUint(n, 10))
	}
	if sum.Dead > 0 {
		if row.Values[deadLane].Link, err = rq.deadLink(businessType, row.From, to); err != nil {
			return row, err
		}
	}
	row.Link, err = rq.recordedLink(businessType, row.From, to)
	return row, err
}

// deadLink returns the address of the entries that became dead between from and to, and that are still dead.
func (rq *request) deadLink(businessType string, from, to time.Time) (string, error) {
	return rq.Link("entries", "type", businessType, "state", "dead", "ended_from", rq.timeValue(from), "ended_to", rq.timeValue(to))
}

func (rq *request) recordedLink(businessType string, from, to time.Time) (string, error) {
	return rq.Link("entries", "type", businessType, "from", rq.timeValue(from), "to", rq.timeValue(to))
}

func (rq *request) timeValue(at time.Time) string { return at.In(rq.location()).Format(time.RFC3339) }

// newLane scales the highest bar to the height of the lane.
func newLane(name string, index int, points []admin.TrendPoint) lane {
	var sum, maximum uint64
	for _, p := range points {
		n := valuesOf(p)[index]
		sum += n
		maximum = max(maximum, n)
	}
	l := lane{Name: name, Sum: groupDigits(strconv.FormatUint(sum, 10)), Most: groupDigits(strconv.FormatUint(maximum, 10)), Y: index * (laneHeight + laneGap)}
	var path strings.Builder
	for i, p := range points {
		if n := valuesOf(p)[index]; n > 0 {
			high := max(1, int(n*laneHeight/maximum))
			fmt.Fprintf(&path, "M%d.1 %dv-%dh.8v%dz", i, l.Y+laneHeight+laneGap, high, high)
		}
	}
	l.Path = path.String()
	return l
}

type statsData struct {
	Trend   trend
	Rows    []rateRow // one for each type
	Backlog string    // how long ago counts above 1,000 were made: see overviewData.Backlog; empty: no recent count
	Sorts   []sorting

	Groups []admin.Group // if the page is about one type: the failures of the type with the most cases
	Risk   risk          // sums of all open cases of the type

	// These are set if the page is about one type.
	NoHandler bool // whether entries of the type wait because no process has a handler
	Paused    *admin.Paused
	Broken    *admin.Broken
	Limited   *admin.Limited
	MayPause  bool
}

type rateRow struct {
	Type, Link                             string
	Ended, Failing, Took50, Took95, Took99 string
	Late50, Late99, Dead, Waiting, Due     string
	sortValues                             [len(sortings)]float64
}

var sortings = [...]string{"ended", "failing", "took50", "took95", "took99", "late50", "late99", "dead", "waiting", "due"}

type sorting struct {
	Name, Link string
	Here       bool
}

func (s *server) showStats(rq *request) {
	q := rq.r.URL.Query()
	businessType, sort := q.Get("type"), q.Get("sort")
	adminTrend, err := s.admin.Trend(rq.ctx, rq.Actor, rq.chosenSpan().length, businessType)
	if err != nil {
		rq.showFailure(err)
		return
	}
	overview, err := s.admin.Overview(rq.ctx, rq.Actor)
	// ErrNotAllowed means that the person may see no type. Show this person an empty page instead of an error.
	if err != nil && !errors.Is(err, admin.ErrNotAllowed) {
		rq.showFailure(err)
		return
	}
	data, err := rq.newStats(adminTrend, s.readInstances(rq).Deploys, overview, businessType, sort)
	if err != nil {
		rq.showFailure(err)
		return
	}
	if businessType != "" {
		unregistered, err := s.admin.Unregistered(rq.ctx, rq.Actor, businessType)
		if err != nil {
			rq.showFailure(err)
			return
		}
		data.NoHandler = len(unregistered) > 0
		data.MayPause = rq.MayPause(businessType)
		if at := slices.IndexFunc(overview.Types, func(t admin.TypeOverview) bool { return t.Type == businessType }); at >= 0 {
			data.Paused, data.Broken, data.Limited = overview.Types[at].Paused, overview.Types[at].Broken, overview.Types[at].Limited
		}
		groups, hasMore, err := s.admin.GroupsOf(rq.ctx, rq.Actor, businessType, admin.Fingerprint{})
		if err != nil {
			rq.showFailure(err)
			return
		}
		data.Risk, data.Groups = newRisk(groups, hasMore), groups[:min(len(groups), maxOverviewGroups)]
	}
	if !rq.unchanged("stats", data) {
		rq.showPage(http.StatusOK, "stats", data)
	}
}

func (rq *request) newStats(adminTrend admin.Trend, deploys []admin.Deploy, overview admin.Overview, businessType, sort string) (data statsData, err error) {
	name := rq.chosenSpan().name
	data.Trend, err = rq.newTrend(adminTrend, deploys, businessType, func(spanName string) (string, error) {
		return rq.Link("stats", "over", spanName, "type", businessType, "sort", sort)
	})
	for _, column := range append([]string{"type"}, sortings[:]...) {
		if err != nil {
			return data, err
		}
		columnHead := sorting{Name: column, Here: column == cmp.Or(sort, "type")}
		columnHead.Link, err = rq.Link("stats", "over", name, "type", businessType, "sort", column)
		data.Sorts = append(data.Sorts, columnHead)
	}
	if overview.BacklogAge > 0 {
		if data.Backlog, err = rq.Span(overview.BacklogAge); err != nil {
			return data, err
		}
	}
	for _, t := range withWaiting(adminTrend.Types, overview.Types, businessType) {
		row, err := rq.newRateRow(t, name, adminTrend.To.Sub(countedFrom(adminTrend)))
		if err == nil {
			err = rq.addWaiting(&row, overview.Types)
		}
		if err != nil {
			return data, err
		}
		data.Rows = append(data.Rows, row)
	}
	if by := slices.Index(sortings[:], sort); by >= 0 {
		slices.SortStableFunc(data.Rows, func(a, b rateRow) int { return cmp.Compare(b.sortValues[by], a.sortValues[by]) })
	}
	return data, err
}

// countedFrom returns the time of the first counts. Rates are computed from this time to the end of the chart. In a new
// log, rates from the start of the chart would be too low. Without counts, countedFrom returns the start of the chart.
func countedFrom(t admin.Trend) time.Time {
	for _, p := range t.Points {
		if p != (admin.TrendPoint{At: p.At}) {
			return p.At
		}
	}
	return t.From
}

func (rq *request) newRateRow(t admin.TypeTrend, name string, length time.Duration) (row rateRow, err error) {
	row = rateRow{Type: t.Type, Dead: groupDigits(strconv.FormatUint(t.Sum.Dead, 10))}
	perMinute := float64(t.Sum.Ended()) / length.Minutes()
	row.Ended = strconv.FormatFloat(perMinute, 'f', 1, 64)
	row.sortValues[0], row.sortValues[7] = perMinute, float64(t.Sum.Dead)
	row.Failing = "–"
	if failing, ok := t.Failing(); ok {
		row.Failing, row.sortValues[1] = strconv.FormatFloat(100*failing, 'f', 1, 64)+" %", failing
	}
	for i, quantile := range []struct {
		text *string
		h    admin.Histogram
		q    float64
	}{{&row.Took50, t.Sum.Took, .5}, {&row.Took95, t.Sum.Took, .95}, {&row.Took99, t.Sum.Took, .99}, {&row.Late50, t.Sum.Late, .5}, {&row.Late99, t.Sum.Late, .99}} {
		d, ok := quantile.h.Quantile(quantile.q)
		if *quantile.text = "–"; ok {
			row.sortValues[2+i] = d.Seconds()
			if *quantile.text, err = rq.Took(d); err != nil {
				return row, err
			}
		}
	}
	row.Link, err = rq.Link("stats", "type", t.Type, "over", name)
	return row, err
}

// withWaiting adds types for which nothing was counted, because their entries may wait all the same.
func withWaiting(trends []admin.TypeTrend, types []admin.TypeOverview, businessType string) []admin.TypeTrend {
	all := slices.Clone(trends)
	for _, t := range types {
		if (businessType == "" || businessType == t.Type) && !slices.ContainsFunc(trends, func(known admin.TypeTrend) bool { return known.Type == t.Type }) {
			all = append(all, admin.TypeTrend{Type: t.Type})
		}
	}
	slices.SortFunc(all, func(a, b admin.TypeTrend) int { return strings.Compare(a.Type, b.Type) })
	return all
}

func (rq *request) addWaiting(row *rateRow, types []admin.TypeOverview) (err error) {
	row.Waiting, row.Due = "0", "–"
	at := slices.IndexFunc(types, func(t admin.TypeOverview) bool { return t.Type == row.Type })
	if at < 0 {
		return nil
	}
	n, hasMore := types[at].Waiting()
	row.Waiting, row.sortValues[8] = groupDigits(strconv.Itoa(n)), float64(n)
	if hasMore {
		row.Waiting, err = rq.T("at_least", row.Waiting)
	}
	if b := types[at].Backlog; b != nil {
		row.Due, row.sortValues[9] = groupDigits(strconv.Itoa(b.Due)), float64(b.Due)
	}
	return err
}
