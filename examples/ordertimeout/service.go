package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/serve"
)

// The command runs a service unless its first argument is "load".
type service struct {
	servers
	address  string
	lease    time.Duration
	untilEOF bool
}

func runService(ctx context.Context, args []string, out io.Writer) error {
	var s service
	flags := flag.NewFlagSet("ordertimeout", flag.ContinueOnError)
	s.define(flags)
	flags.StringVar(&s.address, "addr", "127.0.0.1:8080", "HTTP address; port 0 chooses a free port")
	flags.DurationVar(&s.lease, "lease", 5*time.Second, "time until another process takes over the entries of a killed process")
	flags.BoolVar(&s.untilEOF, "until-eof", false, "stop when standard input ends")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := s.fill(); err != nil {
		return err
	}
	if s.untilEOF {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		go func() {
			defer stop()
			_, _ = io.Copy(io.Discard, os.Stdin) // An error of Copy also ends the context.
		}()
	}
	return s.run(ctx, out)
}

func (s *service) run(ctx context.Context, out io.Writer) error {
	db, err := s.openDB()
	if err != nil {
		return err
	}
	defer db.Close()
	if err := createTables(ctx, db); err != nil {
		return err
	}
	// A process may die before it has enqueued its entries. The reconciler then finds them. They start at most Grace
	// plus 1.2 × ReconcileInterval after they are due, which is 3.4 s.
	config := compensator.Config{DB: db, Prefix: s.prefix, Lease: s.lease, Grace: time.Second, ReconcileInterval: 2 * time.Second}
	if rdb := s.openRedis(); rdb != nil {
		defer rdb.Close()
		config.Redis = rdb
	}
	log, err := compensator.New(ctx, config)
	if err != nil {
		return err
	}
	defer log.Close()
	shop, err := newShop(db, log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s%s\n", greeting, listener.Addr())
	server := &http.Server{Handler: shop.routes(), ReadTimeout: 2 * longestRequest, ReadHeaderTimeout: longestRequest, IdleTimeout: 2 * time.Minute}
	return serve.Run(ctx, serve.Config{Servers: []serve.Server{{Server: server, Listener: listener}}}, log)
}

const greeting = "listening on "
