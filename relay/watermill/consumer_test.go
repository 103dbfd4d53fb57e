package relay

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

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
)

type called struct {
	mu sync.Mutex
	n  map[string]int
}

func (k *called) add(msg *message.Message) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.n == nil {
		k.n = make(map[string]int)
	}
	k.n[msg.UUID]++
	return k.n[msg.UUID]
}

func (k *called) all() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.n)
}

func consumer(t *testing.T, c *compensator.Compensator, work message.NoPublishHandlerFunc, cfg ConsumerConfig) *Consumer {
	t.Helper()
	if cfg.Type.Retry == nil {
		cfg.Type.Retry = compensator.Fixed(100 * time.Millisecond)
	}
	k, err := Consume(t.Context(), c, "order_received", work, cfg)
	require.NoError(t, err)
	return k
}

func routed(t *testing.T, k *Consumer, topic string, around ...message.HandlerMiddleware) *gochannel.GoChannel {
	t.Helper()
	ch := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(t, err)
	router.AddMiddleware(around...)
	router.AddNoPublisherHandler("orders", topic, ch, k.Handle)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		assert.NoError(t, router.Close())
		assert.NoError(t, <-ended)
		assert.NoError(t, ch.Close())
	})
	return ch
}

func numbered(n int) []*message.Message {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = message.NewMessage(fmt.Sprint("m", i), []byte(fmt.Sprint(i)))
	}
	return messages
}

// Failure: F90
func TestMessageWhoseHandlerFailsBecomesAnEntryAndIsAcknowledged(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.Propagator = traced{}
	c := w.New(cfg)
	body := []byte("raw \x00\xff not JSON")
	var calls called
	var around atomic.Int32
	last := make(chan *message.Message, 1)
	k := consumer(t, c, func(msg *message.Message) error {
		assert.Equal(t, "00-trace", msg.Context().Value(traceKey{}))
		n := calls.add(msg)
		if msg.UUID != "fails" {
			return nil
		}
		switch n {
		case 1:
			msg.Metadata.Set("color", "changed")
			clear(msg.Payload)
			panic("a bug")
		case 2:
			return errTest
		}
		last <- msg
		return nil
	}, ConsumerConfig{Propagator: traced{}, Middlewares: []message.HandlerMiddleware{func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			around.Add(1)
			return h(msg)
		}
	}}})
	ch := routed(t, k, "orders")
	fails := message.NewMessage("fails", bytes.Clone(body))
	fails.Metadata = message.Metadata{"color": "red", "traceparent": "00-trace"}
	works := message.NewMessage("works", nil)
	works.Metadata = message.Metadata{"traceparent": "00-trace"}
	require.NoError(t, ch.Publish("orders", fails, works))
	eventually(t, func() bool { return len(calls.all()) == 2 && w.Count("common_process_log") == 1 }, "the failed message is recorded, and the next one is done")
	w.Run(c) // From here on the log processes the message.
	w.WaitAllEnded()
	assert.Equal(t, map[string]int{"fails": 3, "works": 1}, calls.all())
	assert.EqualValues(t, 4, around.Load(), "the middlewares stand around every call")

	e, err := c.Get(t.Context(), k.IdempotencyKey("orders", "fails"))
	require.NoError(t, err)
	assert.Equal(t, compensator.Succeeded, e.State)
	got := <-last
	assert.Equal(t, e.ID, EntryFromCtx(got.Context()).ID)
	assert.Nil(t, EntryFromCtx(t.Context()))
	assert.Equal(t, body, []byte(got.Payload), "the entry has the message as it came, although the function changed it")
	assert.Equal(t, message.Metadata{"color": "red", "traceparent": "00-trace"}, got.Metadata)
	d, err := DeliveryOf(e)
	require.NoError(t, err)
	assert.Equal(t, &Delivery{Topic: "orders", UUID: "fails", Metadata: got.Metadata, Payload: body}, d)
}

