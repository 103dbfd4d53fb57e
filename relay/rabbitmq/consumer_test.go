package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/harness"
)

var errTest = errors.New("no luck")

type called struct {
	mu sync.Mutex
	n  map[string]int
}

func (k *called) add(d *Delivery) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.n == nil {
		k.n = make(map[string]int)
	}
	k.n[d.MessageID]++
	return k.n[d.MessageID]
}

func (k *called) all() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.n)
}

func (k *called) ids() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.n)
}

func consumer(t *testing.T, c *compensator.Compensator, work Work, cfg ConsumerConfig) *Consumer {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	if cfg.Type.Retry == nil {
		cfg.Type.Retry = compensator.Fixed(100 * time.Millisecond)
	}
	k, err := Consume(t.Context(), c, "order_received", work, cfg)
	require.NoError(t, err)
	return k
}

func consume(t *testing.T, k *Consumer) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- k.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-result
	})
	t.Cleanup(func() { assert.NoError(t, stop()) })
	return stop
}

// Failure: F90
func TestMessageThatFailsBecomesAnEntryAndLeavesTheQueue(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Propagator = traced{}
	c := w.New(cfg)
	var calls called
	var mu sync.Mutex
	var seen []*Delivery
	k := consumer(t, c, func(ctx context.Context, d *Delivery) error {
		assert.Equal(t, "00-trace", ctx.Value(traceKey{}))
		mu.Lock()
		seen = append(seen, d)
		mu.Unlock()
		switch n := calls.add(d); {
		case n == 1 && d.Key == queue && len(d.Body) > 20:
			panic("a bug")
		case n == 2:
			return errTest
		}
		return nil
	}, ConsumerConfig{URL: b.URL(), Queue: queue, Propagator: traced{}})
	body := []byte("raw \x00\xff not JSON, and longer")
	b.publish(queue, amqp091.Publishing{
		MessageId: "fails", Type: "t", ContentType: "c", ContentEncoding: "e", CorrelationId: "co", ReplyTo: "re", AppId: "app",
		Timestamp: time.Unix(1700000000, 0), Body: body, Headers: amqp091.Table{
			"traceparent": "00-trace", "i": int32(7), "big": int64(1) << 60, "f": 1.5, "b": true, "bytes": []byte("x"), "nil": nil,
			"t": time.Unix(1700000000, 0), "l": []any{int8(1), "a"}, "table": amqp091.Table{"x": byte(1)}},
	}, amqp091.Publishing{MessageId: "works", Headers: amqp091.Table{"traceparent": "00-trace"}})
	stop := consume(t, k)
	eventually(t, func() bool { return calls.ids() == 2 && w.Count("common_process_log") == 1 }, "the failed message is recorded")
	eventually(t, func() bool { return b.depth(queue) == 0 }, "the queue is empty")
	require.NoError(t, stop())
	assert.Zero(t, b.depth(queue), "both were acknowledged")
	w.Run(c) // From here on the log processes the message.
	w.WaitAllEnded()
	assert.Equal(t, map[string]int{"fails": 3, "works": 1}, calls.all())

	e, err := c.Get(t.Context(), k.IdempotencyKey(&Delivery{Queue: queue, MessageID: "fails"}))
	require.NoError(t, err)
	assert.Equal(t, compensator.Succeeded, e.State)
	d, err := DeliveryOf(e)
	require.NoError(t, err)
	assert.Equal(t, body, d.Body)
	assert.Equal(t, e, d.Entry)
	var first, last *Delivery
	for _, d := range seen {
		if d.MessageID == "fails" {
			if first == nil {
				first = d
			}
			last = d
		}
	}
	require.Nil(t, first.Entry)
	require.NotNil(t, last.Entry)
	last.Entry, d.Entry = nil, nil
	assert.Equal(t, first, last, "it looks the same from the queue and from the log")
	assert.Equal(t, first, d)
	assert.Equal(t, map[string]any{
		"traceparent": "00-trace", "i": int64(7), "big": int64(1) << 60, "f": 1.5, "b": true, "bytes": "x", "nil": nil,
		"t": "2023-11-14T22:13:20Z", "l": []any{int64(1), "a"}, "table": map[string]any{"x": int64(1)}}, d.Headers)
}

