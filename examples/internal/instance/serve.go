package instance

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// longestStop bounds the requests that are under way when a service is told to stop. It is longer than the 5 s for which
// package http takes a connection that has sent nothing for a busy one.
const longestStop = 10 * time.Second

// Serve answers requests and works until ctx ends. It stops answering first: what the last request has recorded is then
// known to the work before that ends. work finishes what it has begun, and returns.
func Serve(ctx context.Context, server *http.Server, listener net.Listener, work func(context.Context) error) error {
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
