package relay

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// If publish is set, it decides the result of each message.
type topics struct {
	publish func(topic string, m *message.Message) error

	mu   sync.Mutex
	kept map[string][]*message.Message
}

func (b *topics) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		if b.publish != nil {
			if err := b.publish(topic, m); err != nil {
				return err
			}
		}
		b.mu.Lock()
		if b.kept == nil {
			b.kept = make(map[string][]*message.Message)
		}
		b.kept[topic] = append(b.kept[topic], m)
		b.mu.Unlock()
	}
	return nil
}

func (b *topics) Close() error { return nil }

func (b *topics) messagesOf(topic string) []*message.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept[topic]
}

func (b *topics) ids(topic string) map[string]int {
	ids := make(map[string]int)
	for _, m := range b.messagesOf(topic) {
		ids[m.UUID]++
	}
	return ids
}

func publisher(t *testing.T, sink message.Publisher, cfg Config) *Publisher {
	t.Helper()
	p, err := NewPublisher(sink, cfg)
	require.NoError(t, err)
	return p
}

func relayed(t *testing.T, c *compensator.Compensator, p *Publisher, route Route, batch bool, cfg compensator.HandlerConfig[harness.Order]) *compensator.Type[harness.Order] {
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

func eventually(t *testing.T, check func() bool, what string, args ...any) {
	t.Helper()
	require.Eventually(t, check, harness.Timeout, 5*time.Millisecond, fmt.Sprintf(what, args...))
}
