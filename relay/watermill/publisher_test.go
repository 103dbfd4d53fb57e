package relay

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe"
)

var errTest = errors.New("no luck")

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
func TestPublishedMessageIsItsEntry(t *testing.T) {
	t.Parallel()
	singleAndBatch(t, func(t *testing.T, batch bool) {
		w := harness.NewWorld(t)
		cfg := w.QuickConfig()
		cfg.Propagator = traced{}
		c := w.New(cfg)
		b := new(topics)
		var trace atomic.Value
		b.publish = func(_ string, m *message.Message) error {
			trace.Store(m.Context().Value(traceKey{}))
			return nil
		}
		orders := relayed(t, c, publisher(t, b, Config{}), func(*compensator.Entry) (Destination, error) {
			return Destination{Topic: "orders", Metadata: map[string]string{"tenant": "the route's", KeyMetadata: "forged"}}, nil
		}, batch, compensator.HandlerConfig[harness.Order]{})
		w.Run(c)
		var id compensator.EntryID
		require.NoError(t, c.InTx(context.WithValue(t.Context(), traceKey{}, "00-trace-01"), func(ctx context.Context, tx *compensator.ScopedTx) error {
			receipt, err := orders.Record(ctx, tx, harness.Order{Number: 3, Note: "<ä>"}, compensator.Options{
				IdempotencyKey: "order-3", Headers: map[string]string{"tenant": "the entry's", "color": "red"}})
			if err == nil {
				id = receipt.ID()
			}
			return err
		}))
		w.WaitState(id, compensator.Succeeded)
		e := w.Entry(c, id)
		require.Len(t, b.messagesOf("orders"), 1)
		got := b.messagesOf("orders")[0]
		assert.Equal(t, "order-3", got.UUID)
		assert.Equal(t, e.Content, []byte(got.Payload))
		assert.Equal(t, "00-trace-01", trace.Load(), "the context carries the propagated values")
		assert.Equal(t, message.Metadata{
			"tenant": "the route's", "color": "red", "traceparent": "00-trace-01",
			KeyMetadata: e.CallKey(), TypeMetadata: "order_message", CreatedMetadata: e.CreatedAt.Format(time.RFC3339Nano)}, got.Metadata)

		require.NoError(t, admin.Of(c).Requeue(t.Context(), id, admin.RequeueOptions{AuditInfo: admin.AuditInfo{Actor: "ann", Reason: "once more"}}))
		eventually(t, func() bool { return len(b.messagesOf("orders")) == 2 }, "the message comes again")
		again := b.messagesOf("orders")[1]
		assert.Equal(t, "order-3", again.UUID, "a requeue keeps the UUID")
		assert.NotEqual(t, got.Metadata[KeyMetadata], again.Metadata[KeyMetadata], "a requeue changes the key")
	})
}

// Failure: F88
func TestErrorOfAPublisherMeansWhatItsJudgeSays(t *testing.T) {
	t.Parallel()
	singleAndBatch(t, func(t *testing.T, batch bool) {
		for name, try := range map[string]struct {
			err   error
			judge func(error) error
			want  compensator.State
		}{
			"by default it waits":      {errTest, nil, compensator.Pending},
			"the publisher's own word": {compensator.Permanent(errTest), nil, compensator.Dead},
			"counted":                  {errTest, func(err error) error { return err }, compensator.Dead},
			"permanent":                {errTest, compensator.Permanent, compensator.Dead},
			"good enough":              {errTest, func(error) error { return nil }, compensator.Succeeded},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := harness.NewWorld(t)
				c := w.New(w.QuickConfig())
				b := &topics{publish: func(string, *message.Message) error { return try.err }}
				orders := relayed(t, c, publisher(t, b, Config{Judge: try.judge}), To("orders"), batch, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
				w.Run(c)
				id := w.Record(orders, 1, compensator.Options{})
				if try.want == compensator.Pending {
					w.Eventually(func() bool { return w.Entry(c, id).LastError != "" }, "an attempt fails")
				}
				w.WaitState(id, try.want)
				if e := w.Entry(c, id); try.want != compensator.Succeeded {
					assert.Contains(t, e.LastError, `topic "orders"`)
					assert.Contains(t, e.LastError, errTest.Error())
				}
			})
		}
	})
}

