package delay

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// These colours are safe for readers who cannot distinguish red from green.
var (
	blue   = color.RGBA{R: 0x00, G: 0x5a, B: 0xb5, A: 255}
	orange = color.RGBA{R: 0xdc, G: 0x6a, B: 0x00, A: 255}
	grey   = color.RGBA{R: 0xa8, G: 0xa8, B: 0xa8, A: 255}
	black  = color.RGBA{A: 255}
	pale   = color.RGBA{R: 0xf4, G: 0xf4, B: 0xf4, A: 255}
)

const (
	width      = 12 * vg.Inch
	laneHeight = 0.75 * vg.Inch
)

// The picture has a horizontal strip for each mechanism. The horizontal axis shows how late the deadlines fired. The
// axis is logarithmic on both sides of 0, and its unit is a decade.
const (
	least    = 0.1   // in ms; smaller deviations are drawn in the middle
	earliest = 10e3  // in ms; deviation to the early side at the left end of a strip
	latest   = 100e3 // in ms; deviation to the late side at the right end of a strip
	words    = 3.4   // width of the text to the right of the strips, in decades
	binsTo   = 12    // bins per decade
)

// A strip is 1 high. Its bars start at base. The bars of deadlines near the kill point downwards.
const (
	base  = 0.36
	up    = 0.56
	down  = 0.28
	grain = 0.0005 // a bar for this share of all deadlines is just high enough to be visible
)

// A negative lateness means early.
func axis(ms float64) float64 {
	if ms < 0 {
		return -math.Log10(min(earliest, max(least, -ms)) / least)
	}
	return math.Log10(min(latest, max(least, ms)) / least)
}

func draw(p plan, results []result, png, svg string) error {
	axes := plot.New()
	axes.Title.Text = fmt.Sprintf("%d deadlines over %s, the process killed in the middle: how early and how late they fire", p.Deadlines, seconds(p.Span))
	axes.X.Min, axes.X.Max = axis(-earliest), axis(latest)+words
	axes.Y.Min, axes.Y.Max = 0, float64(max(1, len(results)))
	axes.X.Tick.Marker = plot.ConstantTicks(lateTicks())
	axes.Legend.Top, axes.Legend.Left = true, true
	legend(axes)
	names := make([]plot.Tick, len(results))
	for i, r := range results {
		low := float64(len(results) - 1 - i)
		names[i] = plot.Tick{Value: low + 0.5, Label: r.Name}
		strip(axes, r, low, i%2 == 0)
	}
	axes.Y.Tick.Marker, axes.Y.Tick.Length = plot.ConstantTicks(names), 0
	axes.Add(lineOf(0, 0, axes.Y.Max, grey, 0.8))

	height := laneHeight*vg.Length(len(results)) + 1.1*vg.Inch
	image := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(110))}
	vector := vgsvg.New(width, height)
	for _, canvas := range []vg.CanvasSizer{image, vector} {
		axes.Draw(vgdraw.Crop(vgdraw.New(canvas), 0.1*vg.Inch, -0.2*vg.Inch, 0.1*vg.Inch, -0.1*vg.Inch))
	}
	if err := write(png, image); err != nil {
		return err
	}
	return write(svg, vector)
}

func write(name string, canvas io.WriterTo) error {
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

func strip(axes *plot.Plot, r result, low float64, shaded bool) {
	if shaded {
		axes.Add(box(axes.X.Min, low, axes.X.Max, low+1, pale))
	}
	axes.Add(text(axis(latest)+0.1, low+0.5, r.words()))
	bars(axes, r.calm, low+base, up, r.Deadlines, blue)
	bars(axes, r.over, low+base, -down, r.Deadlines, grey)
	if r.Calm > 0 {
		for _, ms := range []float64{r.P50, r.P99} {
			axes.Add(lineOf(axis(ms), low+base-0.06, low+base+up, black, 1.2))
		}
	}
}

func bars(axes *plot.Plot, late []float64, low, full float64, all int, fill color.Color) {
	for i, n := range bins(late) {
		left := axis(-earliest) + float64(i)/binsTo
		if n == 0 {
			continue
		}
		shown := fill
		if left < -0.5/binsTo {
			shown = orange
		}
		axes.Add(box(left, low, left+1.0/binsTo, low+full*height(n, all), shown))
	}
}

func (r result) words() string {
	if r.NotHere != "" {
		return r.NotHere
	}
	lines := []string{fmt.Sprintf("p50 %s, p99 %s", r.late(r.P50), r.late(r.P99))}
	for _, of := range []struct {
		n    int
		what string
	}{{r.Early, "early"}, {r.NotFired, "never fired"}, {r.Twice, "fired twice"}} {
		if of.n > 0 {
			lines = append(lines, fmt.Sprintf("%d %s", of.n, of.what))
		}
	}
	return strings.Join(lines, "\n")
}

func bins(late []float64) []int {
	middle := int(math.Round(-axis(-earliest) * binsTo))
	counts := make([]int, middle+int(math.Round(axis(latest)*binsTo))+1)
	for _, ms := range late {
		i := middle + int(math.Floor(axis(ms)*binsTo))
		if ms < 0 {
			// An early deviation still belongs to the early side if it is below 0.1 ms, the constant least.
			i = min(i, middle-1)
		}
		counts[i]++
	}
	return counts
}

// The height is logarithmic, so that a share of one in a thousand stays visible.
func height(n, all int) float64 {
	return math.Log1p(float64(n)/float64(all)/grain) / math.Log1p(1/grain)
}

func lateTicks() []plot.Tick {
	ticks := []plot.Tick{{Value: 0, Label: "on time"}}
	for ms := 10 * least; ms <= latest*1.01; ms *= 10 {
		ticks = append(ticks, plot.Tick{Value: axis(ms), Label: "+" + roundLength(ms)})
		if ms <= earliest*1.01 {
			ticks = append(ticks, plot.Tick{Value: axis(-ms), Label: "−" + roundLength(ms)})
		}
	}
	return ticks
}

func roundLength(ms float64) string {
	if ms < 999 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.0f s", ms/1000)
}

// A legend shows only plotted things, so legend plots a box of size zero for each colour.
func legend(axes *plot.Plot) {
	for _, entry := range []struct {
		name string
		fill color.Color
	}{{"late", blue}, {"early", orange}, {"due around the kill (downwards)", grey}} {
		axes.Legend.Add(entry.name, box(0, 0, 0, 0, entry.fill))
	}
}

func box(left, low, right, high float64, fill color.Color) *plotter.Polygon {
	polygon, err := plotter.NewPolygon(plotter.XYs{{X: left, Y: low}, {X: right, Y: low}, {X: right, Y: high}, {X: left, Y: high}})
	if err != nil {
		panic(err) // fails only without points, or with a NaN or infinite point
	}
	polygon.Color, polygon.LineStyle.Width = fill, 0
	return polygon
}

func lineOf(x, low, high float64, c color.Color, points float64) *plotter.Line {
	line, err := plotter.NewLine(plotter.XYs{{X: x, Y: low}, {X: x, Y: high}})
	if err != nil {
		panic(err) // fails only without points, or with a NaN or infinite point
	}
	line.Color, line.Width = c, vg.Points(points)
	return line
}

func text(x, y float64, words string) *plotter.Labels {
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: y}}, Labels: []string{words}})
	if err != nil {
		panic(err) // cannot fail, because there are as many labels as points
	}
	labels.TextStyle[0].YAlign = vgdraw.YCenter
	return labels
}
