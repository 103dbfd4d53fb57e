package oteltest

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/otel"
)

// wired is the example in docs/reference/telemetry.md.
func wired(ctx context.Context, db *sql.DB, spans sdktrace.SpanExporter, registry *prometheus.Registry, mine observe.Observer, run func(*compensator.Compensator) error) (err error) {
	// wiring:
	exporter := compensator.Must(otelprom.New(otelprom.WithRegisterer(registry)))
	metrics := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	tracing := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans)) // for example an OTLP exporter
	// This defer runs after c.Close. So the last export includes the outcomes that c.Close stores.
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, tracing.Shutdown(ending), metrics.Shutdown(ending)) // err is the named result
	}()

	telemetry := compensator.Must(otel.New(otel.Options{TracerProvider: tracing, MeterProvider: metrics}))
	cfg := compensator.Config{DB: db, Observer: mine}
	telemetry.Configure(&cfg) // adds the observer, the propagator and the middleware
	c := compensator.Must(compensator.New(ctx, cfg))
	defer func() { err = errors.Join(err, c.Close()) }()
	detach := compensator.Must(telemetry.Attach(c)) // registers the gauges
	defer func() { err = errors.Join(err, detach()) }()
	return run(c) // registers handlers, then calls serve.Run or c.Run
	// :wiring
}

func TestTelemetryWiredAsInTheDocsReports(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	spans, registry := tracetest.NewInMemoryExporter(), prometheus.NewRegistry()
	settled := make(chan observe.SettledEvent, 1)
	mine := observe.Observer{Settled: func(e observe.SettledEvent) { settled <- e }}
	require.NoError(t, wired(t.Context(), w.DB, keeping{spans}, registry, mine, func(c *compensator.Compensator) error {
		orders, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, string) error { return nil }, nil)
		require.NoError(t, err)
		stop := w.Run(c)
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			return harness.ErrOf(orders.Record(ctx, tx, "42", compensator.Options{}))
		}))
		assert.Equal(t, compensator.Succeeded, harness.Receive(t, settled).State)
		require.NoError(t, stop())
		families, err := registry.Gather()
		require.NoError(t, err)
		var names []string
		for _, family := range families {
			names = append(names, family.GetName())
		}
		assert.Contains(t, names, "compensator_entry_settled_total")
		assert.Contains(t, names, "compensator_ready")
		return nil
	}))
	require.Len(t, spans.GetSpans(), 1)
	assert.Equal(t, "process close_order", spans.GetSpans()[0].Name)
}

// pushed is an exporter that remembers the metric names of each export.
type pushed struct {
	sdkmetric.Exporter
	exports [][]string
}

func (*pushed) Temporality(sdkmetric.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}
func (*pushed) Aggregation(kind sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(kind)
}
func (*pushed) ForceFlush(context.Context) error { return nil }
func (*pushed) Shutdown(context.Context) error   { return nil }

func (p *pushed) Export(_ context.Context, told *metricdata.ResourceMetrics) error {
	var names []string
	for _, scope := range told.ScopeMetrics {
		for _, m := range scope.Metrics {
			names = append(names, m.Name)
		}
	}
	p.exports = append(p.exports, names)
	return nil
}

func TestLastExportHasTheOutcomesOfAStopAndGaugesOnlyBeforeDetach(t *testing.T) {
	t.Parallel()
	w, exporter := harness.NewWorld(t), new(pushed)
	metrics := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithInterval(time.Hour))))
	telemetry, err := otel.New(otel.Options{MeterProvider: metrics})
	require.NoError(t, err)
	settled := make(chan observe.SettledEvent, 1)
	cfg := w.QuickConfig()
	cfg.Observer = observe.Observers(telemetry.Observer(), observe.Observer{Settled: func(e observe.SettledEvent) { settled <- e }})
	c := w.New(cfg)
	detach, err := telemetry.Attach(c)
	require.NoError(t, err)
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, string) error { return nil }, nil)
	require.NoError(t, err)
	stop := w.Run(c)
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		return harness.ErrOf(orders.Record(ctx, tx, "42", compensator.Options{}))
	}))
	harness.Receive(t, settled)
	require.NoError(t, stop())
	require.NoError(t, metrics.ForceFlush(t.Context()))
	require.NoError(t, detach())
	require.NoError(t, c.Close())
	require.NoError(t, metrics.Shutdown(t.Context()))
	require.Len(t, exporter.exports, 2)
	for i, gauges := range []bool{true, false} {
		assert.Contains(t, exporter.exports[i], "compensator.entry.settled")
		assert.Equal(t, gauges, slices.Contains(exporter.exports[i], "compensator.ready"), "export %d", i)
	}
}

// keeping is an exporter that keeps its spans after its shutdown.
type keeping struct{ *tracetest.InMemoryExporter }

func (keeping) Shutdown(context.Context) error { return nil }

func TestDocsShowTheWiringThatRuns(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("wiring_test.go")
	require.NoError(t, err)
	_, wiring, _ := strings.Cut(string(source), "// wiring:\n")
	wiring, _, _ = strings.Cut(wiring, "\t// :wiring")
	page, err := os.ReadFile("../../../docs/reference/telemetry.md")
	require.NoError(t, err)
	assert.Contains(t, string(page), "```go\n"+strings.TrimPrefix(strings.ReplaceAll("\n"+wiring, "\n\t", "\n"), "\n")+"```\n")
}

// Failure: F129
func TestDocsListEveryMetric(t *testing.T) {
	t.Parallel()
	w := newWorld(t, otel.Options{})
	w.live()
	var told, listed []string
	for name := range w.series() {
		metric, _, _ := strings.Cut(name, "{")
		told = append(told, metric)
	}
	page, err := os.ReadFile("../../../docs/reference/telemetry.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(page), "\n## Metrics\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for row := range strings.Lines(table) {
		if name, found := strings.CutPrefix(row, "| `"); found {
			name, _, _ = strings.Cut(name, "`")
			listed = append(listed, name)
		}
	}
	slices.Sort(told)
	slices.Sort(listed)
	assert.Equal(t, slices.Compact(told), listed)
}
