// Command telemetry shows the metrics and the spans of the library. It closes five orders on SQLite: order 2 needs a
// second attempt, and order 5 dies. The program serves the metrics for Prometheus and prints the spans, until Ctrl-C.
//
// With -once the program closes the orders, prints the metrics and the spans, and ends.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	_ "modernc.org/sqlite"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/otel"
	"github.com/compensator-go/compensator/serve"
)

const placed = 5 // number of orders

type order struct{ ID int }

func main() {
	addr := flag.String("addr", "127.0.0.1:9464", "`address` that serves the metrics; with port 0 the system chooses the port")
	once := flag.Bool("once", false, "print the metrics and the spans of all orders, then end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the program at once.
	if err := run(ctx, *addr, *once); err != nil {
		log.Fatal(err)
	}
}

// run opens the database, the providers, the Compensator and the gauges. It closes them in reverse order.
func run(ctx context.Context, addr string, once bool) (err error) {
	dir := compensator.Must(os.MkdirTemp("", "telemetry"))
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db := compensator.Must(compensator.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_txlock=immediate&_pragma=busy_timeout(10000)"))
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := compensator.Migrate(ctx, db); err != nil {
		return err
	}

	registry := prometheus.NewRegistry()
	exporter := compensator.Must(otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo()))
	metrics := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	spans := compensator.Must(stdouttrace.New()) // Use an OTLP exporter in its place.
	tracing := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans))
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, tracing.Shutdown(ending), metrics.Shutdown(ending))
	}()

	ended := make(chan compensator.State, placed)
	telemetry := compensator.Must(otel.New(otel.Options{TracerProvider: tracing, MeterProvider: metrics}))
	cfg := compensator.Config{DB: db, Operations: &compensator.Operations{}, Observer: observe.Observer{Settled: func(e observe.SettledEvent) {
		if e.EndedBy != "" {
			ended <- e.State
		}
	}}}
	telemetry.Configure(&cfg)
	c := compensator.Must(compensator.New(ctx, cfg))
	defer func() { err = errors.Join(err, c.Close()) }()
	detach := compensator.Must(telemetry.Attach(c))
	defer func() { err = errors.Join(err, detach()) }()

	closeOrder := compensator.Must(compensator.Handle(ctx, c, "close_order", closeAtPartner, nil))
	placing, span := tracing.Tracer("shop").Start(ctx, "place_orders") // Each attempt links to this span.
	err = place(placing, c, closeOrder)
	span.End()
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	page := fmt.Sprintf("http://%s/metrics", listener.Addr())
	fmt.Println("metrics:", page)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	parts := serve.Config{Inside: []serve.Server{{Server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}, Listener: listener}}}
	if once {
		parts.Consumers = append(parts.Consumers, func(ctx context.Context) error { // When it returns, serve.Run ends.
			for range placed {
				select {
				case <-ended:
				case <-ctx.Done():
					return nil
				}
			}
			return scrape(page)
		})
	}
	return serve.Run(ctx, parts, c)
}

// closeAtPartner stands for a call to a partner that sometimes fails.
func closeAtPartner(_ context.Context, e *compensator.Entry, o order) error {
	switch {
	case o.ID == 2 && e.Attempt() == 1:
		return errors.New("the partner is busy")
	case o.ID == placed:
		return compensator.Permanent(errors.New("the partner does not know the order"))
	}
	return nil
}

func place(ctx context.Context, c *compensator.Compensator, closeOrder *compensator.Type[order]) error {
	return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		for id := range placed {
			if _, err := closeOrder.Record(ctx, tx, order{ID: id + 1}, compensator.Options{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// scrape prints the library's metrics as Prometheus gets them. It leaves out the buckets of histograms.
func scrape(page string) error {
	answer, err := http.Get(page)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		ours := strings.HasPrefix(lines.Text(), "compensator_") || strings.HasPrefix(lines.Text(), "messaging_")
		if ours && !strings.Contains(lines.Text(), "_bucket{") {
			fmt.Println(lines.Text())
		}
	}
	return lines.Err()
}
