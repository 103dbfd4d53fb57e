package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

func charts(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "docs/internals/performance.md"))
	if err != nil {
		return nil, err
	}
	ratios, err := ratioChart(string(text))
	if err != nil {
		return nil, err
	}
	latencies, err := latencyChart(string(text))
	if err != nil {
		return nil, err
	}
	return map[string]string{"throughput.svg": ratios, "latency.svg": latencies}, nil
}

type bar struct {
	label string
	value float64
	text  string
	ours  bool
}

var ratioRow = regexp.MustCompile(`(?m)^\| sustained: record and run at once \| ([^|]+?) \| (\d+) [^|]*\| (\d+) [^|]*\| ([\d.]+) `)

func ratioChart(text string) (string, error) {
	var bars []bar
	for _, row := range ratioRow.FindAllStringSubmatch(text, -1) {
		ratio, err := strconv.ParseFloat(row[4], 64)
		if err != nil {
			return "", err
		}
		bars = append(bars, bar{label: strings.Replace(row[1], "floor: the same statements", "the bare statements", 1), value: ratio,
			text: fmt.Sprintf("%s× (%s and %s entries/s)", row[4], row[2], row[3]), ours: ratio >= 1})
	}
	if len(bars) < 5 {
		return "", fmt.Errorf("docs/internals/performance.md has %d rows for the chart of throughput", len(bars))
	}
	return drawBars("Record and run at once: compensator's rate as a multiple of the other one's", bars, func(v float64) float64 { return v / 4 }), nil
}

var latencyRow = regexp.MustCompile(`(?m)^\| due → handler, delay 2 s, 500/s, ([^|]+?) \| \d+ \| (-?[\d.]+) \| ([\d.]+) \| ([\d.]+) \| (\d+) \|`)

func latencyChart(text string) (string, error) {
	var bars []bar
	for _, row := range latencyRow.FindAllStringSubmatch(text, -1) {
		p99, err := strconv.ParseFloat(row[3], 64)
		if err != nil {
			return "", err
		}
		label, ours := row[1], strings.Contains(row[1], "instance")
		if ours {
			label = "compensator, " + label
		}
		behind := fmt.Sprintf("p50 %s ms, p99 %s ms", row[2], row[3])
		if row[5] != "0" {
			behind = fmt.Sprintf("p99 %s ms, %s of 2,500 early", row[3], row[5])
		}
		bars = append(bars, bar{label: label, value: p99, text: behind, ours: ours})
	}
	if len(bars) < 5 {
		return "", fmt.Errorf("docs/internals/performance.md has %d rows for the chart of latency", len(bars))
	}
	return drawBars("From the due time to the handler: 99th percentile, logarithmic scale", bars, func(v float64) float64 { return math.Log10(v) / 4 }), nil
}

func drawBars(title string, bars []bar, part func(value float64) float64) string {
	const left, width, line = 230, 330, 34
	height := 56 + line*len(bars)
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 %d" role="img" aria-label="%s" font-family="system-ui, sans-serif" font-size="13">`+"\n", height, title)
	fmt.Fprintf(&out, "<title>%s</title>\n<rect width=\"860\" height=\"%d\" rx=\"8\" fill=\"#fff\"/>\n<text x=\"20\" y=\"28\" font-weight=\"600\" fill=\"#1f2328\">%s</text>\n", title, height, title)
	for i, b := range bars {
		y, colour := 46+line*i, "#8c959f"
		if b.ours {
			colour = "#3b6fd4"
		}
		long := max(2, min(1, part(b.value))*width)
		fmt.Fprintf(&out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#1f2328\">%s</text>\n", left-10, y+15, b.label)
		fmt.Fprintf(&out, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"20\" rx=\"3\" fill=\"%s\"/>\n", left, y, long, colour)
		fmt.Fprintf(&out, "<text x=\"%.1f\" y=\"%d\" fill=\"#57606a\">%s</text>\n", left+long+8, y+15, b.text)
	}
	out.WriteString("</svg>\n")
	return out.String()
}
