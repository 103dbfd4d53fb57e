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

// dialWithin returns a dialer that gives up after a timeout. The given dialer may come from the user and have a longer
// timeout of its own.
func dialWithin(timeout time.Duration, dial redisDialer) redisDialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return dial(ctx, network, addr)
	}
}

// unfit lists the replies which show that another server may be the primary now. An open connection stays on the old
// server. A new connection to the same address may lead to the new primary.
var unfit = [][]byte{
	[]byte("-READONLY "),   // from a replica
	[]byte("-MASTERDOWN "), // from a replica that has lost its primary
	[]byte("-NOREPLICAS "), // from a primary that has lost its replicas; another server may be their primary now
}

// era is the number of the current generation of connections. Connections of an earlier era are stale.
type era struct{ current atomic.Int64 }

// watch returns a dialer whose connections look for replies that the variable unfit lists. When a connection reads such
// a reply, a new era begins. All connections of the earlier era are then stale, and go-redis closes them. Without
// watch, go-redis would close only the connection that received the reply, and only for READONLY.
func (e *era) watch(dial redisDialer) redisDialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		// An era is a generation of connections. Load its number before the dial. If a new era begins during the dial,
		// the new connection may lead to a server that is no longer the primary. With the earlier number, this
		// connection is stale, and go-redis closes it.
		connectedAt := e.current.Load()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &eraConn{Conn: conn, era: e, connectedAt: connectedAt}, nil
	}
}

type eraConn struct {
	net.Conn
	era         *era
	connectedAt int64
}

var errStale = errors.New("redis: the server is no longer the primary: dial again")

func (c *eraConn) isStale() bool { return c.era.current.Load() > c.connectedAt }

func (c *eraConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for _, answer := range unfit {
		if bytes.Contains(b[:n], answer) {
			c.era.current.CompareAndSwap(c.connectedAt, c.connectedAt+1)
			break
		}
	}
	return n, err
}

// Write returns an error on a stale connection, which go-redis then closes.
func (c *eraConn) Write(b []byte) (int, error) {
	if c.isStale() {
		return 0, errStale
	}
	return c.Conn.Write(b)
}

// SyscallConn returns an error for a stale connection. go-redis calls it for an idle connection, and then takes another
// one.
func (c *eraConn) SyscallConn() (syscall.RawConn, error) {
	if c.isStale() {
		return nil, errStale
	}
	if conn, ok := c.Conn.(syscall.Conn); ok {
		return conn.SyscallConn()
	}
	return opaque{}, nil
}

// opaque stands for a connection that cannot be checked without reading, for example TLS.
type opaque struct{}

func (opaque) Control(func(fd uintptr)) error    { return nil }
func (opaque) Read(func(fd uintptr) bool) error  { return nil }
func (opaque) Write(func(fd uintptr) bool) error { return nil }
