package redisqueue

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

type redisDialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialWithin bounds a dialer that was built with the user's, perhaps longer, timeout.
func dialWithin(timeout time.Duration, dial redisDialer) redisDialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return dial(ctx, network, addr)
	}
}

// unfit is how a server answers a write when another server is to be asked. Its address may lead to that one by now: a name
// that a failover has moved, a virtual IP address, a proxy. An open connection stays on the old server.
var unfit = [][]byte{
	[]byte("-READONLY "),   // a replica
	[]byte("-MASTERDOWN "), // a replica that has lost its primary
	[]byte("-NOREPLICAS "), // a primary that has lost its replicas, perhaps to another primary
}

// era counts how often connections were given up. Connections that were dialled in an earlier era are stale.
type era struct{ now atomic.Int64 }

// watch makes connections give themselves up, all that there are, at the first answer that says unfit. go-redis gives up one
// connection at a time, and only where the answer begins with READONLY: before version 7 Redis wraps what a command inside a
// script answers into "ERR Error running script …".
func (e *era) watch(dial redisDialer) redisDialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		connectedAt := e.now.Load() // before the dial: a connection under way may lead to the old server, too
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &eraConn{Conn: conn, era: e, connectedAt: connectedAt}, nil
	}
}

// eraConn is a connection that knows its era.
type eraConn struct {
	net.Conn
	era         *era
	connectedAt int64
}

var errStale = errors.New("redis: the server has said that another one is to be asked: dial again")

func (c *eraConn) stale() bool { return c.era.now.Load() > c.connectedAt }

func (c *eraConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for _, answer := range unfit {
		if bytes.Contains(b[:n], answer) {
			c.era.now.CompareAndSwap(c.connectedAt, c.connectedAt+1)
			break
		}
	}
	return n, err
}

// Write sends nothing over a stale connection, and go-redis closes the connection for the error. Most stale connections do not
// come that far: see SyscallConn.
func (c *eraConn) Write(b []byte) (int, error) {
	if c.stale() {
		return 0, errStale
	}
	return c.Conn.Write(b)
}

// SyscallConn is what go-redis asks before it takes an idle connection out of its pool. It closes a connection for the error,
// and takes another one, so that no command fails.
func (c *eraConn) SyscallConn() (syscall.RawConn, error) {
	if c.stale() {
		return nil, errStale
	}
	if conn, ok := c.Conn.(syscall.Conn); ok {
		return conn.SyscallConn()
	}
	return opaque{}, nil
}

// opaque is a connection of which nothing can be known without reading from it, as one of TLS.
type opaque struct{}

func (opaque) Control(func(fd uintptr)) error    { return nil }
func (opaque) Read(func(fd uintptr) bool) error  { return nil }
func (opaque) Write(func(fd uintptr) bool) error { return nil }
