package oteltest

import (
	"context"
	"database/sql"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/otel"
)

// wired is docs/telemetry.md's.
func wired(ctx context.Context, db *sql.DB, spans sdktrace.SpanExporter, registry *prometheus.Registry, mine compensator.Observer, run func(*compensator.Compensator)) {
	// wiring:
	exporter := compensator.Must(otelprom.New(otelprom.WithRegisterer(registry)))
	tracing := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans)) // an OTLP exporter, say
	defer tracing.Shutdown(context.WithoutCancel(ctx))
	metrics := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	defer metrics.Shutdown(context.WithoutCancel(ctx)) // both after c.Close, which is deferred later

	telemetry := compensator.Must(otel.New(otel.Options{
		TracerProvider: tracing,
		MeterProvider:  metrics,
	}))
	c := compensator.Must(compensator.New(ctx, compensator.Config{
		DB: db, Propagator: telemetry.Propagator(), Observer: compensator.Observers(telemetry.Observer(), mine),
	}))
	defer c.Close()
	detach := compensator.Must(telemetry.Attach(c)) // before handlers are registered
	defer detach()
	// :wiring
	run(c)
}

func TestTelemetryWiredAsTheDocsHaveItTells(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	spans, registry := tracetest.NewInMemoryExporter(), prometheus.NewRegistry()
	settled := make(chan compensator.SettledEvent, 1)
	mine := compensator.Observer{Settled: func(e compensator.SettledEvent) { settled <- e }}
	wired(t.Context(), w.DB, keeping{spans}, registry, mine, func(c *compensator.Compensator) {
		orders, err := compensator.Handle(c, "close_order", func(context.Context, *compensator.Entry, string) error { return nil }, compensator.TypeConfig{})
		require.NoError(t, err)
		stop := w.Run(c)
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			return harness.ErrOf(orders.Record(ctx, tx, "42", compensator.Options{}))
		}))
		assert.Equal(t, compensator.Succeeded, harness.Next(t, settled).State)
		require.NoError(t, stop())
		families, err := registry.Gather()
		require.NoError(t, err)
		var names []string
		for _, family := range families {
			names = append(names, family.GetName())
		}
		assert.Contains(t, names, "compensator_entry_settled_total")
		assert.Contains(t, names, "compensator_ready")
	})
	require.Len(t, spans.GetSpans(), 1)
	assert.Equal(t, "process close_order", spans.GetSpans()[0].Name)
}

// keeping keeps what it has after its shutdown.
type keeping struct{ *tracetest.InMemoryExporter }

func (keeping) Shutdown(context.Context) error { return nil }

func TestDocsShowTheWiringThatRuns(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("wiring_test.go")
	require.NoError(t, err)
	_, wiring, _ := strings.Cut(string(source), "// wiring:\n")
	wiring, _, _ = strings.Cut(wiring, "\t// :wiring")
	page, err := os.ReadFile("../../docs/telemetry.md")
	require.NoError(t, err)
	assert.Contains(t, string(page), "```go\n"+strings.TrimPrefix(strings.ReplaceAll("\n"+wiring, "\n\t", "\n"), "\n")+"```\n")
}

// TestDocsListWhatIsTold: each metric of a living service, and no other.
func TestDocsListWhatIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, otel.Options{})
	w.live()
	var told, listed []string
	for name := range w.series() {
		metric, _, _ := strings.Cut(name, "{")
		told = append(told, metric)
	}
	page, err := os.ReadFile("../../docs/telemetry.md")
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
