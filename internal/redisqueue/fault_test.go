package redisqueue_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
)

// mute drops all replies of a connection that sends a certain command. The command reaches the server.
type mute struct {
	command string
	on      atomic.Bool
}

func (m *mute) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &mutedConn{Conn: conn, mute: m}, err
}

type mutedConn struct {
	net.Conn
	mute  *mute
	muted atomic.Bool
}

func (c *mutedConn) Write(b []byte) (int, error) {
	if c.mute.on.Load() && bytes.Contains(b, []byte(c.mute.command)) {
		c.muted.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *mutedConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.muted.Load() {
			return n, err
		}
	}
}

// Failure: F45
func TestClaimWhoseReplyWasLostLeasesOneBatchOnly(t *testing.T) {
	t.Parallel()
	server := testservers.SharedRedis(t)
	m := mute{command: "evalsha"}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: m.dial, ReadTimeout: 50 * time.Millisecond})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	q := sameQueue(t, client, server.Prefix(t))
	mustEnqueue(t, q, dueRows("order", 100))
	mustClaim(t, q, "order", 0) // The server now knows the script.
	m.on.Store(true)
	_, err := q.Claim(t.Context(), "order", 10, time.Hour)
	require.Error(t, err)
	m.on.Store(false)
	assert.Len(t, mustClaim(t, q, "order", 100).IDs, 90)
}

func TestClusterClaimWhoseReplyWasLostLeasesOneBatchOnly(t *testing.T) {
	t.Parallel()
	cluster := testservers.NewRedisCluster(t)
	m := mute{command: "evalsha"}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(), Dialer: m.dial, ReadTimeout: 50 * time.Millisecond,
	})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	q := sameQueue(t, client, cluster.Prefix(t))
	mustEnqueue(t, q, dueRows("order", 100))
	mustClaim(t, q, "order", 0) // The server now knows the script.
	m.on.Store(true)
	_, err := q.Claim(t.Context(), "order", 10, time.Hour)
	var network net.Error
	require.ErrorAs(t, err, &network)
	assert.True(t, network.Timeout())
	m.on.Store(false)
	assert.Len(t, mustClaim(t, q, "order", 100).IDs, 90)
}

func TestListenLeavesASilentConnection(t *testing.T) {
	t.Parallel()
	server := testservers.SharedRedis(t)
	m := mute{command: "subscribe"}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: m.dial})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	prefix := server.Prefix(t)
	m.on.Store(true)
	stop, woken := listen(t, sameQueue(t, client, prefix))
	defer stop()
	// Wait until the server has the subscription. Its reply does not reach the client, because the variable m drops all
	// replies on this connection. Only later connections get replies.
	require.Eventually(t, func() bool {
		counts, err := client.PubSubNumSub(t.Context(), prefix+":v1:wake").Result()
		return err == nil && counts[prefix+":v1:wake"] == 1
	}, eventually, time.Millisecond)
	m.on.Store(false)
	awaitNotification(t, sameQueue(t, client, prefix), "order", woken)
}

// Failure: F45
func TestRedisQueueObeysADeadlineWhileRedisIsSilent(t *testing.T) {
	t.Parallel()
	server := testservers.NewRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: -1})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	q := sameQueue(t, client, "own")
	server.Pause()
	defer server.Resume()

	patient := make(chan error, 1)
	go func() {
		_, err := q.Claim(context.Background(), "order", 1, time.Hour)
		patient <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := q.Claim(ctx, "order", 1, time.Hour)
	require.Error(t, err)
	select {
	case <-patient:
		assert.Fail(t, "the call with a deadline did not return first")
	default:
	}
	select {
	case err := <-patient:
		assert.Error(t, err)
	case <-time.After(eventually):
		assert.Fail(t, "the call without a deadline never returned")
	}
}
