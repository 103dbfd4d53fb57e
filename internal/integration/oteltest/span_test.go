package oteltest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/otel"
)

func (w *world) span(name string, n int) sdktrace.ReadOnlySpan {
	w.T.Helper()
	var found []sdktrace.ReadOnlySpan
	w.Eventually(func() bool {
		found = nil
		for _, s := range w.ended.Ended() {
			if s.Name() == name {
				found = append(found, s)
			}
		}
		return len(found) >= n
	}, "span %d %q", n, name)
	return found[n-1]
}

func (w *world) inRequest(typ *compensator.Type[string], opts compensator.Options) (compensator.EntryID, trace.SpanContext) {
	ctx, span := w.traces.Tracer("shop").Start(w.T.Context(), "POST /orders")
	defer span.End()
	return w.record(ctx, typ, opts), span.SpanContext()
}

func attributes(s sdktrace.ReadOnlySpan) map[attribute.Key]string {
	found := make(map[attribute.Key]string)
	for _, kv := range s.Attributes() {
		found[kv.Key] = kv.Value.String()
	}
	return found
}

func TestEachAttemptIsANewTraceLinkedToItsRecording(t *testing.T) {
	t.Parallel()
	w := newWorld(t, otel.Options{})
	var inHandler trace.SpanContext
	orders := w.handle("close_order", func(ctx context.Context, e *compensator.Entry, _ string) error {
		inHandler = trace.SpanContextFromContext(ctx)
		if e.Attempt() == 1 {
			return errors.New("upstream is busy")
		}
		return nil
	}, compensator.HandlerConfig[string]{})
	stop := w.run()
	id, request := w.inRequest(orders, compensator.Options{BatchID: "b77"})
	w.reaches(id, compensator.Succeeded)
	require.NoError(t, stop())

	first, second := w.span("process close_order", 1), w.span("process close_order", 2)
	for i, s := range []sdktrace.ReadOnlySpan{first, second} {
		assert.False(t, s.Parent().IsValid())
		assert.NotEqual(t, request.TraceID(), s.SpanContext().TraceID())
		require.Len(t, s.Links(), 1)
		assert.Equal(t, request.TraceID(), s.Links()[0].SpanContext.TraceID())
		assert.Equal(t, request.SpanID(), s.Links()[0].SpanContext.SpanID())
		assert.Equal(t, trace.SpanKindConsumer, s.SpanKind())
		assert.Equal(t, semconv.SchemaURL, s.InstrumentationScope().SchemaURL)
		want := map[attribute.Key]string{
			semconv.MessagingSystemKey: "compensator", semconv.MessagingOperationNameKey: "process",
			semconv.MessagingOperationTypeKey:   semconv.MessagingOperationTypeProcess.Value.String(),
			semconv.MessagingDestinationNameKey: "close_order", semconv.MessagingMessageIDKey: id.String(),
			"compensator.attempt": fmt.Sprint(i + 1), "compensator.epoch": "0", "compensator.batch_id": "b77",
		}
		if i == 0 {
			want[semconv.ErrorTypeKey] = "failed"
		}
		assert.Equal(t, want, attributes(s))
	}
	assert.Equal(t, sdktrace.Status{Code: codes.Error}, first.Status(), "no error text")
	assert.Equal(t, codes.Unset, second.Status().Code)
	assert.Equal(t, second.SpanContext().SpanID(), inHandler.SpanID())
	assert.Equal(t, 1, w.Count("common_process_log_attempt WHERE entry_id=? AND trace=?", id.Row(), first.SpanContext().TraceID().String()), "the failed attempt is kept with its trace")
}

func TestAttemptIsAChildWithOptionChild(t *testing.T) {
	t.Parallel()
	w := newWorld(t, otel.Options{Child: true})
	orders := w.handle("close_order", func(context.Context, *compensator.Entry, string) error { return nil }, compensator.HandlerConfig[string]{})
	w.run()
	_, request := w.inRequest(orders, compensator.Options{})
	s := w.span("process close_order", 1)
	assert.Equal(t, request.SpanID(), s.Parent().SpanID())
	assert.Equal(t, request.TraceID(), s.SpanContext().TraceID())
	assert.Empty(t, s.Links())
}

