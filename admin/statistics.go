package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

type (
	Stat       = processlog.Stat       // counts of a type in a period
	StatCounts = processlog.StatCounts // what happened to the entries of a type
	StatFilter = processlog.StatFilter // selects counts for Statistics
	Histogram  = processlog.Histogram  // durations by bucket
)

// Statistics reads the counts that processes with Operations.Statistics have stored. The counts of the last two minutes
// may be missing, and those of the last minute of a killed process are lost. An invalid filter, or a log without
// statistics, is a *FieldError.
func (l *Log) Statistics(ctx context.Context, filter StatFilter) ([]Stat, error) {
	store := l.c.Operations()
	if store == nil {
		return nil, newNoStatisticsError()
	}
	if filter.Period < processlog.StatMinute || filter.Period%processlog.StatMinute != 0 {
		return nil, &compensator.FieldError{Field: "Period", Reason: fmt.Sprintf("%v: want a whole number of minutes", filter.Period)}
	}
	if filter.From.IsZero() || !filter.From.Before(filter.To) {
		return nil, &compensator.FieldError{Field: "From", Reason: "want a time before To"}
	}
	return store.Stats(ctx, filter)
}

func newNoStatisticsError() error {
	return &compensator.FieldError{Field: "Operations.Statistics", Reason: "is not set in the Compensator's Config"}
}

// Trend shows what happened over time, for the types that the actor may see.
type Trend struct {
	From   time.Time     `json:"from"`   // begin of the first point, by the database's clock
	To     time.Time     `json:"to"`     // end of the last point. Counts of the last two minutes may be missing
	Period time.Duration `json:"period"` // time that a point covers, in nanoseconds
	Points []TrendPoint  `json:"points"` // one for each period, all types together
	Types  []TypeTrend   `json:"types"`  // types for which something was counted, sorted by name
}

// TypeTrend has the counts of a type.
type TypeTrend struct {
	Type   string       `json:"type"`   // business type
	Sum    StatCounts   `json:"sum"`    // counts of the whole time
	Points []TrendPoint `json:"points"` // one for each period
}

// TrendPoint has the counts of a period.
type TrendPoint struct {
	At        time.Time `json:"at"`        // begin of the period
	Recorded  uint64    `json:"recorded"`  // see StatCounts
	Succeeded uint64    `json:"succeeded"` // entries that succeeded
	Failed    uint64    `json:"failed"`    // failed attempts
	Dead      uint64    `json:"dead"`      // entries that became dead
}

func (p *TrendPoint) addCounts(c *StatCounts) {
	p.Recorded += c.Recorded
	p.Succeeded += c.Succeeded
	p.Failed += c.Failed
	p.Dead += c.Dead
}

// Failing returns the share of attempts that failed, among those that failed or succeeded. ok is false if there was no
// such attempt.
func (t TypeTrend) Failing() (share float64, ok bool) {
	attempts := t.Sum.Failed + t.Sum.Succeeded + t.Sum.Compensated
	if attempts == 0 {
		return 0, false
	}
	return float64(t.Sum.Failed) / float64(attempts), true
}

// The spans of time that Trend can show.
const (
	TrendHours = 3 * time.Hour      // in minutes
	TrendDay   = 24 * time.Hour     // in periods of 10 minutes
	TrendWeek  = 7 * 24 * time.Hour // in hours
)

var trendPeriods = map[time.Duration]time.Duration{TrendHours: time.Minute, TrendDay: 10 * time.Minute, TrendWeek: time.Hour}

// history holds the counts of one span of time between two calls of readHistory. Processes may still add to the newest
// counts, so each call reads the newest counts again. Once an hour a call reads all counts again.
type history struct {
	stats         []Stat
	to            time.Time // end of the time that was read
	settledUntil  time.Time // counts before this time do not change any more
	completeUntil time.Time // time of the last call that read all counts
}

const (
	statsSettle = 15 * time.Minute // after this time, the counts of a period change only if a process could not store them in time
	statsChunk  = 12 * time.Hour   // length of the span of time whose counts one query reads
)

