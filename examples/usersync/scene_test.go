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

	"github.com/compensator-go/compensator/internal/testservers"
)

// The flags of TestWholeScene, which make usersync runs.
var (
	whole      = flag.Bool("whole", false, "run TestWholeScene: minutes")
	users      = flag.Int("users", 2500, "users to upload")
	kills      = flag.Int("kills", 3, "kill instances so many times")
	seed       = flag.Uint64("seed", 1, "of the users' bad luck")
	rate       = flag.Float64("rate", 150, "users a second")
	wheel      = flag.Bool("wheel", false, "give the library no Redis")
	screenshot = flag.String("screenshot", "", "write a picture of the page here")
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-addr" {
		main() // this process is an instance that a scene has started
		return
	}
	os.Exit(testservers.Main(m))
}

// quick makes a scene of seconds. The shortest delay still gives consumers time to be first.
func quick(servers servers) scene {
	return scene{
		servers:  servers,
		settings: settings{delay: 2 * time.Second, again: 500 * time.Millisecond, most: 6, limit: time.Second, workers: 8, lease: time.Second, seed: 1},
		perBatch: 20, rate: 200,
	}
}

func (s scene) books(t *testing.T) *books {
	t.Helper()
	b, err := s.run(t.Context())
	require.NoError(t, err)
	return b
}

func requireRight(t *testing.T, b *books) {
	t.Helper()
	var out bytes.Buffer
	wrong := b.report(&out)
	t.Log("\n" + out.String())
	require.Zero(t, wrong)
}

func TestEveryUserIsSyncedOnceWhateverIsKilled(t *testing.T) {
	servers := throwAway(t)
	s := quick(servers)
	s.users, s.kills, s.flushRedis = 300, 1, flush(servers)
	b := s.books(t)
	requireRight(t, b)
	require.NotZero(t, b.hopeless())
}

func TestEveryUserIsSyncedOnceWithoutRedis(t *testing.T) {
	s := quick(throwAway(t))
	s.users, s.kills, s.wheel = 60, 1, true
	requireRight(t, s.books(t))
}

// What its own algorithm does to users who have bad luck twice is no matter of chance.
func TestByHandUsersAreForgotten(t *testing.T) {
	s := quick(throwAway(t))
	s.users, s.byHand = 100, true
	b := s.books(t)
	require.Equal(t, 100, b.acknowledged)
	require.NotZero(t, b.never())
	require.NotZero(t, b.lied())
}

func TestWrongBooksAreFound(t *testing.T) {
	u := sample("b", 2, 1)
	b := &books{uploaded: map[message]user{{"b", u[0].ID}: u[0], {"b", u[1].ID}: u[1]}, synced: map[message]int{{"b", u[0].ID}: 2},
		said: map[message]bool{{"b", u[1].ID}: true}, acknowledged: 2, stored: 2, numbers: map[string]int{"entries on their way, or leased": 1}, queued: 1}
	var out bytes.Buffer
	require.Equal(t, 8, b.report(&out), out.String())
	for _, wrong := range []string{"entries, one a user", "users synced more than once", "users never synced", "entries that say done", "entries on their way", "messages left"} {
		require.Contains(t, out.String(), "WRONG  "+wrong)
	}
	require.Contains(t, out.String(), "ok     users acknowledged")
}

// TestWholeScene is make usersync: both ways, the same users, the same faults. Servers that the environment names are
// used as they are: nothing of them is restarted or emptied but what the scene has made itself.
func TestWholeScene(t *testing.T) {
	if !*whole {
		return // make usersync runs it
	}
	s := scene{
		settings: settings{delay: 10 * time.Second, again: 5 * time.Second, most: 4, limit: 2 * time.Second, workers: 16, lease: 5 * time.Second, seed: *seed},
		users:    *users, perBatch: 50, rate: *rate, wheel: *wheel,
	}
	if *screenshot != "" {
		s.watched = func(address string) { photograph(t, address, *screenshot) }
	}
	s.kills = *kills
	s.servers = givenOrThrowAway(t, &s.faults)
	ours := s.books(t)
	s.byHand = true
	byHand := s.books(t)
	out := os.Stdout
	wrong := ours.report(out)
	compare(out, ours, byHand)
	require.Zero(t, wrong)
}

// throwAway are servers that one test may do with as it likes.
func throwAway(t *testing.T) servers {
	t.Helper()
	return servers{dsn: testservers.Database(t), redis: testservers.NewRedis(t).Addr(), amqp: testservers.NewRabbitMQ(t).URL()}
}

// flush empties a Redis.
func flush(s servers) func(context.Context) error {
	return func(ctx context.Context) error {
		rdb := redis.NewClient(&redis.Options{Addr: s.redis})
		defer rdb.Close()
		return rdb.FlushAll(ctx).Err()
	}
}

// givenOrThrowAway also says what faults the servers may be given.
func givenOrThrowAway(t *testing.T, f *faults) servers {
	s := serversGiven()
	if s.dsn == "" {
		s.dsn = testservers.NewSQL(t).Database(t)
	}
	f.flushRedis = s.forget
	if s.redis == "" {
		s.redis = testservers.NewRedis(t).Addr()
		f.flushRedis = flush(s)
	}
	if s.amqp == "" {
		broker := testservers.NewRabbitMQ(t)
		s.amqp = broker.URL()
		f.restartBroker = func() error { broker.Restart(); return nil }
	}
	return s
}
