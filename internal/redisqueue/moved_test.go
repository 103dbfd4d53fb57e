package redisqueue_test

import (
	"context"
	"net"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/processlog"
)

// redis6 makes a server reply like Redis 6.0.16, which wraps the errors of commands in a script.
type redis6 struct {
	net.Conn
	rest []byte
}

var (
	raised = regexp.MustCompile(`-(READONLY [^\r]*?) script: ([0-9a-f]+), on @user_script:\d+\.\r\n`)
	caught = regexp.MustCompile(`-(READONLY [^\r]*)\r\n`)
)

func (c *redis6) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		answer := make([]byte, len(b))
		n, err := c.Conn.Read(answer)
		if err != nil {
			return 0, err
		}
		c.rest = raised.ReplaceAll(answer[:n], []byte("-ERR Error running script (call to f_$2): @user_script:1: @user_script: 1: \x00$1\r\n"))
		c.rest = caught.ReplaceAll(c.rest, []byte("-@user_script: 1: \x00$1\r\n"))
		for i := range c.rest {
			if c.rest[i] == 0 {
				c.rest[i] = '-'
			}
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// wrappedConn cannot be checked without reading, like a TLS connection.
type wrappedConn struct{ net.Conn }

// After a failover the old server is a replica, and connections to it stay open.
// Failure: F47
func TestConnectionsToAServerThatTakesNoWritesAreGivenUpAtItsFirstAnswer(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"this version":     func(conn net.Conn) net.Conn { return conn },
		"Redis before 7":   func(conn net.Conn) net.Conn { return &redis6{Conn: conn} },
		"behind something": func(conn net.Conn) net.Conn { return wrappedConn{conn} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next, old := testservers.NewRedis(t), testservers.NewRedisReplica(t)
			proxy, err := faultproxy.NewTCP(old.Addr())
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
			client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return wrap(conn), nil
			}})
			t.Cleanup(func() { assert.NoError(t, client.Close()) })
			q := sameQueue(t, client, "own")
			stop, woken := listen(t, q)
			defer stop()
			awaitNotification(t, q, "before", woken)
			manyConnections(t, proxy, func() { mustClaim(t, q, "order", 1) })

			host, port, err := net.SplitHostPort(next.Addr())
			require.NoError(t, err)
			require.NoError(t, redisClient(t, old).SlaveOf(t.Context(), host, port).Err())
			proxy.Retarget(next.Addr())
			_, _, err = q.Enqueue(t.Context(), due("order", 1), processlog.EnqueueRules{MaxLease: time.Hour})
			require.ErrorContains(t, err, "READONLY")
			for range 10 { // once on each idle connection
				mustEnqueue(t, q, due("order", 1))
			}
			there := redisClient(t, next)
			// The old server is now a replica, and forwards the messages of its primary. So a message would not show
			// that the listener has moved. Wait until the new server has the subscription.
			require.Eventually(t, func() bool {
				found, err := there.PubSubNumSub(t.Context(), "own:v1:wake").Result()
				return err == nil && found["own:v1:wake"] == 1
			}, eventually, 10*time.Millisecond, "it listens at the new server")
		})
	}
}

func manyConnections(t *testing.T, proxy *faultproxy.TCP, call func()) {
	t.Helper()
	proxy.Latency(50 * time.Millisecond)
	defer proxy.Heal()
	for proxy.Connections() < 6 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(call)
		}
		all.Wait()
	}
}

// A load balancer sends new connections to another server, while the old one still answers. ConnMaxLifetime moves the
// client's connections.
func TestListenerFollowsItsClientToAnotherServer(t *testing.T) {
	t.Parallel()
	former, next := testservers.NewRedis(t), testservers.NewRedis(t)
	proxy, err := faultproxy.NewTCP(former.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, proxy.Close()) })
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ConnMaxLifetime: 100 * time.Millisecond})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	q := sameQueue(t, client, "own")
	stop, woken := listen(t, q)
	defer stop()
	awaitNotification(t, q, "before", woken)
	proxy.Retarget(next.Addr())
	here, there := redisClient(t, former), redisClient(t, next)
	// Publish a message on the old server in each round. The subscription is then never silent, so its end cannot come
	// from silence.
	require.Eventually(t, func() bool {
		if here.Publish(t.Context(), "own:v1:wake", "other").Err() != nil {
			return false
		}
		found, err := there.PubSubNumSub(t.Context(), "own:v1:wake").Result()
		return err == nil && found["own:v1:wake"] == 1
	}, eventually, 100*time.Millisecond, "it listens at the new server")
	awaitNotification(t, q, "after", woken)
}
