package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/examples/internal/day"
	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/examples/internal/shop"
	"github.com/compensator-go/compensator/internal/testservers"
)

// The scene as make seckill asks for it. What stands here is a small one.
var (
	asked      scene
	yours      = flag.Bool("yours", false, "use the servers that the environment names")
	full       = flag.Bool("full", false, "restart RabbitMQ and make the database read-only, too, and do it by hand beside it")
	screenshot = flag.String("screenshot", "", "write a picture of the page here")
)

func init() {
	asked.Day.Define(flag.CommandLine)
	asked.sending.define(flag.CommandLine)
	asked.Settings, asked.sending = quick.Settings, quick.sending
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-addr" {
		main() // this process is an instance that a scene has started
		return
	}
	os.Exit(testservers.Main(m))
}

// quick lets a test take seconds.
var quick = settings{
	shop.Settings{Goods: "phone", Stock: 40, Window: 2 * time.Second, Resend: 500 * time.Millisecond, Most: 4, Lease: time.Second, Fail: 0.1, Hopeless: 0.05, Seed: 1},
	sending{gather: 20 * time.Millisecond, abandon: 2 * time.Second, workers: 8},
}

func (s scene) books(t *testing.T) *books {
	t.Helper()
	var told bytes.Buffer
	s.Out = &told
	b, err := s.run(t.Context())
	t.Log("\n" + told.String())
	require.NoError(t, err)
	return b
}

// TestSale is make seckill, or a small one. With -full it is followed by the same manually, under the same load and blows.
func TestSale(t *testing.T) {
	s := asked
	s.place(t)
	if *screenshot != "" {
		s.Watch = func(address string) { photograph(t, address, *screenshot) }
	}
	ours := s.books(t)
	var report bytes.Buffer
	wrong := ours.report(&report)
	if *full {
		s.Manual, s.Watch = true, nil
		day.Compare(&report, ours.Books, s.books(t).Books)
	}
	t.Log("\n" + report.String())
	require.Zero(t, wrong, "checks that are WRONG")
	require.NotZero(t, ours.Orders[shop.StatePaid])
	require.NotZero(t, ours.Orders[shop.StateClosed])
	require.NotZero(t, ours.SoldOut)
	require.NotZero(t, ours.Moments.Looks)
}

// place gives the scene its servers, and says what may be done to them: what is somebody's own is not restarted, and
// loses only what the scene has put there.
func (s *scene) place(t *testing.T) {
	s.Servers = servers.Servers{Name: "seckill"}
	if *yours {
		s.Servers = servers.Given("seckill")
	}
	if s.PlaceRedis(t) {
		s.Blow("Redis: FLUSHALL", s.flushAll)
	} else {
		s.Blow("Redis: all keys of the sale removed", s.Forget)
	}
	s.PlaceDatabase(t, *full)
	switch {
	case s.AMQP == "" && *full:
		broker := testservers.NewRabbitMQ(t)
		s.AMQP = broker.URL()
		s.Blow("RabbitMQ restarted", func(context.Context) error { broker.Restart(t); return nil })
	case s.AMQP == "":
		s.AMQP = testservers.SharedRabbitMQ(t).URL()
	}
}

func (s *scene) flushAll(ctx context.Context) error {
	rdb := s.OpenRedis()
	defer rdb.Close()
	return rdb.FlushAll(ctx).Err()
}

func TestWrongBooksAreFound(t *testing.T) {
	b := &books{Books: &day.Books{Settings: shop.Settings{Stock: 10}, Left: 8, Orders: map[string]int{shop.StatePaid: 3, shop.StateOpen: 1}, Living: map[string]string{"a": "1", "b": "2"},
		Known: map[string]bool{"1": true, "2": true}, Held: map[string]int{"a": 2, "b": 1}, Counted: shop.Counted{Stock: 7, Buyers: map[string]string{"a": "1", "c": "9"}},
		Moments: day.Moments{Looks: 5, Wrong: 1}, Unknown: 1, Stuck: 1, Early: 1}, open: 1, alone: 1, waiting: 1}
	var out bytes.Buffer
	require.Equal(t, 16, b.report(&out), out.String())
	for _, wrong := range []string{"moments in which more was sold", "orders that live", "buyers with more than one", "stock in Redis", "buyers of whom", "buyers shut out",
		"open tickets", "accepted answers", "tickets and orders without", "entries that still", "messages in the queue"} {
		require.Contains(t, out.String(), "WRONG  "+wrong)
	}
	require.Contains(t, out.String(), "ok     tickets that live")
}
