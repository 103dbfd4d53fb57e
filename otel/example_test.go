package otel_test

import (
	"context"
	"database/sql"
	"log"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/otel"
)

// Traces and metrics go to the global providers. docs/reference/telemetry.md shows the same with an SDK and Prometheus.
func Example() {
	var (
		ctx  context.Context
		db   *sql.DB
		mine observe.Observer // stands for your own Observer
	)
	telemetry := compensator.Must(otel.New(otel.Options{}))
	cfg := compensator.Config{DB: db, Observer: mine}
	telemetry.Configure(&cfg)
	c := compensator.Must(compensator.New(ctx, cfg))
	detach := compensator.Must(telemetry.Attach(c))
	// Register handlers here, then call Run, then:
	if err := detach(); err != nil {
		log.Print(err)
	}
	if err := c.Close(); err != nil {
		log.Print(err)
	}
}

// One process uses two logs, for example of two shards. Each has its own Telemetry that names the log.
func ExampleOptions() {
	for _, name := range []string{"shop-1", "shop-2"} {
		telemetry, err := otel.New(otel.Options{Log: name})
		if err != nil {
			log.Fatal(err)
		}
		_ = telemetry // Pass telemetry to the Compensator of this shard's database.
	}
}

// This Telemetry reports metrics only and creates no spans. The trace context of an entry still reaches the calls of
// its handler.
func ExampleNew() {
	telemetry, err := otel.New(otel.Options{TracerProvider: noop.NewTracerProvider()})
	if err != nil {
		log.Fatal(err)
	}
	_ = telemetry
}
