package otel_test

import (
	"context"
	"database/sql"
	"log"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/otel"
)

// Traces and metrics go to the global providers. docs/telemetry.md has the same with an SDK and Prometheus.
func Example() {
	var (
		ctx  context.Context
		db   *sql.DB
		mine compensator.Observer // of one's own, beside it
	)
	telemetry := compensator.Must(otel.New(otel.Options{}))
	c := compensator.Must(compensator.New(ctx, compensator.Config{
		DB: db, Propagator: telemetry.Propagator(), Observer: compensator.Observers(telemetry.Observer(), mine),
	}))
	detach := compensator.Must(telemetry.Attach(c))
	// Handlers are registered here, and Run.
	if err := detach(); err != nil {
		log.Print(err)
	}
	if err := c.Close(); err != nil {
		log.Print(err)
	}
}

// Two logs in one process, of two shards, say: a Telemetry each, which names its log.
func ExampleOptions() {
	for _, name := range []string{"shop-1", "shop-2"} {
		telemetry, err := otel.New(otel.Options{Log: name})
		if err != nil {
			log.Fatal(err)
		}
		_ = telemetry // for the Compensator of that shard's database
	}
}

// Metrics alone: no span is made, and what travelled with an entry goes on to what its handler calls.
func ExampleNew() {
	telemetry, err := otel.New(otel.Options{TracerProvider: noop.NewTracerProvider()})
	if err != nil {
		log.Fatal(err)
	}
	_ = telemetry
}