// Failure: F89
func TestMessageThatComesAgainGoesIntoTheLogOnce(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var calls called
	k := consumer(t, c, func(_ context.Context, d *Delivery) error {
		calls.add(d)
		assert.NotNil(t, d.Entry, "worked on from the log alone")
		return nil
	}, ConsumerConfig{URL: b.URL(), Queue: queue})
	b.publish(queue, numbered(20)...)
	again := func() { // A consumer takes all messages and dies.
		conn, err := amqp091.Dial(b.URL())
		require.NoError(t, err)
		ch, err := conn.Channel()
		require.NoError(t, err)
		eventually(t, func() bool { _, ok, err := ch.Get(queue, false); return err == nil && !ok }, "all are taken")
		require.NoError(t, conn.Close())
		eventually(t, func() bool { return b.depth(queue) == 20 }, "they are back")
	}
	again()
	proxy, url := b.proxied() // Lose the acknowledgements of a second consumer.
	lossy, err := Consume(t.Context(), w.New(w.QuickConfig()), "order_received", func(context.Context, *Delivery) error { return errTest }, ConsumerConfig{
		URL: url, Queue: queue, Logger: quiet, Declare: func(*amqp091.Channel) error { // The log becomes unavailable after the consumer has connected.
			w.Exec("RENAME TABLE common_process_log TO hidden")
			return nil
		}})
	require.NoError(t, err)
	stop := consume(t, lossy)
	eventually(t, func() bool { return b.depth(queue) == 0 }, "it has them all") // The consumer holds all messages, because it cannot record them.
	proxy.Refuse()
	w.Exec("RENAME TABLE hidden TO common_process_log")
	require.NoError(t, stop())
	eventually(t, func() bool { return b.depth(queue) == 20 }, "they are back again")

	w.Run(c)
	stop = consume(t, k)
	w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1") == 20 }, "the log has done them")
	require.NoError(t, stop())
	assert.Zero(t, b.depth(queue))
	assert.Equal(t, 20, calls.ids())
	assert.Equal(t, 20, w.Count("common_process_log"), "each once")

	b.publish(queue, numbered(20)...) // These messages have the same ids, so they are recorded and done already.
	again()
	for left := 20; left > 0; left = b.depth(queue) { // A consumer that stops gives back the messages that it has not begun.
		stop = consume(t, k)
		eventually(t, func() bool { return b.depth(queue) == 0 }, "it has them")
		require.NoError(t, stop())
	}
	assert.Equal(t, 20, w.Count("common_process_log"))
	for id, times := range calls.all() {
		assert.Equal(t, 1, times, id)
	}
}

// Failure: F90
func TestPoisonIsSetAsideWithItsContentAndBlocksNobody(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var calls called
	var mended sync.Once
	good := make(chan struct{})
	k := consumer(t, c, func(_ context.Context, d *Delivery) error {
		calls.add(d)
		if d.MessageID != "" {
			return nil
		}
		select {
		case <-good:
			assert.Equal(t, "{half", string(d.Body))
			return nil
		default:
			return compensator.Permanent(errors.New("cannot be decoded"))
		}
	}, ConsumerConfig{URL: b.URL(), Queue: queue, Prefetch: 1})
	w.Run(c)
	consume(t, k)
	b.publish(queue, amqp091.Publishing{Body: []byte("{half")})
	b.publish(queue, numbered(5)...)
	eventually(t, func() bool { return calls.ids() == 6 }, "the other messages are processed")
	w.WaitAllEnded()
	page, err := admin.Of(c).List(t.Context(), admin.Filter{States: []compensator.State{compensator.Dead}, BusinessType: "order_received"})
	require.NoError(t, err)
	require.Len(t, page.Entries, 1)
	aside := &page.Entries[0]
	assert.Equal(t, compensator.EndedByPermanent, aside.EndedBy)
	assert.Contains(t, aside.LastError, "cannot be decoded")
	d, err := DeliveryOf(aside)
	require.NoError(t, err)
	assert.Equal(t, "{half", string(d.Body))
	assert.Equal(t, 1, calls.all()[""], "the function did not run again")

	mended.Do(func() { close(good) })
	require.NoError(t, admin.Of(c).Requeue(t.Context(), aside.ID, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "ann", Reason: "mended"}}))
	w.WaitState(aside.ID, compensator.Succeeded)
	assert.Equal(t, 2, calls.all()[""])
}

// Failure: F90
func TestMessageSetAsideManuallyWaitsForAPerson(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	k := consumer(t, c, func(context.Context, *Delivery) error { return nil }, ConsumerConfig{URL: b.URL(), Queue: "orders"})
	d := &Delivery{Queue: "orders", MessageID: "m1", Body: []byte("x")}
	require.NoError(t, k.SetAside(t.Context(), d, errTest))
	require.NoError(t, k.SetAside(t.Context(), d, errors.New("again")), "the recorded entry is unchanged")
	assert.Empty(t, d.SetAside, "the caller's message is unchanged")
	w.Run(c)
	e, err := c.Get(t.Context(), k.IdempotencyKey(d))
	require.NoError(t, err)
	w.WaitState(e.ID, compensator.Dead)
	e, err = c.Get(t.Context(), e.ID)
	require.NoError(t, err)
	assert.Equal(t, errTest.Error(), e.LastError)
}