// Failure: F89
func TestMessageDeliveredAgainIsWorkedOnByTheLogAlone(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var calls called
	k := consumer(t, c, func(msg *message.Message) error {
		calls.add(msg)
		assert.NotNil(t, EntryFromCtx(msg.Context()))
		assert.NotContains(t, msg.Metadata, redeliveredMetadata)
		return nil
	}, ConsumerConfig{Topic: "orders"})
	for range 2 {
		again := message.NewMessage("m", []byte("x"))
		again.Metadata.Set(redeliveredMetadata, "true")
		require.NoError(t, k.Handle(again))
	}
	assert.Equal(t, 1, w.Count("common_process_log"), "recorded once")
	w.Run(c)
	w.WaitAllEnded()
	again := message.NewMessage("m", []byte("x"))
	again.Metadata.Set(redeliveredMetadata, "true")
	require.NoError(t, k.Handle(again), "a message that is done is only acknowledged")
	assert.Equal(t, 1, w.Count("common_process_log"))
	assert.Equal(t, map[string]int{"m": 1}, calls.all())
}

// Failure: F89
func TestMessageThatFailsAgainHasItsOneEntry(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	k := consumer(t, c, func(*message.Message) error { return errTest }, ConsumerConfig{Topic: "orders"})
	for range 3 { // The subscriber redelivers the message and does not mark it as redelivered.
		require.NoError(t, k.Handle(message.NewMessage("m", nil)))
		require.NoError(t, k.Handle(message.NewMessage("", nil)))
	}
	assert.Equal(t, 1, w.Count("common_process_log WHERE idempotent_id=?", k.IdempotencyKey("orders", "m")))
	assert.Equal(t, 4, w.Count("common_process_log"), "without an id the log cannot recognise a repetition, so it drops none")
	byKey := failing(t, c, ConsumerConfig{Topic: "orders", MessageID: func(msg *message.Message) string { return msg.Metadata.Get("order") }})
	for range 2 {
		msg := message.NewMessage("", nil)
		msg.Metadata.Set("order", "7")
		require.NoError(t, byKey.Handle(msg))
	}
	assert.Equal(t, 5, w.Count("common_process_log"), "unless MessageID returns an id")
}

func failing(t *testing.T, c *compensator.Compensator, cfg ConsumerConfig) *Consumer {
	t.Helper()
	k, err := Consume(t.Context(), c, "order_that_fails", func(*message.Message) error { return errTest }, cfg)
	require.NoError(t, err)
	return k
}

// Failure: F90
func TestUnreadableMessageIsSetAsideAndBlocksNobody(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var calls called
	var mended atomic.Bool
	k := consumer(t, c, func(msg *message.Message) error {
		calls.add(msg)
		if msg.UUID == "poison" && !mended.Load() {
			return compensator.Permanent(errors.New("cannot be decoded"))
		}
		return nil
	}, ConsumerConfig{})
	ch := routed(t, k, "orders")
	w.Run(c)
	require.NoError(t, ch.Publish("orders", append([]*message.Message{message.NewMessage("poison", []byte("{half"))}, numbered(5)...)...))
	eventually(t, func() bool { return len(calls.all()) == 6 }, "the other messages are processed")
	poison := k.IdempotencyKey("orders", "poison")
	eventually(t, func() bool { _, err := c.Get(t.Context(), poison); return err == nil }, "the message is in the log")
	e, err := c.Get(t.Context(), poison)
	require.NoError(t, err)
	w.WaitState(e.ID, compensator.Dead)
	e = w.Entry(c, e.ID)
	assert.Contains(t, e.LastError, "cannot be decoded")
	assert.Equal(t, 1, calls.all()["poison"], "the function did not run again")
	d, err := DeliveryOf(e)
	require.NoError(t, err)
	assert.Equal(t, "{half", string(d.Payload))

	mended.Store(true)
	require.NoError(t, admin.Of(c).Requeue(t.Context(), e.ID, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "ann", Reason: "mended"}}))
	w.WaitState(e.ID, compensator.Succeeded)
	assert.Equal(t, 2, calls.all()["poison"])
}

