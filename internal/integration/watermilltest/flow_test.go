package watermilltest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
)

const types = "('single_message','batch_message')"

func record(w *harness.World, n int, of ...string) {
	w.T.Helper()
	entries := make([]compensator.NewEntry, n)
	for i := range entries {
		entries[i] = compensator.NewEntry{BusinessType: of[i%len(of)], Content: []byte(fmt.Sprintf(`{"n":%d}`, i)),
			Options: compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint("m", i))}}
	}
	c := w.New(w.QuickConfig())
	require.NoError(w.T, c.InTx(w.T.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := c.Record(ctx, tx, entries...)
		return err
	}))
}

func sent(w *harness.World) int {
	return w.Count("common_process_log WHERE state=1 AND business_type IN " + types)
}

func done(w *harness.World) int {
	return w.Count("(SELECT DISTINCT what FROM effects WHERE what LIKE 'done:%') AS d")
}

func proxied(t *testing.T, b broker) (*faultproxy.TCP, plug) {
	t.Helper()
	proxy, err := faultproxy.NewTCP(b.addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	p := b.plug()
	p.URL = b.urlAt(proxy.Addr())
	return proxy, p
}

// For every message, the consumer's function must succeed, or the message must become an entry of the log.
// Failure: F87
func TestNothingIsLostBothWaysWhileTheBrokerIsKilled(t *testing.T) {
	t.Parallel()
	onEach(t, true, func(t *testing.T, b broker) {
		const n = 500
		w := harness.NewWorld(t)
		record(w, n, "single_message", "batch_message")
		start(w, service{Plug: b.plug(), Relay: true, Consume: true, Timeout: 5 * time.Second, Fails: "7"})
		for kill := 1; kill <= 2; kill++ {
			eventually(t, func() bool { return done(w) >= n*kill/4 }, "the flow goes on")
			b.kill()
			require.Less(t, done(w), n, "killed in mid-flow")
			b.restart()
		}
		eventually(t, func() bool { return sent(w) == n }, "every entry is sent")
		eventually(t, func() bool { return done(w) == n }, "every message is processed")
		eventually(t, func() bool { return w.Count("common_process_log WHERE state<>1") == 0 }, "every entry of a failed message succeeds")
		eventually(t, func() bool { return b.left() == 0 }, "the topic is empty")
		assert.Zero(t, w.Count("effects WHERE what LIKE 'done:%' AND what NOT IN (SELECT CONCAT('done:',idempotent_id) FROM common_process_log WHERE business_type IN "+types+")"), "nobody's")
		t.Logf("%d messages, the broker killed twice: %d worked on twice, under the same id; %d by the log",
			n, w.Count("effects WHERE what LIKE 'done:%'")-n, w.Count("common_process_log WHERE business_type='order_received'"))
	})
}

// The broker has the message, but the Publisher does not know it.
// Failure: F87
func TestBrokersWordThatIsLostIsAskedForAgainUnderTheSameID(t *testing.T) {
	t.Parallel()
	onEach(t, false, func(t *testing.T, b broker) {
		for _, businessType := range []string{"single_message", "batch_message"} {
			proxy, to := proxied(t, b)
			w := harness.NewWorld(t)
			p := start(w, service{Plug: to, Relay: true, Timeout: 500 * time.Millisecond})
			record(w, 1, businessType)
			eventually(t, func() bool { return sent(w) == 1 }, "the first message is sent")
			assert.Equal(t, map[string]int{"m0": 1}, b.ids())

			proxy.SwallowReplies()
			record(w, 2, businessType) // The entry m0 exists already, so this call adds only m1.
			eventually(t, func() bool { return w.Count("common_process_log WHERE last_error LIKE '%did not answer%'") == 1 }, "the handler returns")
			proxy.Cut()
			proxy.Heal()
			eventually(t, func() bool { return sent(w) == 2 }, "the message is sent")
			ids := b.ids()
			assert.GreaterOrEqual(t, ids["m1"], 2, "the message is sent again under the same id")
			assert.Len(t, ids, 1)
			assert.Zero(t, w.Count("common_process_log WHERE process_count>0"), "no attempt is counted")
			p.kill()
		}
	})
}

// Failure: F87
func TestConnectionThatIsCutBeforeAMessageIsSentLosesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, false, func(t *testing.T, b broker) {
		proxy, to := proxied(t, b)
		w := harness.NewWorld(t)
		start(w, service{Plug: to, Relay: true, Timeout: 300 * time.Millisecond})
		proxy.Refuse()
		record(w, 10, "single_message", "batch_message")
		eventually(t, func() bool { return w.Count("common_process_log WHERE last_error<>''") == 10 }, "attempts find no broker")
		assert.Zero(t, w.Count("common_process_log WHERE process_count>0"), "the attempts are not counted")
		proxy.Heal()
		eventually(t, func() bool { return sent(w) == 10 }, "all messages are sent")
		assert.Len(t, b.ids(), 10)
	})
}

