package oteltest

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// This file generates the dashboard: go test -run TestDashboardIsTheGeneratedOne -write.

var write = flag.Bool("write", false, "write the dashboard again")

const boardFile = "../../../ops/grafana/compensator.json"

// board is the part of Grafana's dashboard model that is used here (schema 39, Grafana 11 and newer).
type board struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Refresh       string     `json:"refresh"`
	Time          timeRange  `json:"time"`
	Templating    templating `json:"templating"`
	Panels        []panel    `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string  `json:"name"`
	Label      string  `json:"label"`
	Type       string  `json:"type"`
	Query      string  `json:"query"`
	Datasource *source `json:"datasource,omitempty"`
	Refresh    int     `json:"refresh,omitempty"` // 2 means: refresh when the time range changes
	IncludeAll bool    `json:"includeAll,omitempty"`
	Multi      bool    `json:"multi,omitempty"`
	AllValue   string  `json:"allValue,omitempty"`
	Current    *choice `json:"current,omitempty"`
}

type choice struct {
	Text  string `json:"text"`
	Value string `json:"value"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID          int         `json:"id"`
	Type        string      `json:"type"`
	Title       string      `json:"title"`
	Description string      `json:"description"`
	Datasource  source      `json:"datasource"`
	GridPos     gridPos     `json:"gridPos"`
	FieldConfig fieldConfig `json:"fieldConfig"`
	Targets     []target    `json:"targets"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type fieldConfig struct {
	Defaults  defaults `json:"defaults"`
	Overrides []string `json:"overrides"`
}

type defaults struct {
	Unit       string      `json:"unit"`
	Min        int         `json:"min"`
	Thresholds *thresholds `json:"thresholds,omitempty"`
}

type thresholds struct {
	Mode  string `json:"mode"`
	Steps []step `json:"steps"`
}

type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

type target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

const (
	job   = `job=~"$job"`
	typed = job + `, messaging_destination_name=~"$type"`
	every = "[$__rate_interval]"
)

// oncePerLog returns a query with one value of a gauge for each log, because every process reports the same value for
// its log.
func oncePerLog(gauge, by string) string {
	return "max by (job, compensator_log" + by + ") (" + gauge + ")"
}

// lately returns a query for the newest value of the gauge in the last two minutes. A scrape yields no value while the
// database does not answer. The query then returns the value of an earlier scrape.
func lately(gauge string) string { return "last_over_time(" + gauge + "[2m])" }

// If the database does not answer, the value stays unknown.
const orNone = " or 0 * max(compensator_ready{" + job + "} == 1)"

// If no process has read the cases, the value stays unknown.
const orNoCase = " or 0 * max(compensator_case_past_due_seconds{" + job + "})"

// If no process is alive, the value stays unknown.
const orZero = " or 0 * max(compensator_ready{" + job + "})"

var prometheusSource = source{Type: "prometheus", UID: "${datasource}"}

type q struct{ expr, legend string }

// The panels that call for action come first, the panels that explain causes last.
func rows() [][]panel {
	perType := "{{messaging_destination_name}}"
	return [][]panel{
		{
			missing("Processes", "Processes that report metrics. If there are none, all processes are gone or are not scraped, and the other panels mean nothing.",
				q{`count(compensator_ready{` + job + `}) or vector(0)`, ""}),
			light("Dead", "Dead entries. Without Operations.Statistics, 1,000 of a type means at least 1,000. List them, then use Requeue or SettleManually. No data means that the database does not answer.", "short", 1,
				q{"sum(" + oncePerLog(lately(`compensator_entry_waiting{compensator_state="dead", `+typed+`}`), ", messaging_destination_name") + ")" + orNone, ""}),
			light("Outcome unknown", "Open cases of entries whose effect may have happened. Find out before you requeue them. No data means that the database did not answer, or that Config.Operations is not set.", "short", 1,
				q{"sum(" + oncePerLog(lately(`compensator_case_open{compensator_case_kind="outcome unknown", `+typed+`}`), ", messaging_destination_name") + ")" + orNoCase, ""}),
			light("Case past due", "How long the open case that is overdue longest has been due. The admin pages show it first. No data means that the database did not answer, or that Config.Operations is not set.", "s", 1,
				q{`max(compensator_case_past_due_seconds{` + job + `})`, ""}),
			light("Oldest overdue", "How long the entry that is overdue longest has been due and unclaimed. No data means that the database does not answer.", "s", 60,
				q{"max(" + lately(`compensator_entry_oldest_overdue_seconds{`+typed+`}`) + ")" + orNone, ""}),
		},
		{
			light("Stuck", "Handlers that still run after their timeout.", "short", 1,
				q{`sum(compensator_attempt_stuck{` + typed + `})` + orZero, ""}),
			light("Open breakers", "Types whose breaker is open in some process, because their handler found a service unavailable.", "short", 1,
				q{`sum(compensator_breaker_open{` + typed + `})` + orZero, ""}),
			light("Paused", "Types that a person has paused. The overview of the admin pages shows who and why. No data means that the database or all processes do not answer.", "short", 1,
				q{"count(" + oncePerLog(lately(`compensator_type_paused_seconds{`+typed+`}`), ", messaging_destination_name") + ")" + orNone, ""}),
			light("Not ready", "Processes that are not ready. Health.Ready has the reason.", "short", 1,
				q{`count(compensator_ready{` + job + `} == 0)` + orZero, ""}),
			light("Queue down", "Processes that poll the database because the queue does not answer.", "short", 1,
				q{`count(compensator_queue_up{` + job + `} == 0)` + orZero, ""}),
		},
		{
			graph("Recorded and ended", "Entries a second.", "ops",
				q{`sum(rate(messaging_client_sent_messages_total{` + typed + `}` + every + `))`, "recorded"},
				q{`sum by (compensator_state) (rate(compensator_entry_settled_total{` + typed + `}` + every + `))`, "{{compensator_state}}"}),
			graph("Attempts", "Attempts of handlers and compensations started a second.", "ops",
				q{`sum by (messaging_destination_name, messaging_operation_name) (rate(messaging_client_consumed_messages_total{` + typed + `}` + every + `))`,
					perType + " {{messaging_operation_name}}"}),
		},
		{
			graph("Lateness", "Time from due to started: median and 99th percentile.", "s",
				quantile("0.5", "compensator_entry_lateness_seconds_bucket", "p50"), quantile("0.99", "compensator_entry_lateness_seconds_bucket", "p99")),
			graph("Duration of attempts", "95th percentile by type.", "s",
				q{`histogram_quantile(0.95, sum by (le, messaging_destination_name) (rate(messaging_process_duration_seconds_bucket{` + typed + `}` + every + `)))`, perType}),
		},
		{
			graph("Failed attempts", "Failed attempts a second, by type and kind of failure.", "ops",
				q{`sum by (messaging_destination_name, error_type) (rate(messaging_process_duration_seconds_count{error_type!="", ` + typed + `}` + every + `))`,
					perType + " {{error_type}}"}),
			graph("Given up", "Entries a second that became dead, by reason.", "ops",
				q{`sum by (messaging_destination_name, compensator_ended_by) (rate(compensator_entry_settled_total{compensator_state="dead", ` + typed + `}` + every + `))`,
					perType + " {{compensator_ended_by}}"}),
		},
		{
			graph("Waiting", "Entries in the log, by type and state. Without Operations.Statistics, 1,000 means at least 1,000. With it, numbers above 1,000 are a minute or two old.", "short",
				q{"sum by (messaging_destination_name, compensator_state) (" + oncePerLog(`compensator_entry_waiting{`+typed+`}`, ", messaging_destination_name, compensator_state") + ")",
					perType + " {{compensator_state}}"}),
			graph("Overdue", "How long the entry that is overdue longest has been due, by type.", "s",
				q{`max by (messaging_destination_name) (compensator_entry_oldest_overdue_seconds{` + typed + `})`, perType}),
		},
		{
			graph("Open cases", "Entries that wait for a person, by type and kind.", "short",
				q{"sum by (messaging_destination_name, compensator_case_kind) (" + oncePerLog(`compensator_case_open{`+typed+`}`, ", messaging_destination_name, compensator_case_kind") + ")",
					perType + " {{compensator_case_kind}}"}),
			graph("Value at risk", "Known value of the open cases by currency, in the currency's major unit, for example dollars.", "short",
				q{"sum by (compensator_currency) (" + oncePerLog(`compensator_case_value_at_risk_major{`+job+`}`, ", compensator_currency") + ")", "{{compensator_currency}}"}),
		},
		{
			graph("Under way", "Running attempts, by type.", "short", q{`sum by (messaging_destination_name) (compensator_attempt_active{` + typed + `})`, perType}),
			graph("Limited", "Due entries that wait for a permit of their limit, by type: the largest number that one process knows. Many more may wait.", "short",
				q{`max by (messaging_destination_name) (compensator_limit_waiting{` + typed + `})`, perType}),
			graph("Dropped outcomes", "Dropped outcomes a second. An outcome is dropped if the entry has changed in the meantime. Many of them show that leases are too short.", "ops",
				q{`sum by (messaging_destination_name) (rate(compensator_attempt_dropped_total{` + typed + `}` + every + `))`, perType}),
			graph("Reconciler", "Entries a second. If many are polled for long while the queue is healthy, enqueued entries are being lost.", "ops",
				q{`sum(rate(compensator_reconcile_announced_total{` + job + `}` + every + `))`, "announced"},
				q{`sum(rate(compensator_reconcile_polled_total{` + job + `}` + every + `))`, "polled"}),
		},
	}
}

func quantile(of, bucket, name string) q {
	return q{`histogram_quantile(` + of + `, sum by (le) (rate(` + bucket + `{` + typed + `}` + every + `)))`, name}
}

func light(title, what, unit string, red float64, questions ...q) panel {
	p := graph(title, what, unit, questions...)
	p.Type, p.FieldConfig.Defaults.Thresholds = "stat", &thresholds{"absolute", []step{{"green", nil}, {"red", &red}}}
	return p
}

func missing(title, what string, questions ...q) panel {
	p, some := graph(title, what, "short", questions...), 1.0
	p.Type, p.FieldConfig.Defaults.Thresholds = "stat", &thresholds{"absolute", []step{{"red", nil}, {"green", &some}}}
	return p
}

func graph(title, what, unit string, questions ...q) panel {
	p := panel{Type: "timeseries", Title: title, Description: what, Datasource: prometheusSource,
		FieldConfig: fieldConfig{Defaults: defaults{Unit: unit}, Overrides: []string{}}}
	for i, question := range questions {
		p.Targets = append(p.Targets, target{string(rune('A' + i)), question.expr, question.legend})
	}
	return p
}

func makeBoard() board {
	const width = 24
	b := board{
		UID: "compensator", Title: "compensator", Tags: []string{"compensator"}, SchemaVersion: 39, Refresh: "30s", Time: timeRange{"now-3h", "now"},
		Description: "Generated by internal/integration/oteltest. docs/reference/telemetry.md explains the metrics. Counts of the log are summed over jobs, so choose one job if several share a log.",
		Templating: templating{[]variable{
			{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus"},
			ask("job", "Job", `label_values(compensator_ready, job)`),
			ask("type", "Type", `label_values(compensator_entry_settled_total{job=~"$job"}, messaging_destination_name)`),
		}},
	}
	id, y := 0, 0
	for _, row := range rows() {
		height := 8
		if row[0].Type == "stat" {
			height = 4
		}
		for i, p := range row {
			id++
			left, right := i*width/len(row), (i+1)*width/len(row)
			p.ID, p.GridPos = id, gridPos{H: height, W: right - left, X: left, Y: y}
			b.Panels = append(b.Panels, p)
		}
		y += height
	}
	return b
}

func ask(name, label, query string) variable {
	return variable{Name: name, Label: label, Type: "query", Query: query, Datasource: &prometheusSource, Refresh: 2,
		IncludeAll: true, Multi: true, AllValue: ".*", Current: &choice{"All", "$__all"}}
}

// Failure: F129
func TestDashboardIsTheGeneratedOne(t *testing.T) {
	t.Parallel()
	made, err := json.MarshalIndent(makeBoard(), "", "  ")
	require.NoError(t, err)
	made = append(made, '\n')
	if *write {
		require.NoError(t, os.WriteFile(boardFile, made, 0o644))
	}
	kept, err := os.ReadFile(boardFile)
	require.NoError(t, err)
	assert.Equal(t, string(made), string(kept), "go test -run TestDashboardIsTheGeneratedOne -write ./oteltest, in internal/integration")
}
