package oteltest

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.yaml.in/yaml/v3"

	"github.com/compensator-go/compensator/otel"
)

const rulesFile = "../../../ops/prometheus/compensator.rules.yml"

// Failure: F129
func TestDashboardAndRulesUseReportedMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	exported, err := otelprom.New(otelprom.WithRegisterer(registry))
	require.NoError(t, err)
	w := newWorld(t, otel.Options{Log: "shop-1", MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exported))})
	w.live()
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	told := readPage(page.Body.String())
	require.NotEmpty(t, told)
	for _, expr := range append(boardExprs(t), ruleExprs(t)...) {
		parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
		require.NoErrorf(t, err, "%s", expr)
		requireTold(t, told, parsed)
	}
	if t.Failed() {
		t.Log(page.Body.String())
	}
}

var documentedMetric = regexp.MustCompile("(?m)^\\| `[\\w.]+` \\| `(\\w+)` \\| ([\\w -]+) \\| (.*?) \\|")

// error_type and compensator_ended_by are on some series only, so the scrape may lack them.
func TestDocsGiveThePrometheusNameAndTheLabelsOfEachMetric(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	exported, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo())
	require.NoError(t, err)
	w := newWorld(t, otel.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exported))})
	w.live()
	scraped := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(scraped, httptest.NewRequest("GET", "/metrics", nil))
	reported := make(map[string][]string)
	for name, labels := range readPage(scraped.Body.String()) {
		name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
		delete(labels, "le")
		for label := range labels {
			if !slices.Contains(reported[name], label) {
				reported[name] = append(reported[name], label)
			}
		}
		if reported[name] == nil {
			reported[name] = []string{}
		}
	}
	delete(reported, "target_info")
	page, err := os.ReadFile("../../../docs/reference/telemetry.md")
	require.NoError(t, err)
	documented := make(map[string]bool)
	for _, row := range documentedMetric.FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = true
		if !assert.Contains(t, reported, row[1], "reported") {
			continue
		}
		var labels []string
		for _, attribute := range regexp.MustCompile("`([a-z_.]+\\.[a-z_.]+)`").FindAllStringSubmatch(row[3], -1) {
			labels = append(labels, strings.ReplaceAll(attribute[1], ".", "_"))
		}
		for _, label := range reported[row[1]] {
			assert.Containsf(t, labels, label, "a label of %s on the page", row[1])
		}
		for _, label := range labels {
			if label != "error_type" && label != "compensator_ended_by" {
				assert.Containsf(t, reported[row[1]], label, "a label of %s in the scrape", row[1])
			}
		}
	}
	for name := range reported {
		assert.Truef(t, documented[name], "%s is not on the page", name)
	}
}

// told maps each reported metric to its labels and their values.
type told map[string]map[string][]string

var (
	line  = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? `)
	label = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

func readPage(text string) told {
	all := make(told)
	for _, match := range line.FindAllStringSubmatch(text, -1) {
		if all[match[1]] == nil {
			all[match[1]] = make(map[string][]string)
		}
		for _, pair := range label.FindAllStringSubmatch(match[2], -1) {
			all[match[1]][pair[1]] = append(all[match[1]][pair[1]], pair[2])
		}
	}
	return all
}

// fromPrometheus lists the labels that Prometheus itself adds.
var fromPrometheus = []string{"job", "instance"}

// A label in a grouping must exist on every metric that is grouped.
func requireTold(t *testing.T, all told, expr parser.Expr) {
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		if node, is := node.(*parser.VectorSelector); is {
			labels, there := all[node.Name]
			if !assert.Truef(t, there, "%s of %s", node.Name, expr) {
				return nil
			}
			var grouped []string
			for _, above := range path {
				if by, is := above.(*parser.AggregateExpr); is {
					grouped = append(grouped, by.Grouping...)
				}
			}
			for _, name := range grouped {
				assert.Truef(t, slices.Contains(fromPrometheus, name) || labels[name] != nil, "%s of %s", name, expr)
			}
			for _, m := range node.LabelMatchers {
				if m.Name == "__name__" || slices.Contains(fromPrometheus, m.Name) {
					continue
				}
				names := m.Matches
				if m.Type == promlabels.MatchNotRegexp { // Such a matcher names the values that it excludes.
					names = func(value string) bool { return !m.Matches(value) }
				}
				assert.Truef(t, slices.ContainsFunc(labels[m.Name], names), "%v of %s", m, expr)
			}
		}
		return nil
	})
}

// The gauges from the database are the same in every process and absent while the database does not answer. The value
// is true if the gauge is a count.
var ofTheLog = map[string]bool{"compensator_entry_waiting": true, "compensator_case_open": true, "compensator_case_value_at_risk_major": true,
	"compensator_type_paused_seconds": true, "compensator_entry_oldest_overdue_seconds": false, "compensator_case_past_due_seconds": false}

// Each process reports the gauges of its log, so a query must take the maximum per job and log, and may then add up the
// logs.
func TestGaugesOfTheLogCountOncePerLogAndAreNotZeroWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	asked := make(map[string]int)
	look := func(text string, alert bool) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		require.NoError(t, err, text)
		parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
			gauge, is := node.(*parser.VectorSelector)
			if !is {
				return nil
			}
			counts, is := ofTheLog[gauge.Name]
			if !is {
				return nil
			}
			asked[gauge.Name]++
			var first *parser.AggregateExpr // innermost aggregation of the gauge
			lasts := false
			for _, above := range path {
				if by, is := above.(*parser.AggregateExpr); is {
					first = by
				}
				_, over := above.(*parser.MatrixSelector)
				lasts = lasts || over
			}
			require.NotNil(t, first, text)
			assert.Equal(t, parser.ItemType(parser.MAX), first.Op, text)
			if counts || alert {
				assert.Subset(t, first.Grouping, []string{"job", "compensator_log"}, text)
			}
			assert.True(t, lasts || !alert, "%s of %s", gauge.Name, text)
			assert.NotContains(t, text, "vector(0)")
			return nil
		})
	}
	for _, text := range boardExprs(t) {
		look(text, false)
	}
	for _, text := range ruleExprs(t) {
		look(text, true)
	}
	assert.Len(t, asked, len(ofTheLog))
}

func boardExprs(t *testing.T) (exprs []string) {
	text, err := os.ReadFile(boardFile)
	require.NoError(t, err)
	var b board
	require.NoError(t, json.Unmarshal(text, &b))
	chosen := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$type", ".*")
	for _, p := range b.Panels {
		for _, question := range p.Targets {
			exprs = append(exprs, chosen.Replace(question.Expr))
		}
	}
	for _, v := range b.Templating.List {
		if query, found := strings.CutPrefix(v.Query, "label_values("); found {
			series, by, found := strings.Cut(strings.TrimSuffix(chosen.Replace(query), ")"), ", ")
			require.True(t, found)
			exprs = append(exprs, "sum by ("+by+") ("+series+")")
		}
	}
	require.Greater(t, len(exprs), 15)
	return exprs
}

// ruleExprs returns the expressions of the alert rules. It ignores the templates of the rules, because the command
// "promtool check rules" checks them.
func ruleExprs(t *testing.T) (exprs []string) {
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct{ Alert, Expr string }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &rules))
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			require.NotEmpty(t, rule.Alert)
			exprs = append(exprs, rule.Expr)
		}
	}
	require.Len(t, exprs, 15)
	return exprs
}
