package chaos

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

func (s *soak) report(t *testing.T, cfg Config, gates []gate) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "# Soak, %v\n\n%.0f entries per second over %d processes. %.0f %% of them fail once, %.0f %% always. %d faults, seed %d.\n\n![](report.png)\n\n",
		cfg.Duration, cfg.Rate, len(appConfigs), 100*cfg.Failing, 100*cfg.Poison, len(s.faults), cfg.Seed)
	b.WriteString("| gate | found | wanted | |\n|---|---|---|---|\n")
	for _, g := range gates {
		verdict := "ok"
		switch {
		case !g.passed && g.figure:
			verdict = "**missed**"
		case !g.passed:
			verdict = "**FAILED**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", g.what, g.got, g.want, verdict)
	}
	b.WriteString("\n| read every 2 s | first | median | most | last |\n|---|---|---|---|---|\n")
	for _, name := range s.names() {
		p := s.series[name]
		fmt.Fprintf(&b, "| %s | %.1f | %.1f | %.1f | %.1f |\n", name, p[0].value, quantile(p, 0.5), quantile(p, 1), p[len(p)-1].value)
	}
	fmt.Fprintf(&b, "\nPurged: %.0f entries. Attempts: %d. Undisturbed means more than %.0f s after a fault.\n", sum(s.series[purged]), len(s.late), settlesAfter)
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, "report.md"), []byte(b.String()), 0o644))
	s.draw(t, filepath.Join(cfg.Dir, "report.png"))
	t.Logf("%s", b.String())
}

func sum(points []point) (total float64) {
	for _, p := range points {
		total += p.value
	}
	return total
}

var panels = []struct {
	title string
	names []string
}{
	{"RSS, MB", []string{": RSS, MB"}}, {"live heap, MB", []string{": live heap, MB"}}, {"goroutines", []string{": goroutines"}}, {"open files", []string{": open files"}},
	{"connections, prepared statements", []string{sqlConnections, sqlPrepared}}, {"history list", []string{sqlHistory}},
	{"queue: members, and entries due within the horizon", []string{queueMembers, queueExpected}}, {"redis: used memory, MB", []string{redisMemory}},
}

func (s *soak) draw(t *testing.T, name string) {
	t.Helper()
	const rows, columns = 4, 2
	canvas := vgimg.New(vg.Points(1100), vg.Points(1100))
	plots := make([][]*plot.Plot, rows)
	for i, panel := range panels {
		plots[i/columns] = append(plots[i/columns], s.panel(t, panel.title, panel.names))
	}
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: vg.Points(12), PadY: vg.Points(12), PadTop: vg.Points(6), PadBottom: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Points(12)}
	for i, row := range plot.Align(plots, tiles, draw.New(canvas)) {
		for j := range row {
			plots[i][j].Draw(row[j])
		}
	}
	file, err := os.Create(name)
	require.NoError(t, err)
	defer file.Close()
	_, err = vgimg.PngCanvas{Canvas: canvas}.WriteTo(file)
	require.NoError(t, err)
}

func (s *soak) panel(t *testing.T, title string, ends []string) *plot.Plot {
	t.Helper()
	p := plot.New()
	p.Title.Text, p.X.Label.Text = title, "seconds"
	p.Y.Min, p.Legend.Top = 0, true
	n, most := 0, 1.0
	for _, name := range s.names() {
		if !slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(name, end) }) {
			continue
		}
		xy := make(plotter.XYs, len(s.series[name]))
		for i, at := range s.series[name] {
			xy[i] = plotter.XY{X: at.at, Y: at.value}
			most = max(most, at.value)
		}
		line, err := plotter.NewLine(xy)
		require.NoError(t, err)
		line.Color = plotutil.Color(n)
		n++
		p.Add(line)
		legend, _, _ := strings.Cut(name, ": ")
		if len(ends) > 1 {
			legend = strings.TrimPrefix(name, legend+": ")
		}
		p.Legend.Add(legend, line)
	}
	p.Y.Max = most * 1.25
	for _, f := range s.faults {
		band, err := plotter.NewPolygon(plotter.XYs{{X: f.from}, {X: f.from, Y: p.Y.Max}, {X: f.to, Y: p.Y.Max}, {X: f.to}})
		require.NoError(t, err)
		band.Color, band.LineStyle.Width = color.RGBA{R: 200, G: 60, B: 60, A: 40}, vg.Points(0.25)
		p.Add(band)
	}
	return p
}
