package instance

import (
	"context"
	"net"
	"net/http"

	"github.com/compensator-go/compensator/serve"
)

// Serve works until ctx ends, and then stops in the order of serve.Run. The function work must finish its present task
// and return.
func Serve(ctx context.Context, server *http.Server, listener net.Listener, work func(context.Context) error) error {
	return serve.Run(ctx, serve.Config{Servers: []serve.Server{{Server: server, Listener: listener}}}, working(work))
}

type working func(context.Context) error

func (w working) Run(ctx context.Context) error { return w(ctx) }