// Publish takes no context, and some publishers wait forever.
// Failure: F87
func TestPublisherThatDoesNotReturnKeepsNoHandler(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	release := make(chan struct{})
	var underWay, maxPause atomic.Int32
	b := &topics{publish: func(string, *message.Message) error {
		n := underWay.Add(1)
		defer underWay.Add(-1)
		for seen := maxPause.Load(); n > seen && !maxPause.CompareAndSwap(seen, n); seen = maxPause.Load() {
		}
		<-release
		return nil
	}}
	orders := relayed(t, c, publisher(t, b, Config{Timeout: 100 * time.Millisecond, Concurrency: 3}), To("orders"), false, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
	w.Run(c)
	const n = 30
	w.RecordMany(c, orders, n, compensator.Options{})
	w.Eventually(func() bool {
		return w.Count("common_process_log WHERE last_error LIKE '%did not answer%gave up after 100ms%'") == n
	}, "every handler returns")
	assert.Zero(t, w.CountEnded(compensator.Dead, 1), "no attempt is counted")
	assert.EqualValues(t, 3, maxPause.Load(), "no more calls run than Concurrency allows")
	close(release)
	w.WaitAllEnded()
	assert.Equal(t, n, w.CountEnded(compensator.Succeeded, 0))
	eventually(t, func() bool { return underWay.Load() == 0 }, "the abandoned calls have ended")
	assert.Len(t, b.ids("orders"), n, "repeated messages have the same id")
	assert.LessOrEqual(t, len(b.messagesOf("orders")), n+3)
}

// Failure: F88
func TestPanicOfAMarshalerIsAFailureThatNamesItsTopic(t *testing.T) {
	t.Parallel()
	singleAndBatch(t, func(t *testing.T, batch bool) {
		w := harness.NewWorld(t)
		c := w.New(w.QuickConfig())
		b := &topics{publish: func(string, *message.Message) error { panic("cannot marshal this") }}
		orders := relayed(t, c, publisher(t, b, Config{}), To("orders"), batch, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
		w.Run(c)
		id := w.Record(orders, 1, compensator.Options{})
		w.WaitState(id, compensator.Dead)
		assert.Contains(t, w.Entry(c, id).LastError, `topic "orders"`)
		assert.Contains(t, w.Entry(c, id).LastError, "cannot marshal this")
	})
}

// Publish does not say which message of a batch failed.
// Failure: F88
func TestMessageThatSpoilsItsBatchIsToldAlone(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	b := &topics{publish: func(_ string, m *message.Message) error {
		switch {
		case strings.Contains(string(m.Payload), "refused"):
			return errTest
		case strings.Contains(string(m.Payload), "panics"):
			panic("a bug")
		}
		return nil
	}}
	route := func(e *compensator.Entry) (Destination, error) {
		switch e.BusinessID {
		case "nowhere":
			return Destination{}, nil
		case "elsewhere":
			return Destination{Topic: "elsewhere"}, nil
		}
		return Destination{Topic: "orders"}, nil
	}
	orders := relayed(t, c, publisher(t, b, Config{Judge: compensator.Permanent}), route, true, compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
	ids := make(map[string]compensator.EntryID)
	w.InTx(w.DB, func(tx *sql.Tx) {
		for _, name := range []string{"first", "refused", "second", "panics", "third", "elsewhere", "nowhere"} {
			receipt, err := orders.Record(t.Context(), tx, harness.Order{Note: name}, compensator.Options{BusinessID: name, IdempotencyKey: compensator.IdempotencyKey(name)})
			require.NoError(t, err)
			ids[name] = receipt.ID()
		}
	})
	w.Run(c)
	w.WaitAllEnded()
	for name, words := range map[string]string{"refused": errTest.Error(), "panics": "a bug", "nowhere": "Topic: is empty"} {
		assert.Equal(t, compensator.Dead, w.State(ids[name]), name)
		assert.Contains(t, w.Entry(c, ids[name]).LastError, words)
	}
	for _, name := range []string{"first", "second", "third"} {
		assert.Equal(t, compensator.Succeeded, w.State(ids[name]), name)
		assert.Positive(t, b.ids("orders")[name], name)
	}
	assert.Equal(t, map[string]int{"elsewhere": 1}, b.ids("elsewhere"), "another topic's are not sent again")
}

// Failure: F88
func TestEntryWithNoUsableDestinationWaitsForAPerson(t *testing.T) {
	t.Parallel()
	singleAndBatch(t, func(t *testing.T, batch bool) {
		w := harness.NewWorld(t)
		c := w.New(w.QuickConfig())
		destination := map[string]Destination{
			"empty topic": {}, "nameless": {Topic: "t", Metadata: map[string]string{"": "x"}}, "no text": {Topic: "t", Metadata: map[string]string{"x": "\xff"}},
		}
		orders := relayed(t, c, publisher(t, new(topics), Config{}), func(e *compensator.Entry) (Destination, error) {
			if e.BusinessID == "unknown" {
				return Destination{}, compensator.Permanent(errTest)
			}
			return destination[e.BusinessID], nil
		}, batch, compensator.HandlerConfig[harness.Order]{})
		w.Run(c)
		for name, words := range map[string]string{"empty topic": "Topic: is empty", "nameless": "Metadata:", "no text": "Metadata:", "unknown": errTest.Error()} {
			id := w.Record(orders, 1, compensator.Options{BusinessID: name})
			w.WaitState(id, compensator.Dead)
			assert.Contains(t, w.Entry(c, id).LastError, words, name)
		}
	})
}

func TestPublisherAndConsumerNameTheFieldsThatAreWrong(t *testing.T) {
	t.Parallel()
	_, err := NewPublisher(nil, Config{Timeout: -1, Concurrency: -1})
	for _, field := range []string{"publisher", "Timeout", "Concurrency"} {
		assert.ErrorContains(t, err, "compensator: "+field+":")
	}
	require.ErrorAs(t, err, new(*compensator.FieldError))
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	_, err = Handle[string](t.Context(), c, "x", nil, To("t"), nil)
	assert.ErrorContains(t, err, "publisher")
	_, err = HandleBatch[string](t.Context(), c, "x", new(Publisher), nil, nil)
	assert.ErrorContains(t, err, "route")
	_, err = new(Publisher).Publishing("", nil)
	assert.ErrorContains(t, err, "Topic")
	assert.ErrorContains(t, err, "handler")
	_, err = Consume(t.Context(), c, "x", nil, ConsumerConfig{})
	assert.ErrorContains(t, err, "work")
	_, err = Consume(t.Context(), c, "x", func(*message.Message) error { return nil }, ConsumerConfig{
		RecordTimeout: -1, Middlewares: []message.HandlerMiddleware{nil}, Type: compensator.HandlerConfig[Delivery]{TypeConfig: compensator.TypeConfig{RefuseOtherContent: true}}})
	for _, field := range []string{"RecordTimeout", "Middlewares", "Type.RefuseOtherContent"} {
		assert.ErrorContains(t, err, "compensator: "+field+":")
	}
}

func TestJudgeThatPanicsIsAFailureAndKillsNobody(t *testing.T) {
	p, err := NewPublisher(broken{}, Config{Judge: func(error) error { panic("no such error") }})
	require.NoError(t, err)
	var panicked *compensator.PanicError
	for _, outcome := range p.send(t.Context(), "orders", []*message.Message{message.NewMessage("1", nil), message.NewMessage("2", nil)}) {
		require.ErrorAs(t, outcome, &panicked)
	}
}

// A batch fails, and then no time is left to send its messages alone.
func TestMessageThatNoTimeIsLeftForCountsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, err := NewPublisher(broken{cancel}, Config{Judge: compensator.Permanent})
	require.NoError(t, err)
	for _, outcome := range p.send(ctx, "orders", []*message.Message{message.NewMessage("1", nil), message.NewMessage("2", nil)}) {
		require.Equal(t, observe.Unavailable, compensator.VerdictOf(outcome), "%v", outcome)
	}
}

type broken struct{ tell func() }

func (b broken) Publish(string, ...*message.Message) error {
	if b.tell != nil {
		b.tell()
	}
	return errTest
}

func (b broken) Close() error { return nil }

func TestSilenceIsJudgedAndWhatWasNotTriedIsNot(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		release := make(chan struct{})
		b := &topics{publish: func(string, *message.Message) error {
			<-release
			return nil
		}}
		p, err := NewPublisher(b, Config{Judge: func(err error) error { return err }, Timeout: 10 * time.Millisecond, Concurrency: 1})
		require.NoError(t, err)
		messages := make([]*message.Message, n)
		for i := range messages {
			messages[i] = message.NewMessage(strconv.Itoa(i), nil)
		}
		send := func() []error {
			ctx, cancel := p.withTimeout(t.Context())
			defer cancel()
			return p.send(ctx, "orders", messages)
		}
		for _, err := range send() {
			require.ErrorIs(t, err, ErrNoAnswer)
			require.Equal(t, observe.Failure, compensator.VerdictOf(err), "Judge decides the verdict")
		}
		for _, err := range send() {
			require.ErrorIs(t, err, ErrNoAnswer)
			require.Equal(t, observe.Unavailable, compensator.VerdictOf(err))
			require.ErrorContains(t, err, "1 of 1 calls are running")
		}
		close(release)
		eventually(t, func() bool { return len(p.slots) == 0 }, "it has returned")
	}
}