// Some brokers drop a message after a number of nacks.
// Failure: F92
func TestMessageIsHeldUntilTheLogIsBack(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	lines := make(harness.Log, 1000)
	var calls called
	k := consumer(t, c, func(msg *message.Message) error {
		calls.add(msg)
		return errTest
	}, ConsumerConfig{Logger: slog.New(slog.NewTextHandler(lines, nil))})
	ch := routed(t, k, "orders")
	w.Exec("RENAME TABLE common_process_log TO hidden")
	require.NoError(t, ch.Publish("orders", numbered(1)...))
	lines.Contains(w, "is held until it can be recorded")
	again := message.NewMessage("again", nil)
	again.Metadata.Set(redeliveredMetadata, "true")
	require.NoError(t, ch.Publish("orders", append(numbered(3)[1:], again)...))
	// A wrong redelivery would come after about 300 ms. Wait longer, so that the last assertion would find the
	// redelivery.
	<-time.After(time.Second)
	w.Exec("RENAME TABLE hidden TO common_process_log")
	w.Eventually(func() bool { return w.Count("common_process_log") == 4 }, "they are recorded")
	assert.Equal(t, map[string]int{"m0": 1, "m1": 1, "m2": 1}, calls.all(), "no message has been redelivered")
}

// When a subscriber stops, it ends the context of the message, and later delivers the message again.
// Failure: F92
func TestMessageIsHeldUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	lines := make(harness.Log, 1000)
	// If Record returns a *FieldError, the log refuses the message. Here the user's function returns the *FieldError, so
	// the library must treat the error as a failure of the function.
	fails := func(*message.Message) error { return &compensator.FieldError{Field: "amount", Reason: "is negative"} }
	k := consumer(t, c, fails, ConsumerConfig{Topic: "orders", Logger: slog.New(slog.NewTextHandler(lines, nil)),
		Refused: func(context.Context, *message.Message, error) error { return errors.New("not reached") }})
	w.Exec("RENAME TABLE common_process_log TO away")
	defer w.Exec("RENAME TABLE away TO common_process_log")
	ctx, cancel := context.WithCancel(t.Context())
	msg := message.NewMessage("one", nil)
	msg.SetContext(ctx)
	result := make(chan error, 1)
	go func() { result <- k.Handle(msg) }()
	lines.Contains(w, "is held until it can be recorded")
	cancel()
	err := harness.Receive(t, result)
	require.ErrorContains(t, err, "cannot be recorded")
	require.NotErrorIs(t, err, ErrRefused)
}

func large(uuid string) *message.Message {
	return message.NewMessage(uuid, bytes.Repeat([]byte("x"), 2000))
}

func smallLog(w *harness.World) *compensator.Compensator {
	cfg := w.QuickConfig()
	cfg.MaxContent = 1000
	return w.New(cfg)
}

// Failure: F92
func TestMessageTheLogRefusesIsSetAsideBeforeItIsAcknowledged(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	var calls called
	var tries atomic.Int32
	b := &topics{publish: func(string, *message.Message) error {
		switch tries.Add(1) {
		case 1:
			return errTest
		case 2:
			panic("a bug")
		}
		return nil
	}}
	aside, err := publisher(t, b, Config{}).RefusedTo("too_large")
	require.NoError(t, err)
	k := consumer(t, smallLog(w), func(msg *message.Message) error {
		calls.add(msg)
		clear(msg.Payload)
		return errTest
	}, ConsumerConfig{Refused: aside})
	ch := routed(t, k, "orders")
	again, setAsideMessage := large("again"), large("aside")
	again.Metadata.Set(redeliveredMetadata, "true")
	require.NoError(t, ch.Publish("orders", large("large"), again, setAsideMessage, message.NewMessage("small", nil)))
	eventually(t, func() bool { return len(b.messagesOf("too_large")) == 3 && w.Count("common_process_log") == 1 }, "other messages are processed")
	assert.Equal(t, map[string]int{"large": 1, "again": 1, "aside": 1, "small": 1}, calls.all(), "each had its function, and came once")
	assert.EqualValues(t, 5, tries.Load(), "it was tried again until the topic had it")
	for _, msg := range b.messagesOf("too_large") {
		assert.Equal(t, large("").Payload, msg.Payload, "the message is unchanged")
		assert.Equal(t, "orders", msg.Metadata.Get(RefusedTopicMetadata))
		assert.Contains(t, msg.Metadata.Get(RefusedMetadata), "content")
	}
}

