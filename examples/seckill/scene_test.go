package main

import (
	"bytes"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/examples/internal/faults"
	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/internal/testservers"
)

// The scene as make seckill asks for it. What stands here is a small one.
var (
	asked      = scene{settings: quick}
	yours      = flag.Bool("yours", false, "use the servers that the environment names")
	full       = flag.Bool("full", false, "restart RabbitMQ and make the database read-only, too, and do it by hand beside it")
	screenshot = flag.String("screenshot", "", "write a picture of the page here")
)

func init() {
	asked.settings.define(flag.CommandLine)
	flag.IntVar(&asked.buyers, "buyers", 300, "buyers who come at once")
	flag.DurationVar(&asked.span, "span", 6*time.Second, "how long they keep coming")
	flag.IntVar(&asked.kills, "kills", 1, "kill instances so many times")
	asked.settings = quick
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-addr" {
		main() // this process is an instance that a scene has started
		return
	}
	os.Exit(testservers.Main(m))
}

// quick lets a test take seconds.
var quick = settings{goods: "phone", stock: 40, window: 2 * time.Second, gather: 20 * time.Millisecond, resend: 500 * time.Millisecond, most: 4, abandon: 2 * time.Second,
	workers: 8, lease: time.Second, fail: 0.1, hopeless: 0.05, seed: 1}

func (s scene) books(t *testing.T) *books {
	t.Helper()
	var told bytes.Buffer
	s.out = &told
	b, err := s.run(t.Context())
	t.Log("\n" + told.String())
	require.NoError(t, err)
	return b
}

// TestSale is make seckill, or a small one. With -full it is followed by the same by hand, under the same load and blows.
func TestSale(t *testing.T) {
	s := asked
	s.place(t)
	if *screenshot != "" {
		s.watch = func(address string) { photograph(t, address, *screenshot) }
	}
	ours := s.books(t)
	var report bytes.Buffer
	wrong := ours.report(&report)
	if *full {
		s.byHand, s.watch = true, nil
		compare(&report, ours, s.books(t))
	}
	t.Log("\n" + report.String())
	require.Zero(t, wrong, "checks that are WRONG")
	require.NotZero(t, ours.orders[statePaid])
	require.NotZero(t, ours.orders[stateClosed])
	require.NotZero(t, ours.tally.soldOut)
	require.NotZero(t, ours.moments.looks)
}

// place gives the scene its servers, and says what may be done to them: what is somebody's own is not restarted, and
// loses only what the scene has put there.
func (s *scene) place(t *testing.T) {
	s.Servers = servers.Servers{Name: "seckill"}
	if *yours {
		s.Servers = servers.Given("seckill")
	}
	if s.Redis == "" {
		s.Redis = testservers.NewRedis(t).Addr()
		s.blow("Redis: FLUSHALL", s.flushAll)
	} else {
		s.blow("Redis: all keys of the sale removed", s.Forget)
	}
	switch {
	case s.DSN == "" && *full:
		server := testservers.NewSQL(t)
		root := server.Database(t)
		s.DSN = asService(t, root)
		s.blow("database: read_only for 2 s", func(ctx context.Context) error { return readOnly(ctx, root, 2*time.Second) })
	case s.DSN == "":
		s.DSN = testservers.Database(t)
	}
	switch {
	case s.AMQP == "" && *full:
		broker := testservers.NewRabbitMQ(t)
		s.AMQP = broker.URL()
		s.blow("RabbitMQ restarted", func(context.Context) error { broker.Restart(t); return nil })
	case s.AMQP == "":
		s.AMQP = testservers.SharedRabbitMQ(t).URL()
	}
}

func (s *scene) blow(what string, strike func(context.Context) error) {
	s.blows = append(s.blows, faults.Blow{What: what, Strike: strike})
}

func (s *scene) flushAll(ctx context.Context) error {
	rdb := s.OpenRedis()
	defer rdb.Close()
	return rdb.FlushAll(ctx).Err()
}

// asService gives a database a user whom read_only binds.
func asService(t *testing.T, root string) string {
	config, err := mysql.ParseDSN(root)
	require.NoError(t, err)
	db, err := sql.Open("mysql", root)
	require.NoError(t, err)
	defer db.Close()
	for _, statement := range []string{"CREATE USER service IDENTIFIED BY 'secret'", fmt.Sprintf("GRANT ALL ON %s.* TO service", config.DBName)} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	config.User, config.Passwd = "service", "secret"
	return config.FormatDSN()
}

// readOnly is what a switchover looks like from below, but for the new primary: it becomes this one again.
func readOnly(ctx context.Context, root string, span time.Duration) error {
	db, err := sql.Open("mysql", root)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "SET GLOBAL read_only = 1"); err != nil {
		return err
	}
	faults.Pause(ctx, span)
	_, err = db.ExecContext(context.WithoutCancel(ctx), "SET GLOBAL read_only = 0")
	return err
}

func TestWrongBooksAreFound(t *testing.T) {
	b := &books{settings: settings{stock: 10}, left: 8, orders: map[string]int{statePaid: 3, stateOpen: 1}, tickets: map[string]string{"a": "1", "b": "2"},
		known: map[string]bool{"1": true, "2": true}, living: map[string]int{"a": 2, "b": 1}, counted: counted{Stock: 7, Open: 1, Buyers: map[string]string{"a": "1", "c": "9"}},
		moments: moments{looks: 5, wrong: 1}, unsold: 1, alone: 1, stuck: 1, waiting: 1, early: 1}
	var out bytes.Buffer
	require.Equal(t, 16, b.report(&out), out.String())
	for _, wrong := range []string{"moments in which more was sold", "orders that live", "buyers with more than one", "stock in Redis", "buyers of whom", "buyers shut out",
		"open tickets", "accepted answers", "tickets and orders without", "entries that still", "messages in the queue"} {
		require.Contains(t, out.String(), "WRONG  "+wrong)
	}
	require.Contains(t, out.String(), "ok     tickets that live")
}
