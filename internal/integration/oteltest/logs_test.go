package oteltest

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/otel"
)

// Failure: F129
func TestSeriesOfTwoLogsCarryTheirNames(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"orders", "stock"}, {""}} {
		reader := sdkmetric.NewManualReader()
		provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		for _, name := range names {
			telemetry, err := otel.New(otel.Options{MeterProvider: provider})
			require.NoError(t, err)
			cfg := compensator.Config{Name: name, Store: compensatortest.NewMemoryStore(), Logger: slog.New(slog.DiscardHandler)}
			telemetry.Configure(&cfg)
			c, err := compensator.New(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			detach, err := telemetry.Attach(c)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, detach()) })
		}
		var found metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &found))
		var told []string
		for _, scope := range found.ScopeMetrics {
			for _, m := range scope.Metrics {
				if m.Name == "compensator.ready" {
					for _, point := range m.Data.(metricdata.Gauge[int64]).DataPoints {
						name, _ := point.Attributes.Value("compensator.log")
						told = append(told, name.AsString())
						assert.Equal(t, name.AsString() != "", point.Attributes.HasValue("compensator.log"))
						assert.EqualValues(t, 1, point.Value)
					}
				}
			}
		}
		assert.ElementsMatch(t, names, told)
	}
}
