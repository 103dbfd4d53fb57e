package oteltest

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The board is made here: go test -run TestBoardIsWhatIsMade -write. Units, names and labels stand once.

var write = flag.Bool("write", false, "write the board anew")

const boardFile = "../../ops/grafana/compensator.json"

// board is as much of Grafana's dashboard model (schema 39, Grafana 11 and newer) as is used.
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
	Refresh    int     `json:"refresh,omitempty"` // 2: with the time range
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

// Of the series, only those of the chosen jobs and types.
const (
	job   = `job=~"$job"`
	typed = job + `, messaging_destination_name=~"$type"`
	every = "[$__rate_interval]"
)

// once is a gauge of the log by more labels than its own: the same in every process, so one of each log counts. Of several jobs and
// logs the sum is what there is.
func once(gauge, by string) string { return "max by (job, compensator_log" + by + ") (" + gauge + ")" }

// lately is what a gauge of the log said last, though scrapes since then had no answer of the database.
func lately(gauge string) string { return "last_over_time(" + gauge + "[2m])" }

// orNone is 0 where nothing is told and a process says that the database answers; of one that does not answer nobody knows.
const orNone = " or 0 * max(compensator_ready{" + job + "} == 1)"

// orZero is 0 where nothing is told and some process tells that it is there. Of a fleet that is gone nobody knows.
const orZero = " or 0 * max(compensator_ready{" + job + "})"

var prometheusSource = source{Type: "prometheus", UID: "${datasource}"}

// q is one question and what its answer is called.
type q struct{ expr, legend string }

