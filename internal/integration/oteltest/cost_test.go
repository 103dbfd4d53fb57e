package oteltest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/otel"
)

func attempt(t testing.TB, opts otel.Options, headers map[string]string, failure error) func() {
	telemetry, err := otel.New(opts)
	require.NoError(t, err)
	observer, propagator := telemetry.Observer(), telemetry.Propagator()
	handler := telemetry.Middleware(func(context.Context, *compensator.Entry) error { return failure })
	entry := &compensator.Entry{BusinessType: "close_order", Headers: headers}
	request := propagator.Extract(context.Background(), headers)
	return func() {
		propagator.Inject(request)
		observer.Recorded(observe.RecordedEvent{Context: request, BusinessType: entry.BusinessType})
		ctx := propagator.Extract(context.Background(), headers)
		event := observe.AttemptEvent{Context: ctx, BusinessType: entry.BusinessType, Attempt: 1}
		observer.AttemptStarted(event)
		_ = handler(ctx, entry)
		observer.AttemptEnded(event)
		observer.Settled(observe.SettledEvent{Context: ctx, BusinessType: entry.BusinessType, State: compensator.Succeeded, EndedBy: compensator.EndedByHandler})
	}
}

func never() trace.TracerProvider {
	return sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
}

func always() trace.TracerProvider {
	return sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithSpanProcessor(discard{}))
}

type discard struct{ sdktrace.SpanProcessor }

func (discard) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (discard) OnEnd(sdktrace.ReadOnlySpan)                     {}

func metered() metric.MeterProvider {
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
}

// cost is the maximum number of allocations per entry that docs/reference/telemetry.md promises.
type cost struct {
	name    string
	opts    otel.Options
	headers map[string]string
	failure error
	most    float64
}

func costs() []cost {
	off := otel.Options{TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider()}
	metrics := otel.Options{TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metered()}
	request := map[string]string{"traceparent": "00-01000000000000000000000000000000-0200000000000000-01"}
	return []cost{
		{"no-op providers", off, nil, nil, 0},
		{"metrics", metrics, nil, nil, 0},
		{"metrics, of a log with a name", otel.Options{Log: "shop-1", TracerProvider: metrics.TracerProvider, MeterProvider: metered()}, nil, nil, 0},
		{"metrics, failed", metrics, nil, errors.New("503"), 2},
		{"metrics, in a trace", metrics, request, nil, 5},
		{"global providers that nobody has set", otel.Options{}, nil, nil, 3},
		{"metrics and a trace not sampled", otel.Options{TracerProvider: never(), MeterProvider: metered()}, request, nil, 14},
		{"metrics and a sampled trace", otel.Options{TracerProvider: always(), MeterProvider: metered()}, request, nil, 20 + 2}, // Two of these allocations come from the race detector.
	}
}

func TestTelemetryOfAnEntryAllocatesWhatTheDocsSay(t *testing.T) {
	for _, c := range costs() {
		got := testing.AllocsPerRun(200, attempt(t, c.opts, c.headers, c.failure))
		t.Logf("%s: %v", c.name, got)
		assert.LessOrEqual(t, got, c.most, c.name)
	}
}

// Run go test -bench Entry on an idle machine.
func BenchmarkEntry(b *testing.B) {
	for _, c := range costs() {
		b.Run(c.name, func(b *testing.B) {
			entry := attempt(b, c.opts, c.headers, c.failure)
			b.ReportAllocs()
			for b.Loop() {
				entry()
			}
		})
	}
}
