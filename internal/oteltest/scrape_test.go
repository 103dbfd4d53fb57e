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
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.yaml.in/yaml/v3"

	"github.com/compensator-go/compensator/otel"
)

const rulesFile = "../../ops/prometheus/compensator.rules.yml"

// TestBoardAndRulesAskForWhatAServiceTells: each metric and label of theirs is in what a service tells Prometheus, and each
// value they ask for is one that is told.
func TestBoardAndRulesAskForWhatAServiceTells(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	exported, err := otelprom.New(otelprom.WithRegisterer(registry))
	require.NoError(t, err)
	w := newWorld(t, otel.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exported))})
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

// told are metrics with the values of their labels.
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

// fromPrometheus are the labels that Prometheus itself adds.
var fromPrometheus = []string{"job", "instance"}

// requireTold goes through an expression. What a sum is made by must be a label of all that it is made of.
func requireTold(t *testing.T, all told, expr parser.Expr) {
	var grouped []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.AggregateExpr:
			grouped = append(grouped, node.Grouping...)
		case *parser.VectorSelector:
			labels, there := all[node.Name]
			if !assert.Truef(t, there, "%s of %s", node.Name, expr) {
				return nil
			}
			for _, name := range grouped {
				assert.Truef(t, slices.Contains(fromPrometheus, name) || labels[name] != nil, "%s of %s", name, expr)
			}
			for _, m := range node.LabelMatchers {
				if m.Name == "__name__" || slices.Contains(fromPrometheus, m.Name) {
					continue
				}
				assert.Truef(t, slices.ContainsFunc(labels[m.Name], m.Matches), "%v of %s", m, expr)
			}
		}
		return nil
	})
}

// boardExprs are the board's questions, with everything chosen.
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

// ruleExprs are the alerts' conditions. Of their templates promtool check rules knows more.
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
	require.Len(t, exprs, 8)
	return exprs
}