// Failure: F93
func TestStoppedConsumerFinishesWhatItHasBegunAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	begun, release := make(chan struct{}, 100), make(chan struct{})
	k := consumer(t, c, func(ctx context.Context, d *Delivery) error {
		begun <- struct{}{}
		<-release
		assert.NoError(t, ctx.Err())
		if d.MessageID == "m0" {
			return errTest // The message must be recorded, although Run is ending.
		}
		return nil
	}, ConsumerConfig{URL: b.URL(), Queue: queue, Prefetch: 4})
	b.publish(queue, numbered(10)...)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- k.Run(ctx) }()
	for range 4 {
		<-begun
	}
	assert.ErrorIs(t, k.Run(t.Context()), compensator.ErrRunning)
	cancel()
	select {
	case err := <-result:
		t.Fatalf("Run returned %v with functions under way", err)
	case <-time.After(300 * time.Millisecond): // Wait a little, so that a wrong result could appear. A right result needs no time.
	}
	close(release)
	require.NoError(t, <-result)
	assert.Equal(t, 6, b.depth(queue), "the other messages are still in the queue")
	assert.Equal(t, 1, w.Count("common_process_log"))
}

// Failure: F93
func TestFunctionThatDoesNotReturnIsToldToAndNamed(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	begun, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	k := consumer(t, w.New(w.QuickConfig()), func(ctx context.Context, d *Delivery) error {
		once.Do(func() { close(begun) })
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), compensator.ErrStopping)
		<-release
		return ctx.Err()
	}, ConsumerConfig{URL: b.URL(), Queue: queue, StopTimeout: 100 * time.Millisecond})
	b.publish(queue, numbered(1)...)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- k.Run(ctx) }()
	<-begun
	cancel()
	assert.ErrorContains(t, <-result, "1 functions of queue "+queue)
	close(release)
	eventually(t, func() bool { return len(k.slots) == 0 }, "it returns at last")
	eventually(t, func() bool { return b.depth(queue) == 1 }, "the unfinished message is back in the queue")
	assert.Zero(t, w.Count("common_process_log"), "a stop is no failure")
}

func TestWhatIsDoneOnceItIsToldToStopIsAcknowledged(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	begun, release := make(chan struct{}), make(chan struct{})
	k := consumer(t, w.New(w.QuickConfig()), func(ctx context.Context, _ *Delivery) error {
		close(begun)
		<-ctx.Done()
		<-release
		return nil
	}, ConsumerConfig{URL: b.URL(), Queue: queue, StopTimeout: testTimeout / 60})
	b.publish(queue, numbered(1)...)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- k.Run(ctx) }()
	<-begun
	cancel()
	eventually(t, func() bool { return errors.Is(k.Err(), compensator.ErrStopping) }, "the function's context ends")
	close(release)
	require.NoError(t, <-result)
	eventually(t, func() bool { return b.consumers(queue) == 0 }, "the broker has removed the consumer")
	assert.Zero(t, b.depth(queue), "Run has returned nil")
	assert.Zero(t, w.Count("common_process_log"))
}

// A function of the first connection keeps one of two slots. On the second connection, one message takes the other
// slot, and the next message waits.
func TestLossIsToldWhileAMessageWaitsForAFunctionOfAnEarlierConnection(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	proxy, url := b.proxied()
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	deaf, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	begun, cause := make(chan struct{}, 9), make(chan error, 9)
	k := consumer(t, c, func(ctx context.Context, d *Delivery) error {
		switch {
		case d.Entry != nil:
		case d.MessageID == "deaf":
			close(deaf)
			<-release
		default:
			begun <- struct{}{}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return ctx.Err()
		}
		return nil
	}, ConsumerConfig{URL: url, Queue: queue, Prefetch: 2})
	consume(t, k)
	b.publish(queue, amqp091.Publishing{MessageId: "deaf"})
	<-deaf
	proxy.Cut()
	eventually(t, func() bool { return k.Err() == nil && b.depth(queue) == 0 && w.Count("common_process_log") == 1 }, "the message comes again and goes into the log")
	b.publish(queue, numbered(2)...)
	<-begun
	eventually(t, func() bool { return b.depth(queue) == 0 }, "the other message has arrived, too")
	proxy.Cut()
	assert.ErrorIs(t, harness.Receive(t, cause), ErrDeliveryLost)
	eventually(t, func() bool { return w.Count("common_process_log") == 3 }, "a new connection has both, and the log")
}

