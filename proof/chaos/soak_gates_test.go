package chaos

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type gate struct {
	what   string
	got    string
	want   string
	passed bool
	figure bool // whether the value is only reported and not judged, because a busy machine is no defect
}

const (
	mostHistory  = 1e5
	mostSlope    = 1.0   // in MB per hour
	mostGrowth   = 4.0   // in MB over the second half; used if the run is too short to distinguish the slope from noise
	mostSpurious = 0.001 // share of the ids that claims ask for and do not get, in undisturbed time
	mostLate     = 200.0 // 99th percentile of the lateness in undisturbed time, in ms
)

// gates uses only the second half of the readings, because processes warm up in the first half.
func (s *soak) gates() []gate {
	var all []gate
	for _, what := range s.names() {
		_, kind, _ := strings.Cut(what, ": ")
		switch {
		case kind == "RSS, MB":
			all = append(all, steady(what, s.series[what], 3600))
		case kind == "live heap, MB":
			all = append(all, steady(what, s.series[what], 0))
		case kind == "goroutines", what == sqlPrepared:
			all = append(all, flat(what, s.series[what], 8))
		case kind == "open files", what == sqlConnections: // Pools open more connections after each stall, up to their limits.
			all = append(all, flat(what, s.series[what], 20))
		}
	}
	return append(all, below(sqlHistory, s.series[sqlHistory], mostHistory), below(queueExcess, s.calmOnes(queueExcess), 0), s.spurious(), s.lateness())
}

