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

	// setUpLimit limits the handshake, and each request that the broker should answer at once.
	setUpLimit = 30 * time.Second

	closeLimit = 5 * time.Second // maximum duration of an orderly close

	firstPause   = 100 * time.Millisecond
	longestPause = 3 * time.Second // maximum pause between two connects. It is short, so that the Consumer connects soon after the broker is back
)

// link has a method drop that ends the connection even if the broker does not respond. Close of amqp091 waits for
// writers, and a writer may wait for a broker that has stopped reading.
type link struct {
	*amqp091.Connection
	raw      net.Conn
	closeErr chan *amqp091.Error // gets at most one value, then is closed
}

func connect(ctx context.Context, url string, config amqp091.Config, name string) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, setUpLimit)
	defer cancel()
	l := &link{closeErr: make(chan *amqp091.Error, 1)}
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
		config.TLSClientConfig = config.TLSClientConfig.Clone() // Clone the config, because amqp091 sets ServerName in it.
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
	if !stop() { // ctx has ended, and the connection is being dropped.
		return nil, context.Cause(ctx)
	}
	l.NotifyClose(l.closeErr)
	return l, nil
}

// withName copies the properties, because amqp091 writes into the table that it gets, and two connections may get the
// same table from the caller.
func withName(properties amqp091.Table, name string) amqp091.Table {
	tableOfName := amqp091.NewConnectionProperties()
	tableOfName.SetClientConnectionName(name)
	for key, value := range properties {
		tableOfName[key] = value
	}
	return tableOfName
}

// drop makes the broker requeue unacknowledged messages.
func (l *link) drop() { _ = l.raw.Close() }

// close drops the connection if the broker does not answer within closeLimit.
func (l *link) close() {
	defer time.AfterFunc(closeLimit, l.drop).Stop()
	_ = l.Connection.Close()
}

// startGuard ends a wait for a broker that does not answer, because amqp091 would wait forever. Call stop when the
// broker has answered.
func (l *link) startGuard() (stop func() bool) { return time.AfterFunc(setUpLimit, l.drop).Stop }

// pause waits for a random time that grows with failures, and returns false if ctx has ended.
func pause(ctx context.Context, failures int) bool {
	maxPause := min(longestPause, firstPause<<min(failures, 10))
	timer := time.NewTimer(firstPause + rand.N(maxPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// wrapError leaves out the URL, which holds a password.
func wrapError(operation string, err error) error {
	return fmt.Errorf("rabbitmq: %s: %w", operation, err)
}
