package oteltest

import (
	"cmp"
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	var rules struct{ Groups []struct{ Rules []alert } }
	require.NoError(t, yaml.Unmarshal(text, &rules))
	for _, group := range rules.Groups {
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// Each case is one situation, evaluated in its last minute.
// Failure: F129
func TestAlertsFireInTheirSituations(t *testing.T) {
	t.Parallel()
	const well = `
  compensator_ready{job="shop",instance="a",compensator_log="shop"} 1x60
  compensator_queue_up{job="shop",instance="a",compensator_log="shop"} 1x60
`
	const waits = `
  compensator_entry_oldest_overdue_seconds{job="shop",instance="a",compensator_log="shop",messaging_destination_name="refund"} 0+60x60
`
	for name, tt := range map[string]struct {
		load  string
		pages []string
		told  []string      // expected alerts of severity ticket
		at    time.Duration // when the rules are evaluated; 0: after an hour
	}{
		"all is well":     {load: well},
		"nothing at all":  {load: "\n  up{job=\"shop\"} 0x60\n", pages: []string{"CompensatorAbsent"}},
		"a fleet is gone": {load: strings.ReplaceAll(well, "1x60", "1x30 stale"), pages: []string{"CompensatorAbsent", "CompensatorGone"}},
		"one service of two is gone": {load: well + `
  compensator_ready{job="mail",instance="b",compensator_log="mail"} 1x30 stale
`, pages: []string{"CompensatorGone"}},
		"one service of two has been gone since Friday": {load: strings.ReplaceAll(well, "1x60", "1x3600") + `
  compensator_ready{job="mail",instance="b",compensator_log="mail"} 1x30 stale
`, pages: []string{"CompensatorGone"}, at: 60 * time.Hour},
		"one log of two has no process any more": {load: well + `
  compensator_ready{job="shop",instance="b",compensator_log="mail"} 1x30 stale
`, pages: []string{"CompensatorGone"}},
		"one service of two was shut down last week": {load: strings.ReplaceAll(well, "1x60", "1x10000") + `
  compensator_ready{job="mail",instance="b",compensator_log="mail"} 1x30 stale
`, at: 160 * time.Hour},
		"one process of two is gone": {load: well + `
  compensator_ready{job="shop",instance="b",compensator_log="shop"} 1x30 stale
`},
		"a process is not ready": {load: strings.Replace(well, "1x60", "0x60", 1), pages: []string{"CompensatorNotReady"}},
		"the queue is down":      {load: well + "\n  compensator_queue_up{job=\"shop\",instance=\"b\",compensator_log=\"shop\"} 0x60\n", told: []string{"CompensatorQueueDown"}},
		"entries wait":           {load: well + waits, pages: []string{"CompensatorOverdue"}},
		"entries of a paused type wait": {load: well + waits + `
  compensator_type_paused_seconds{job="shop",instance="b",compensator_log="shop",messaging_destination_name="refund"} 0+50x60
`},
		"entries wait, and another type is paused": {load: well + waits + `
  compensator_type_paused_seconds{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail"} 0+50x60
`, pages: []string{"CompensatorOverdue"}},
		"a type is paused for long": {load: well + `
  compensator_type_paused_seconds{job="shop",instance="a",compensator_log="shop",messaging_destination_name="refund"} 90000+60x60
`, told: []string{"CompensatorPaused"}},
		"one mail is dead": {load: well + `
  compensator_entry_waiting{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_state="dead"} 0x30 1x30
  compensator_entry_settled_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_state="dead",compensator_ended_by="permanent"} 0x30 1x30
`, told: []string{"CompensatorDeadEntries"}},
		"many die": {load: well + `
  compensator_entry_waiting{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_state="dead"} 0+5x60
  compensator_entry_settled_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_state="dead",compensator_ended_by="exhausted"} 0+5x60
`, pages: []string{"CompensatorDying"}, told: []string{"CompensatorDeadEntries"}},
		"many died before the first scrape of a new process": {load: well + `
  compensator_entry_waiting{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_state="dead"} 0x52 30x8
  compensator_entry_settled_total{job="shop",instance="b",compensator_log="shop",messaging_destination_name="mail",compensator_state="dead",compensator_ended_by="exhausted"} _x53 30x7
`, pages: []string{"CompensatorDying"}, told: []string{"CompensatorDeadEntries"}},
		"many died long ago, and the process could not be scraped for half an hour": {load: well + `
  compensator_entry_settled_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_state="dead",compensator_ended_by="exhausted"} 30x20 _x34 30x5
`},
		"many died at once, an hour after the process was started again": {load: well + `
  compensator_entry_settled_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_state="dead",compensator_ended_by="exhausted"} 3x20 _x30 500x5 502x4
`, pages: []string{"CompensatorDying"}},
		"fewer died at once than before the process was started again": {load: well + `
  compensator_entry_settled_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_state="dead",compensator_ended_by="exhausted"} 300x20 _x30 40x9
`, pages: []string{"CompensatorDying"}},
		"many died in a process that was then started again": {load: well + `
  compensator_entry_settled_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_state="dead",compensator_ended_by="exhausted"} 3x46 60x3 1x11
`, pages: []string{"CompensatorDying"}},
		"many died in a process that is gone": {load: well + `
  compensator_entry_settled_total{job="shop",instance="b",compensator_log="shop",messaging_destination_name="mail",compensator_state="dead",compensator_ended_by="exhausted"} 3x46 60x3
`, pages: []string{"CompensatorDying"}},
		"few die, and a process was started again": {load: well + `
  compensator_entry_settled_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_state="dead",compensator_ended_by="exhausted"} 300x30 _x20 3x9
`},
		"many outcomes came late before the first scrape": {load: well + `
  compensator_attempt_dropped_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail"} _x53 400x7
`, told: []string{"CompensatorDroppedOutcomes"}},
		"many outcomes came late long ago": {load: well + `
  compensator_attempt_dropped_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail"} 400x20 _x34 400x5
`},
		"much is at risk": {load: well + `
  compensator_case_value_at_risk_major{job="shop",instance="a",compensator_log="shop",compensator_currency="CNY"} 318220x60
`, pages: []string{"CompensatorValueAtRisk"}},
		"a little is at risk": {load: well + `
  compensator_case_value_at_risk_major{job="shop",instance="a",compensator_log="shop",compensator_currency="CNY"} 9999.99x60
`},
		"an outcome is unknown": {load: well + `
  compensator_case_open{job="shop",instance="a",compensator_log="shop",messaging_destination_name="transfer",compensator_case_kind="outcome unknown"} 0x30 1x30
`, told: []string{"CompensatorOutcomeUnknown"}},
		"an outcome is known": {load: well + `
  compensator_case_open{job="shop",instance="a",compensator_log="shop",messaging_destination_name="transfer",compensator_case_kind="dead"} 1x60
`},
		"a case is past due": {load: well + `
  compensator_case_past_due_seconds{job="shop",instance="a",compensator_log="shop"} 0+60x60
`, pages: []string{"CompensatorCasePastDue"}},
		"handlers fail after their entries were completed or cancelled": {load: well + `
  compensator_attempt_dropped_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_ended_by="complete"} 0+2x60
  compensator_attempt_dropped_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_ended_by="cancel"} 0+2x60
  compensator_attempt_dropped_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_ended_by="person"} 0+2x60
`},
		"outcomes come after another process has ended the entries": {load: well + `
  compensator_attempt_dropped_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail",compensator_ended_by="handler"} 0+2x60
`, told: []string{"CompensatorDroppedOutcomes"}},
		"entries have waited for their limit for less than an hour": {load: well + `
  compensator_entry_oldest_overdue_seconds{job="shop",instance="a",compensator_log="shop",messaging_destination_name="refund"} 0+50x60
  compensator_limit_waiting{job="shop",instance="a",compensator_log="shop",messaging_destination_name="refund"} 3 0 0 4x57
`},
		"entries have waited for their limit for more than an hour": {load: well + `
  compensator_entry_oldest_overdue_seconds{job="shop",instance="a",compensator_log="shop",messaging_destination_name="refund"} 0+90x60
  compensator_limit_waiting{job="shop",instance="a",compensator_log="shop",messaging_destination_name="refund"} 4x57 0 0 0
`, told: []string{"CompensatorLimited"}},
		"entries are overdue, and another type waits for its limit": {load: well + waits + `
  compensator_limit_waiting{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail"} 4x60
`, pages: []string{"CompensatorOverdue"}},
		"a handler is stuck, a breaker open, and outcomes come late": {load: well + `
  compensator_attempt_stuck{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail"} 1x60
  compensator_breaker_open{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail"} 1x60
  compensator_attempt_dropped_total{job="shop",instance="a",compensator_log="shop",messaging_destination_name="mail"} 0+2x60
`, told: []string{"CompensatorBreakerOpen", "CompensatorDroppedOutcomes", "CompensatorStuckHandlers"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept := minutes(t, tt.load)
			engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute})
			defer engine.Close()
			var pages, told []string
			for _, rule := range alerts(t) {
				query, err := engine.NewInstantQuery(t.Context(), kept, nil, rule.Expr, time.Unix(0, 0).Add(cmp.Or(tt.at, time.Hour)))
				require.NoError(t, err, rule.Alert)
				vector, err := query.Exec(t.Context()).Vector()
				require.NoError(t, err, rule.Alert)
				for _, found := range vector {
					log := found.Metric.Get("compensator_log")
					assert.True(t, log != "" || rule.Alert == "CompensatorAbsent", "%s must say which log of the service it is about", rule.Alert)
				}
				switch {
				case len(vector) == 0:
				case rule.Labels["severity"] == "page":
					pages = append(pages, rule.Alert)
				default:
					told = append(told, rule.Alert)
				}
				query.Close()
			}
			slices.Sort(pages)
			slices.Sort(told)
			assert.Equal(t, tt.pages, pages, "alerts that page somebody")
			assert.Equal(t, tt.told, told, "alerts that open a ticket")
		})
	}
}