// Failure: F91
func TestConsumerComesBackAfterEveryWayOfBeingLost(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	proxy, url := b.proxied()
	queue := b.Name()
	var calls called
	declare := func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, nil)
		return err
	}
	var lose sync.Mutex
	var lost func(ch *amqp091.Channel) error
	lines := make(harness.Log, 1000)
	k := consumer(t, c, func(_ context.Context, d *Delivery) error { calls.add(d); return nil }, ConsumerConfig{
		Logger: slog.New(slog.NewTextHandler(lines, nil)),
		URL:    url, AMQP: amqp091.Config{Heartbeat: 2 * time.Second}, Queue: queue, Declare: func(ch *amqp091.Channel) error {
			lose.Lock()
			defer lose.Unlock()
			if lost != nil {
				return lost(ch)
			}
			return declare(ch)
		}})
	w.Run(c)
	consume(t, k)
	t.Cleanup(func() { b.deleteQueue(queue) })
	n := 0
	works := func(after string) {
		t.Helper()
		eventually(t, func() bool { return k.Err() == nil }, "it consumes after: %s", after)
		require.NoError(t, declare(b.channel()))
		n++
		b.publish(queue, amqp091.Publishing{MessageId: fmt.Sprint("m", n)})
		eventually(t, func() bool { return calls.ids() == n }, "messages arrive after: %s", after)
	}
	works("the start")
	proxy.Cut()
	lines.Contains(w, "is not consuming", "Exception (501)")
	works("a cut connection")
	_, err := b.channel().QueueDelete(queue, false, false, false)
	require.NoError(t, err)
	lines.Contains(w, "is not consuming", errCancelled.Error())
	works("a deleted queue")
	proxy.SwallowReplies()
	eventually(t, func() bool { return k.Err() != nil }, "silence is noticed")
	proxy.Heal()
	works("silence")
	lose.Lock()
	lost = func(*amqp091.Channel) error { return errTest }
	lose.Unlock()
	proxy.Cut()
	eventually(t, func() bool { return errors.Is(k.Err(), errTest) }, "a failed declaration is reported")
	lose.Lock()
	lost = nil
	lose.Unlock()
	works("a failed declaration")
}

// Failure: F91
func TestFunctionIsToldThatItsMessageIsLost(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	for name, ending := range map[string]bool{"while Run goes on": false, "while Run ends": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := broker{RabbitMQServer: b.RabbitMQServer, t: t}
			proxy, url := b.proxied()
			queue := b.queue(nil)
			w := harness.NewWorld(t)
			c := w.New(w.QuickConfig())
			begun, cause := make(chan struct{}), make(chan error, 1)
			k := consumer(t, c, func(ctx context.Context, d *Delivery) error {
				if d.Entry != nil {
					return nil
				}
				close(begun)
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return ctx.Err()
			}, ConsumerConfig{URL: url, Queue: queue, StopTimeout: testTimeout})
			w.Run(c)
			stop := consume(t, k)
			b.publish(queue, numbered(1)...)
			<-begun
			if ending {
				go func() { _ = stop() }()
				eventually(t, func() bool { return b.consumers(queue) == 0 }, "Run takes no more")
			}
			proxy.Cut()
			assert.ErrorIs(t, harness.Receive(t, cause), ErrDeliveryLost)
			if ending {
				require.NoError(t, stop())
				consume(t, k)
			}
			w.Eventually(func() bool { return w.Count("common_process_log WHERE state=1 AND process_count=0") == 1 }, "the message comes again and goes into the log")
		})
	}
}

// Failure: F92
func TestMessageIsHeldUntilTheDatabaseIsBack(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	lines := make(harness.Log, 1000)
	k := consumer(t, c, func(context.Context, *Delivery) error { return errTest }, ConsumerConfig{
		URL: b.URL(), Queue: queue, Logger: slog.New(slog.NewTextHandler(lines, nil))})
	stop := consume(t, k)
	eventually(t, func() bool { return k.Err() == nil }, "the consumer consumes")
	w.Exec("RENAME TABLE common_process_log TO hidden")
	b.publish(queue, numbered(3)...)
	lines.Contains(w, "held until it can be recorded")
	w.Exec("RENAME TABLE hidden TO common_process_log")
	w.Eventually(func() bool { return w.Count("common_process_log") == 3 }, "they are recorded")
	require.NoError(t, stop())
	assert.Zero(t, b.depth(queue), "and acknowledged")
}