func (s *soak) names() []string {
	names := make([]string, 0, len(s.series))
	for name := range s.series {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func (s *soak) calmOnes(what string) []point {
	return slices.DeleteFunc(slices.Clone(s.series[what]), func(p point) bool { return !s.calm(p.at) })
}

// steady judges the slope of the second half of the readings. If the run is too short for a slope, it judges the total
// growth.
func steady(what string, points []point, warm float64) gate {
	g := gate{what: what + ", slope of the second half", want: fmt.Sprintf("< %.0f MB/h", mostSlope)}
	slope, within, hours := trend(secondHalf(points))
	g.got = fmt.Sprintf("%+.2f ± %.2f MB/h (95 %%)", slope, within)
	if within <= mostSlope && secondHalf(points)[0].at >= warm {
		g.passed = slope < mostSlope
		return g
	}
	g.want = fmt.Sprintf("run too short for < %.0f MB/h: growth at most %.0f MB, or within noise", mostSlope, mostGrowth)
	g.got += fmt.Sprintf(", that is %+.2f ± %.2f MB", slope*hours, within*hours)
	g.passed = slope*hours <= mostGrowth || slope-within <= mostSlope
	if hours == 0 {
		g.got, g.passed = "no readings", false
	}
	return g
}

func secondHalf(points []point) []point { return points[len(points)/2:] }

// Adjacent readings are correlated, but the means of blocks are hardly correlated.
const blocks = 10

// studentT is the two-sided 95 % quantile of Student's t distribution with blocks − 2 degrees of freedom.
const studentT = 2.306

func trend(points []point) (slope, within, hours float64) {
	n := len(points) / blocks
	if n == 0 {
		return 0, math.Inf(1), 0
	}
	var x, y [blocks]float64
	var meanX, meanY float64
	for i := range blocks {
		for _, p := range points[i*n : (i+1)*n] {
			x[i] += p.at / 3600 / float64(n)
			y[i] += p.value / float64(n)
		}
		meanX, meanY = meanX+x[i]/blocks, meanY+y[i]/blocks
	}
	var xx, xy, rest float64
	for i := range blocks {
		xx += (x[i] - meanX) * (x[i] - meanX)
		xy += (x[i] - meanX) * (y[i] - meanY)
	}
	slope = xy / xx
	for i := range blocks {
		d := y[i] - meanY - slope*(x[i]-meanX)
		rest += d * d
	}
	return slope, studentT * math.Sqrt(rest/(blocks-2)/xx), (points[len(points)-1].at - points[0].at) / 3600
}

func flat(what string, points []point, band float64) gate {
	q := len(points) / 4
	if q == 0 {
		return gate{what: what, got: "no readings"}
	}
	before, after := quantile(points[q:2*q], 0.5), quantile(points[3*q:], 0.5)
	band = max(band, before/10)
	return gate{
		what: what + ", second and last quarter", got: fmt.Sprintf("%.0f → %.0f", before, after),
		want: fmt.Sprintf("at most %.0f more", band), passed: after <= before+band,
	}
}

func below(what string, points []point, limit float64) gate {
	most := quantile(points, 1)
	return gate{what: what + ", most", got: fmt.Sprintf("%.0f", most), want: fmt.Sprintf("≤ %.0f", limit), passed: len(points) > 0 && most <= limit}
}

func quantile(points []point, q float64) float64 {
	if len(points) == 0 {
		return math.NaN()
	}
	values := make([]float64, len(points))
	for i, p := range points {
		values[i] = p.value
	}
	sort.Float64s(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

// spurious limits the share of ids that claims ask for and do not get. On a busy machine, entries start later than the
// grace period, so the reconciler claims them first. Later claims ask for these ids without success. So on a busy
// machine, the share is only reported and not judged.
func (s *soak) spurious() gate {
	wanted, taken := 0.0, 0.0
	asked, got := s.series[claimsWanted], s.series[claimsTaken]
	for i := 1; i < min(len(asked), len(got)); i++ {
		if s.calm(asked[i-1].at) && s.calm(asked[i].at) {
			wanted += asked[i].value - asked[i-1].value
			taken += got[i].value - got[i-1].value
		}
	}
	share := max(0, wanted-taken) / wanted
	return gate{
		what: "claims that took nothing, undisturbed", got: fmt.Sprintf("%.3f %% of %.0f", 100*share, wanted),
		want: fmt.Sprintf("< %.1f %%", 100*mostSpurious), passed: wanted > 0 && share < mostSpurious,
		figure: wanted > 0 && s.p99() > float64(grace.Milliseconds()),
	}
}

func (s *soak) undisturbed() []point {
	return slices.DeleteFunc(slices.Clone(s.late), func(p point) bool { return !s.calm(p.at) })
}

func (s *soak) p99() float64 { return quantile(s.undisturbed(), 0.99) }

func (s *soak) lateness() gate {
	late, p99 := s.undisturbed(), s.p99()
	return gate{
		what: "handler's start after its due time, undisturbed, p99", got: fmt.Sprintf("%.0f ms of %d attempts (p50 %.0f ms)", p99, len(late), quantile(late, 0.5)),
		want: fmt.Sprintf("< %.0f ms", mostLate), passed: p99 < mostLate, figure: true,
	}
}

func readings(n int, value func(seconds float64) float64) []point {
	points := make([]point, n)
	for i := range points {
		at := float64(i) * soakEvery.Seconds()
		points[i] = point{at, value(at) + math.Sin(at)*0.3}
	}
	return points
}

func TestMemoryThatGrowsFailsItsGate(t *testing.T) {
	warm := func(at float64) float64 { return 40 - 10*math.Exp(-at/60) }
	for _, test := range []struct {
		name    string
		n       int
		perHour float64
		passed  bool
	}{
		{"steady for two minutes", 60, 0, true},
		{"steady for half an hour", 900, 0, true},
		{"steady for a day", 43200, 0, true},
		{"a leak of 2 MB/h in a day", 43200, 2, false},
		{"half a MB/h in a day", 43200, 0.5, true},
		{"a leak of 30 MB/h in half an hour", 900, 30, false},
		{"a leak of 600 MB/h in two minutes", 60, 600, false},
	} {
		for _, early := range []float64{0, 3600} {
			g := steady(test.name, readings(test.n, func(at float64) float64 { return warm(at) + at/3600*test.perHour }), early)
			require.Equal(t, test.passed, g.passed, "%+v", g)
		}
	}
	require.False(t, steady("nothing", nil, 0).passed)
}

func TestCountsThatGrowFailTheirGate(t *testing.T) {
	require.True(t, flat("goroutines", readings(900, func(float64) float64 { return 80 }), 8).passed)
	require.False(t, flat("goroutines", readings(900, func(at float64) float64 { return 80 + at/100 }), 8).passed)
	spikes := func(at float64) float64 {
		if int(at)%60 < 10 {
			return 300
		}
		return 80
	}
	require.True(t, flat("goroutines", readings(900, spikes), 8).passed, "a fault's spike is no growth")
	require.False(t, flat("goroutines", nil, 8).passed)
	require.False(t, below("history", readings(10, func(float64) float64 { return 1e6 }), mostHistory).passed)
	require.False(t, below("history", nil, mostHistory).passed, "unread")
}

func TestWhatAFaultDisturbedIsLeftOut(t *testing.T) {
	s := &soak{series: map[string][]point{
		claimsWanted: {{0, 0}, {2, 1000}, {4, 2000}, {100, 2000}, {102, 3000}},
		claimsTaken:  {{0, 0}, {2, 1000}, {4, 1000}, {100, 1000}, {102, 2000}},
	}, faults: []interval{{3, 50}}, late: []point{{1, 20}, {40, 9000}, {55, 9000}, {70, 30}}}
	require.True(t, s.spurious().passed, "%+v", s.spurious())
	require.True(t, s.lateness().passed, "%+v", s.lateness())
	s.faults = nil
	require.False(t, s.spurious().passed)
	require.False(t, s.lateness().passed)
	require.False(t, new(soak).spurious().passed, "unread")
	require.False(t, new(soak).lateness().passed, "unread")
}

func TestIdsOfAStatementAreCounted(t *testing.T) {
	require.EqualValues(t, 3, idsIn("UPDATE t SET x=1 WHERE id IN (1,2,33) AND version=0"))
	require.EqualValues(t, 1, idsIn("SELECT id FROM t WHERE id IN (7) ORDER BY id FOR UPDATE SKIP LOCKED"))
	require.Zero(t, idsIn("COMMIT"))
}
