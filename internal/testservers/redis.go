package testservers

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisServer is one Redis server without a password.
type RedisServer struct{ control }

var redisServers = source{
	kind:     "Redis",
	variable: "REDIS_ADDR",
	docker:   startRedisContainer,
	local:    startLocalRedis,
	packages: []string{"redis-server"},
}

// A replica connects to its master. In a container it can do so only in the host's network.
var replicaServers = source{
	kind:     "Redis replica",
	variable: "REDIS_ADDR",
	docker:   startReplicaContainer,
	local:    startLocalRedis,
	packages: []string{"redis-server"},
}

// SharedRedis returns the server that all tests of this process share, and starts it on first use. Kill and similar
// methods panic on it.
func SharedRedis(tb testing.TB) *RedisServer {
	tb.Helper()
	sharedServers.mu.Lock()
	defer sharedServers.mu.Unlock()
	if sharedServers.redis == nil {
		newServer, err := sharedRedis()
		if err != nil {
			tb.Fatalf("testservers: %v", err)
		}
		sharedServers.redis = &RedisServer{control{machine: newServer}}
	}
	return sharedServers.redis
}

func sharedRedis() (machine, error) {
	usableWays, err := allowedWays()
	if err != nil {
		return nil, err
	}
	address := os.Getenv("REDIS_ADDR")
	if address == "" || usableWays[0] != wayDSN {
		return redisServers.start(nil)
	}
	if err := probeRedis(address, 0); err != nil {
		return nil, fmt.Errorf("REDIS_ADDR: %w", err)
	}
	redisServers.report(wayDSN, address)
	return givenServer{address}, nil
}

// NewRedis starts a server for this test alone and ends it with the test. It writes nothing to disk, so Restart brings
// it back empty. Flags can change that, for example "--appendonly", "yes".
func NewRedis(tb testing.TB, flags ...string) *RedisServer {
	tb.Helper()
	return newRedis(tb, &redisServers, flags)
}

// NewRedisReplica starts a server for this test alone and ends it with the test. The test can make this server a
// replica, because the server can reach every other server of this package and every proxy in this process.
func NewRedisReplica(tb testing.TB, flags ...string) *RedisServer {
	tb.Helper()
	return newRedis(tb, &replicaServers, flags)
}

func newRedis(tb testing.TB, from *source, flags []string) *RedisServer {
	tb.Helper()
	newServer, err := from.start(flags)
	if err != nil {
		tb.Fatalf("testservers: %v", err)
	}
	server := &RedisServer{control{machine: newServer, owner: tb}}
	server.discardAtEnd()
	return server
}

// Prefix returns a key prefix that no other test uses. On a shared server, every key that contains it is deleted at the
// end of the test.
func (s *RedisServer) Prefix(tb testing.TB) string {
	prefix := newPrefix()
	if s.owner == nil {
		tb.Cleanup(func() { s.deleteKeys(tb, prefix) })
	}
	return prefix
}

func newPrefix() string { return "test" + strings.ToLower(rand.Text()[:12]) }

func (s *RedisServer) deleteKeys(tb testing.TB, prefix string) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	keys := client.Scan(ctx, 0, "*"+prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := client.Unlink(ctx, keys.Val()).Err(); err != nil {
			tb.Errorf("testservers: delete key %s: %v", keys.Val(), err)
			return
		}
	}
	if err := keys.Err(); err != nil {
		tb.Errorf("testservers: find the test's keys: %v", err)
	}
}

// usualRedisFlags make Redis write nothing to disk.
var usualRedisFlags = []string{"--save", "", "--appendonly", "no"}

func startLocalRedis(flags []string) (machine, string, error) {
	return startRedisProgram(func(int) ([]string, error) { return flags, nil })
}

// startRedisProgram calls flags once for each port that it tries.
func startRedisProgram(flags func(port int) ([]string, error)) (machine, string, error) {
	path, err := findProgram("redis-server")
	if err != nil {
		return nil, "", err
	}
	version, err := versionOf(path, "--version")
	if err != nil {
		return nil, "", err
	}
	dir, err := serverDir()
	if err != nil {
		return nil, "", err
	}
	server := &program{path: path, dir: dir, probe: probeRedis, args: func(port int) ([]string, error) {
		moreFlags, err := flags(port)
		place := []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no"}
		return slices.Concat(place, usualRedisFlags, moreFlags), err
	}}
	if err := server.launch(); err != nil {
		return nil, "", err
	}
	return server, version, nil
}

// probeRedis accepts any process if pid is 0. It speaks the protocol itself, because a client's retries would slow the
// start.
func probeRedis(address string, pid int) error {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "INFO server\r\nPING\r\nQUIT\r\n"); err != nil {
		return err
	}
	isOwn := pid == 0
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "process_id:"+strconv.Itoa(pid):
			isOwn = true
		case line == "+PONG" && isOwn:
			return nil
		case line == "+PONG":
			return fmt.Errorf("%s is served by another process: %w", address, errPortTaken)
		case strings.HasPrefix(line, "-"):
			return fmt.Errorf("%s: %s", address, line[1:])
		}
	}
	return fmt.Errorf("%s closed the connection", address)
}
