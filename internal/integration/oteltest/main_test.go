package oteltest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/otel"
)

func TestMain(m *testing.M) { harness.Main(m) }

type world struct {
	*harness.World
	c      *compensator.Compensator
	traces *sdktrace.TracerProvider
	ended  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
}

// newWorld returns a world. opts overrides the default of recording everything.
func newWorld(t *testing.T, opts otel.Options) *world {
	w := &world{World: harness.NewWorld(t), ended: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	limits := sdktrace.NewSpanLimits()
	limits.LinkCountLimit = -1 // The SDK has no limit, so that the test sees the limit of package otel.
	w.traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.ended), sdktrace.WithRawSpanLimits(limits))
	if opts.TracerProvider == nil {
		opts.TracerProvider = w.traces
	}
	if opts.MeterProvider == nil {
		opts.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader))
	}
	telemetry, err := otel.New(opts)
	require.NoError(t, err)
	cfg := w.QuickConfig()
	telemetry.Configure(&cfg)
	worth := func(*compensator.Entry) (compensator.Amount, error) {
		return compensator.Amount{Minor: 12900, Currency: "CNY"}, nil
	}
	cfg.Operations = &compensator.Operations{Attempts: true, Instances: true, Statistics: true, Types: map[string]compensator.CaseConfig{"refund": {Amount: worth}}}
	w.c = w.New(cfg)
	detach, err := telemetry.Attach(w.c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, detach()) })
	return w
}

func (w *world) run() (stop func() error) { return w.Run(w.c) }

func (w *world) handle(name string, handler func(ctx context.Context, e *compensator.Entry, v string) error, cfg compensator.HandlerConfig[string]) *compensator.Type[string] {
	if cfg.Retry == nil {
		cfg.Retry = compensator.Fixed(0)
	}
	typ, err := compensator.Handle(context.Background(), w.c, name, handler, &cfg)
	require.NoError(w.T, err)
	return typ
}

func (w *world) record(ctx context.Context, typ *compensator.Type[string], opts compensator.Options) compensator.EntryID {
	var receipt *compensator.Receipt
	require.NoError(w.T, w.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) (err error) {
		receipt, err = typ.Record(ctx, tx, typ.Name(), opts)
		return err
	}))
	return receipt.Entries[0].ID
}

func (w *world) reaches(id compensator.EntryID, state compensator.State) {
	w.T.Helper()
	w.Eventually(func() bool {
		e, err := w.c.Get(w.T.Context(), id)
		return err == nil && e.State == state
	}, "the entry is %v", state)
}

func (w *world) series() map[string]float64 { return collect(w.T, w.reader) }

func collect(t *testing.T, reader *sdkmetric.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	found := make(map[string]float64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			for of, v := range values(m) {
				found[m.Name+of] = v
			}
		}
	}
	return found
}

func values(m metricdata.Metrics) map[string]float64 {
	found := make(map[string]float64)
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			found[named(p.Attributes)] = float64(p.Value)
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			found[named(p.Attributes)] = float64(p.Value)
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			found[named(p.Attributes)] = p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			found[named(p.Attributes)] = float64(p.Count)
		}
	}
	return found
}
