package rabbitmq

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

func TestMain(m *testing.M) {
	confirmTimeout = 3 * time.Second // how late a confirm may come. The client ignores a later confirm, as it does with the default timeout
	refusedPause = 200 * time.Millisecond
	harness.Main(m)
}

// A killed broker takes seconds to restart, and longer on a busy machine.
const testTimeout = 4 * time.Minute

type broker struct {
	*testservers.RabbitMQServer
	t *testing.T
}

func sharedBroker(t *testing.T) broker {
	return broker{RabbitMQServer: testservers.SharedRabbitMQ(t), t: t}
}

func ownBroker(t *testing.T, settings ...string) broker {
	return broker{RabbitMQServer: testservers.NewRabbitMQ(t, settings...), t: t}
}

func (b broker) channel() *amqp091.Channel {
	b.t.Helper()
	conn, err := amqp091.Dial(b.URL())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	require.NoError(b.t, err)
	return ch
}

func (b broker) queue(args amqp091.Table) string {
	b.t.Helper()
	name := b.Name()
	conn, err := amqp091.Dial(b.URL())
	require.NoError(b.t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	require.NoError(b.t, err)
	_, err = ch.QueueDeclare(name, true, false, false, false, args)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { b.deleteQueue(name) })
	return name
}

// RabbitMQ 3 confirms a declaration before it is on disk. If it is killed within the next moments, it loses the durable
// queue with all its confirmed messages.
func (b broker) keepDeclared() { b.Control(b.t, "eval", "catch mnesia:sync_log().") }

func (b broker) deleteQueue(name string) {
	conn, err := amqp091.Dial(b.URL())
	if err != nil {
		return // The queue is gone together with the broker.
	}
	defer conn.Close()
	if ch, err := conn.Channel(); err == nil {
		_, _ = ch.QueueDelete(name, false, false, false)
	}
}

func (b broker) messages(queue string) []amqp091.Delivery {
	b.t.Helper()
	conn, err := amqp091.Dial(b.URL())
	require.NoError(b.t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	require.NoError(b.t, err)
	var all []amqp091.Delivery
	for {
		d, ok, err := ch.Get(queue, true)
		require.NoError(b.t, err)
		if !ok {
			return all
		}
		all = append(all, d)
	}
}

func (b broker) ids(queue string) map[string]int {
	b.t.Helper()
	ids := make(map[string]int)
	for _, d := range b.messages(queue) {
		ids[d.MessageId]++
	}
	return ids
}

func (b broker) depth(queue string) int { return b.inspect(queue).Messages }

func (b broker) consumers(queue string) int { return b.inspect(queue).Consumers }

func (b broker) inspect(queue string) amqp091.Queue {
	b.t.Helper()
	conn, err := amqp091.Dial(b.URL())
	require.NoError(b.t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	require.NoError(b.t, err)
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	require.NoError(b.t, err)
	return q
}

func (b broker) publish(queue string, messages ...amqp091.Publishing) {
	b.t.Helper()
	conn, err := amqp091.Dial(b.URL())
	require.NoError(b.t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	require.NoError(b.t, err)
	require.NoError(b.t, ch.Confirm(false))
	var confirms []*amqp091.DeferredConfirmation
	for _, m := range messages {
		m.DeliveryMode = amqp091.Persistent
		confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, m)
		require.NoError(b.t, err)
		confirms = append(confirms, confirm)
	}
	for _, confirm := range confirms {
		require.True(b.t, confirm.Wait())
	}
}

func numbered(n int) []amqp091.Publishing {
	messages := make([]amqp091.Publishing, n)
	for i := range messages {
		messages[i] = amqp091.Publishing{MessageId: fmt.Sprint("m", i), Body: []byte(fmt.Sprint(i))}
	}
	return messages
}

func (b broker) proxied() (*faultproxy.TCP, string) {
	b.t.Helper()
	proxy, err := faultproxy.NewTCP(b.Addr())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = proxy.Close() })
	return proxy, b.URLAt(proxy.Addr())
}

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, cfg Config) *Publisher {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	p, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func eventually(t *testing.T, check func() bool, what string, args ...any) {
	t.Helper()
	require.Eventually(t, check, testTimeout, 20*time.Millisecond, fmt.Sprintf(what, args...))
}

func relay(t *testing.T, c *compensator.Compensator, p *Publisher, route Route, batch bool, cfg compensator.HandlerConfig[harness.Order]) *compensator.Type[harness.Order] {
	t.Helper()
	if batch {
		orders, err := HandleBatch(t.Context(), c, "order_message", p, route, &compensator.BatchConfig[harness.Order]{MaxAttempts: cfg.MaxAttempts, Timeout: cfg.Timeout})
		require.NoError(t, err)
		return orders
	}
	orders, err := Handle(t.Context(), c, "order_message", p, route, &cfg)
	require.NoError(t, err)
	return orders
}

func singleAndBatch(t *testing.T, test func(t *testing.T, batch bool)) {
	for name, batch := range map[string]bool{"single": false, "batch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, batch)
		})
	}
}
