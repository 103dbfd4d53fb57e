package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/examples/internal/faults"
	shared "github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/internal/testservers"
)

// These are the settings of a test run. make usersync sets larger ones.
var (
	asked      scene
	yours      = flag.Bool("yours", false, "use the servers from the environment")
	full       = flag.Bool("full", false, "also restart RabbitMQ and make the database read-only")
	screenshot = flag.String("screenshot", "", "file for a picture of the page")
)

func init() {
	asked.settings.define(flag.CommandLine)
	flag.IntVar(&asked.users, "users", 300, "users to upload")
	flag.IntVar(&asked.perBatch, "per-batch", 20, "users in a batch")
	flag.Float64Var(&asked.rate, "rate", 200, "users a second")
	flag.IntVar(&asked.kills, "kills", 1, "number of kills of instances")
	flag.BoolVar(&asked.wheel, "wheel", false, "run the library without Redis")
	asked.settings = quick
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-addr" {
		main() // A scene has started this process as an instance.
		return
	}
	os.Exit(testservers.Main(m))
}

// The delay is long enough that a consumer usually completes an entry before it is due.
var quick = settings{delay: 2 * time.Second, again: 500 * time.Millisecond, most: 6, limit: time.Second, workers: 8, lease: time.Second, seed: 1}

func (s scene) books(t *testing.T) *books {
	t.Helper()
	b, err := s.run(t.Context())
	require.NoError(t, err)
	return b
}

// The hand-written version always loses users, because it does not send a user again after a consumer has failed.
func TestScene(t *testing.T) {
	t.Parallel()
	s := asked
	s.servers = s.place(t)
	if *screenshot != "" {
		s.watched = func(address string) { photograph(t, address, *screenshot) }
	}
	ours := s.books(t)
	s.manual = true
	manual := s.books(t)
	var report bytes.Buffer
	wrong := ours.report(&report)
	compare(&report, ours, manual)
	t.Log("\n" + report.String())
	require.Zero(t, wrong, "checks that are WRONG")
	require.Equal(t, s.users, manual.acknowledged)
	if s.users >= 300 { // enough users for every kind of fate
		require.NotZero(t, ours.hopeless())
		require.NotZero(t, manual.never())
	}
}

func TestEveryUserIsSyncedOnceWithoutRedis(t *testing.T) {
	t.Parallel()
	s := scene{servers: throwAway(t), settings: quick, users: 60, perBatch: 20, rate: 100, wheel: true, kills: 1}
	var report bytes.Buffer
	wrong := s.books(t).report(&report)
	t.Log("\n" + report.String())
	require.Zero(t, wrong, "checks that are WRONG")
}

func TestSceneRemovesOnlyItsOwnData(t *testing.T) {
	t.Parallel()
	s := throwAway(t)
	other := s
	other.Name = testservers.SharedRedis(t).Prefix(t)
	db, err := s.OpenDB(poolSize)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, execAll(t.Context(), db, `CREATE TABLE orders (id INT)`))
	require.NoError(t, createTables(t.Context(), db))
	rdb := s.OpenRedis()
	defer rdb.Close()
	for _, one := range []servers{s, other} {
		require.NoError(t, one.declareQueue())
		t.Cleanup(func() { require.NoError(t, one.deleteQueue()) })
		for _, key := range []string{one.Name + ":lock:u", "{" + one.Name + ":v1:0}:due"} {
			require.NoError(t, rdb.Set(t.Context(), key, 1, 0).Err())
		}
	}
	require.NoError(t, s.clear(t.Context()))
	w := &world{t: t, db: db}
	require.Equal(t, 1, w.count(`SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()`), "orders")
	require.Zero(t, rdb.Exists(t.Context(), s.Name+":lock:u", "{"+s.Name+":v1:0}:due").Val())
	require.EqualValues(t, 2, rdb.Exists(t.Context(), other.Name+":lock:u", "{"+other.Name+":v1:0}:due").Val())
	_, err = s.queued()
	require.Error(t, err, "its queue is gone")
	_, err = other.queued()
	require.NoError(t, err)
}

func TestWrongBooksAreFound(t *testing.T) {
	t.Parallel()
	u := sample("b", 2, 1)
	b := &books{uploaded: map[message]user{{"b", u[0].ID}: u[0], {"b", u[1].ID}: u[1]}, synced: map[message]int{{"b", u[0].ID}: 2},
		said: map[message]bool{{"b", u[1].ID}: true}, acknowledged: 2, stored: 2, numbers: map[string]int{"entries that have not ended, or hold a lease": 1}, queued: 1}
	var out bytes.Buffer
	require.Equal(t, 8, b.report(&out), out.String())
	for _, wrong := range []string{"entries: one per user", "users synced more than once", "users never synced", "entries that say done", "entries that have not ended", "messages left"} {
		require.Contains(t, out.String(), "WRONG  "+wrong)
	}
	require.Contains(t, out.String(), "ok     users acknowledged")
}

func throwAway(t *testing.T) servers {
	t.Helper()
	rdb, broker := testservers.SharedRedis(t), testservers.SharedRabbitMQ(t)
	s := servers{shared.Servers{DSN: testservers.Database(t), Redis: rdb.Addr(), AMQP: broker.URL(), Name: rdb.Prefix(t)}}
	t.Cleanup(func() { require.NoError(t, s.deleteQueue()) })
	return s
}

// Servers from the environment are not restarted, and lose only the scene's data.
func (s *scene) place(t *testing.T) servers {
	on := servers{shared.Servers{Name: "usersync"}}
	if *yours {
		on = serversGiven()
	}
	if on.Redis == "" {
		on.Redis = testservers.NewRedis(t).Addr()
		s.addFault("Redis: FLUSHALL", func(ctx context.Context) error { return flush(ctx, on.Redis) })
	} else {
		s.addFault("Redis: all keys of the scene removed", func(ctx context.Context) error { return on.Forget(ctx) })
	}
	switch {
	case on.DSN == "" && *full:
		dsn, readOnly, err := faults.ReadOnlyFor(2*time.Second, testservers.NewSQL(t).Database(t))
		require.NoError(t, err)
		on.DSN, s.faults = dsn, append(s.faults, readOnly)
	case on.DSN == "":
		on.DSN = testservers.Database(t)
	}
	switch {
	case on.AMQP == "" && *full:
		broker := testservers.NewRabbitMQ(t)
		on.AMQP = broker.URL()
		s.addFault("RabbitMQ restarted", func(context.Context) error { broker.Restart(t); return nil })
	case on.AMQP == "":
		on.AMQP = testservers.SharedRabbitMQ(t).URL()
	}
	return on
}

func (s *scene) addFault(subject string, strike func(context.Context) error) {
	s.faults = append(s.faults, faults.Fault{What: subject, Strike: strike})
}

func flush(ctx context.Context, address string) error {
	rdb := redis.NewClient(&redis.Options{Addr: address})
	defer rdb.Close()
	return rdb.FlushAll(ctx).Err()
}
