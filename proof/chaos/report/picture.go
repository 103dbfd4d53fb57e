package main

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/compensator-go/compensator/proof/chaos/check/verdict"
)

// These colours are safe for readers who cannot distinguish red from green.
var (
	blue   = color.RGBA{R: 0x00, G: 0x5a, B: 0xb5, A: 255}
	orange = color.RGBA{R: 0xdc, G: 0x6a, B: 0x00, A: 255}
	grey   = color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 255}
	black  = color.RGBA{A: 255}
	shade  = color.RGBA{R: 0xf3, G: 0xe6, B: 0xd4, A: 255}
)

const (
	width      = 13 * vg.Inch
	panel      = 2.6 * vg.Inch
	laneHeight = 0.19 * vg.Inch
)

type picture struct {
	begin   int64
	seconds []verdict.Second
	faults  []verdict.Fault
	marks   map[string]float64 // in seconds since begin
}

func draw(l *verdict.Ledger, png, svg string) error {
	p := picture{faults: l.Faults, marks: make(map[string]float64)}
	p.begin, p.seconds = l.Timeline()
	for _, mark := range marks {
		if at := l.Mark(mark); at != 0 {
			p.marks[mark] = p.second(at)
		}
	}
	title := fmt.Sprintf("Chaos run, seed %d", l.Run.Seed)
	panels := []*plot.Plot{p.work(title), p.lateness(), p.lanes()}
	heights := []vg.Length{panel, panel, vg.Length(len(p.kinds()))*laneHeight + 0.7*vg.Inch}
	height := heights[0] + heights[1] + heights[2]

	image := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(110))}
	stack(vgdraw.New(image), panels, heights)
	vector := vgsvg.New(width, height)
	stack(vgdraw.New(vector), panels, heights)
	if err := save(png, image); err != nil {
		return err
	}
	return save(svg, vector)
}

func save(name string, canvas io.WriterTo) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

func stack(c vgdraw.Canvas, panels []*plot.Plot, heights []vg.Length) {
	top := c.Max.Y
	var cut []vgdraw.Canvas
	var left vg.Length
	for i, p := range panels {
		area := vgdraw.Crop(c, 0.15*vg.Inch, 0, top-heights[i]-c.Min.Y, top-c.Max.Y)
		cut = append(cut, area)
		left = max(left, p.DataCanvas(area).Min.X)
		top -= heights[i]
	}
	for i, p := range panels {
		p.Draw(vgdraw.Crop(cut[i], left-p.DataCanvas(cut[i]).Min.X, -0.2*vg.Inch, 0.05*vg.Inch, -0.05*vg.Inch))
	}
}

func (p *picture) second(at int64) float64 { return float64(at-p.begin) / 1e6 }

func (p *picture) axes(y string, low, high float64) *plot.Plot {
	axes := plot.New()
	axes.Y.Label.Text = y
	axes.X.Min, axes.X.Max = 0, float64(len(p.seconds))
	axes.Y.Min, axes.Y.Max = low, high
	axes.X.Tick.Marker = clockTicks{}
	axes.Legend.Top = true
	axes.Legend.Left, axes.Legend.XOffs = true, 0.1*vg.Inch
	for _, f := range p.faults {
		if f.Fired {
			axes.Add(box(p.second(f.At), low, p.second(f.End), high, shade))
		}
	}
	p.drawMarks(axes, low, high)
	return axes
}

func (p *picture) drawMarks(axes *plot.Plot, low, high float64) {
	for _, name := range marks {
		at, ok := p.marks[name]
		if !ok {
			continue
		}
		line := lineOf(plotter.XYs{{X: at, Y: low}, {X: at, Y: high}}, black, 0.8)
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		axes.Add(line)
	}
}

func box(left, low, right, high float64, fill color.Color) *plotter.Polygon {
	right = max(right, left+0.25) // Keep short faults visible.
	polygon, err := plotter.NewPolygon(plotter.XYs{{X: left, Y: low}, {X: right, Y: low}, {X: right, Y: high}, {X: left, Y: high}})
	if err != nil {
		panic(err) // NewPolygon fails only without points or with NaN.
	}
	polygon.Color, polygon.LineStyle.Width = fill, 0
	return polygon
}

func lineOf(points plotter.XYs, c color.Color, points2 float64) *plotter.Line {
	line, err := plotter.NewLine(points)
	if err != nil {
		panic(err)
	}
	line.Color, line.Width = c, vg.Points(points2)
	return line
}