// Messages that are taken and given back count as deliveries, and a quorum queue would drop them.
// Failure: F92
func TestMessagesStayInTheirQueueWhileTheLogIsAway(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": 1})
	proxy, url := b.proxied()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	lines := make(harness.Log, 1000)
	var calls called
	k := consumer(t, c, func(_ context.Context, d *Delivery) error { calls.add(d); return errTest }, ConsumerConfig{
		URL: url, Queue: queue, Prefetch: 2, Logger: slog.New(slog.NewTextHandler(lines, nil))})
	stop := consume(t, k)
	eventually(t, func() bool { return k.Err() == nil }, "the consumer consumes")
	w.Exec("RENAME TABLE common_process_log TO hidden")
	b.publish(queue, numbered(10)...)
	lines.Contains(w, "held until it can be recorded")
	for range 3 { // Each restart counts a delivery of the messages that the consumer holds.
		proxy.Cut()
		eventually(t, func() bool { return k.Err() != nil && !strings.Contains(k.Err().Error(), "held until") }, "the consumer is lost")
	}
	eventually(t, func() bool { return strings.Contains(fmt.Sprint(k.Err()), "the log takes no entries") }, "nothing is taken while the log is away")
	assert.Zero(t, b.consumers(queue))
	w.Exec("RENAME TABLE hidden TO common_process_log")
	w.Eventually(func() bool { return w.Count("common_process_log") == 10 }, "all are recorded")
	require.NoError(t, stop())
	assert.Zero(t, b.depth(queue), "and acknowledged")
}

// A failover silences old database connections, and new connections work.
func TestMessageIsRecordedBesideAConnectionThatFellSilent(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	proxy, db := w.OpenProxied(true)
	cfg := w.QuickConfig()
	cfg.DB = db
	k := consumer(t, w.New(cfg), func(context.Context, *Delivery) error { return errTest }, ConsumerConfig{
		URL: b.URL(), Queue: queue, RecordTimeout: time.Second})
	consume(t, k)
	eventually(t, func() bool { return k.Err() == nil }, "the consumer consumes")
	proxy.Arm(faultproxy.Rule{Match: faultproxy.Contains("INSERT INTO `", "`common_process_log`"), Nth: 1, Fault: faultproxy.DropRequest, Hang: true})
	b.publish(queue, numbered(1)...)
	eventually(t, func() bool { return w.Count("common_process_log") == 1 }, "the message is recorded")
}

// The log accepts no message of 2,000 bytes.
func refusing(t *testing.T, w *harness.World, cfg ConsumerConfig) (*Consumer, harness.Log, *called) {
	t.Helper()
	settings := w.QuickConfig()
	settings.MaxContent = 1000
	lines, calls := make(harness.Log, 1000), new(called)
	cfg.Logger = slog.New(slog.NewTextHandler(lines, nil))
	return consumer(t, w.New(settings), func(_ context.Context, d *Delivery) error { calls.add(d); return errTest }, cfg), lines, calls
}

func large() amqp091.Publishing {
	return amqp091.Publishing{
		MessageId: "large", Type: "t", ContentType: "c", ContentEncoding: "e", CorrelationId: "co", ReplyTo: "re", AppId: "app", UserId: "guest",
		Priority: 3, Expiration: "3600000", Timestamp: time.Unix(1700000000, 0), Body: bytes.Repeat([]byte("x"), 2000),
		Headers: amqp091.Table{"n": int32(7), "l": []any{"a", amqp091.Table{"t": true}}},
	}
}

// The queue drops messages that come back.
// Failure: F92
func TestMessageTheLogRefusesIsSetAsideBeforeItIsAcknowledged(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	for name, args := range map[string]amqp091.Table{"classic": nil, "quorum": {"x-queue-type": "quorum", "x-delivery-limit": 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := broker{RabbitMQServer: b.RabbitMQServer, t: t}
			queue := b.queue(args)
			t.Cleanup(func() { b.deleteQueue(queue + ".refused") })
			w := harness.NewWorld(t)
			k, lines, calls := refusing(t, w, ConsumerConfig{URL: b.URL(), Queue: queue, Prefetch: 2})
			b.publish(queue, large())
			b.publish(queue, numbered(5)...)
			stop := consume(t, k)
			lines.Contains(w, "is set aside", "large", "content")
			eventually(t, func() bool { return w.Count("common_process_log") == 5 }, "the other messages are recorded")
			require.NoError(t, stop())
			assert.Zero(t, b.depth(queue), "all are acknowledged")
			assert.Equal(t, 1, calls.all()["large"])
			kept := b.messages(queue + ".refused")
			require.Len(t, kept, 1)
			d, want := kept[0], large()
			assert.Equal(t, want.Body, d.Body)
			assert.Equal(t, []any{want.MessageId, want.Type, want.ContentType, want.ContentEncoding, want.CorrelationId, want.ReplyTo, want.AppId, want.Priority, want.Timestamp.UTC()},
				[]any{d.MessageId, d.Type, d.ContentType, d.ContentEncoding, d.CorrelationId, d.ReplyTo, d.AppId, d.Priority, d.Timestamp.UTC()})
			assert.Empty(t, d.Expiration, "it waits for a person")
			assert.EqualValues(t, amqp091.Persistent, d.DeliveryMode)
			assert.Contains(t, d.Headers[RefusedHeader], "content")
			assert.Equal(t, amqp091.Table{"n": int32(7), "l": []any{"a", amqp091.Table{"t": true}}, RefusedHeader: d.Headers[RefusedHeader],
				RefusedQueueHeader: queue, RefusedExchangeHeader: "", RefusedKeyHeader: queue}, d.Headers)
		})
	}
}

