package oteltest

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/otel"
)

// printed is an exporter that prints spans. Use an OTLP exporter in its place.
type printed struct{}

func (printed) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, span := range spans {
		fmt.Println("span:", span.Name(), span.Status().Code)
	}
	return nil
}

func (printed) Shutdown(context.Context) error { return nil }

// The entry lives in memory, so that the example runs without a server.
func Example() {
	registry := prometheus.NewRegistry()
	exporter := compensator.Must(otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo()))
	metrics := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	tracing := sdktrace.NewTracerProvider(sdktrace.WithSyncer(printed{}))
	telemetry := compensator.Must(otel.New(otel.Options{TracerProvider: tracing, MeterProvider: metrics}))

	ctx, stop := context.WithCancel(context.Background())
	cfg := compensator.Config{Store: compensatortest.NewMemoryStore(), Queue: compensatortest.NewMemoryQueue().Client()}
	telemetry.Configure(&cfg)
	c := compensator.Must(compensator.New(ctx, cfg))
	detach := compensator.Must(telemetry.Attach(c))
	mails := compensator.Must(compensator.Handle(ctx, c, "mail", func(context.Context, *compensator.Entry, string) error {
		stop() // Run stores the outcome of this attempt before it returns.
		return nil
	}, nil))
	if err := c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := mails.Record(ctx, tx, "hello", compensator.Options{})
		return err
	}); err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}

	scrape := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	for lines := bufio.NewScanner(scrape.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "compensator_entry_settled_total{") {
			fmt.Println(lines.Text())
		}
	}
	if err := detach(); err != nil {
		log.Fatal(err)
	}
	if err := c.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// span: process mail Unset
	// compensator_entry_settled_total{compensator_ended_by="handler",compensator_state="succeeded",messaging_destination_name="mail"} 1
}
