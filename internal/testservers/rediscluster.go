package testservers

import (
	"context"
	"errors"
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

// RedisCluster is a Redis Cluster of three masters without replicas. The slots of a killed node are unavailable until
// Restart, and its keys are lost.
type RedisCluster struct {
	Nodes []*RedisServer
}

// clusterServers is separate from redisServers, because a node in a container needs the host's network.
var clusterServers = source{
	kind:     "Redis Cluster",
	variable: "REDIS_ADDR",
	docker:   startClusterContainer,
	local:    startLocalClusterNode,
	packages: []string{"redis-server"},
}

// NewRedisCluster starts a cluster for this test alone and ends it with the test. It waits until the cluster serves all
// slots, which takes about two seconds. It needs Redis 7 or newer.
func NewRedisCluster(tb testing.TB, flags ...string) *RedisCluster {
	tb.Helper()
	cluster := &RedisCluster{}
	for range clusterNodes {
		cluster.Nodes = append(cluster.Nodes, newRedis(tb, &clusterServers, flags))
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := cluster.joinNodes(ctx); err != nil {
		tb.Fatalf("testservers: join the cluster: %v", err)
	}
	return cluster
}

// Addrs returns the addresses of all nodes, for redis.ClusterOptions.
func (c *RedisCluster) Addrs() []string {
	var addresses []string
	for _, node := range c.Nodes {
		addresses = append(addresses, node.Addr())
	}
	return addresses
}

// Prefix returns a key prefix that no other test uses.
func (c *RedisCluster) Prefix(testing.TB) string { return newPrefix() }

// Move migrates the slot of key, with all its keys, to another node while clients continue.
func (c *RedisCluster) Move(tb testing.TB, key string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := c.move(ctx, key); err != nil {
		tb.Fatalf("testservers: move the slot of %q: %v", key, err)
	}
}

// move does the same as redis-cli --cluster reshard.
func (c *RedisCluster) move(ctx context.Context, key string) error {
	var clients []*redis.Client
	for _, node := range c.Nodes {
		client := redis.NewClient(&redis.Options{Addr: node.Addr()})
		defer client.Close()
		clients = append(clients, client)
	}
	slot, err := clients[0].ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return err
	}
	at, err := ownerOf(ctx, clients, slot)
	if err != nil {
		return err
	}
	from, to := clients[at], clients[(at+1)%len(clients)]
	fromID, toID := from.Do(ctx, "CLUSTER", "MYID"), to.Do(ctx, "CLUSTER", "MYID")
	host, port, err := net.SplitHostPort(to.Options().Addr)
	if err != nil {
		return err
	}
	if err := errors.Join(
		to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID.Val()).Err(),
		from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID.Val()).Err(),
	); err != nil {
		return err
	}
	for {
		keys, err := from.ClusterGetKeysInSlot(ctx, int(slot), 1).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		if err := from.Migrate(ctx, host, port, keys[0], 0, startLimit).Err(); err != nil {
			return err
		}
	}
	// Tell the new owner first. If another node knew first and the new owner crashed, the slot would have no owner.
	for i := range clients {
		if err := clients[(at+1+i)%len(clients)].Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", toID.Val()).Err(); err != nil {
			return err
		}
	}
	return nil
}

func ownerOf(ctx context.Context, nodes []*redis.Client, slot int64) (int, error) {
	for i, node := range nodes {
		id, err := node.Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return 0, err
		}
		shards, err := node.ClusterSlots(ctx).Result()
		if err != nil {
			return 0, err
		}
		for _, shard := range shards {
			if int64(shard.Start) <= slot && slot <= int64(shard.End) && shard.Nodes[0].ID == id {
				return i, nil
			}
		}
	}
	return 0, fmt.Errorf("no node has slot %d", slot)
}

// joinNodes does the same as redis-cli --cluster create.
func (c *RedisCluster) joinNodes(ctx context.Context) error {
	for i, node := range c.Nodes {
		err := node.probe(func(client *redis.Client) error {
			if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
				return err
			}
			firstSlot, endSlot := i*clusterSlots/clusterNodes, (i+1)*clusterSlots/clusterNodes
			return client.ClusterAddSlotsRange(ctx, firstSlot, endSlot-1).Err()
		})
		if err != nil {
			return err
		}
	}
	for _, other := range c.Nodes[1:] {
		if err := c.Nodes[0].meetNode(ctx, other); err != nil {
			return err
		}
	}
	return c.waitJoined(ctx)
}

func (s *RedisServer) meetNode(ctx context.Context, other *RedisServer) error {
	host, port, err := net.SplitHostPort(other.Addr())
	if err != nil {
		return err
	}
	var busPort string
	err = other.probe(func(client *redis.Client) error {
		config, err := client.ConfigGet(ctx, "cluster-port").Result()
		busPort = config["cluster-port"]
		return err
	})
	if err != nil {
		return err
	}
	return s.probe(func(client *redis.Client) error {
		return client.Do(ctx, "CLUSTER", "MEET", host, port, busPort).Err()
	})
}

func (c *RedisCluster) waitJoined(ctx context.Context) error {
	var err error
	waitUntil(startLimit, func() bool {
		for _, node := range c.Nodes {
			if err = node.checkJoined(ctx); err != nil {
				return ctx.Err() != nil
			}
		}
		return true
	})
	return err
}

func (s *RedisServer) checkJoined(ctx context.Context) error {
	return s.probe(func(client *redis.Client) error {
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

func (s *RedisServer) probe(question func(*redis.Client) error) error {
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
	busPort, err := freePort()
	defaults := []string{"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(busPort),
		"--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000",
		"--cluster-announce-ip", "127.0.0.1"}
	return append(defaults, flags...), err
}