// A queue with a delivery limit would drop a message that is given back.
// Failure: F92
func TestMessageThatCannotBeSetAsideIsHeld(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": 1})
	full := b.queue(amqp091.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	b.publish(full, numbered(1)...)
	w := harness.NewWorld(t)
	k, lines, calls := refusing(t, w, ConsumerConfig{URL: b.URL(), Queue: queue, RefusedQueue: full, Prefetch: 2})
	b.publish(queue, large())
	b.publish(queue, numbered(5)...)
	stop := consume(t, k)
	for range 4 { // Redeliver more often than the limit allows.
		lines.Contains(w, "is held until it can be set aside", "large", "content", "nack")
	}
	eventually(t, func() bool { return w.Count("common_process_log") == 5 }, "other messages are processed")
	assert.Equal(t, map[string]int{"m0": 1}, b.ids(full))
	lines.Contains(w, "is set aside", "large")
	require.NoError(t, stop())
	assert.Equal(t, map[string]int{"large": 1}, b.ids(full))
	assert.Equal(t, 1, calls.all()["large"], "its function was called once")
	assert.Zero(t, b.depth(queue))
}

// RabbitMQ sends a message to each key in the header CC.
// Failure: F92
func TestCopyOfARefusedMessageGoesToItsQueueAlone(t *testing.T) {
	k := &Consumer{cfg: ConsumerConfig{Queue: "orders"}}
	raw := &amqp091.Delivery{Headers: amqp091.Table{"CC": []any{"orders"}, "x-delivery-count": int64(3), "kept": "x"}, UserId: "somebody", Expiration: "1"}
	copied := k.refusedCopy(raw, errTest, 0)
	assert.Equal(t, amqp091.Table{"kept": "x", RefusedHeader: errTest.Error(), RefusedQueueHeader: "orders", RefusedExchangeHeader: "", RefusedKeyHeader: ""}, copied.Headers)
	assert.Empty(t, copied.UserId)
	assert.Empty(t, copied.Expiration)
	assert.Equal(t, amqp091.Table{"kept": "x"}, k.refusedCopy(raw, errTest, otherProperties+100).Headers, "where no frame has room for more")
}

// A header that amqp091 cannot read ends the connection at each delivery, and a queue with a delivery limit then drops
// also the messages around it.
func TestHeadersOfEveryNumberReachTheFunction(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": 2})
	t.Cleanup(func() { b.deleteQueue(queue + ".refused") })
	w := harness.NewWorld(t)
	k, lines, calls := refusing(t, w, ConsumerConfig{URL: b.URL(), Queue: queue})
	headers := amqp091.Table{"ushort": uint16(65_535), "uint": uint32(1 << 31), "list": []any{uint32(7)}}
	b.publish(queue, amqp091.Publishing{MessageId: "large", Headers: headers, Body: bytes.Repeat([]byte("x"), 2000)},
		amqp091.Publishing{MessageId: "m", Headers: headers})
	b.publish(queue, numbered(5)...)
	stop := consume(t, k)
	lines.Contains(w, "is set aside", "large")
	eventually(t, func() bool { return w.Count("common_process_log") == 6 }, "the other messages are recorded")
	require.NoError(t, stop())
	assert.Equal(t, 7, calls.ids())
	kept := b.messages(queue + ".refused")
	require.Len(t, kept, 1)
	assert.Equal(t, headers["list"], kept[0].Headers["list"])
	want := map[string]any{"ushort": int64(65_535), "uint": int64(1 << 31), "list": []any{int64(7)}}
	assert.Equal(t, want, newDelivery(queue, &amqp091.Delivery{Headers: headers}).Headers)
	assert.Zero(t, b.depth(queue))
}

// FailNow of a test library ends a function with runtime.Goexit.
func TestGoexitOfAFunctionIsAFailureAndFreesItsSlot(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	k := consumer(t, w.New(w.QuickConfig()), func(context.Context, *Delivery) error { runtime.Goexit(); return nil }, ConsumerConfig{
		URL: b.URL(), Queue: queue, Prefetch: 2})
	b.publish(queue, numbered(6)...) // This is three times as many messages as there are slots.
	stop := consume(t, k)
	eventually(t, func() bool { return w.Count("common_process_log") == 6 }, "each message becomes an entry")
	require.NoError(t, stop())
	assert.Zero(t, b.depth(queue))
}

func TestConsumerStaysWhereNoChannelIsLeftToAskOn(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	w := harness.NewWorld(t)
	k := consumer(t, w.New(w.QuickConfig()), func(context.Context, *Delivery) error { return nil }, ConsumerConfig{
		URL: b.URL(), Queue: b.queue(nil), AMQP: amqp091.Config{ChannelMax: 1}})
	s, err := k.session(t.Context(), false)
	require.NoError(t, err)
	defer s.link.close()
	require.NoError(t, s.probe())
}

// Failure: F95
func TestStreamIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(amqp091.Table{"x-queue-type": "stream"})
	b.publish(queue, numbered(40)...)
	w := harness.NewWorld(t)
	var calls called
	k := consumer(t, w.New(w.QuickConfig()), func(_ context.Context, d *Delivery) error { calls.add(d); return nil }, ConsumerConfig{URL: b.URL(), Queue: queue})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	require.ErrorIs(t, k.Run(ctx), ErrStream)
	require.ErrorIs(t, k.Err(), ErrStream)
	assert.Empty(t, calls.all())
}