// Failure: F92
func TestMessageTheLogRefusesIsHeldWhereNothingTakesIt(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	lines := make(harness.Log, 1000)
	k := consumer(t, smallLog(w), func(*message.Message) error { return errTest }, ConsumerConfig{Topic: "orders", Logger: slog.New(slog.NewTextHandler(lines, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	msg := large("large")
	msg.SetContext(ctx)
	result := make(chan error, 1)
	go func() { result <- k.Handle(msg) }()
	lines.Contains(w, "the log refuses it", "ConsumerConfig.Refused is not set", "large", "content")
	cancel()
	require.ErrorIs(t, harness.Receive(t, result), ErrRefused)
}

// The function Refused returns the reason that it gets. A user does this if the router has the middleware PoisonQueue,
// which publishes the message to another topic.
// Failure: F92
func TestMessageTheLogRefusesIsLeftToTheRouterThatAsksForIt(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	k := consumer(t, smallLog(w), func(*message.Message) error { return errTest }, ConsumerConfig{
		Refused: func(_ context.Context, _ *message.Message, reason error) error { return reason }})
	keepErr := new(topics)
	poison, err := middleware.PoisonQueueWithFilter(keepErr, "too_large", func(err error) bool { return errors.Is(err, ErrRefused) })
	require.NoError(t, err)
	ch := routed(t, k, "orders", poison)
	require.NoError(t, ch.Publish("orders", large("large"), message.NewMessage("small", nil)))
	eventually(t, func() bool { return len(keepErr.messagesOf("too_large")) == 1 && w.Count("common_process_log") == 1 }, "other messages are processed")
	assert.Contains(t, keepErr.messagesOf("too_large")[0].Metadata.Get(middleware.ReasonForPoisonedKey), "content")
}

type pickyCodec struct{ compensator.Codec }

func (c pickyCodec) Marshal(v any) ([]byte, error) {
	if d, ok := v.(Delivery); ok && strings.HasPrefix(d.UUID, "refused") {
		return nil, errTest
	}
	return c.Codec.Marshal(v)
}

func refusesRows(w *harness.World, number int) {
	w.Exec(fmt.Sprintf("CREATE TRIGGER refuses BEFORE INSERT ON common_process_log FOR EACH ROW "+
		"BEGIN IF NEW.content LIKE '%%refused%%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT='no luck here', MYSQL_ERRNO=%d; END IF; END", number))
}

// Failure: F92
func TestMessageThatCanNeverBeRecordedIsPassedToRefused(t *testing.T) {
	t.Parallel()
	for name, codec := range map[string]compensator.Codec{"a trigger refuses its row": compensator.JSON, "the codec cannot encode it": pickyCodec{compensator.JSON}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			if codec == compensator.JSON {
				refusesRows(w, 1644)
			}
			cfg := ConsumerConfig{Topic: "orders", Refused: func(_ context.Context, _ *message.Message, reason error) error { return reason }}
			cfg.Type.Codec = codec
			k := consumer(t, w.New(w.QuickConfig()), func(*message.Message) error { return errTest }, cfg)
			msg, answer := message.NewMessage("refused", nil), make(chan error, 1)
			msg.SetContext(t.Context())
			go func() { answer <- k.Handle(msg) }()
			require.ErrorIs(t, harness.Receive(t, answer), ErrRefused)
			require.NoError(t, k.Handle(message.NewMessage("taken", nil)))
		})
	}
}

// The database refuses the row of one message, with errors that may pass, and takes other rows. For example, a full
// disk may have room for a smaller entry. So the Consumer must hold the message and try again.
// Failure: F92
func TestMessageThatTheLogMayTakeLaterIsHeld(t *testing.T) {
	t.Parallel()
	for name, number := range map[string]int{"lock wait timeout": 1205, "disk full": 1021} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWorld(t)
			refusesRows(w, number)
			var tries atomic.Int32
			cfg := ConsumerConfig{Topic: "orders", Refused: func(_ context.Context, _ *message.Message, reason error) error { return reason }}
			cfg.Type.Codec = countingCodec{compensator.JSON, func() {
				if tries.Add(1) == 2*refusalsOfIntake {
					w.Exec("DROP TRIGGER refuses")
				}
			}}
			k := consumer(t, w.New(w.QuickConfig()), func(*message.Message) error { return errTest }, cfg)
			require.NoError(t, k.Handle(message.NewMessage("refused", nil)))
			assert.GreaterOrEqual(t, tries.Load(), int32(2*refusalsOfIntake))
			assert.Equal(t, 1, w.Count("common_process_log"))
		})
	}
}

