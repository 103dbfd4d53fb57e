package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

const (
	heartbeat = 10 * time.Second

	// setUpLimit bounds the handshake, and any question to the broker that it should answer at once.
	setUpLimit = 30 * time.Second

	closeLimit = 5 * time.Second // for an orderly end, which is a courtesy

	firstPause   = 100 * time.Millisecond
	longestPause = 3 * time.Second // a broker that is back is not left alone for long
)

// link is one connection. It can be dropped whatever its peer does: amqp091's own Close waits for writers, and those
// may wait for a broker that reads nothing.
type link struct {
	*amqp091.Connection
	raw    net.Conn
	closed chan *amqp091.Error // one value, or closed
}

// connect returns when the broker has let us in, or ctx has ended.
func connect(ctx context.Context, url string, config amqp091.Config, name string) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, setUpLimit)
	defer cancel()
	l := &link{closed: make(chan *amqp091.Error, 1)}
	dial := config.Dial
	if dial == nil {
		dial = func(network, addr string) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, addr) }
	}
	stop := func() bool { return true }
	config.Dial = func(network, addr string) (net.Conn, error) {
		conn, err := dial(network, addr)
		if err != nil {
			return nil, err
		}
		l.raw = conn
		stop = context.AfterFunc(ctx, l.drop)
		return conn, nil
	}
	if config.Heartbeat == 0 {
		config.Heartbeat = heartbeat
	}
	if config.TLSClientConfig != nil {
		config.TLSClientConfig = config.TLSClientConfig.Clone() // amqp091 fills in the server's name
	}
	config.Properties = withName(config.Properties, name)
	var err error
	if l.Connection, err = amqp091.DialConfig(url, config); err != nil {
		if l.raw != nil {
			l.drop()
		}
		stop()
		return nil, errors.Join(err, context.Cause(ctx))
	}
	if !stop() { // ctx ended in the last moment
		return nil, context.Cause(ctx)
	}
	l.NotifyClose(l.closed)
	return l, nil
}

// withName is a copy: amqp091 writes into the table, and two connections may share the caller's.
func withName(properties amqp091.Table, name string) amqp091.Table {
	named := amqp091.NewConnectionProperties()
	named.SetClientConnectionName(name)
	for key, value := range properties {
		named[key] = value
	}
	return named
}

// drop ends the connection at once. The broker takes back what is not acknowledged.
func (l *link) drop() { _ = l.raw.Close() }

// close ends the connection in order, if the broker answers.
func (l *link) close() {
	defer time.AfterFunc(closeLimit, l.drop).Stop()
	_ = l.Connection.Close()
}

// guard drops the connection unless the returned function is called in time: a peer that fell silent would keep
// amqp091's calls for ever.
func (l *link) guard() (stop func() bool) { return time.AfterFunc(setUpLimit, l.drop).Stop }

// pause waits before the failures-th try to connect, counted from 1, with full jitter above a floor. It reports
// whether ctx is still there.
func pause(ctx context.Context, failures int) bool {
	most := min(longestPause, firstPause<<min(failures, 10))
	timer := time.NewTimer(firstPause + rand.N(most))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// failure names what failed, without the URL.
func failure(what string, err error) error { return fmt.Errorf("rabbitmq: %s: %w", what, err) }