func (p *picture) work(title string) *plot.Plot {
	recorded, settled := make(plotter.XYs, len(p.seconds)), make(plotter.XYs, len(p.seconds))
	high := 1.0
	for i, s := range p.seconds {
		recorded[i] = plotter.XY{X: float64(i) + 0.5, Y: float64(s.Recorded)}
		settled[i] = plotter.XY{X: float64(i) + 0.5, Y: float64(s.Settled)}
		high = max(high, recorded[i].Y, settled[i].Y)
	}
	axes := p.axes("entries per second", 0, high*1.4)
	axes.Title.Text = title + " (shaded: a fault is on)"
	in, out := lineOf(recorded, grey, 1.2), lineOf(settled, blue, 1.4)
	axes.Add(in, out)
	axes.Legend.Add("recorded", in)
	axes.Legend.Add("settled", out)
	axes.Add(p.names(high * 1.3))
	return axes
}

func (p *picture) names(y float64) *plotter.Labels {
	var at plotter.XYLabels
	for _, name := range marks {
		if x, ok := p.marks[name]; ok {
			at.XYs = append(at.XYs, plotter.XY{X: x, Y: y})
			at.Labels = append(at.Labels, name+" ")
			y *= 0.9 // Use another height, because marks may lie close together.
		}
	}
	labels, err := plotter.NewLabels(at)
	if err != nil {
		panic(err)
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].XAlign = -1
	}
	return labels
}

func (p *picture) lateness() *plot.Plot {
	const low = 0.1 // smallest value shown, in ms
	high := 1000.0
	series := []struct {
		name  string
		of    func(verdict.Percentiles) time.Duration
		c     color.Color
		width float64 // width of the line in points; the wide line "latest" stays visible where the line "99 %" covers it
	}{
		{"latest", func(s verdict.Percentiles) time.Duration { return s.Max }, grey, 3},
		{"99 %", func(s verdict.Percentiles) time.Duration { return s.P99 }, orange, 1.2},
		{"half", func(s verdict.Percentiles) time.Duration { return s.P50 }, blue, 1.2},
	}
	points := make([]plotter.XYs, len(series))
	for i, s := range p.seconds {
		for k := range series {
			if s.Late.N > 0 {
				y := max(low, float64(series[k].of(s.Late).Microseconds())/1000)
				points[k] = append(points[k], plotter.XY{X: float64(i) + 0.5, Y: y})
				high = max(high, y)
			}
		}
	}
	axes := p.axes("late", low, high*4)
	axes.Y.Scale, axes.Y.Tick.Marker = plot.LogScale{}, decades{}
	for k, s := range series {
		if len(points[k]) == 0 {
			continue
		}
		line := lineOf(points[k], s.c, s.width)
		axes.Add(line)
		axes.Legend.Add(s.name, line)
	}
	return axes
}

func (p *picture) kinds() (kinds []string) {
	for _, f := range p.faults {
		if f.Fired && !slices.Contains(kinds, f.Fault.Fault) {
			kinds = append(kinds, f.Fault.Fault)
		}
	}
	slices.Sort(kinds)
	return kinds
}

func (p *picture) lanes() *plot.Plot {
	kinds := p.kinds()
	axes := plot.New()
	axes.X.Label.Text = "since the run began"
	axes.X.Min, axes.X.Max = 0, float64(len(p.seconds))
	axes.Y.Min, axes.Y.Max = 0, float64(max(1, len(kinds)))
	axes.X.Tick.Marker = clockTicks{}
	var ticks []plot.Tick
	for i, kind := range kinds {
		y := float64(len(kinds) - i - 1)
		ticks = append(ticks, plot.Tick{Value: y + 0.5, Label: kind})
		if i%2 == 0 {
			axes.Add(box(0, y, float64(len(p.seconds)), y+1, color.Gray{Y: 0xf2}))
		}
		for _, f := range p.faults {
			if f.Fired && f.Fault.Fault == kind {
				axes.Add(box(p.second(f.At), y+0.15, p.second(f.End), y+0.85, orange))
			}
		}
	}
	axes.Y.Tick.Marker, axes.Y.Tick.Length = plot.ConstantTicks(ticks), 0
	p.drawMarks(axes, axes.Y.Min, axes.Y.Max)
	return axes
}

type clockTicks struct{}

func (clockTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	step := 5.0
	for _, s := range []float64{10, 30, 60, 120, 300, 600, 1800, 3600, 7200} {
		if (high-low)/step > 12 {
			step = s
		}
	}
	for at := math.Ceil(low/step) * step; at <= high; at += step {
		ticks = append(ticks, plot.Tick{Value: at, Label: fmt.Sprintf("%d:%02d", int(at)/60, int(at)%60)})
	}
	return ticks
}

type decades struct{}

func (decades) Ticks(low, high float64) (ticks []plot.Tick) {
	for at := math.Pow(10, math.Floor(math.Log10(low))); at <= high; at *= 10 {
		if at < low {
			continue
		}
		label := fmt.Sprintf("%g ms", at)
		if at >= 1000 {
			label = fmt.Sprintf("%g s", at/1000)
		}
		ticks = append(ticks, plot.Tick{Value: at, Label: label})
	}
	return ticks
}
