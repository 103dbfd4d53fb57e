package redisqueue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/compensatortest/suite"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

func clusterClient(t *testing.T, cluster *testservers.RedisCluster) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// Failure: F47, F48
func TestRedisQueueKeepsItsPromisesOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testservers.NewRedisCluster(t)
	client := clusterClient(t, cluster)
	t.Run("Promises", func(t *testing.T) {
		suite.TestQueue(t, func(t *testing.T) suite.QueueHarness {
			prefix := cluster.Prefix(t)
			return suite.QueueHarness{
				Queue:   openQueue(t, client, prefix),
				Another: func(t *testing.T) processlog.Queue { return openQueue(t, client, prefix) },
				Lose: func(t *testing.T) {
					require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
						return deleteKeys(ctx, node, prefix)
					}))
				},
			}
		})
	})
	t.Run("ForgottenScripts", func(t *testing.T) {
		q := sameQueue(t, client, cluster.Prefix(t))
		for range 3 {
			for _, node := range cluster.Nodes {
				require.NoError(t, redisClient(t, node).ScriptFlush(t.Context()).Err())
			}
			mustEnqueue(t, q, append(due("order", 1), due("stock", 2)...))
			waits, _, err := q.Peek(t.Context(), []string{"order", "stock"})
			require.NoError(t, err)
			assert.Equal(t, []time.Duration{0, 0}, waits)
		}
	})
	t.Run("SecondDatabase", func(t *testing.T) {
		prefix := cluster.Prefix(t)
		require.NoError(t, sameQueue(t, client, prefix).Check(t.Context(), "database one"))
		assert.ErrorContains(t, sameQueue(t, client, prefix).Check(t.Context(), "database two"), prefix)

		// One node still has the keys of another database, so the owner key of a single hash tag names that database.
		// Check must notice this key.
		q := sameQueue(t, client, cluster.Prefix(t))
		require.NoError(t, client.Set(t.Context(), q.OwnerKey(5), "database two", 0).Err())
		assert.ErrorContains(t, q.Check(t.Context(), "database one"), "database two")
	})
	t.Run("Notification", func(t *testing.T) {
		prefix := cluster.Prefix(t)
		stop, woken := listen(t, sameQueue(t, client, prefix))
		defer stop()
		awaitNotification(t, sameQueue(t, client, prefix), "order", woken)
	})
	t.Run("FewConnections", func(t *testing.T) {
		few := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), MaxActiveConns: 2, PoolTimeout: time.Millisecond})
		t.Cleanup(func() { assert.NoError(t, few.Close()) })
		prefix := cluster.Prefix(t)
		q := sameQueue(t, few, prefix)
		stop, woken := listen(t, q)
		defer stop()
		awaitNotification(t, q, "order", woken)
		for _, node := range cluster.Nodes {
			require.NoError(t, redisClient(t, node).Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
		}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				for range 10 {
					_, err := q.Claim(t.Context(), fmt.Sprint("type ", i), 1, time.Hour)
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		awaitNotification(t, q, "stock", woken)
	})
	t.Run("MovedSlot", func(t *testing.T) {
		q := sameQueue(t, client, cluster.Prefix(t))
		mustClaim(t, q, "order", 1) // The client now has the current slot map.
		cluster.Move(t, q.DueKey("order"))
		mustEnqueue(t, q, due("order", 1))
		assert.Len(t, mustClaim(t, q, "order", 1).IDs, 1)
	})
}

func TestRedisQueueServesTheRestOfAClusterAndNoticesTheLoss(t *testing.T) {
	t.Parallel()
	cluster := testservers.NewRedisCluster(t, "--cluster-require-full-coverage", "no")
	q := sameQueue(t, clusterClient(t, cluster), cluster.Prefix(t))
	var types []string
	for i := range 64 {
		types = append(types, fmt.Sprintf("type %d", i))
		mustEnqueue(t, q, due(types[i], 1))
	}
	makeWhole(t, q, types...)
	require.Empty(t, lostOf(t, q, types...))

	cluster.Nodes[0].Kill()
	served := 0
	for _, name := range types {
		if leased, err := q.Claim(t.Context(), name, 1, time.Hour); err == nil && len(leased.IDs) == 1 {
			served++
		}
	}
	assert.Positive(t, served)
	assert.Less(t, served, len(types))

	cluster.Nodes[0].Restart(t)
	require.Eventually(t, func() bool {
		_, _, err := q.Peek(t.Context(), types)
		return err == nil
	}, eventually, 10*time.Millisecond)
	assert.Len(t, lostOf(t, q, types...), len(types)-served, "the types of the node that lost its keys")
}
