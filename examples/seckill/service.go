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
	"sync"
	"time"

	"github.com/compensator-go/compensator/examples/internal/instance"
	"github.com/compensator-go/compensator/examples/internal/servers"
)

// poolSize is shared by requests, consumers and the log. A transactional handler holds a connection while it runs.
const poolSize = 64

// longestStop bounds the requests that are under way when the service is told to stop.
const longestStop = 10 * time.Second

// settings are what both algorithms go by.
type settings struct {
	goods    string // on sale when the service starts, and shown by the page
	stock    int
	window   time.Duration // for the payment
	gather   time.Duration // a ticket waits for others, to be sent with them
	resend   time.Duration // between two sendings of a ticket that no consumer has confirmed
	most     int           // sendings before it is undone
	abandon  time.Duration // an open ticket's process is taken for dead after this
	workers  int           // consumers in one process
	lease    time.Duration
	fail     float64 // share of the consumers' tries
	hopeless float64 // share of the tickets
	seed     uint64
}

func (s *settings) define(flags *flag.FlagSet) {
	flags.StringVar(&s.goods, "goods", "phone", "put on sale, unless it is, and shown on the page")
	flags.IntVar(&s.stock, "stock", 100, "pieces of it")
	flags.DurationVar(&s.window, "window", 15*time.Second, "an order that is not paid in this time is closed")
	flags.DurationVar(&s.gather, "gather", 100*time.Millisecond, "a ticket waits so long for others, to be sent with them: in a rush batches cost less")
	flags.DurationVar(&s.resend, "resend", 2*time.Second, "a ticket that no consumer has confirmed is sent again after this")
	flags.IntVar(&s.most, "most", 5, "sendings of a ticket before it is undone")
	flags.DurationVar(&s.abandon, "abandon", 5*time.Second, "a ticket whose process tells nothing for so long is decided about by others")
	flags.IntVar(&s.workers, "workers", 8, "messages that this process works on at once")
	flags.DurationVar(&s.lease, "lease", 5*time.Second, "how long what a killed process had under way waits to be taken over")
	flags.Float64Var(&s.fail, "fail", 0, "share of the consumers' tries that fail, to see what happens")
	flags.Float64Var(&s.hopeless, "hopeless", 0, "share of the tickets that never become an order, to see what happens")
	flags.Uint64Var(&s.seed, "seed", 1, "of bad luck")
}

// arguments are the flags that define reads.
func (s settings) arguments() []string {
	share := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	return []string{"-goods", s.goods, "-stock", strconv.Itoa(s.stock), "-window", s.window.String(), "-gather", s.gather.String(), "-resend", s.resend.String(),
		"-most", strconv.Itoa(s.most), "-abandon", s.abandon.String(), "-workers", strconv.Itoa(s.workers), "-lease", s.lease.String(),
		"-fail", share(s.fail), "-hopeless", share(s.hopeless), "-seed", strconv.FormatUint(s.seed, 10)}
}

func (s settings) validate() error {
	switch {
	case !namePattern.MatchString(s.goods), s.stock < 0:
		return errors.New("-goods wants a name of 1 to 40 of A-Z a-z 0-9 _ . -, -stock 0 or more")
	case s.window < time.Millisecond, s.resend < 100*time.Millisecond, s.abandon < 100*time.Millisecond:
		return errors.New("-window wants 1ms or more, -resend and -abandon 100ms or more")
	case s.most < 1, s.workers < 1, s.workers > poolSize/2:
		return fmt.Errorf("-most wants 1 or more, -workers 1 to %d", poolSize/2)
	}
	return nil
}

// service is one process.
type service struct {
	servers.Servers
	settings
	address  string
	untilEOF bool
	byHand   bool
}

func runService(ctx context.Context, args []string, out io.Writer) error {
	s := service{Servers: servers.Given("seckill")}
	flags := flag.NewFlagSet("seckill", flag.ContinueOnError)
	s.define(flags)
	flags.StringVar(&s.Name, "name", s.Name, "starts every key in Redis, and the queue")
	flags.StringVar(&s.address, "addr", "127.0.0.1:8080", "serve HTTP here; port 0 takes a free one")
	flags.BoolVar(&s.untilEOF, "until-eof", false, "stop when standard input ends")
	flags.BoolVar(&s.byHand, "by-hand", false, "do it the way of byhand.go")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := errors.Join(s.Validate(), s.validate()); err != nil {
		return err
	}
	if s.untilEOF {
		ctx = instance.UntilEOF(ctx)
	}
	return s.run(ctx, out)
}

// algorithm is one of the two ways.
type algorithm interface {
	sellOne(ctx context.Context, p purchase) (ticket, error)
	find(ctx context.Context, p purchase) (order, error)
	pay(ctx context.Context, id uint64) error
	run(ctx context.Context) error // until ctx ends; it finishes what it has begun
}

// run opens everything and works until ctx ends.
func (s *service) run(ctx context.Context, out io.Writer) error {
	db, err := s.OpenDB(poolSize)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := s.prepare(ctx, db); err != nil {
		return err
	}
	c := &counter{redis: s.OpenRedis(), name: s.Name}
	defer c.redis.Close()
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	defer listener.Close()
	api := newAPI(db, c)
	stopping := make(chan struct{})
	var way algorithm
	var beside []func(context.Context) // until the context ends
	if s.byHand {
		way = &byHand{settings: s.settings, db: db, redis: c.redis, name: s.Name, url: s.AMQP, queue: s.Queue(orderQueue)}
	} else {
		ours, err := newSale(ctx, s.settings, s.Servers, db, c)
		if err != nil {
			return err
		}
		defer ours.end()
		api.routesOfSale(ours)
		p := newPage(ours, api, listener.Addr().String(), stopping)
		p.routes()
		way, beside = ours, []func(context.Context){p.letIn, func(ctx context.Context) { api.answers.share(ctx, c) }}
	}
	api.routes(way)
	fmt.Fprintf(out, "%s%s\n", instance.Greeting, listener.Addr())
	server := &http.Server{Handler: http.NewCrossOriginProtection().Handler(api.mux), ReadHeaderTimeout: longestRequest}
	server.RegisterOnShutdown(sync.OnceFunc(func() { close(stopping) }))
	return instance.Serve(ctx, server, listener, longestStop, func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		var others sync.WaitGroup
		for _, other := range beside {
			others.Go(func() { other(ctx) })
		}
		err := way.run(ctx)
		stop()
		others.Wait()
		return err
	})
}

// prepare makes what is missing. A database that takes no writes at present has it already, or the service cannot start.
func (s *service) prepare(ctx context.Context, db *sql.DB) error {
	return errors.Join(createTables(ctx, db), putOnSale(ctx, db, s.goods, s.stock), s.OnBroker(servers.Declare(s.Queue(orderQueue))))
}
