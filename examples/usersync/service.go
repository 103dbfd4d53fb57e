package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/examples/internal/instance"
)

type settings struct {
	delay   time.Duration // time after the upload until a user who is not synced is sent again
	again   time.Duration // time between two sendings; not used by the hand-written version, which sends a user only once more
	most    int           // how often a user is sent again; after that, a person must look at the user
	limit   time.Duration // time limit of a consumer's work on one user
	workers int           // consumers in one process
	lease   time.Duration
	seed    uint64 // seed of the users' fates
}

func (s *settings) define(flags *flag.FlagSet) {
	flags.DurationVar(&s.delay, "delay", 10*time.Second, "time after the upload until a user who is not synced is sent again")
	flags.DurationVar(&s.again, "again", 5*time.Second, "time between two sendings of a user")
	flags.IntVar(&s.most, "most", 4, "number of further sendings before a person gets the user")
	flags.DurationVar(&s.limit, "limit", 2*time.Second, "time limit of a consumer's work on one user")
	flags.IntVar(&s.workers, "workers", 16, "number of users that this process works on concurrently")
	flags.DurationVar(&s.lease, "lease", 5*time.Second, "time until another process takes over the entries of a killed process")
	flags.Uint64Var(&s.seed, "seed", 1, "seed for the users' random failures")
}

func (s settings) arguments() []string {
	return []string{"-delay", s.delay.String(), "-again", s.again.String(), "-most", strconv.Itoa(s.most), "-limit", s.limit.String(),
		"-workers", strconv.Itoa(s.workers), "-lease", s.lease.String(), "-seed", strconv.FormatUint(s.seed, 10)}
}

func (s settings) validate() error {
	switch {
	case s.delay < time.Millisecond, s.again < 100*time.Millisecond, s.limit < time.Millisecond:
		return errors.New("-delay and -limit want 1ms or more, -again 100ms or more")
	case s.most < 1, s.workers < 1, s.workers > poolSize/2:
		return fmt.Errorf("-most wants 1 or more, -workers 1 to %d", poolSize/2)
	}
	return nil
}

type service struct {
	servers
	settings
	address  string
	untilEOF bool
	manual   bool
}

func runService(ctx context.Context, args []string, out io.Writer) error {
	s := service{servers: serversGiven()}
	flags := flag.NewFlagSet("usersync", flag.ContinueOnError)
	s.define(flags)
	flags.StringVar(&s.Name, "name", s.Name, "prefix of the queue and of every key in Redis")
	flags.StringVar(&s.address, "addr", "127.0.0.1:8080", "HTTP address; port 0 chooses a free port")
	flags.BoolVar(&s.untilEOF, "until-eof", false, "stop when standard input ends")
	flags.BoolVar(&s.manual, "by-hand", false, "run the hand-written version of manual.go; it needs a Redis")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := errors.Join(s.servers.validate(), s.settings.validate()); err != nil {
		return err
	}
	if s.untilEOF {
		ctx = instance.UntilEOF(ctx)
	}
	return s.run(ctx, out)
}

type algorithm interface {
	routes(mux *http.ServeMux)
	run(ctx context.Context) error // runs until ctx ends and finishes what it has begun
	close()
}

func (s *service) run(ctx context.Context, out io.Writer) error {
	db, err := s.OpenDB(poolSize)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := errors.Join(createTables(ctx, db), s.declareQueue()); err != nil {
		return err
	}
	rdb := s.OpenRedis()
	if rdb != nil {
		defer rdb.Close()
	}
	server := &http.Server{ReadTimeout: 2 * longestRequest, ReadHeaderTimeout: longestRequest, IdleTimeout: 2 * time.Minute}
	way, err := s.algorithm(ctx, server, db, rdb)
	if err != nil {
		return err
	}
	defer way.close()
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s%s\n", instance.Greeting, listener.Addr())
	return instance.Serve(ctx, server, listener, way.run)
}

func (s *service) algorithm(ctx context.Context, server *http.Server, db *sql.DB, rdb *redis.Client) (way algorithm, err error) {
	mux := http.NewServeMux()
	server.Handler = http.NewCrossOriginProtection().Handler(mux)
	if s.manual {
		if rdb == nil {
			return nil, errors.New("-by-hand needs a Redis: set REDIS_ADDR")
		}
		way = &manual{servers: s.servers, settings: s.settings, db: db, redis: rdb}
		way.routes(mux)
		return way, nil
	}
	ours, err := newSyncer(ctx, s.servers, s.settings, db, rdb)
	if err != nil {
		return nil, err
	}
	looking := &page{s: ours, stopping: make(chan struct{})}
	server.RegisterOnShutdown(func() { close(looking.stopping) })
	looking.route(mux)
	ours.routes(mux)
	return ours, nil
}
