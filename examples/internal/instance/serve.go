package instance

import (
	"context"
	"net"
	"net/http"

	"github.com/compensator-go/compensator/serve"
)

// Serve answers requests and runs the function work until ctx ends. It then stops in the order of serve.Run.
// When ctx ends, work must finish its present task and return.
func Serve(ctx context.Context, server *http.Server, listener net.Listener, work func(context.Context) error) error {
	return serve.Run(ctx, serve.Config{Servers: []serve.Server{{Server: server, Listener: listener}}}, working(work))
}

// working adapts a function to the interface of a log in serve.Run.
type working func(context.Context) error

func (w working) Run(ctx context.Context) error { return w(ctx) }