type countingCodec struct {
	compensator.Codec
	encoded func()
}

func (c countingCodec) Marshal(v any) ([]byte, error) {
	c.encoded()
	return c.Codec.Marshal(v)
}

// Failure: F95
func TestMessageOfAStreamIsRefused(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	k := consumer(t, c, func(*message.Message) error { return errTest }, ConsumerConfig{Topic: "orders"})
	msg := message.NewMessage("m", nil)
	msg.Metadata.Set(offsetMetadata, "7")
	require.ErrorIs(t, k.Handle(msg), ErrStream)
	assert.Zero(t, w.Count("common_process_log"))
	msg.Metadata.Set(redeliveredMetadata, "true") // Messages of a stream were moved into a queue and are redelivered there.
	require.NoError(t, k.Handle(msg))
	assert.Equal(t, 1, w.Count("common_process_log"))
}

func TestDeliveryCountsOfQuorumQueuesSayThatAMessageComesAgain(t *testing.T) {
	for name, again := range map[string]bool{"x-delivery-count": true, "x-acquired-count": true, "x-death": false} {
		msg := message.NewMessage("m", nil)
		assert.False(t, isRedelivered(msg))
		msg.Metadata.Set(name, "0")
		assert.False(t, isRedelivered(msg), name)
		msg.Metadata.Set(name, "2")
		assert.Equal(t, again, isRedelivered(msg), name)
	}
}

func TestMessageSetAsideSaysWhyInSoManyCharacters(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	k := consumer(t, c, func(msg *message.Message) error { return compensator.Permanent(errors.New(string(msg.Payload))) }, ConsumerConfig{Topic: "orders"})
	w.Run(c)
	for uuid, test := range map[string]struct{ reason, want string }{
		"long": {strings.Repeat("ü", 5000), strings.Repeat("ü", 1000)}, "none": {"", "set aside: no reason given"},
	} {
		require.NoError(t, k.Handle(message.NewMessage(uuid, []byte(test.reason))))
		entry := func() *compensator.Entry {
			e, err := c.Get(t.Context(), k.IdempotencyKey("orders", uuid))
			require.NoError(t, err)
			return e
		}
		eventually(t, func() bool { return entry().State == compensator.Dead }, "the message is set aside")
		d, err := DeliveryOf(entry())
		require.NoError(t, err)
		assert.Equal(t, test.want, d.SetAside)
		assert.Equal(t, test.want, entry().LastError)
	}
}

