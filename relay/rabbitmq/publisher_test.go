package rabbitmq

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

type traced struct{}

type traceKey struct{}

func (traced) Inject(ctx context.Context) map[string]string {
	if trace, ok := ctx.Value(traceKey{}).(string); ok {
		return map[string]string{"traceparent": trace}
	}
	return nil
}

func (traced) Extract(ctx context.Context, headers map[string]string) context.Context {
	return context.WithValue(ctx, traceKey{}, headers["traceparent"])
}

// Failure: F89
func TestMessageIsItsEntry(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Propagator = traced{}
	c := w.New(cfg)
	p := open(t, Config{URL: b.URL()})
	orders := relay(t, c, p, func(e *compensator.Entry) (Destination, error) {
		return Destination{Key: queue, Headers: amqp091.Table{"shop": int64(7), "tenant": "the route's", KeyHeader: "forged"}, ContentType: "application/vnd.order+json"}, nil
	}, false, compensator.HandlerConfig[harness.Order]{})
	w.Run(c)
	ctx := context.WithValue(t.Context(), traceKey{}, "00-trace-01")
	var id compensator.EntryID
	require.NoError(t, c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		receipt, err := orders.Record(ctx, tx, harness.Order{Number: 3, Note: "<ä>"}, compensator.Options{
			IdempotencyKey: "order-3", Headers: map[string]string{"tenant": "the entry's", "color": "red"}})
		if err == nil {
			id = receipt.ID()
		}
		return err
	}))
	w.WaitState(id, compensator.Succeeded)
	e, err := c.Get(t.Context(), id)
	require.NoError(t, err)
	first := b.messages(queue)
	require.Len(t, first, 1)
	got := first[0]
	assert.Equal(t, "order-3", got.MessageId)
	assert.Equal(t, "order_message", got.Type)
	assert.Equal(t, "application/vnd.order+json", got.ContentType)
	assert.Equal(t, e.Content, got.Body)
	assert.Equal(t, amqp091.Persistent, got.DeliveryMode)
	assert.Equal(t, e.CreatedAt.Truncate(time.Second), got.Timestamp.UTC())
	assert.Equal(t, amqp091.Table{"shop": int64(7), "tenant": "the route's", "color": "red", "traceparent": "00-trace-01", KeyHeader: e.CallKey()}, got.Headers)

	require.NoError(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "ann", Reason: "once more"}}))
	eventually(t, func() bool { return b.depth(queue) == 1 }, "the message comes again")
	again := b.messages(queue)[0]
	assert.Equal(t, "order-3", again.MessageId, "a requeue keeps the message id")
	assert.NotEqual(t, got.Headers[KeyHeader], again.Headers[KeyHeader], "a requeue changes the key")
}

// Failure: F89
func TestLongIdempotencyKeyBecomesAHashedMessageID(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders := relay(t, c, open(t, Config{URL: b.URL()}), To("", queue), true, compensator.HandlerConfig[harness.Order]{})
	w.Run(c)
	w.Record(orders, 1, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(strings.Repeat("é", 127) + "e")})
	w.Record(orders, 2, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(strings.Repeat("é", 128))})
	w.Record(orders, 3, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(strings.Repeat("é", 127) + "è")})
	w.WaitAllEnded()
	ids := b.ids(queue)
	assert.Equal(t, 1, ids[strings.Repeat("é", 127)+"e"], "255 bytes fit")
	assert.Equal(t, 1, ids[messageID(&compensator.Entry{IdempotencyKey: compensator.IdempotencyKey(strings.Repeat("é", 128))})], "256 are hashed")
	assert.Len(t, ids, 3, "also keys that differ only in the last byte")
	for id := range ids {
		assert.NotEmpty(t, id)
	}
}