// Failure: F95
func TestQueueThatBecomesAStreamIsRefused(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	var calls called
	k := consumer(t, w.New(w.QuickConfig()), func(_ context.Context, d *Delivery) error { calls.add(d); return nil }, ConsumerConfig{URL: b.URL(), Queue: queue})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	b.publish(queue, amqp091.Publishing{MessageId: "moved", Headers: amqp091.Table{offsetArgument: int64(7)}})
	eventually(t, func() bool { return calls.ids() == 1 }, "a message that was moved out of a stream is processed")
	b.deleteQueue(queue)
	eventually(t, func() bool { return k.Err() != nil }, "the consumer is lost")
	_, err := b.channel().QueueDeclare(queue, true, false, false, false, amqp091.Table{"x-queue-type": "stream"})
	require.NoError(t, err)
	eventually(t, func() bool { return k.Err() == nil }, "the consumer consumes")
	b.publish(queue, numbered(1)...)
	require.ErrorIs(t, harness.Receive(t, ended), ErrStream)
	assert.Equal(t, map[string]int{"moved": 1}, calls.all())
}

// Failure: F91
func TestNoMessageIsLostWhileTheBrokerIsKilledUnderItsConsumer(t *testing.T) {
	t.Parallel()
	b := ownBroker(t)
	queue := b.queue(nil)
	b.keepDeclared()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	n := *messages / 2
	var calls, done called
	k := consumer(t, c, func(_ context.Context, d *Delivery) error {
		if calls.add(d) == 1 && len(d.Body) > 0 && d.Body[len(d.Body)-1] == '7' {
			return errTest
		}
		done.add(d)
		return nil
	}, ConsumerConfig{URL: b.URL(), Queue: queue})
	w.Run(c)
	stop := consume(t, k)
	b.publish(queue, numbered(n/2)...)
	eventually(t, func() bool { return calls.ids() >= n/10 }, "it works")
	b.Kill()
	b.Restart(t)
	b.publish(queue, numbered(n)[n/2:]...)
	eventually(t, func() bool { return calls.ids() >= n*6/10 }, "it works again")
	b.Kill()
	b.Restart(t)
	eventually(t, func() bool { return done.ids() == n }, "every message is done: %d of %d", done.ids(), n)
	w.WaitAllEnded()
	eventually(t, func() bool { return b.depth(queue) == 0 }, "the queue is empty")
	require.NoError(t, stop())
	assert.Zero(t, b.depth(queue), "all messages are acknowledged")
	assert.Equal(t, w.Count("common_process_log"), w.Count("common_process_log WHERE state=1"))
}

type endless struct{}

func (e *endless) Error() string { return "endless" }
func (e *endless) Unwrap() error { return e }