// Failure: F93
func TestFunctionThatWasToldToStopHasNotFailed(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	waits := func(msg *message.Message) error {
		<-msg.Context().Done()
		return msg.Context().Err()
	}
	k := consumer(t, c, waits, ConsumerConfig{Topic: "orders"})
	ctx, cancel := context.WithCancel(t.Context())
	msg := message.NewMessage("stopped", nil)
	msg.SetContext(ctx)
	cancel()
	require.ErrorIs(t, k.Handle(msg), context.Canceled)
	assert.Zero(t, w.Count("common_process_log"), "the message will be delivered again")

	broken := message.NewMessage("fails anyway", nil)
	broken.SetContext(ctx)
	require.NoError(t, failing(t, c, ConsumerConfig{Topic: "orders"}).Handle(broken), "a failure during the stop counts as a failure")

	late := message.NewMessage("late", nil)
	_, err := middleware.Timeout(time.Millisecond)(func(msg *message.Message) ([]*message.Message, error) { return nil, k.Handle(msg) })(late)
	require.NoError(t, err)
	inner, err := Consume(ctx, c, "order_received_inside", waits, ConsumerConfig{Topic: "orders", Middlewares: []message.HandlerMiddleware{middleware.Timeout(time.Millisecond)}})
	require.NoError(t, err)
	require.NoError(t, inner.Handle(message.NewMessage("late inside", nil)))
	assert.Equal(t, 3, w.Count("common_process_log"), "a deadline is a failure, wherever it was set")
}

// Failure: F93
func TestProducedMessagesArePublishedBeforeTheirMessageIsDone(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var away atomic.Bool
	b := &topics{publish: func(string, *message.Message) error {
		if away.Load() {
			return errTest
		}
		return nil
	}}
	work, err := publisher(t, b, Config{}).Publishing("shipped", func(msg *message.Message) ([]*message.Message, error) {
		if string(msg.Payload) == "nothing" {
			return nil, nil
		}
		return []*message.Message{message.NewMessage("shipped-"+msg.UUID, msg.Payload)}, nil
	})
	require.NoError(t, err)
	k := consumer(t, c, work, ConsumerConfig{Topic: "orders"})
	require.NoError(t, k.Handle(message.NewMessage("a", nil)))
	require.NoError(t, k.Handle(message.NewMessage("b", []byte("nothing"))))
	assert.Equal(t, map[string]int{"shipped-a": 1}, b.ids("shipped"))
	away.Store(true)
	require.NoError(t, k.Handle(message.NewMessage("c", nil)))
	require.Equal(t, 1, w.Count("common_process_log"), "the broker is unreachable, so the message waits in the log")
	away.Store(false)
	w.Run(c)
	w.WaitAllEnded()
	assert.Equal(t, map[string]int{"shipped-a": 1, "shipped-c": 1}, b.ids("shipped"))
}

// Failure: F93
func TestMiddlewareThatProducesMessagesIsRefused(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	k := consumer(t, c, func(*message.Message) error { return nil }, ConsumerConfig{Topic: "orders", Type: compensator.HandlerConfig[Delivery]{MaxAttempts: 1},
		Middlewares: []message.HandlerMiddleware{func(message.HandlerFunc) message.HandlerFunc { return message.PassthroughHandler }}})
	require.NoError(t, k.Handle(message.NewMessage("m", nil)))
	w.Run(c)
	w.WaitAllEnded()
	assert.Equal(t, 1, w.Count("common_process_log WHERE state=? AND last_error LIKE '%without publisher%'", int64(compensator.Dead)))
}

// Failure: F93
func TestMessageNackedInTheLogHasFailed(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var calls called
	k := consumer(t, c, func(msg *message.Message) error {
		switch calls.add(msg) {
		case 1:
			return errTest
		case 2:
			msg.Nack()
		}
		return nil
	}, ConsumerConfig{Topic: "orders"})
	require.NoError(t, k.Handle(message.NewMessage("m", nil)))
	w.Run(c)
	w.WaitAllEnded()
	assert.Equal(t, map[string]int{"m": 3}, calls.all())
	assert.Equal(t, 1, w.CountEnded(compensator.Succeeded, 1))
}

// In the router's goroutine, a Goexit would leave the message neither acknowledged nor nacked.
func TestGoexitOfAFunctionIsAFailure(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	k := consumer(t, w.New(w.QuickConfig()), func(*message.Message) error { runtime.Goexit(); return nil }, ConsumerConfig{})
	ch := routed(t, k, "orders")
	require.NoError(t, ch.Publish("orders", numbered(2)...))
	eventually(t, func() bool { return w.Count("common_process_log") == 2 }, "each message becomes an entry")
}

