package instance

import (
	"context"
	"net"
	"net/http"

	"github.com/compensator-go/compensator/serve"
)

// Serve answers requests and works until ctx ends, and stops in the order of serve.Run. work finishes what it has begun, and returns.
func Serve(ctx context.Context, server *http.Server, listener net.Listener, work func(context.Context) error) error {
	return serve.Run(ctx, working(work), serve.Config{Servers: []serve.Server{{Server: server, Listener: listener}}})
}

// working is work in the place of a log.
type working func(context.Context) error

func (w working) Run(ctx context.Context) error { return w(ctx) }
