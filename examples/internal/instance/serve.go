package instance

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Serve answers requests and works until ctx ends. It stops answering first: what the last request has recorded is then
// known to the work before that ends. Requests under way have longestStop. work finishes what it has begun, and returns.
func Serve(ctx context.Context, server *http.Server, listener net.Listener, longestStop time.Duration, work func(context.Context) error) error {
	working, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorking()
	worked, served := make(chan error, 1), make(chan error, 1)
	go func() { worked <- work(working) }()
	go func() { served <- server.Serve(listener) }()

	var err error
	select {
	case err = <-served:
	case err = <-worked:
		_ = server.Close()
		<-served
		return err
	case <-ctx.Done():
		stopping, cancel := context.WithTimeout(working, longestStop)
		defer cancel()
		err = server.Shutdown(stopping)
		<-served
	}
	stopWorking()
	return errors.Join(err, <-worked)
}