// A message that was not acknowledged before the cut must not be lost, and may come again.
// Failure: F91
func TestConnectionThatIsCutAroundAnAcknowledgementLosesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, false, func(t *testing.T, b broker) {
		proxy, to := proxied(t, b)
		w := harness.NewWorld(t)
		start(w, service{Plug: to, Consume: true, Gate: true})
		b.send("m0")
		eventually(t, func() bool { return w.Count("effects WHERE what='begun:m0'") == 1 }, "the function works")
		proxy.Cut()
		w.Exec("INSERT INTO effects (what) VALUES ('go')")
		// A RabbitMQ client cannot acknowledge a message after its connection has ended, so the broker sends the
		// message again. A NATS client acknowledges the message on its next connection.
		if to.Kind == "rabbitmq" {
			eventually(t, func() bool { return w.Count("common_process_log WHERE state=1") == 1 }, "the message comes again and goes into the log")
		}
		b.send("m1")
		b.send("m2") // Messages are delivered one at a time. When this one arrives, the one before it is acknowledged.
		eventually(t, func() bool { return done(w) == 3 && b.left() == 0 }, "all are done")
		before := w.Count("effects WHERE what='begun:m1'")
		proxy.Cut()
		b.send("m3")
		eventually(t, func() bool { return done(w) == 4 && b.left() == 0 }, "it consumes on")
		assert.Equal(t, before, w.Count("effects WHERE what='begun:m1'"), "an acknowledged message does not come again")
	})
}

// Failure: F92
func TestMessagesComeAgainUntilTheDatabaseIsBack(t *testing.T) {
	t.Parallel()
	onEach(t, false, func(t *testing.T, b broker) {
		w := harness.NewWorld(t)
		start(w, service{Plug: b.plug(), Consume: true, Fails: "x"})
		w.Exec("RENAME TABLE common_process_log TO hidden")
		b.send("ax", "bx", "cx")
		eventually(t, func() bool { return w.Count("effects WHERE what LIKE 'begun:%'") > 0 }, "one fails")
		// The consumer calls the function again for a redelivered message of NATS. A redelivered message of RabbitMQ
		// goes into the log without a call of the function.
		if b.plug().Kind == "nats" {
			eventually(t, func() bool { return w.Count("effects WHERE what LIKE 'begun:%'") > 3 }, "the messages come again")
		}
		w.Exec("RENAME TABLE hidden TO common_process_log")
		eventually(t, func() bool { return done(w) == 3 && b.left() == 0 }, "all are done")
		assert.Equal(t, 3, w.Count("common_process_log"), "by the log, each once")
	})
}

// The broker drops a message that is nacked more often than the queue's limit allows, so the consumer must not nack it
// during the outage.
// Failure: F92
func TestOutageOfTheDatabaseSpendsNoDeliveryOfAQuorumQueue(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string]struct {
		isPlain  bool
		deadline time.Duration
	}{
		"watermill-amqp's marshaler":                  {isPlain: true},
		"the README's marshaler":                      {},
		"a deadline that ends each message's context": {deadline: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRabbit(t, false, plug{QueueType: "quorum", DeliveryLimit: 1, Plain: setting.isPlain})
			w := harness.NewWorld(t)
			start(w, service{Plug: b.plug(), Consume: true, Fails: "x", Deadline: setting.deadline})
			w.Exec("RENAME TABLE common_process_log TO hidden")
			b.send("0x", "1x", "2x", "3x", "4x", "5x", "6x", "7x", "8x", "9x")
			eventually(t, func() bool { return w.Count("effects WHERE what LIKE 'begun:%'") > 0 }, "one fails")
			// Give a wrong consumer the time to nack each message twice, which would exceed the delivery limit. A
			// correct consumer does not need this time.
			<-time.After(10 * time.Second)
			w.Exec("RENAME TABLE hidden TO common_process_log")
			eventually(t, func() bool { return done(w) == 10 && b.left() == 0 }, "all are done")
			assert.Equal(t, 10, w.Count("common_process_log"), "by the log, each once")
			assert.Equal(t, 10, w.Count("effects WHERE what LIKE 'begun:%'")-done(w), "each was called once before it was recorded")
		})
	}
}

// A stream redelivers nothing, so a message that fails while the database is unavailable would be lost.
// Failure: F95
func TestStreamIsRefusedBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	b := newRabbit(t, false, plug{QueueType: "stream"})
	w := harness.NewWorld(t)
	b.send("x")
	start(w, service{Plug: b.plug(), Consume: true, Fails: "x"})
	eventually(t, func() bool { return w.Count("effects WHERE what='refused:x'") > 0 }, "the stream is refused")
	assert.Zero(t, w.Count("effects WHERE what LIKE 'begun:%'"))
	assert.Zero(t, w.Count("common_process_log"))
}

// The message may be sent at most once more for each kill.
// Failure: F87
func TestProcessKilledBetweenBrokersWordAndOutcomeSendsAgainUnderTheSameID(t *testing.T) {
	t.Parallel()
	onEach(t, false, func(t *testing.T, b broker) {
		for _, businessType := range []string{"single_message", "batch_message"} {
			const n = 5
			w := harness.NewWorld(t)
			stuck := start(w, service{Plug: b.plug(), Relay: true, Timeout: waitTimeout, Stuck: true})
			record(w, n, businessType)
			eventually(t, func() bool { return w.Count("effects WHERE what='stuck'") > 0 }, "a message is sent, and its outcome is not stored")
			stuck.kill()
			assert.Zero(t, sent(w))
			again := start(w, service{Plug: b.plug(), Relay: true, Timeout: waitTimeout})
			eventually(t, func() bool { return sent(w) == n }, "every entry is sent")
			again.kill()
			ids, twice := b.ids(), 0
			assert.Len(t, ids, n)
			for id, times := range ids {
				assert.LessOrEqual(t, times, 2, id)
				twice += times - 1
			}
			assert.Positive(t, twice, "the kill was between")
		}
	})
}