// Failure: F88
func TestRefusedMessageWaitsForAPerson(t *testing.T) {
	t.Parallel()
	b := ownBroker(t, "max_message_size = 5000")
	queue := b.queue(nil)
	require.NoError(t, b.channel().ExchangeDeclare("forbidden", "fanout", true, false, false, false, nil))
	b.Control(t, "add_user", "clerk", "secret")
	b.Control(t, "set_permissions", "-p", "/", "clerk", "", "^(amq\\.default|"+queue+"|nowhere)$", "")
	url := strings.Replace(b.URL(), "guest:guest", "clerk:secret", 1)
	singleAndBatch(t, func(t *testing.T, batch bool) {
		w := harness.NewWorld(t)
		c := w.New(w.QuickConfig())
		destination := map[string]Destination{
			"unroutable":     {Key: "no such queue"},
			"no exchange":    {Exchange: "nowhere", Key: "k"},
			"access refused": {Exchange: "forbidden", Key: "k2"},
			"long key":       {Key: strings.Repeat("k", 256)},
			"bad header":     {Key: queue, Headers: amqp091.Table{"x": struct{}{}}},
			"huge headers":   {Key: queue, Headers: amqp091.Table{"x": strings.Repeat("x", 70_000)}},
			"many headers":   {Key: queue, Headers: amqp091.Table{"x": slices.Repeat([]any{int64(1)}, 30_000)}},
			"too large":      {Key: queue}, "good": {Key: queue},
		}
		route := func(e *compensator.Entry) (Destination, error) { return destination[e.BusinessID], nil }
		orders := relay(t, c, open(t, Config{URL: url}), route, batch, compensator.HandlerConfig[harness.Order]{})
		ids := make(map[string]compensator.EntryID)
		w.InTx(w.DB, func(tx *sql.Tx) {
			for name := range destination {
				note := ""
				if name == "too large" {
					note = strings.Repeat("x", 6000)
				}
				receipt, err := orders.Record(t.Context(), tx, harness.Order{Note: note}, compensator.Options{BusinessID: name})
				require.NoError(t, err)
				ids[name] = receipt.ID()
			}
		})
		w.Run(c)
		w.WaitAllEnded()
		for name, words := range map[string][]string{
			"unroutable":     {"the default exchange", `"no such queue"`, "unroutable"},
			"no exchange":    {`"nowhere"`, `key "k"`, "no exchange"},
			"access refused": {`"forbidden"`, `key "k2"`, "refused for user 'clerk'"},
			"long key":       {"Key: 256 bytes, at most 255"},
			"bad header":     {queue, "Headers"},
			"huge headers":   {queue, "Headers", "at most 24576"},
			"many headers":   {queue, "Headers", "at most 24576"},
			"too large":      {queue, "larger than configured max size 5000"},
		} {
			e, err := c.Get(t.Context(), ids[name])
			require.NoError(t, err)
			assert.Equal(t, compensator.Dead, e.State, name)
			assert.Equal(t, compensator.EndedByPermanent, e.EndedBy, name)
			for _, word := range words {
				assert.Contains(t, e.LastError, word, name)
			}
		}
		assert.Equal(t, compensator.Succeeded, w.State(ids["good"]), "a good message beside the refused ones is sent")
		assert.NotZero(t, broker{RabbitMQServer: b.RabbitMQServer, t: t}.depth(queue))
	})
}

// If the headers do not fit a frame, the broker closes the connection of all senders.
func TestHeadersFillAFrameToTheLastByteAndNoMore(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	p := open(t, Config{URL: b.URL(), AMQP: amqp091.Config{FrameSize: 8192}})
	eventually(t, func() bool { return p.Err() == nil }, "connected")
	p.mu.Lock()
	pool := p.pool
	p.mu.Unlock()
	filledBy := func(id string, filled int) *message {
		headers := amqp091.Table{"text": strings.Repeat("x", filled), "nothing": nil, "bytes": []byte("1234"), "number": int64(1),
			"list": []any{"a", int64(2), amqp091.Table{"b": "c"}}}
		m, err := newMessage(&compensator.Entry{IdempotencyKey: compensator.IdempotencyKey(id), BusinessType: "x", Content: []byte("{}"), CreatedAt: time.Now()}, Destination{Key: queue, Headers: headers})
		require.NoError(t, err)
		return m
	}
	room := 1
	for filledBy("1", room+1).sizeProblem(8192) == "" {
		room++
	}
	outcomes := p.send(t.Context(), []*message{filledBy("1", room), filledBy("2", room+1), filledBy("3", 1)})
	require.NoError(t, outcomes[0])
	require.Equal(t, observe.Permanent, compensator.VerdictOf(outcomes[1]))
	require.ErrorContains(t, outcomes[1], "Headers: a frame of 8193 bytes, this connection allows at most 8192")
	require.NoError(t, outcomes[2])
	select {
	case <-pool.connectionEnd:
		t.Error("the connection has ended")
	default:
	}
	require.Equal(t, map[string]int{"1": 1, "3": 1}, b.ids(queue))
}