type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

type series []storage.Series

// minutes parses series in the notation of promtool's tests, with one sample a minute.
func minutes(t *testing.T, text string) (all series) {
	t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		of, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(line)
		require.NoError(t, err, line)
		var samples []chunks.Sample
		for i, v := range values {
			if !v.Omitted {
				samples = append(samples, sample{at: int64(i) * time.Minute.Milliseconds(), value: v.Value})
			}
		}
		all = append(all, storage.NewListSeries(of, samples))
	}
	return all
}

func (s series) Querier(int64, int64) (storage.Querier, error) { return s, nil }
func (s series) Close() error                                  { return nil }

func (s series) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &seriesSet{at: -1}
	for _, one := range s {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(one.Labels().Get(m.Name)) }) {
			found.all = append(found.all, one)
		}
	}
	return found
}

func (s series) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (s series) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

type seriesSet struct {
	all []storage.Series
	at  int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// Failure: F129
func TestEveryAlertSaysWhatToDo(t *testing.T) {
	t.Parallel()
	const docs = "https://compensator-go.github.io/compensator/"
	heading := regexp.MustCompile(`(?m)^#+ (.+)$`)
	for _, rule := range alerts(t) {
		page, anchor, found := strings.Cut(strings.TrimPrefix(rule.Annotations["runbook_url"], docs), "#")
		require.True(t, found, "%s: %s", rule.Alert, rule.Annotations["runbook_url"])
		text, err := os.ReadFile("../../../docs/" + page + ".md")
		require.NoError(t, err, rule.Alert)
		var anchors []string
		for _, match := range heading.FindAllStringSubmatch(string(text), -1) {
			anchors = append(anchors, strings.ReplaceAll(strings.ToLower(match[1]), " ", "-"))
		}
		assert.Contains(t, anchors, anchor, rule.Alert)
		assert.Contains(t, []string{"page", "ticket"}, rule.Labels["severity"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		assert.NotEmpty(t, rule.Annotations["description"], rule.Alert)
		if rule.Alert != "CompensatorAbsent" {
			assert.Contains(t, rule.Annotations["summary"], "{{ with $labels.compensator_log }} (log {{ . }}){{ end }}", rule.Alert)
		}
	}
}
