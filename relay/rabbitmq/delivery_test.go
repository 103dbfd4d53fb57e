package rabbitmq

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// A producer that sends milliseconds instead of seconds produces the year 55,840.
// Failure: F92
func TestTimestampThatJSONLacksKeepsNoMessageOutOfTheLog(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	k := consumer(t, w.New(w.QuickConfig()), func(context.Context, *Delivery) error { return errTest }, ConsumerConfig{URL: b.URL(), Queue: queue})
	b.publish(queue, amqp091.Publishing{MessageId: "m", Timestamp: time.Unix(1_700_000_000_000, 0)})
	consume(t, k)
	w.Eventually(func() bool { return w.Count("common_process_log") == 1 }, "the message is recorded")
}

// The test runs alone, because the client takes so long to read the headers that a busy machine misses heartbeats.
// Failure: F92
func TestHeadersKeepNoMessageOutOfTheLog(t *testing.T) {
	deep := amqp091.Table{"a": "end"}
	for range 10_010 { // encoding/json reads at most 10,000 levels.
		deep = amqp091.Table{"a": deep}
	}
	for name, headers := range map[string]amqp091.Table{"deep": deep, "markup": {"x": strings.Repeat("<", 100_000)}} {
		t.Run(name, func(t *testing.T) {
			b := sharedBroker(t)
			queue := b.queue(nil)
			w := harness.NewWorld(t)
			c := w.New(w.QuickConfig())
			came, again := make(chan *Delivery, 100), make(chan *Delivery, 100)
			k := consumer(t, c, func(_ context.Context, d *Delivery) error {
				if d.Entry == nil {
					came <- d
					return errTest
				}
				again <- d
				return nil
			}, ConsumerConfig{URL: b.URL(), Queue: queue})
			w.Run(c)
			b.publish(queue, amqp091.Publishing{MessageId: "m", Headers: headers})
			consume(t, k)
			first := harness.Receive(t, came)
			require.True(t, reflect.DeepEqual(first.Headers, harness.Receive(t, again).Headers), "it looks the same from the log")
			depth := 0
			for inner, ok := first.Headers, true; ok; depth++ {
				inner, ok = inner["a"].(map[string]any)
			}
			assert.LessOrEqual(t, depth, 100)
		})
	}
}

type brokenCodec struct{ compensator.Codec }

func (brokenCodec) Marshal(v any) ([]byte, error) {
	return v.(interface{ Bytes() []byte }).Bytes(), nil
}

// Failure: F92
func TestCodecThatPanicsEndsNoProcess(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	lines := make(harness.Log, 1000)
	k := consumer(t, w.New(w.QuickConfig()), func(context.Context, *Delivery) error { return errTest }, ConsumerConfig{
		URL: b.URL(), Queue: queue, Logger: slog.New(slog.NewTextHandler(lines, nil)), Type: compensator.HandlerConfig[Delivery]{TypeConfig: compensator.TypeConfig{Codec: brokenCodec{compensator.JSON}}}})
	b.publish(queue, numbered(1)...)
	stop := consume(t, k)
	lines.Contains(w, "is held until it can be recorded", "m0")
	require.NoError(t, stop())
	assert.Equal(t, 1, b.depth(queue))
}

// Failure: F90
func TestMessageSetAsideFromTheLogHasNotSucceeded(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	var k *Consumer
	k = consumer(t, c, func(ctx context.Context, d *Delivery) error {
		if d.Entry == nil {
			return errTest
		}
		return k.SetAside(ctx, d, errors.New("cannot be decoded"))
	}, ConsumerConfig{URL: b.URL(), Queue: queue})
	b.publish(queue, numbered(1)...)
	w.Run(c)
	consume(t, k)
	w.Eventually(func() bool { return w.Count("common_process_log WHERE state<>0 AND last_error LIKE '%decoded%'") == 1 }, "it waits for a person")
	w.WaitAllEnded()
	assert.Equal(t, 1, w.CountEnded(compensator.Dead, 1))
}

// Failure: F89
func TestEachMessageHasAnIdempotencyKeyOfItsOwn(t *testing.T) {
	t.Parallel()
	ids := make(map[string]bool)
	of := func(businessType, queue, id string) {
		t.Helper()
		got := idempotencyKey(businessType, &Delivery{Queue: queue, MessageID: id})
		assert.False(t, ids[string(got)], "%q has another message, too", got)
		ids[string(got)] = true
	}
	of("t", "q", "a:b")
	of("t", "q:a", "b")
	of("t:q", "a", "b")
	of("t", "q", "\xff")
	of("t", "q", "\uFFFD")
	of("t", "q", "a ")
	of("t", "q", "a")
	assert.Contains(t, ids, "t:q:a")
}

type mute struct{}

func (*mute) Error() string { panic("nothing to say") }

// Failure: F92, F101
func TestScheduleOrErrorThatPanicsEndsNoProcess(t *testing.T) {
	t.Parallel()
	b := sharedBroker(t)
	queue := b.queue(nil)
	w := harness.NewWorld(t)
	k := consumer(t, w.New(w.QuickConfig()), func(_ context.Context, d *Delivery) error {
		if d.MessageID == "m0" {
			return compensator.Permanent(new(mute))
		}
		return errTest
	}, ConsumerConfig{URL: b.URL(), Queue: queue, Type: compensator.HandlerConfig[Delivery]{Retry: func(int) time.Duration { panic("a bug") }}})
	b.publish(queue, numbered(2)...)
	stop := consume(t, k)
	w.Eventually(func() bool { return w.Count("common_process_log") == 2 }, "both are recorded")
	require.NoError(t, stop())
	assert.Zero(t, b.depth(queue))
}

func TestReasonForSettingAsideIsCutAndNeverEmpty(t *testing.T) {
	for _, test := range []struct {
		reason error
		want   string
	}{
		{nil, "set aside: no reason given"},
		{errors.New(""), "set aside: no reason given"},
		{errors.New("why"), "why"},
		{errors.New(strings.Repeat("ü", 5000)), strings.Repeat("ü", 1000)},
	} {
		require.Equal(t, test.want, setAsideFor(test.reason))
	}
}
