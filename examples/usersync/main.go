// Command usersync is a service that syncs users to a directory: an operator uploads a batch, a message for each user
// goes through RabbitMQ, consumers do the work. Messages get lost, consumers fail and processes die; a user whom nobody
// has synced in time is sent again, and after some tries handed to a person. README.md tells how to run it.
//
// Read sync.go first: it is the whole of it. byhand.go is the same as people write it today.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runService(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "usersync:", err)
		os.Exit(1)
	}
}
