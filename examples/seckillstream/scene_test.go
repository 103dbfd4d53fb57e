package main

import (
	"bytes"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/day"
	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/examples/internal/shop"
	"github.com/compensator-go/compensator/internal/testservers"
)

// These are the settings of a test run. make seckillstream sets larger ones.
var (
	asked      scene
	yours      = flag.Bool("yours", false, "use the servers from the environment")
	full       = flag.Bool("full", false, "also make the database read-only, and also run the hand-written version")
	screenshot = flag.String("screenshot", "", "file for a picture of the page")
)

func init() {
	asked.Define(flag.CommandLine)
	asked.Settings = quick
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-addr" {
		main() // A scene has started this process as an instance.
		return
	}
	os.Exit(testservers.Main(m))
}

var quick = shop.Settings{Goods: "phone", Stock: 40, Window: 2 * time.Second, Resend: 500 * time.Millisecond, Most: 4, Lease: time.Second, Fail: 0.1, Hopeless: 0.05, Seed: 1}

func (s *scene) books(t *testing.T) *books {
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
	s := &scene{Day: asked.Day}
	s.place(t)
	if *screenshot != "" {
		s.Watch = func(address string) { photograph(t, address, *screenshot) }
	}
	ours := s.books(t)
	var report bytes.Buffer
	wrong := ours.report(&report)
	t.Log("\n" + report.String())
	if *full {
		s.Manual, s.Watch = true, nil
		var table bytes.Buffer
		compare(&table, ours, s.books(t))
		t.Log("\n" + table.String())
	}
	require.Zero(t, wrong, "checks that are WRONG")
	require.NotZero(t, ours.Orders[shop.StatePaid])
	require.NotZero(t, ours.Orders[shop.StateClosed])
	require.NotZero(t, ours.SoldOut)
	require.NotZero(t, ours.Moments.Looks)
	require.NotZero(t, ours.poison)
}

// Servers from the environment lose only the scene's data.
func (s *scene) place(t *testing.T) {
	s.Servers = servers.Servers{Name: string(tables)}
	if *yours {
		s.Servers = servers.Given(string(tables))
	}
	if s.wholeRedis = s.PlaceRedis(t); s.wholeRedis {
		s.AddFault("Redis: FLUSHALL while the database is slow", s.emptied)
	} else {
		s.AddFault("Redis: all keys of the sale removed while the database is slow", s.emptied)
	}
	s.AddFault("a malformed message in the stream", s.poisoned)
	s.PlaceDatabase(t, *full)
}

func TestWrongBooksAreFound(t *testing.T) {
	b := &books{Books: &day.Books{Settings: shop.Settings{Stock: 10}, Left: 8, Orders: map[string]int{shop.StatePaid: 3, shop.StateOpen: 1}, Living: map[string]string{"a": "1", "b": "2"},
		Known: map[string]bool{"1": true, "2": true}, Held: map[string]int{"a": 2, "b": 1}, Counted: shop.Counted{Stock: 7, Buyers: map[string]string{"a": "1", "c": "9"}},
		Moments: day.Moments{Looks: 5, Wrong: 1}, Unknown: 2, Stuck: 1, Early: 1,
		Entries: map[string]map[compensator.State]int{shop.CloseType: {compensator.Succeeded: 4, compensator.Dead: 1}, shop.ReturnType: {compensator.Succeeded: 1}}},
		lost: 1, poison: 1, length: 1, pending: 1, unread: 1, doubled: 1, orderless: 1}
	var out bytes.Buffer
	require.Equal(t, 19, b.report(&out), out.String())
	for _, wrong := range []string{"checks of the stock that found", "orders not closed", "buyers with more than one", "stock in Redis", "buyers whose ticket", "buyers without an order",
		"accepted answers", "tickets with more than one", "tickets without an order", "tickets = close_order", "return_stock", "malformed messages", "other entries",
		"entries that have not ended", "messages in the stream", "messages on the pending", "messages that no consumer"} {
		require.Contains(t, out.String(), "WRONG  "+wrong)
	}
	require.Contains(t, out.String(), "ok     tickets not ended")
}
