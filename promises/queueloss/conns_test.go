package queueloss

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

// Twenty types claim at the same time, and most of the tested clients may open fewer than 21 connections.
// Failure: F47
func TestQueueIsReliedOnWithinTheFewConnectionsOfItsClient(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		opt  redis.Options
		most int // largest number of connections that the client may open
	}{
		"MaxActiveConns 2":                   {redis.Options{MaxActiveConns: 2}, 2},
		"MaxActiveConns 5":                   {redis.Options{MaxActiveConns: 5}, 5},
		"MaxActiveConns 10, PoolSize 3":      {redis.Options{MaxActiveConns: 10, PoolSize: 3}, 4},
		"PoolSize 1, PoolTimeout 1 ms":       {redis.Options{PoolSize: 1, PoolTimeout: time.Millisecond}, 2},
		"MaxActiveConns 3, PoolTimeout 1 ms": {redis.Options{MaxActiveConns: 3, PoolTimeout: time.Millisecond}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t).WithRedis()
			of.opt.Addr, of.opt.ClientName = w.Redis.Options().Addr, w.Name
			client := redis.NewClient(&of.opt)
			t.Cleanup(func() { assert.NoError(t, client.Close()) })
			cfg := w.QuickConfig()
			cfg.Redis = client
			var outages atomic.Int64
			cfg.Observer.QueueDown = func(err error) {
				outages.Add(1)
				t.Logf("the queue is given up: %v", err)
			}
			c := w.New(cfg)
			runManyTypes(t, w, c)
			listensAgain(w)
			recordOfManyTypes(w, c)
			require.Zero(t, outages.Load(), "the queue was never given up")
			most := of.most + pipelines(client.Options())
			w.Eventually(func() bool { return len(connections(w, "")) <= most }, "no more than %d connections are left", most)
		})
	}
}

// pipelines returns how many connections newer versions of go-redis may open for pipelines, in addition to
// MaxActiveConns. The default is 10.
func pipelines(opt *redis.Options) int {
	if size := reflect.ValueOf(opt).Elem().FieldByName("PipelinePoolSize"); size.IsValid() {
		return cmp.Or(int(size.Int()), 10)
	}
	return 0
}

const manyTypes = 20

func runManyTypes(t *testing.T, w *harness.World, c *compensator.Compensator) {
	t.Helper()
	for i := range manyTypes {
		_, err := compensator.Handle(t.Context(), c, fmt.Sprint("type-", i), func(context.Context, *compensator.Entry, harness.Order) error { return nil }, nil)
		require.NoError(t, err)
	}
	w.Run(c)
	recordOfManyTypes(w, c)
}

// recordOfManyTypes records entries of all types that come due within the same tenth of a second.
func recordOfManyTypes(w *harness.World, c *compensator.Compensator) {
	w.T.Helper()
	require.NoError(w.T, c.InTx(w.T.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		for i := range 10 * manyTypes {
			delay := time.Duration(300+i%100) * time.Millisecond
			if _, err := c.Record(ctx, tx, compensator.NewEntry{BusinessType: fmt.Sprint("type-", i%manyTypes), Content: []byte("{}"), Options: compensator.Options{Delay: delay}}); err != nil {
				return err
			}
		}
		return nil
	}))
	w.WaitAllEnded()
}

func listensAgain(w *harness.World) {
	w.T.Helper()
	ctx := w.T.Context()
	channel := w.Name + ":v1:wake"
	listening := func() bool {
		found, err := w.Redis.PubSubNumSub(ctx, channel).Result()
		require.NoError(w.T, err)
		return found[channel] == 1
	}
	w.Eventually(listening, "somebody listens")
	ids := connections(w, "flags=P ")
	require.Len(w.T, ids, 1)
	require.NoError(w.T, w.Redis.ClientKillByFilter(ctx, "ID", ids[0]).Err())
	w.Eventually(func() bool { return listening() && !slices.Equal(ids, connections(w, "flags=P ")) }, "another connection listens")
}

// connections recognizes the library's connections by the client's name. part selects lines of CLIENT LIST.
func connections(w *harness.World, part string) (ids []string) {
	w.T.Helper()
	list, err := w.Redis.ClientList(w.T.Context()).Result()
	require.NoError(w.T, err)
	for line := range strings.Lines(list) {
		if strings.Contains(line, " name="+w.Name+" ") && strings.Contains(line, part) {
			id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
			ids = append(ids, id)
		}
	}
	return ids
}

// Failure: F47
func TestNewRefusesAClientThatMayNotOpenEnoughConnections(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	addr := testservers.SharedRedis(t).Addr()
	for name, client := range map[string]redis.UniversalClient{
		"of one server":       redis.NewClient(&redis.Options{Addr: addr, MaxActiveConns: 1}),
		"of a cluster":        redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, MaxActiveConns: 1}),
		"of a failover group": redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "shop", SentinelAddrs: []string{addr}, MaxActiveConns: 1}),
	} {
		cfg := w.QuickConfig()
		cfg.Redis = client
		_, err := compensator.New(t.Context(), cfg)
		var refused *compensator.FieldError
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, "Redis", refused.Field)
		require.ErrorContains(t, err, "MaxActiveConns is 1, but the library needs at least 2", name)
		require.NoError(t, client.Close())
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addr}})
	cfg := w.QuickConfig()
	cfg.Redis = ring
	_, err := compensator.New(t.Context(), cfg)
	require.ErrorContains(t, err, "got *redis.Ring")
	require.NoError(t, ring.Close())
}