// Failure: F88
func TestExchangeDeletedMeanwhileIsNamedAndItsEntriesCanBeRequeued(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue, exchange := b.queue(nil), b.Name()
	declare := func() {
		ch := b.channel()
		require.NoError(t, ch.ExchangeDeclare(exchange, "fanout", true, false, false, false, nil))
		require.NoError(t, ch.QueueBind(queue, "", exchange, false, nil))
	}
	declare()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders := relay(t, c, open(t, Config{URL: b.URL()}), To(exchange, "some.key"), false, compensator.HandlerConfig[harness.Order]{})
	w.Run(c)
	w.WaitState(w.Record(orders, 1, compensator.Options{}), compensator.Succeeded)
	require.NoError(t, b.channel().ExchangeDelete(exchange, false, false))
	id := w.Record(orders, 2, compensator.Options{IdempotencyKey: "second"})
	w.WaitState(id, compensator.Dead)
	e, err := c.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Contains(t, e.LastError, exchange)
	assert.Contains(t, e.LastError, "some.key")
	declare()
	require.NoError(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "ann", Reason: "the exchange is back"}}))
	w.WaitState(id, compensator.Succeeded)
	assert.Equal(t, 1, b.ids(queue)["second"])
	require.NoError(t, b.channel().ExchangeDelete(exchange, false, false))
}