func newTrends() map[time.Duration]*cached[history] {
	trends := make(map[time.Duration]*cached[history])
	for span := range trendPeriods {
		trends[span] = newCached[history]()
	}
	return trends
}

// KeepsStatistics reports whether Operations.Statistics is set, so that Trend works.
func (d *Admin) KeepsStatistics() bool { return d.hasStatistics }

// Trend shows the counts of the last TrendHours, TrendDay or TrendWeek. Any other time is a *FieldError. It needs
// SeeOverview, and leaves out types that the actor may not see. Actors share one result for some seconds, as for
// Overview. If Operations.Statistics is not set, Trend returns a *FieldError. If businessType is not empty, Trend shows
// that type only.
func (d *Admin) Trend(ctx context.Context, a Actor, span time.Duration, businessType string) (Trend, error) {
	period := trendPeriods[span]
	if period == 0 {
		return Trend{}, &compensator.FieldError{Field: "time", Reason: fmt.Sprintf("%v: want %v, %v or %v", span, TrendHours, TrendDay, TrendWeek)}
	}
	if !d.KeepsStatistics() {
		return Trend{}, newNoStatisticsError()
	}
	cache := d.trends[span]
	h, _, err := cache.get(ctx, &d.actionCount, func(ctx context.Context) (history, error) { return d.readHistory(ctx, cache.lastValue, span, period) })
	if err != nil {
		return Trend{}, err
	}
	trend := Trend{Period: period, To: h.to}
	trend.From = trend.To.Add(-span)
	trend.Points = trend.emptyPoints()
	mayRead := d.rightsOf(a, SeeOverview)
	types := make(map[string]*TypeTrend)
	for i := range h.stats {
		s := &h.stats[i]
		at := int(s.At.Sub(trend.From) / period)
		if at < 0 || at >= len(trend.Points) || businessType != "" && s.BusinessType != businessType || !mayRead.holds(ctx, s.BusinessType) {
			continue
		}
		t := types[s.BusinessType]
		if t == nil {
			t = &TypeTrend{Type: s.BusinessType, Points: trend.emptyPoints()}
			types[s.BusinessType] = t
		}
		t.Sum.Add(s.StatCounts)
		t.Points[at].addCounts(&s.StatCounts)
		trend.Points[at].addCounts(&s.StatCounts)
	}
	for _, t := range types {
		trend.Types = append(trend.Types, *t)
	}
	slices.SortFunc(trend.Types, func(a, b TypeTrend) int { return strings.Compare(a.Type, b.Type) })
	return trend, nil
}

func (t *Trend) emptyPoints() []TrendPoint {
	points := make([]TrendPoint, t.To.Sub(t.From)/t.Period)
	for i := range points {
		points[i].At = t.From.Add(time.Duration(i) * t.Period)
	}
	return points
}

func (d *Admin) readHistory(ctx context.Context, previous history, span, period time.Duration) (h history, err error) {
	now, err := runQuery(ctx, d, d.log.Operations().StatsClock)
	if err != nil {
		return h, err
	}
	h = history{to: now.Truncate(period).Add(period), settledUntil: now.Add(-statsSettle).Truncate(period), completeUntil: previous.completeUntil}
	from := h.to.Add(-span)
	start := previous.settledUntil
	if now.Sub(previous.completeUntil) >= time.Hour || start.Before(from) {
		start, h.completeUntil = from, now
	}
	for _, s := range previous.stats {
		if !s.At.Before(from) && s.At.Before(start) {
			h.stats = append(h.stats, s)
		}
	}
	for at := start; at.Before(h.to); at = at.Add(statsChunk) {
		filter := StatFilter{From: at, To: at.Add(statsChunk), Period: period}
		if filter.To.After(h.to) {
			filter.To = h.to
		}
		newStats, err := runQuery(ctx, d, func(ctx context.Context) ([]Stat, error) { return d.log.Operations().Stats(ctx, filter) })
		if err != nil {
			return h, err
		}
		h.stats = append(h.stats, newStats...)
	}
	return h, nil
}
