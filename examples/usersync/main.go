// Command usersync is a service that syncs users to a directory. An operator uploads a batch, and a message for each
// user goes through RabbitMQ. Consumers do the work. Messages get lost, consumers fail and processes die. A user who is
// not synced in time is sent again, and after some tries handed to a person. README.md shows how to run it.
//
// Read sync.go first. It holds the whole logic. manual.go is a typical hand-written version.
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
