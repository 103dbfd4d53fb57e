package shop

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

// PoolSize is the size of the connection pool. It is large because a transactional handler holds a connection while it
// runs.
const PoolSize = 64

// Settings holds the settings that both sales have, with the library and hand-written.
type Settings struct {
	Goods    string // goods on sale, shown by the page
	Stock    int
	Window   time.Duration // time for the payment
	Resend   time.Duration // time between two tries to make an order of a ticket
	Most     int           // maximum number of tries before the ticket is given back
	Lease    time.Duration
	Fail     float64 // share of tries that fail
	Hopeless float64 // share of tickets that never become an order
	Seed     uint64
}

// Define defines the flags of the settings.
func (s *Settings) Define(flags *flag.FlagSet) {
	flags.StringVar(&s.Goods, "goods", "phone", "goods to put on sale and to show on the page")
	flags.IntVar(&s.Stock, "stock", 100, "number of pieces")
	flags.DurationVar(&s.Window, "window", 15*time.Second, "time to pay before an order is closed")
	flags.DurationVar(&s.Resend, "resend", 2*time.Second, "time after which a ticket without an order is tried again")
	flags.IntVar(&s.Most, "most", 5, "number of tries to make an order of a ticket before it is undone")
	flags.DurationVar(&s.Lease, "lease", 5*time.Second, "time until another process takes over the entries of a killed process")
	flags.Float64Var(&s.Fail, "fail", 0, "share of tries that fail, to test failures")
	flags.Float64Var(&s.Hopeless, "hopeless", 0, "share of tickets that never become an order, to test failures")
	flags.Uint64Var(&s.Seed, "seed", 1, "seed for random failures")
}

// Arguments returns the settings as flags, which the method Define reads.
func (s Settings) Arguments() []string {
	share := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	return []string{"-goods", s.Goods, "-stock", strconv.Itoa(s.Stock), "-window", s.Window.String(), "-resend", s.Resend.String(),
		"-most", strconv.Itoa(s.Most), "-lease", s.Lease.String(), "-fail", share(s.Fail), "-hopeless", share(s.Hopeless), "-seed", strconv.FormatUint(s.Seed, 10)}
}

// Validate returns an error for the first wrong setting.
func (s Settings) Validate() error {
	switch {
	case !namePattern.MatchString(s.Goods), s.Stock < 0:
		return errors.New("-goods wants a name of 1 to 40 of A-Z a-z 0-9 _ . -, -stock 0 or more")
	case s.Window < time.Millisecond, s.Resend < 100*time.Millisecond, s.Most < 1:
		return errors.New("-window wants 1ms or more, -resend 100ms or more, -most 1 or more")
	}
	return nil
}

// Luck returns the Luck of these settings.
func (s Settings) Luck() Luck { return Luck{Seed: s.Seed, Fail: s.Fail, Hopeless: s.Hopeless} }

// Service is one process of a sale.
type Service struct {
	servers.Servers
	Address  string
	UntilEOF bool
	Manual   bool

	Open func(ctx context.Context, db *sql.DB, c *Counter) (Way, *Shop, error)
}

// Define defines the flags of every service.
func (s *Service) Define(flags *flag.FlagSet) {
	flags.StringVar(&s.Name, "name", s.Name, "prefix of every name in Redis and in the broker")
	flags.StringVar(&s.Address, "addr", "127.0.0.1:8080", "HTTP address; port 0 chooses a free port")
	flags.BoolVar(&s.UntilEOF, "until-eof", false, "stop when standard input ends")
	flags.BoolVar(&s.Manual, "by-hand", false, "run the hand-written version of manual.go")
}

// Run opens everything and works until ctx ends.
func (s *Service) Run(ctx context.Context, out io.Writer) error {
	if s.UntilEOF {
		ctx = instance.UntilEOF(ctx)
	}
	db, err := s.OpenDB(PoolSize)
	if err != nil {
		return err
	}
	defer db.Close()
	c := &Counter{Redis: s.OpenRedis(), Name: s.Name}
	defer c.Redis.Close()
	way, ours, err := s.Open(ctx, db, c)
	if err != nil {
		return err
	}
	defer way.End()
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return err
	}
	defer listener.Close()
	return serve(ctx, out, listener, way, ours, c)
}

func serve(ctx context.Context, out io.Writer, listener net.Listener, way Way, ours *Shop, c *Counter) error {
	api := NewAPI(c)
	api.Routes(way)
	stopping := make(chan struct{})
	var beside []func(context.Context) // functions that run until the context ends
	if ours != nil {
		api.RoutesOfShop(ours)
		p := newPage(ours, api, listener.Addr().String(), stopping)
		p.routes()
		beside = []func(context.Context){p.letIn, func(ctx context.Context) { api.answers.share(ctx, c) }}
	}
	fmt.Fprintf(out, "%s%s\n", instance.Greeting, listener.Addr())
	server := &http.Server{Handler: http.NewCrossOriginProtection().Handler(api.Mux), ReadTimeout: 2 * LongestRequest, ReadHeaderTimeout: LongestRequest, IdleTimeout: 2 * time.Minute}
	server.RegisterOnShutdown(sync.OnceFunc(func() { close(stopping) }))
	return instance.Serve(ctx, server, listener, func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		var others sync.WaitGroup
		for _, other := range beside {
			others.Go(func() { other(ctx) })
		}
		err := way.Run(ctx)
		stop()
		others.Wait()
		return err
	})
}
