package serve_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/serve"
)

// A service with two databases serves its API and runs both logs until ctx ends.
func ExampleRun() {
	open := func(name string) *compensator.Compensator {
		return compensator.Must(compensator.New(context.Background(), compensator.Config{Name: name, Store: compensatortest.NewMemoryStore()})) // in production: DB
	}
	orders, stock := open("orders"), open("stock")
	api := &http.Server{Addr: "127.0.0.1:0", Handler: http.NotFoundHandler(), ReadTimeout: time.Minute, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}

	ctx, stop := context.WithTimeout(context.Background(), 10*time.Millisecond) // in production: signal.NotifyContext
	defer stop()
	fmt.Println("stopped:", serve.Run(ctx, serve.Config{Servers: []serve.Server{{Server: api}}}, orders, stock))
	fmt.Println("closed:", orders.Close(), stock.Close())
	// Output:
	// stopped: <nil>
	// closed: <nil> <nil>
}
