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

var (
	asked      scene
	yours      = flag.Bool("yours", false, "use the servers from the environment")
	full       = flag.Bool("full", false, "also restart RabbitMQ and make the database read-only, and also run the hand-written version")
	screenshot = flag.String("screenshot", "", "file for a picture of the page")
)

func init() {
	asked.Day.Define(flag.CommandLine)
	asked.sending.define(flag.CommandLine)
	asked.Settings, asked.sending = quick.Settings, quick.sending
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-addr" {
		main() // A scene has started this process as an instance.
		return
	}
	os.Exit(testservers.Main(m))
}

var quick = settings{
	shop.Settings{Goods: "phone", Stock: 40, Window: 2 * time.Second, Resend: 500 * time.Millisecond, Most: 4, Lease: time.Second, Fail: 0.1, Hopeless: 0.05, Seed: 1},
	sending{gather: 20 * time.Millisecond, abandon: 2 * time.Second, workers: 8},
}

func (s scene) books(t *testing.T) *books {
	t.Helper()
	var answers bytes.Buffer
	s.Out = &answers
	b, err := s.run(t.Context())
	t.Log("\n" + answers.String())
	require.NoError(t, err)
	return b
}

// TestSale runs the hand-written version too if -full is set.
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

// Servers from the environment are not restarted, and lose only the scene's data.
func (s *scene) place(t *testing.T) {
	s.Servers = servers.Servers{Name: "seckill"}
	if *yours {
		s.Servers = servers.Given("seckill")
	}
	if s.PlaceRedis(t) {
		s.AddFault("Redis: FLUSHALL", s.flushAll)
	} else {
		s.AddFault("Redis: all keys of the sale removed", s.Forget)
	}
	s.PlaceDatabase(t, *full)
	switch {
	case s.AMQP == "" && *full:
		broker := testservers.NewRabbitMQ(t)
		s.AMQP = broker.URL()
		s.AddFault("RabbitMQ restarted", func(context.Context) error { broker.Restart(t); return nil })
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
	for _, wrong := range []string{"checks of the stock that found", "orders not closed", "buyers with more than one", "stock in Redis", "buyers whose ticket", "buyers without an order",
		"open tickets", "accepted answers", "tickets and orders without", "entries that have not ended", "messages in the queue"} {
		require.Contains(t, out.String(), "WRONG  "+wrong)
	}
	require.Contains(t, out.String(), "ok     tickets not ended")
}
