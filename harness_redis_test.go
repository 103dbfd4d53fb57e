package compensator_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/redisqueue"
	"github.com/compensator-go/compensator/internal/testservers"
)

func redisClient(t *testing.T, server *testservers.RedisServer) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// sameQueue is the queue of a process behind this prefix.
func sameQueue(t *testing.T, client redis.UniversalClient, prefix string) *redisqueue.Queue {
	q, err := redisqueue.Open(client, prefix)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, q.Close()) })
	return q
}

func clusterClient(t *testing.T, cluster *testservers.RedisCluster) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}
