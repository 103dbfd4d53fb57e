package testservers

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKilledRedisComesBackEmptyOnItsAddress(t *testing.T) {
	t.Parallel()
	server := NewRedis(t)
	client := dial(t, server.Addr())
	require.NoError(t, client.Set(t.Context(), "key", "value", 0).Err())
	server.Kill()
	require.Error(t, client.Ping(t.Context()).Err(), "a killed server answers")
	server.Restart(t)
	assert.ErrorIs(t, client.Get(t.Context(), "key").Err(), redis.Nil)
}

func TestKilledRedisWithAppendOnlyFileKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	server := NewRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	client := dial(t, server.Addr())
	require.NoError(t, client.Set(t.Context(), "key", "value", 0).Err())
	server.Kill()
	server.Restart(t)
	assert.Equal(t, "value", client.Get(t.Context(), "key").Val())
}

func TestPausedRedisAnswersNothingUntilResumed(t *testing.T) {
	t.Parallel()
	server := NewRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.Ping(t.Context()).Err())
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.Error(t, client.Ping(ctx).Err())
	server.Resume()
	require.NoError(t, client.Ping(t.Context()).Err())
}

func TestReplicaFollowsItsMaster(t *testing.T) {
	t.Parallel()
	master, replica := NewRedis(t, "--repl-diskless-sync-delay", "0"), NewRedisReplica(t)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	require.NoError(t, dial(t, master.Addr()).Set(t.Context(), "key", "value", 0).Err())
	client := dial(t, replica.Addr())
	require.NoError(t, client.SlaveOf(t.Context(), host, port).Err())
	assert.True(t, waitUntil(startLimit, func() bool { return client.Get(t.Context(), "key").Val() == "value" }))
}

func TestKeysOfAPrefixAreDeletedWithTheTest(t *testing.T) {
	var prefix string
	server := SharedRedis(t)
	client := dial(t, server.Addr())
	t.Run("two keys", func(t *testing.T) {
		prefix = server.Prefix(t)
		require.NoError(t, client.Set(t.Context(), prefix+":a", 1, 0).Err())
		require.NoError(t, client.Set(t.Context(), "{"+prefix+":v1:0}:b", 1, 0).Err())
	})
	keys, err := client.Keys(t.Context(), "*"+prefix+"*").Result()
	require.NoError(t, err)
	assert.Empty(t, keys)
}

func TestClusterServesEverySlotOnThreeNodes(t *testing.T) {
	t.Parallel()
	cluster := NewRedisCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	prefix := cluster.Prefix(t)
	for i := range 100 {
		require.NoError(t, client.Set(t.Context(), fmt.Sprintf("{%s:%d}:key", prefix, i), i, 0).Err())
	}
	for _, node := range cluster.Nodes {
		size, err := dial(t, node.Addr()).DBSize(t.Context()).Result()
		require.NoError(t, err)
		assert.Positive(t, size, "node %s holds no key", node.Addr())
	}
	assert.ErrorContains(t, client.Eval(t.Context(), "return 1", []string{"{a}", "{b}"}).Err(), "slot")
}

func TestClusterServesAgainAfterANodeRestarts(t *testing.T) {
	t.Parallel()
	cluster := NewRedisCluster(t)
	cluster.Nodes[1].Kill()
	cluster.Nodes[1].Restart(t)
	require.NoError(t, cluster.waitJoined(t.Context()))
}

func TestGivenAddressServesAsTheSharedRedis(t *testing.T) {
	own := NewRedis(t)
	t.Setenv("COMPENSATOR_SERVERS", "dsn")
	t.Setenv("REDIS_ADDR", own.Addr())
	newServer, err := sharedRedis()
	require.NoError(t, err)
	assert.Equal(t, own.Addr(), newServer.addr())
	assert.Error(t, newServer.kill())
	own.Kill()
	_, err = sharedRedis()
	assert.ErrorContains(t, err, "REDIS_ADDR")
}

func dial(t *testing.T, address string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: address})
	t.Cleanup(func() { _ = client.Close() })
	return client
}
