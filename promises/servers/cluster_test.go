package servers

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

func clusterClient(t *testing.T, cluster *testservers.RedisCluster) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// Failure: F45, F48
func TestEntriesLiveThroughARedisCluster(t *testing.T) {
	t.Parallel()
	cluster := testservers.NewRedisCluster(t)
	w := harness.NewWorld(t)
	w.Name = cluster.Prefix(t)
	cfg := w.QuickConfig()
	cfg.Redis = clusterClient(t, cluster)
	t.Run("life", func(t *testing.T) { sendEveryStatement(t, w, cfg) })

	c := w.New(cfg)
	var types []*compensator.Type[harness.Order]
	var ran []*harness.Calls
	for i := range 12 { // Distribute the entries over all nodes.
		orders, calls := harness.HandleCounted(t, c, fmt.Sprint("type ", i), compensator.HandlerConfig[harness.Order]{}, nil)
		types, ran = append(types, orders), append(ran, calls)
	}
	w.Run(c)
	cluster.Nodes[1].Kill()
	for range 5 {
		for _, orders := range types {
			w.InTx(w.DB, func(tx *sql.Tx) {
				_, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: 100 * time.Millisecond})
				require.NoError(t, err)
			})
		}
	}
	w.WaitAllEnded()
	for _, calls := range ran {
		assert.Equal(t, 5, calls.Total())
	}
	cluster.Nodes[1].Restart(t)
	w.Eventually(func() bool { return c.Health(t.Context()).Queue == nil }, "the cluster is whole again")
}
