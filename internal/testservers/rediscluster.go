package testservers

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	clusterNodes = 3
	clusterSlots = 16384
)

// RedisCluster is a Redis Cluster of three masters without replicas, so a killed node takes its slots away
// until Restart; its keys are gone then.
type RedisCluster struct {
	Nodes []*RedisServer
}

// clusterServers are apart from redisServers because a node in a container needs the host's network.
var clusterServers = source{
	kind:     "Redis Cluster",
	given:    "REDIS_ADDR",
	docker:   startClusterContainer,
	local:    startLocalClusterNode,
	packages: []string{"redis-server"},
}

// NewRedisCluster starts a cluster for this test alone, waits until it serves all slots, and ends it with
// the test. It takes about two seconds, and Redis 7 or newer.
func NewRedisCluster(tb testing.TB, flags ...string) *RedisCluster {
	tb.Helper()
	cluster := &RedisCluster{}
	for range clusterNodes {
		cluster.Nodes = append(cluster.Nodes, newRedis(tb, &clusterServers, flags))
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := cluster.join(ctx); err != nil {
		tb.Fatalf("testservers: join the cluster: %v", err)
	}
	return cluster
}

// Addrs are the addresses of all nodes, for redis.ClusterOptions.
func (c *RedisCluster) Addrs() []string {
	var addresses []string
	for _, node := range c.Nodes {
		addresses = append(addresses, node.Addr())
	}
	return addresses
}

// Prefix returns a key prefix no other test uses.
func (c *RedisCluster) Prefix(testing.TB) string { return newPrefix() }

// join does what redis-cli --cluster create does.
func (c *RedisCluster) join(ctx context.Context) error {
	for i, node := range c.Nodes {
		err := node.ask(func(client *redis.Client) error {
			if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
				return err
			}
			first, next := i*clusterSlots/clusterNodes, (i+1)*clusterSlots/clusterNodes
			return client.ClusterAddSlotsRange(ctx, first, next-1).Err()
		})
		if err != nil {
			return err
		}
	}
	for _, other := range c.Nodes[1:] {
		if err := c.Nodes[0].meet(ctx, other); err != nil {
			return err
		}
	}
	return c.awaitJoined(ctx)
}

func (s *RedisServer) meet(ctx context.Context, other *RedisServer) error {
	host, port, err := net.SplitHostPort(other.Addr())
	if err != nil {
		return err
	}
	var bus string
	err = other.ask(func(client *redis.Client) error {
		config, err := client.ConfigGet(ctx, "cluster-port").Result()
		bus = config["cluster-port"]
		return err
	})
	if err != nil {
		return err
	}
	return s.ask(func(client *redis.Client) error {
		return client.Do(ctx, "CLUSTER", "MEET", host, port, bus).Err()
	})
}

func (c *RedisCluster) awaitJoined(ctx context.Context) error {
	var err error
	await(startLimit, func() bool {
		for _, node := range c.Nodes {
			if err = node.joined(ctx); err != nil {
				return ctx.Err() != nil
			}
		}
		return true
	})
	return err
}

func (s *RedisServer) joined(ctx context.Context) error {
	return s.ask(func(client *redis.Client) error {
		info, err := client.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		for _, want := range []string{"cluster_state:ok", fmt.Sprintf("cluster_slots_ok:%d", clusterSlots),
			fmt.Sprintf("cluster_size:%d", clusterNodes)} {
			if !strings.Contains(info, want) {
				return fmt.Errorf("%s lacks %s:\n%s", s.Addr(), want, info)
			}
		}
		return nil
	})
}

func (s *RedisServer) ask(question func(*redis.Client) error) error {
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 1})
	defer client.Close()
	if err := question(client); err != nil {
		return fmt.Errorf("node %s: %w", s.Addr(), err)
	}
	return nil
}

func startLocalClusterNode(flags []string) (machine, string, error) {
	return startRedisProgram(func(int) ([]string, error) { return clusterFlags(flags) })
}

func clusterFlags(flags []string) ([]string, error) {
	bus, err := freePort()
	usual := []string{"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus),
		"--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000",
		"--cluster-announce-ip", "127.0.0.1"}
	return append(usual, flags...), err
}
