package rabbitmq

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// Reads get nothing, and writes block.
type stalling struct {
	stalled atomic.Bool
	refused atomic.Bool // writes fail, and reads still work
}

type stallingConn struct {
	net.Conn
	*stalling
	once     sync.Once
	closeErr chan struct{}
}

func (s *stalling) dial(network, addr string) (net.Conn, error) {
	conn, err := net.Dial(network, addr)
	return &stallingConn{Conn: conn, stalling: s, closeErr: make(chan struct{})}, err
}

func (c *stallingConn) Write(p []byte) (int, error) {
	if c.refused.Load() {
		return 0, errTest
	}
	if c.stalled.Load() {
		<-c.closeErr
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *stallingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for err == nil && c.stalled.Load() {
		n, err = c.Conn.Read(p)
	}
	return n, err
}

func (c *stallingConn) Close() error {
	c.once.Do(func() { close(c.closeErr) })
	return c.Conn.Close()
}

// The network stalls while the function works, so the acknowledgement of the message blocks. The blocked
// acknowledgement holds locks of amqp091. Without these locks, amqp091 cannot close the channel of deliveries, so the
// Consumer must notice the lost connection in another way.
// Failure: F91
func TestConsumerComesBackFromABrokerThatReadsNothing(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var calls called
	network := new(stalling)
	k := consumer(t, c, func(_ context.Context, d *Delivery) error {
		if d.MessageID == "m0" && d.Entry == nil {
			network.stalled.Store(true)
		}
		calls.add(d)
		return nil
	}, ConsumerConfig{URL: b.URL(), Queue: queue, AMQP: amqp091.Config{Heartbeat: 2 * time.Second, Dial: network.dial}})
	w.Run(c)
	consume(t, k)
	b.publish(queue, numbered(1)...)
	eventually(t, func() bool { return k.Err() != nil && calls.ids() == 1 }, "silence is noticed")
	network.stalled.Store(false)
	b.publish(queue, numbered(2)[1:]...)
	eventually(t, func() bool { return calls.ids() == 2 }, "messages arrive")
}

// The notification of the broker is dropped.
// Failure: F91
func TestConsumerThatTheBrokerForgetsComesBack(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	proxy, url := b.proxied()
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	var calls called
	k := consumer(t, w.New(w.QuickConfig()), func(_ context.Context, d *Delivery) error { calls.add(d); return nil },
		ConsumerConfig{URL: url, Queue: queue})
	consume(t, k)
	eventually(t, func() bool { return k.Err() == nil }, "the consumer consumes")
	proxy.SwallowReplies()
	ch := b.channel()
	before := proxy.Swallowed()
	_, err := ch.QueueDelete(queue, false, false, false)
	require.NoError(t, err)
	eventually(t, func() bool { return proxy.Swallowed() > before+8 }, "the notification is lost") // A heartbeat has 8 bytes.
	proxy.Heal()
	_, err = ch.QueueDeclare(queue, true, false, false, false, nil)
	require.NoError(t, err)
	b.publish(queue, numbered(1)...)
	eventually(t, func() bool { return calls.ids() == 1 }, "messages arrive")
}

// Failure: F87
func TestMessageThatCannotBeWrittenIsNotCalledRefusedByAFullQueue(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	network := new(stalling)
	p := open(t, Config{URL: b.URL(), AMQP: amqp091.Config{Heartbeat: 2 * testTimeout, Dial: network.dial}})
	orders := relay(t, c, p, To("", queue), false, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
	w.Run(c)
	w.WaitState(w.Record(orders, 0, compensator.Options{}), compensator.Succeeded)
	network.refused.Store(true)
	id := w.Record(orders, 1, compensator.Options{})
	var e *compensator.Entry
	w.Eventually(func() bool {
		var err error
		e, err = c.Get(t.Context(), id)
		return err == nil && e.LastError != ""
	}, "the attempt says why")
	assert.NotContains(t, e.LastError, "nack")
	eventually(t, func() bool { return p.Err() != nil }, "the connection is given up")
	network.refused.Store(false)
	w.WaitState(id, compensator.Succeeded)
}

// Failure: F87
func TestBrokerOfFewChannelsIsGivenNoMoreThanThose(t *testing.T) {
	t.Parallel()
	b := ownBroker(t, "channel_max = 2")
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	p := open(t, Config{URL: b.URL(), CountUnavailable: true, Timeout: testTimeout})
	orders := relay(t, c, p, To("", queue), false, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, Timeout: testTimeout})
	const n = 100
	for i := range n {
		w.Record(orders, i, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint("m", i))})
	}
	w.Run(c)
	w.WaitAllEnded()
	assert.Equal(t, n, w.CountEnded(compensator.Succeeded, 0))
}

// Failure: F87
func TestConfirmThatNeverComesKeepsItsChannelForAWhileOnly(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	proxy, url := b.proxied()
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	p := open(t, Config{URL: url, Channels: 1, Timeout: 3 * time.Second})
	orders := relay(t, c, p, To("", queue), false, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
	w.Run(c)
	w.WaitState(w.Record(orders, 0, compensator.Options{IdempotencyKey: "before"}), compensator.Succeeded)
	pool, err := p.awaitPool(t.Context())
	require.NoError(t, err)
	sent := b.depth(queue)
	proxy.SwallowReplies()
	before := proxy.Swallowed()
	id := w.Record(orders, 1, compensator.Options{IdempotencyKey: "m"})
	eventually(t, func() bool { return b.depth(queue) > sent && proxy.Swallowed() > before+8 }, "the confirm is lost")
	proxy.Heal()
	eventually(t, func() bool { return w.State(id) == compensator.Succeeded }, "the message is sent again")
	now, err := p.awaitPool(t.Context())
	require.NoError(t, err)
	assert.Same(t, pool, now, "over the same connection")
	assert.GreaterOrEqual(t, b.ids(queue)["m"], 2)
}
