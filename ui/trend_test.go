package ui

import (
	"encoding/xml"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compensator-go/compensator/admin"
)

func chartOf(t *testing.T, span time.Duration, over string, deploys ...admin.Deploy) string {
	t.Helper()
	to := time.Date(2026, 11, 28, 15, 0, 0, 0, time.UTC)
	points := make([]admin.TrendPoint, 180)
	for i := range points {
		points[i].At = to.Add(span / 180 * time.Duration(i-180))
	}
	points[5].Recorded = 1
	pages, err := parsePages()
	if err != nil {
		t.Fatal(err)
	}
	rq := &request{words: languages[0], s: &server{base: "/ops/"}, r: httptest.NewRequest("GET", "/ops/?over="+over, nil)}
	chart, err := rq.newTrend(admin.Trend{From: to.Add(-span), To: to, Period: span / 180, Points: points}, deploys, "", func(string) (string, error) { return "", nil })
	if err != nil {
		t.Fatal(err)
	}
	var html strings.Builder
	if err := pages["stats"].ExecuteTemplate(&html, "trend", trendPart{rq, chart}); err != nil {
		t.Fatal(err)
	}
	return html.String()
}

type svgMark struct {
	XMLName xml.Name
	X1      string `xml:"x1,attr"`
	Y1      string `xml:"y1,attr"`
	Y2      string `xml:"y2,attr"`
	X       string `xml:"x,attr"`
	Y       string `xml:"y,attr"`
	Anchor  string `xml:"text-anchor,attr"`
	Before  string `xml:",chardata"` // text without that of tspan
}

func marksIn(t *testing.T, html string) (label string, lines, texts []svgMark) {
	t.Helper()
	at := strings.Index(html, `<svg class="marks"`)
	if at < 0 {
		return "", nil, nil
	}
	var drawn struct {
		Label string    `xml:"aria-label,attr"`
		Marks []svgMark `xml:",any"`
	}
	if err := xml.Unmarshal([]byte(html[at:]), &drawn); err != nil {
		t.Fatal(err)
	}
	for _, m := range drawn.Marks {
		if m.XMLName.Local == "line" {
			lines = append(lines, m)
		} else {
			texts = append(texts, m)
		}
	}
	return drawn.Label, lines, texts
}

func TestDeploysAreMarkedInTheChart(t *testing.T) {
	at := func(hour, minute int) time.Time { return time.Date(2026, 11, 28, hour, minute, 0, 0, time.UTC) }
	html := chartOf(t, admin.TrendHours, "3h", admin.Deploy{At: at(11, 59), Build: "before"}, admin.Deploy{At: at(12, 0), Build: "v1.2.2"},
		admin.Deploy{At: at(14, 5), Build: "v1.2.3"}, admin.Deploy{At: at(15, 0), Build: "after"})
	label, lines, texts := marksIn(t, html)
	if want := "New versions: 2026-11-28 14:05 UTC build v1.2.3. 2026-11-28 12:00 UTC build v1.2.2."; label != want {
		t.Errorf("screen readers read %q, want %q", label, want)
	}
	if len(lines) != 2 || len(texts) != 2 {
		t.Fatalf("%d lines and %d labels, want 2 each: %s", len(lines), len(texts), html)
	}
	for i, want := range []struct{ x, y, anchor, text string }{{"69.44%", "0", "end", "14:05 v1.2.3"}, {"0.00%", "15", "", "12:00 v1.2.2"}} {
		if lines[i].X1 != want.x || lines[i].Y1 != want.y || lines[i].Y2 != "174" { // two rows of labels, and four lanes of 36
			t.Errorf("line %d is %+v, want %+v", i, lines[i], want)
		}
		if got := texts[i]; got.X != want.x || got.Y != want.y || got.Anchor != want.anchor || got.Before != want.text {
			t.Errorf("label %d is %+v, want %+v", i, got, want)
		}
	}
	if !strings.Contains(html, `<tspan> build</tspan>`) || !strings.Contains(html, "<li>2026-11-28 14:05 UTC build v1.2.3</li>") {
		t.Errorf("the word or the list is missing: %s", html)
	}
	if _, lines, _ := marksIn(t, chartOf(t, admin.TrendHours, "3h")); lines != nil {
		t.Errorf("a chart without deploys has %v", lines)
	}
}

// Each deploy must have a line, and the newest four a label.
func TestManyDeploysHaveFewLabels(t *testing.T) {
	var deploys []admin.Deploy
	for day := range 6 {
		deploys = append(deploys, admin.Deploy{At: time.Date(2026, 11, 22+day, 9, 30, 0, 0, time.UTC), Build: "v0.0.0-20261122093000-abcdef123456+dirty"})
	}
	label, lines, texts := marksIn(t, chartOf(t, admin.TrendWeek, "7d", deploys...))
	if len(lines) != 6 || len(texts) != maxMarkLabels || strings.Count(label, "v0.0.0-20261122093000-abcdef123456+dirty") != 6 {
		t.Fatalf("%d lines, %d labels, %q", len(lines), len(texts), label)
	}
	if texts[0].Before != "11-27 09:30 abcdef123456" {
		t.Errorf("the first label is %q", texts[0].Before)
	}
	tops := make([]string, len(lines))
	for i, line := range lines {
		tops[i] = line.Y1
	}
	if want := []string{"0", "15", "30", "45", "60", "60"}; !slices.Equal(tops, want) {
		t.Errorf("the lines begin at %v, want %v", tops, want)
	}
}

func TestVersionsInLabelsAreShort(t *testing.T) {
	for build, want := range map[string]string{
		"v1.4.2": "v1.4.2", "0123456789ab": "0123456789ab", "v0.0.0-20261122093000-abcdef123456": "abcdef123456", "v1.4.3-0.20261122093000-abcdef123456": "abcdef123456",
		"2026-11-22-of-lin": "2026-11-22-…", "版本": "版本",
	} {
		if got := shortBuild(build); got != want {
			t.Errorf("%q is %q, want %q", build, got, want)
		}
	}
}

func TestTicksAreRoundTimesOfTheZone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone, to string
		length   time.Duration
		want     string
	}{
		{"UTC", "2026-11-28T09:02:00Z", admin.TrendHours, "06:30 07:00 07:30 08:00 08:30 09:00"},
		{"Asia/Kolkata", "2026-11-28T18:40:00Z", admin.TrendHours, "21:30 22:00 22:30 23:00 23:30 11-29"},
		{"Asia/Shanghai", "2026-11-28T09:00:00Z", admin.TrendDay, "20:00 11-28 04:00 08:00 12:00 16:00"},
		{"Europe/Berlin", "2026-10-25T20:00:00Z", admin.TrendDay, "10-25 04:00 08:00 12:00 16:00 20:00"},
		{"Europe/Berlin", "2026-10-28T09:00:00Z", admin.TrendWeek, "10-22 10-23 10-24 10-25 10-26 10-27 10-28"},
	} {
		to, err := time.Parse(time.RFC3339, c.to)
		if err != nil {
			t.Fatal(err)
		}
		var chart trend
		chart.addTicks(to.Add(-c.length), to, zoneOf(t, c.zone))
		var texts []string
		for _, tick := range chart.Ticks {
			texts = append(texts, tick.Text)
		}
		if got := strings.Join(texts, " "); got != c.want {
			t.Errorf("%s until %s in %s: %s, want %s", c.length, c.to, c.zone, got, c.want)
		}
	}
}