// rows are the board's, from what wakes somebody up to what explains it.
func rows() [][]panel {
	perType := "{{messaging_destination_name}}"
	return [][]panel{
		{
			missing("Processes", "Processes that tell something. None: all are gone, or are not scraped, and nothing else here means anything.",
				q{`count(compensator_ready{` + job + `}) or vector(0)`, ""}),
			light("Dead", "Entries that wait for a person, at most 1,000 of each type. List, then Requeue or SettleManually. No data: the database does not answer.", "short", 1,
				q{"sum(" + once(lately(`compensator_entry_waiting{compensator_state="dead", `+typed+`}`), ", messaging_destination_name") + ")" + orNone, ""}),
			light("Case past due", "How long the open case that was due first has been due. The operator's pages have it on top. No data: the database did not tell, or nobody keeps cases.", "s", 1,
				q{`max(compensator_case_past_due_seconds{` + job + `})`, ""}),
			light("Oldest overdue", "How long the entry that waits longest has been due and unclaimed. No data: the database does not answer.", "s", 60,
				q{"max(" + lately(`compensator_entry_oldest_overdue_seconds{`+typed+`}`) + ")" + orNone, ""}),
			light("Stuck", "Handlers that run on after their timeout.", "short", 1,
				q{`sum(compensator_attempt_stuck{` + typed + `})` + orZero, ""}),
			light("Open breakers", "Types that a process leaves alone, since what their handler needs is down.", "short", 1,
				q{`sum(compensator_breaker_open{` + typed + `})` + orZero, ""}),
			light("Paused", "Types that people have paused, on purpose: the overview says who and why. No data: the database did not tell, or no process tells anything.", "short", 1,
				q{"count(" + once(lately(`compensator_type_paused_seconds{`+typed+`}`), ", messaging_destination_name") + ")" + orNone, ""}),
			light("Not ready", "Processes that cannot do their part: see Health.Ready.", "short", 1,
				q{`count(compensator_ready{` + job + `} == 0)` + orZero, ""}),
			light("Queue down", "Processes that poll the database because the queue does not answer.", "short", 1,
				q{`count(compensator_queue_up{` + job + `} == 0)` + orZero, ""}),
		},
		{
			graph("Recorded and ended", "Entries a second.", "ops",
				q{`sum(rate(messaging_client_sent_messages_total{` + typed + `}` + every + `))`, "recorded"},
				q{`sum by (compensator_state) (rate(compensator_entry_settled_total{` + typed + `}` + every + `))`, "{{compensator_state}}"}),
			graph("Attempts", "Attempts begun a second: handlers and compensations.", "ops",
				q{`sum by (messaging_destination_name, messaging_operation_name) (rate(messaging_client_consumed_messages_total{` + typed + `}` + every + `))`,
					perType + " {{messaging_operation_name}}"}),
		},
		{
			graph("Lateness", "From due to begun: half of all entries, and all but one in a hundred.", "s",
				quantile("0.5", "compensator_entry_lateness_seconds_bucket", "p50"), quantile("0.99", "compensator_entry_lateness_seconds_bucket", "p99")),
			graph("Duration of attempts", "Of all but one in twenty, by type.", "s",
				q{`histogram_quantile(0.95, sum by (le, messaging_destination_name) (rate(messaging_process_duration_seconds_bucket{` + typed + `}` + every + `)))`, perType}),
		},
		{
			graph("Failed attempts", "A second, by type and by what failed.", "ops",
				q{`sum by (messaging_destination_name, error_type) (rate(messaging_process_duration_seconds_count{error_type!="", ` + typed + `}` + every + `))`,
					perType + " {{error_type}}"}),
			graph("Given up", "Entries a second that became dead, by why.", "ops",
				q{`sum by (messaging_destination_name, compensator_ended_by) (rate(compensator_entry_settled_total{compensator_state="dead", ` + typed + `}` + every + `))`,
					perType + " {{compensator_ended_by}}"}),
		},
		{
			graph("Waiting", "Entries in the log, by type and state; 1,000 is that many or more.", "short",
				q{"sum by (messaging_destination_name, compensator_state) (" + once(`compensator_entry_waiting{`+typed+`}`, ", messaging_destination_name, compensator_state") + ")",
					perType + " {{compensator_state}}"}),
			graph("Overdue", "How long the entry that waits longest has been due, by type.", "s",
				q{`max by (messaging_destination_name) (compensator_entry_oldest_overdue_seconds{` + typed + `})`, perType}),
		},
		{
			graph("Open cases", "Entries that wait for a person, by type.", "short",
				q{"sum by (messaging_destination_name) (" + once(`compensator_case_open{`+typed+`}`, ", messaging_destination_name") + ")", perType}),
			graph("Value at risk", "What open cases are worth, by currency, in its smallest unit.", "short",
				q{"sum by (compensator_currency) (" + once(`compensator_case_value_at_risk{`+job+`}`, ", compensator_currency") + ")", "{{compensator_currency}}"}),
		},
		{
			graph("Under way", "Attempts, by type.", "short", q{`sum by (messaging_destination_name) (compensator_attempt_active{` + typed + `})`, perType}),
			graph("Dropped outcomes", "A second: somebody else had moved the entry on. Many say that leases are too short.", "ops",
				q{`sum by (messaging_destination_name) (rate(compensator_attempt_dropped_total{` + typed + `}` + every + `))`, perType}),
			graph("Reconciler", "Entries a second. Polled for long with a healthy queue: announcements are being lost.", "ops",
				q{`sum(rate(compensator_reconcile_announced_total{` + job + `}` + every + `))`, "announced"},
				q{`sum(rate(compensator_reconcile_polled_total{` + job + `}` + every + `))`, "polled"}),
		},
	}
}

func quantile(of, bucket, name string) q {
	return q{`histogram_quantile(` + of + `, sum by (le) (rate(` + bucket + `{` + typed + `}` + every + `)))`, name}
}

// light is a number that turns red somewhere.
func light(title, what, unit string, red float64, questions ...q) panel {
	p := graph(title, what, unit, questions...)
	p.Type, p.FieldConfig.Defaults.Thresholds = "stat", &thresholds{"absolute", []step{{"green", nil}, {"red", &red}}}
	return p
}

// missing is a number that is red where there is none.
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

// makeBoard lays the rows out.
func makeBoard() board {
	const width = 24
	b := board{
		UID: "compensator", Title: "compensator", Tags: []string{"compensator"}, SchemaVersion: 39, Refresh: "30s", Time: timeRange{"now-3h", "now"},
		Description: "Made by internal/oteltest; metrics are those of docs/telemetry.md. Counts of the log are added up over jobs: of several that share a log choose one.",
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
func TestBoardIsWhatIsMade(t *testing.T) {
	t.Parallel()
	made, err := json.MarshalIndent(makeBoard(), "", "  ")
	require.NoError(t, err)
	made = append(made, '\n')
	if *write {
		require.NoError(t, os.WriteFile(boardFile, made, 0o644))
	}
	kept, err := os.ReadFile(boardFile)
	require.NoError(t, err)
	assert.Equal(t, string(made), string(kept), "go test -run TestBoardIsWhatIsMade -write ./internal/oteltest")
}