func TestMessageOfNoTopicIsRefused(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	k := consumer(t, w.New(w.QuickConfig()), func(*message.Message) error { return errors.New("not reached") }, ConsumerConfig{})
	require.ErrorContains(t, k.Handle(message.NewMessage("m", nil)), "compensator: Topic: is missing")
}

type brokenCodec struct{ compensator.Codec }

func (brokenCodec) Marshal(v any) ([]byte, error) {
	return v.(interface{ Bytes() []byte }).Bytes(), nil
}

type mute struct{}

func (*mute) Error() string { panic("nothing to say") }

// Failure: F92
func TestWhatPanicsBesideTheFunctionLosesNoMessage(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	fails := func(*message.Message) error { return errTest }
	for name, try := range map[string]struct {
		work     message.NoPublishHandlerFunc
		cfg      ConsumerConfig
		recorded bool
	}{
		"schedule":    {fails, ConsumerConfig{Type: compensator.HandlerConfig[Delivery]{Retry: func(int) time.Duration { panic("a bug") }}}, true},
		"error":       {func(*message.Message) error { return compensator.Permanent(new(mute)) }, ConsumerConfig{}, true},
		"propagator":  {fails, ConsumerConfig{Propagator: panicking{}}, true},
		"codec":       {fails, ConsumerConfig{Type: compensator.HandlerConfig[Delivery]{TypeConfig: compensator.TypeConfig{Codec: brokenCodec{compensator.JSON}}}}, false},
		"id":          {fails, ConsumerConfig{MessageID: func(*message.Message) string { panic("a bug") }}, true},
		"redelivered": {fails, ConsumerConfig{Redelivered: func(*message.Message) bool { panic("a bug") }}, true},
	} {
		try.cfg.Topic = "orders"
		k, err := Consume(t.Context(), c, name, try.work, try.cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		// If Handle cannot record the message, it returns only when the context of the message ends.
		if !try.recorded {
			cancel()
		}
		msg := message.NewMessage("m", nil)
		msg.SetContext(ctx)
		err = k.Handle(msg)
		cancel()
		assert.Equal(t, try.recorded, err == nil, "%s: %v", name, err)
		assert.Equal(t, try.recorded, w.Count("common_process_log WHERE business_type=?", name) == 1, name)
	}
	w.Run(c)
	eventually(t, func() bool {
		return w.Count("common_process_log WHERE business_type='id' AND state=? AND last_error LIKE '%MessageID%'", int64(compensator.Dead)) == 1
	},
		"a message whose id is unknown waits for a person")
}

type panicking struct{ traced }

func (panicking) Extract(context.Context, map[string]string) context.Context { panic("a bug") }

// Failure: F89
func TestEachMessageOfATopicHasAnIdempotencyKeyOfItsOwn(t *testing.T) {
	t.Parallel()
	ids := make(map[string]bool)
	of := func(businessType, topic, id string) {
		t.Helper()
		got := idempotencyKey(businessType, topic, id)
		assert.False(t, ids[string(got)], "%q has another message, too", got)
		assert.LessOrEqual(t, len(got), 191)
		ids[string(got)] = true
	}
	long := string(bytes.Repeat([]byte("x"), 191))
	of("t", "q", "a:b")
	of("t", "q:a", "b")
	of("t:q", "a", "b")
	of("t", "q", "\xff")
	of("t", "q", "\uFFFD")
	of("t", "q", "a ")
	of("t", "q", "a")
	of("t", "q", long)
	of("t", "q", long+"y")
	assert.Contains(t, ids, "t:q:a")
	assert.Empty(t, idempotencyKey("t", "q", ""))
}

// refusalsOfIntake is the same number as the constant enoughRefusals of package intake.
const refusalsOfIntake = 3
