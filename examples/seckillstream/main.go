// Command seckillstream is a flash sale with a Redis Stream: many buyers at once, few pieces, and one order per buyer.
// README.md shows how to run it, and how to put it under load and faults.
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
		fmt.Fprintln(os.Stderr, "seckillstream:", err)
		os.Exit(1)
	}
}
