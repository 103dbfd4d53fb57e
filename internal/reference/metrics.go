package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

type metric struct{ name, kind, unit, what string }

var makers = map[string]string{
	"histogram": "histogram", "counter": "counter", "gauge": "gauge", "fraction": "gauge", "meter.Int64UpDownCounter": "up-down counter",
}

func metricsTable(root string) (string, error) {
	s, err := parsePackage(root, "otel")
	if err != nil {
		return "", err
	}
	names := s.constants()
	var out strings.Builder
	out.WriteString("| OpenTelemetry | Prometheus | kind | attributes | meaning |\n|---|---|---|---|---|\n")
	used := make(map[string]bool)
	for _, file := range s.files {
		var failed error
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			m, ok := s.metricOf(call, names)
			if !ok {
				return true
			}
			labels, known := metricAttributes[m.name]
			if !known || m.what == "" {
				failed = fmt.Errorf("internal/reference does not say which attributes %s has, or otel does not describe it", m.name)
			}
			used[m.name] = true
			fmt.Fprintf(&out, "| `%s` | `%s` | %s | %s | %s |\n", m.name, m.prometheus(), m.kind, labels, m.what)
			return true
		})
		if failed != nil {
			return "", failed
		}
	}
	for name := range metricAttributes {
		if !used[name] {
			return "", fmt.Errorf("internal/reference describes %s, which otel does not report", name)
		}
	}
	return out.String(), nil
}

func (s *source) metricOf(call *ast.CallExpr, names map[string]string) (m metric, ok bool) {
	kind := makers[strings.TrimPrefix(s.text(call.Fun), "t.")]
	if kind == "" || len(call.Args) < 3 {
		return metric{}, false
	}
	m = metric{name: names[s.text(call.Args[0])], kind: kind}
	switch kind {
	case "histogram":
		m.unit, m.what = "s", unquoted(call.Args[1])
	case "up-down counter":
		m.what = unquoted(call.Args[1].(*ast.CallExpr).Args[0])
	default:
		m.unit, m.what = unquoted(call.Args[1]), unquoted(call.Args[2])
	}
	return m, m.name != ""
}

func (m metric) prometheus() string {
	name := strings.ReplaceAll(m.name, ".", "_")
	if m.unit == "s" {
		name += "_seconds"
	}
	if m.kind == "counter" {
		name += "_total"
	}
	return name
}

func (s *source) constants() map[string]string {
	found := make(map[string]string)
	s.specs(token.CONST, func(spec ast.Spec, _ string) {
		value := spec.(*ast.ValueSpec)
		for i, id := range value.Names {
			if i < len(value.Values) {
				found[id.Name] = unquoted(value.Values[i])
			}
		}
	})
	return found
}

func unquoted(e ast.Expr) string {
	text, ok := e.(*ast.BasicLit)
	if !ok || text.Kind != token.STRING {
		return ""
	}
	value, err := strconv.Unquote(text.Value)
	if err != nil {
		return ""
	}
	return value
}

var metricAttributes = map[string]string{
	"messaging.process.duration":           "`messaging.system`, `messaging.operation.name`, `messaging.destination.name`, `error.type`",
	"messaging.client.sent.messages":       "`messaging.system`, `messaging.operation.name` (always `record`), `messaging.destination.name`",
	"messaging.client.consumed.messages":   "`messaging.system`, `messaging.operation.name`, `messaging.destination.name`",
	"compensator.entry.lateness":           "`messaging.destination.name`",
	"compensator.entry.settled":            "`messaging.destination.name`, `compensator.state`, `compensator.ended_by`",
	"compensator.entry.waiting":            "`messaging.destination.name`, `compensator.state`",
	"compensator.entry.due":                "`messaging.destination.name`",
	"compensator.entry.overdue":            "`messaging.destination.name`",
	"compensator.backlog.age":              "",
	"compensator.entry.oldest_overdue":     "`messaging.destination.name`",
	"compensator.attempt.active":           "`messaging.destination.name`",
	"compensator.attempt.dropped":          "`messaging.destination.name`, `compensator.ended_by` (what ended the entry, if it has ended)",
	"compensator.attempt.stuck":            "`messaging.destination.name`",
	"compensator.breaker.open":             "`messaging.destination.name`",
	"compensator.limit.waiting":            "`messaging.destination.name`",
	"compensator.limit.next_start":         "`messaging.destination.name`",
	"compensator.type.paused":              "`messaging.destination.name`",
	"compensator.queue.up":                 "",
	"compensator.ready":                    "",
	"compensator.reconcile.announced":      "",
	"compensator.reconcile.polled":         "",
	"compensator.case.open":                "`messaging.destination.name`, `compensator.case.kind` (`dead` or `outcome unknown`)",
	"compensator.case.past_due":            "",
	"compensator.case.value_at_risk_major": "`compensator.currency`",
	"compensator.instances":                "`compensator.instance.state` (`live` or `gone`)",
}