// For a chain of errors that does not end, errors.Is would never return.
func TestErrorWithoutAnEndIsAFailureAsAnyOther(t *testing.T) {
	k := &Consumer{work: func(context.Context, *Delivery) error { return new(endless) }}
	err := k.call(t.Context(), new(Delivery))
	require.EqualError(t, err, "endless")
	require.NotErrorIs(t, err, compensator.ErrAlreadySucceeded)
	require.Equal(t, "endless", setAsideFor(new(endless)))
	_, err = new(Publisher).message(func(*compensator.Entry) (Destination, error) { return Destination{}, new(endless) }, new(compensator.Entry))
	require.EqualError(t, err, "endless")
	require.NotErrorIs(t, err, context.Canceled)
}

type pickyCodec struct{ compensator.Codec }

func (c pickyCodec) Marshal(v any) ([]byte, error) {
	if d, ok := v.(Delivery); ok && strings.HasPrefix(d.MessageID, "refused") {
		return nil, errTest
	}
	return c.Codec.Marshal(v)
}

func refusesRows(w *harness.World, number int) {
	w.Exec(fmt.Sprintf("CREATE TRIGGER refuses BEFORE INSERT ON common_process_log FOR EACH ROW "+
		"BEGIN IF NEW.content LIKE '%%refused%%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='not this one', MYSQL_ERRNO=%d; END IF; END", number))
}

// Prefetch is 2. The log refuses two of the seven messages.
func holdTwo(t *testing.T, b broker, w *harness.World, codec compensator.Codec) (k *Consumer, queue string, stop func() error) {
	queue = b.queue(amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": 1})
	t.Cleanup(func() { b.deleteQueue(queue + ".refused") })
	k = consumer(t, w.New(w.QuickConfig()), func(context.Context, *Delivery) error { return errTest }, ConsumerConfig{
		URL: b.URL(), Queue: queue, Prefetch: 2, Type: compensator.HandlerConfig[Delivery]{TypeConfig: compensator.TypeConfig{Codec: codec}}})
	b.publish(queue, amqp091.Publishing{MessageId: "refused1"}, amqp091.Publishing{MessageId: "refused2"})
	b.publish(queue, numbered(5)...)
	return k, queue, consume(t, k)
}

// Failure: F92
func TestMessageThatCanNeverBeRecordedIsSetAside(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	for name, codec := range map[string]compensator.Codec{"a trigger refuses its row": nil, "the codec cannot encode it": pickyCodec{compensator.JSON}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := broker{RabbitMQServer: b.RabbitMQServer, t: t}
			w := harness.NewWorld(t)
			if codec == nil {
				refusesRows(w, 1644)
			}
			_, queue, stop := holdTwo(t, b, w, codec)
			eventually(t, func() bool { return w.Count("common_process_log") == 5 && b.depth(queue+".refused") == 2 }, "the refused messages stop no others")
			require.NoError(t, stop())
			assert.Zero(t, b.depth(queue), "all are acknowledged")
			for _, d := range b.messages(queue + ".refused") {
				assert.Regexp(t, "not this one|"+errTest.Error(), d.Headers[RefusedHeader])
			}
		})
	}
}

// The rows are refused with temporary errors. A full disk may have room for small entries.
// Failure: F92
func TestMessageThatTheLogMayTakeLaterIsHeld(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	for name, number := range map[string]int{"lock wait timeout": 1205, "disk full": 1021} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := broker{RabbitMQServer: b.RabbitMQServer, t: t}
			w := harness.NewWorld(t)
			refusesRows(w, number)
			var tries atomic.Int32
			k, queue, stop := holdTwo(t, b, w, triedCodec{compensator.JSON, &tries})
			eventually(t, func() bool { return tries.Load() > 4*refusalsOfIntake }, "both are tried often")
			assert.ErrorContains(t, k.Err(), "2 messages")
			assert.ErrorContains(t, k.Err(), "not this one")
			w.Exec("DROP TRIGGER refuses")
			eventually(t, func() bool { return w.Count("common_process_log") == 7 && k.Err() == nil }, "all are recorded")
			require.NoError(t, stop())
			assert.Zero(t, b.depth(queue), "and acknowledged")
		})
	}
}

type triedCodec struct {
	compensator.Codec
	tries *atomic.Int32
}

func (c triedCodec) Marshal(v any) ([]byte, error) {
	if d, ok := v.(Delivery); ok && strings.HasPrefix(d.MessageID, "refused") {
		c.tries.Add(1)
	}
	return c.Codec.Marshal(v)
}

// The package intake has the same number.
const refusalsOfIntake = 3