// Failure: F87
func TestFullQueueSpendsNoAttemptUnlessToldSo(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	singleAndBatch(t, func(t *testing.T, batch bool) {
		b := broker{RabbitMQServer: b.RabbitMQServer, t: t}
		full := amqp091.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"}
		w := harness.NewWorld(t)
		c := w.New(w.QuickConfig())
		queue := b.queue(full)
		orders := relay(t, c, open(t, Config{URL: b.URL()}), To("", queue), batch, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
		counting := open(t, Config{URL: b.URL(), CountUnavailable: true})
		counted, err := Handle[harness.Order](t.Context(), c, "counted", counting, To("", queue), &compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
		require.NoError(t, err)
		b.publish(queue, numbered(1)...)
		w.Run(c)
		id := w.Record(orders, 1, compensator.Options{IdempotencyKey: "waits"})
		w.Eventually(func() bool {
			e, err := c.Get(t.Context(), id)
			return err == nil && strings.Contains(e.LastError, "nack")
		}, "the nack is reported")
		dead := w.Record(counted, 1, compensator.Options{})
		w.WaitState(dead, compensator.Dead)
		assert.Equal(t, compensator.Pending, w.State(id), "it has spent its only attempt")
		assert.Len(t, b.messages(queue), 1)
		w.WaitState(id, compensator.Succeeded)
		assert.Equal(t, map[string]int{"waits": 1}, b.ids(queue))
	})
}

// Failure: F87
func TestEachMessageOfABatchHasAConfirmOfItsOwn(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	roomy, full := b.queue(nil), b.queue(amqp091.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
	b.publish(full, numbered(1)...)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	p := open(t, Config{URL: b.URL(), CountUnavailable: true})
	orders, err := HandleBatch(t.Context(), c, "order_message", p, func(e *compensator.Entry) (Destination, error) { return Destination{Key: e.BusinessID}, nil },
		&compensator.BatchConfig[harness.Order]{MaxAttempts: 1, BatchSize: 40})
	require.NoError(t, err)
	w.InTx(w.DB, func(tx *sql.Tx) {
		for i := range 40 {
			to := []string{roomy, full}[i%2]
			_, err := orders.Record(t.Context(), tx, harness.Order{Number: i}, compensator.Options{BusinessID: to, IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint(to, "-", i))})
			require.NoError(t, err)
		}
	})
	w.Run(c)
	w.WaitAllEnded()
	assert.Equal(t, 20, w.Count("common_process_log WHERE state=1 AND business_id=?", roomy))
	assert.Equal(t, 20, w.Count("common_process_log WHERE state=-2 AND business_id=?", full))
	assert.Len(t, b.messages(roomy), 20)
	assert.Len(t, b.messages(full), 1)
}

// Failure: F87
func TestWrongCredentialsLeaveEntriesWaiting(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	p := open(t, Config{URL: strings.Replace(b.URL(), "guest:guest", "guest:wrong", 1), Timeout: 500 * time.Millisecond})
	orders := relay(t, c, p, To("", "any"), false, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
	w.Run(c)
	eventually(t, func() bool { return p.Err() != nil && strings.Contains(p.Err().Error(), "username or password") }, "the Publisher says why")
	assert.NotContains(t, p.Err().Error(), "wrong")
	id := w.Record(orders, 1, compensator.Options{})
	w.Eventually(func() bool {
		e, err := c.Get(t.Context(), id)
		return err == nil && strings.Contains(e.LastError, "username or password")
	}, "the entry says why it waits")
	assert.Equal(t, compensator.Pending, w.State(id))
}

func TestWrongConfigurationNamesItsFields(t *testing.T) {
	t.Parallel()
	_, err := Open(Config{Channels: -1, Timeout: -1})
	for _, field := range []string{"URL", "Channels", "Timeout"} {
		assert.ErrorContains(t, err, "compensator: "+field+":")
	}
	require.ErrorAs(t, err, new(*compensator.FieldError))
	_, err = Open(Config{URL: "http://guest:secret@host/"})
	assert.ErrorContains(t, err, "URL")
	assert.NotContains(t, err.Error(), "secret")
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	_, err = Handle[string](t.Context(), c, "x", nil, To("", "q"), nil)
	assert.ErrorContains(t, err, "publisher")
	_, err = HandleBatch[string](t.Context(), c, "x", new(Publisher), nil, nil)
	assert.ErrorContains(t, err, "route")
	_, err = Consume(t.Context(), c, "x", nil, ConsumerConfig{})
	assert.ErrorContains(t, err, "work")
	_, err = Consume(t.Context(), c, "x", func(context.Context, *Delivery) error { return nil }, ConsumerConfig{
		Prefetch: -1, RecordTimeout: -1, StopTimeout: -1, Type: compensator.HandlerConfig[Delivery]{TypeConfig: compensator.TypeConfig{RefuseOtherContent: true}}})
	for _, field := range []string{"URL", "Queue", "Prefetch", "RecordTimeout", "StopTimeout", "Type.RefuseOtherContent"} {
		assert.ErrorContains(t, err, "compensator: "+field+":")
	}
}

// Failure: F87
func TestConfirmThatIsLostIsAskedForAgainUnderTheSameID(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	singleAndBatch(t, func(t *testing.T, batch bool) {
		b := broker{RabbitMQServer: b.RabbitMQServer, t: t}
		proxy, url := b.proxied()
		queue := b.queue(nil)
		w := harness.NewWorld(t)
		c := w.New(w.QuickConfig())
		orders := relay(t, c, open(t, Config{URL: url}), To("", queue), batch, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
		w.Run(c)
		w.WaitState(w.Record(orders, 0, compensator.Options{IdempotencyKey: "before"}), compensator.Succeeded)
		proxy.SwallowReplies()
		id := w.Record(orders, 1, compensator.Options{IdempotencyKey: "twice"})
		eventually(t, func() bool { return b.depth(queue) == 2 }, "the broker has it")
		proxy.Cut()
		proxy.Heal()
		w.WaitState(id, compensator.Succeeded)
		ids := b.ids(queue)
		assert.Equal(t, 1, ids["before"])
		assert.Equal(t, 2, ids["twice"], "once more, under the same id")
		assert.Len(t, ids, 2)
	})
}

// Failure: F87
func TestConnectionCutBeforeThePublishLosesNothing(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	singleAndBatch(t, func(t *testing.T, batch bool) {
		b := broker{RabbitMQServer: b.RabbitMQServer, t: t}
		proxy, url := b.proxied()
		queue := b.queue(nil)
		w := harness.NewWorld(t)
		c := w.New(w.QuickConfig())
		p := open(t, Config{URL: url, Timeout: 200 * time.Millisecond})
		orders := relay(t, c, p, To("", queue), batch, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
		w.Run(c)
		w.WaitState(w.Record(orders, 0, compensator.Options{IdempotencyKey: "before"}), compensator.Succeeded)
		proxy.Refuse()
		id := w.Record(orders, 1, compensator.Options{IdempotencyKey: "after"})
		w.Eventually(func() bool {
			e, err := c.Get(t.Context(), id)
			return err == nil && e.LastError != ""
		}, "an attempt finds no broker")
		assert.Equal(t, compensator.Pending, w.State(id), "the attempt is not counted")
		proxy.Heal()
		w.WaitState(id, compensator.Succeeded)
		ids := b.ids(queue) // A message whose confirm came late is in the queue twice.
		assert.Positive(t, ids["before"])
		assert.Positive(t, ids["after"])
		assert.Len(t, ids, 2)
	})
}

// The connection stays open, and no request gets a reply, not even the opening of a channel.
// Failure: F87
func TestSilentBrokerKeepsNoHandler(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	proxy, url := b.proxied()
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	p := open(t, Config{URL: url, AMQP: amqp091.Config{Heartbeat: 2 * testTimeout}, Timeout: 300 * time.Millisecond})
	orders := relay(t, c, p, To("", queue), false, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
	w.Run(c)
	eventually(t, func() bool { return p.Err() == nil }, "the Publisher is connected")
	proxy.SwallowReplies()
	id := w.Record(orders, 1, compensator.Options{IdempotencyKey: "m"})
	w.Eventually(func() bool {
		e, err := c.Get(t.Context(), id)
		return err == nil && e.LastError != ""
	}, "the handler returns")
	assert.NoError(t, p.Err(), "although the connection stands")
	assert.Equal(t, compensator.Pending, w.State(id))
	proxy.Cut()
	proxy.Heal()
	w.WaitState(id, compensator.Succeeded)
}

// A broker that runs out of memory stops reading.
// Failure: F87
func TestBlockedConnectionIsWaitedForAndNothingPilesUp(t *testing.T) {
	t.Parallel()
	b := ownBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	lines := make(harness.Log, 1000)
	p := open(t, Config{URL: b.URL(), Channels: 3, Timeout: time.Second, Logger: slog.New(slog.NewTextHandler(lines, nil))})
	orders := relay(t, c, p, To("", queue), false, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
	w.Run(c)
	w.WaitState(w.Record(orders, 0, compensator.Options{IdempotencyKey: "before"}), compensator.Succeeded)
	b.Control(t, "set_vm_memory_high_watermark", "0.00001")
	w.Record(orders, -1, compensator.Options{IdempotencyKey: "first to be blocked"})
	lines.Contains(w, "the broker blocks the connection")
	const n = 12
	for i := range n {
		w.Record(orders, i, compensator.Options{IdempotencyKey: compensator.IdempotencyKey(fmt.Sprint("m", i))})
	}
	w.Eventually(func() bool { return w.Count("common_process_log WHERE last_error<>''") == n+1 }, "each entry was tried")
	assert.Equal(t, n+1, w.Count("common_process_log WHERE state=0 AND process_count=0"), "no attempt is counted")
	b.Control(t, "set_vm_memory_high_watermark", "0.9")
	w.WaitAllEnded()
	assert.Equal(t, n+2, w.CountEnded(compensator.Succeeded, 0))
	ids := b.ids(queue)
	assert.Len(t, ids, n+2)
	again := 0
	for _, times := range ids {
		again += times - 1
	}
	assert.LessOrEqual(t, again, 3, "more was under way than there are channels")
}

// Like x-delayed-message, an exchange without bindings confirms messages and returns mandatory ones.
// Failure: F95
func TestMessageForAnExchangeThatRoutesLaterIsNotTakenForUnroutable(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	singleAndBatch(t, func(t *testing.T, batch bool) {
		b := broker{RabbitMQServer: b.RabbitMQServer, t: t}
		exchange := b.Name()
		ch := b.channel()
		require.NoError(t, ch.ExchangeDeclare(exchange, "direct", false, false, false, false, nil))
		t.Cleanup(func() { _ = ch.ExchangeDelete(exchange, false, false) })
		w := harness.NewWorld(t)
		c := w.New(w.QuickConfig())
		p := open(t, Config{URL: b.URL()})
		orders := relay(t, c, p, func(e *compensator.Entry) (Destination, error) {
			return Destination{Exchange: exchange, Key: "k", NotMandatory: e.IdempotencyKey == "later"}, nil
		}, batch, compensator.HandlerConfig[harness.Order]{})
		later := w.Record(orders, 1, compensator.Options{IdempotencyKey: "later"})
		now := w.Record(orders, 2, compensator.Options{IdempotencyKey: "now"})
		w.Run(c)
		w.WaitState(later, compensator.Succeeded)
		w.WaitState(now, compensator.Dead)
		assert.Contains(t, w.Entry(c, now).LastError, "unroutable", "the default stays mandatory")
	})
}
