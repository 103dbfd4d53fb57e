// Command seckillstream is a flash sale whose orders come out of a Redis Stream: many buyers at once, few pieces, one order a
// buyer. README.md tells how to run it, and how it is put under load and faults.
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