func TestTransactionalHandlerAndCompensationHaveSpans(t *testing.T) {
	t.Parallel()
	w := newWorld(t, otel.Options{})
	followUp := w.handle("tell_user", func(context.Context, *compensator.Entry, string) error { return nil }, compensator.HandlerConfig[string]{})
	orders, err := compensator.HandleTx(t.Context(), w.c, "close_order", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ string) error {
		_, err := followUp.Record(ctx, tx, "closed", compensator.Options{})
		return errors.Join(err, compensator.Permanent(errors.New("paid meanwhile")))
	}, &compensator.HandlerConfig[string]{CompensateTx: func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ string) error {
		_, err := followUp.Record(ctx, tx, "undone", compensator.Options{})
		return err
	}})
	require.NoError(t, err)
	w.run()
	id, request := w.inRequest(orders, compensator.Options{})
	w.reaches(id, compensator.Compensated)

	failed, undone, told := w.span("process close_order", 1), w.span("compensate close_order", 1), w.span("process tell_user", 1)
	assert.Equal(t, "permanent", attributes(failed)[semconv.ErrorTypeKey])
	assert.Equal(t, "compensate", attributes(undone)[semconv.MessagingOperationNameKey])
	assert.Equal(t, request.SpanID(), undone.Links()[0].SpanContext.SpanID())
	assert.Equal(t, undone.SpanContext().SpanID(), told.Links()[0].SpanContext.SpanID(), "what a compensation records is linked to it")
}

func TestBatchIsOneSpanWithALinkToEachRecording(t *testing.T) {
	t.Parallel()
	w := newWorld(t, otel.Options{})
	mails, err := compensator.HandleBatch(t.Context(), w.c, "mail", func(_ context.Context, items []compensator.Item[string]) []error {
		errs := make([]error, len(items))
		errs[0] = compensator.Snooze(0)
		errs[1] = compensator.Unavailable(errors.New("no route"))
		return errs
	}, &compensator.BatchConfig[string]{BatchSize: 200, Concurrency: 200})
	require.NoError(t, err)
	for range 150 {
		_, _ = w.inRequest(mails, compensator.Options{})
	}
	ctx, span := w.traces.Tracer("shop").Start(t.Context(), "import")
	require.NoError(t, w.c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		for range 2 {
			if _, err := mails.Record(ctx, tx, "x", compensator.Options{}); err != nil {
				return err
			}
		}
		return nil
	}))
	span.End()
	w.run()
	s := w.span("process mail", 1)
	assert.Len(t, s.Links(), 128)
	assert.False(t, s.Parent().IsValid())
	assert.Equal(t, "152", attributes(s)[semconv.MessagingBatchMessageCountKey])
	assert.Equal(t, "unavailable", attributes(s)[semconv.ErrorTypeKey], "a snooze is no failure")
}

func TestBatchSpanHasNoParent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, otel.Options{Child: true})
	telemetry, err := otel.New(otel.Options{Child: true, TracerProvider: w.traces})
	require.NoError(t, err)
	batch := telemetry.BatchMiddleware(func(context.Context, []*compensator.Entry) []error { return nil })
	batch(traced(t.Context(), trace.TraceState{}), []*compensator.Entry{{BusinessType: "mail"}})
	assert.False(t, w.span("process mail", 1).Parent().IsValid())
}

// A service may call New inside a span.
func TestSpanInWhichNewWasCalledIsNotLinked(t *testing.T) {
	t.Parallel()
	for _, child := range []bool{false, true} {
		inStart := traced(t.Context(), trace.TraceState{})
		s := oneAttempt(t, otel.Options{Child: child}, inStart, func(context.Context, *compensator.Entry) error { return nil })
		assert.False(t, s.Parent().IsValid())
		assert.Empty(t, s.Links())
	}
}

func TestEntriesRecordedTogetherAreOneLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t, otel.Options{})
	mails, err := compensator.HandleBatch(t.Context(), w.c, "mail", func(context.Context, []compensator.Item[string]) []error { return nil }, nil)
	require.NoError(t, err)
	ctx, span := w.traces.Tracer("shop").Start(t.Context(), "import")
	for range 3 {
		w.record(ctx, mails, compensator.Options{})
	}
	span.End()
	w.record(t.Context(), mails, compensator.Options{}) // This entry is recorded without a trace.
	w.run()
	s := w.span("process mail", 1)
	assert.Equal(t, "4", attributes(s)[semconv.MessagingBatchMessageCountKey])
	assert.Len(t, s.Links(), 1)
	assert.Equal(t, codes.Unset, s.Status().Code)
}
