package otel

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
)

// Middleware creates a span around each attempt of a handler or a compensation, and measures its duration. For a
// transactional handler the duration does not include COMMIT. Configure adds it for all types.
func (t *Telemetry) Middleware(next compensator.HandlerFunc) compensator.HandlerFunc {
	return func(ctx context.Context, e *compensator.Entry) (err error) {
		a := t.begin(ctx, e)
		returned := false
		defer func() { t.end(a, returned, err) }() // This function also runs after a panic, which goes on after it.
		err = next(a.ctx, e)
		returned = true
		return err
	}
}

// BatchMiddleware creates one span around a batch. The span links to each span in which an entry of the batch was
// recorded, up to 128. If the handler does not return a verdict for each entry, for example after a panic, each entry
// runs again as a batch of one. Configure adds it for all types.
func (t *Telemetry) BatchMiddleware(next compensator.BatchFunc) compensator.BatchFunc {
	return func(ctx context.Context, entries []*compensator.Entry) (errs []error) {
		if len(entries) == 0 {
			return next(ctx, entries)
		}
		a := t.beginBatch(ctx, entries)
		returned := false
		defer func() { t.end(a, returned, errs...) }()
		errs = next(a.ctx, entries)
		returned = true
		return errs
	}
}

// running is a running attempt or batch.
type running struct {
	ctx   context.Context // context of the handler
	kind  spanKind
	span  trace.Span // nil if no span was created
	since time.Time
}

// spanKind holds the values that decide the start options of a span.
type spanKind struct {
	operation, businessType string
	root                    bool
}

// spanStart holds the name and the start options of a span.
type spanStart struct {
	name string
	opts []trace.SpanStartOption
}

func (t *Telemetry) begin(ctx context.Context, e *compensator.Entry) (a running) {
	a = running{ctx: ctx, kind: spanKind{operation: operationProcess, businessType: e.BusinessType}, since: time.Now()}
	if e.State == compensator.Compensating {
		a.kind.operation = operationCompensate
	}
	if t.silent {
		return a
	}
	defer survive()
	recordedIn, known := origin(ctx)
	a.kind.root = !known || !t.opts.Child
	if known && a.kind.root {
		t.start(&a, trace.Link{SpanContext: recordedIn})
	} else {
		t.start(&a)
	}
	if a.span.IsRecording() {
		a.span.SetAttributes(ofEntry(e)...)
		observe.SetTrace(ctx, func() string { return a.span.SpanContext().TraceID().String() })
	}
	return a
}

// origin returns the span in which an entry was recorded. The Propagator puts this span into ctx as a remote span.
// known is false if ctx has another span, which comes from the context that the caller passed to compensator.New.
func origin(ctx context.Context) (sc trace.SpanContext, known bool) {
	sc = trace.SpanContextFromContext(ctx)
	return sc, sc.IsValid() && sc.IsRemote()
}

const maxLinks = 128

func (t *Telemetry) beginBatch(ctx context.Context, entries []*compensator.Entry) (a running) {
	a = running{ctx: ctx, kind: spanKind{operationProcess, entries[0].BusinessType, true}, since: time.Now()}
	if t.silent {
		return a
	}
	defer survive()
	var links []trace.Link
	for _, e := range entries {
		recordedIn, known := origin(e.Context(ctx))
		same := func(l trace.Link) bool { return l.SpanContext.Equal(recordedIn) } // Entries that were recorded in the same span need one link only.
		if !known || slices.ContainsFunc(links, same) {
			continue
		}
		if links = append(links, trace.Link{SpanContext: recordedIn}); len(links) == maxLinks {
			break
		}
	}
	t.start(&a, links...)
	if a.span.IsRecording() {
		a.span.SetAttributes(keyMessageCount.Int(len(entries)))
	}
	return a
}

// The method start starts the span. It changes a.ctx only after the span exists.
func (t *Telemetry) start(a *running, links ...trace.Link) {
	begin := t.spans.of(a.kind, t.spanStart)
	opts := begin.opts
	if len(links) > 0 {
		opts = append(slices.Clip(opts), trace.WithLinks(links...))
	}
	ctx, span := t.tracer.Start(a.ctx, begin.name, opts...)
	a.ctx, a.span = ctx, span
}

// spanStart returns start options with all attributes that a sampler needs.
func (t *Telemetry) spanStart(kind spanKind) spanStart {
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(keySystem.String(system), keyOperation.String(kind.operation), keyOperationType.String("process"),
			keyType.String(kind.businessType)),
	}
	if t.opts.Log != "" {
		opts = append(opts, trace.WithAttributes(keyLog.String(t.opts.Log)))
	}
	if kind.root {
		opts = append(opts, trace.WithNewRoot())
	}
	return spanStart{kind.operation + " " + kind.businessType, opts}
}

// ofEntry returns all attributes that are reported about an entry.
func ofEntry(e *compensator.Entry) []attribute.KeyValue {
	told := []attribute.KeyValue{keyMessageID.String(e.ID.String()), keyAttempt.Int(e.Attempt()), keyEpoch.Int64(int64(e.Epoch))}
	if e.BatchID != "" {
		told = append(told, keyBatchID.String(e.BatchID))
	}
	return told
}

// The method end ends the span and records the duration. The argument returned is false if the handler has panicked.
func (t *Telemetry) end(a running, returned bool, errs ...error) {
	word, err := typePanic, error(nil)
	if returned {
		word, err = t.firstFailure(a.ctx, errs)
	}
	t.endSpan(a.span, word, err)
	defer survive()
	businessType, _ := t.ran.of(a.kind.businessType)
	t.metrics.duration.Record(a.ctx, time.Since(a.since).Seconds(),
		t.options(labels{operation: a.kind.operation, businessType: businessType, errorType: word}).record...)
}

// firstFailure returns the first failure among the errors of a batch. For a handler of a single entry, errs holds one
// error.
func (t *Telemetry) firstFailure(ctx context.Context, errs []error) (word string, err error) {
	for _, err := range errs {
		if word := t.errorType(ctx, err); word != "" {
			return word, err
		}
	}
	return "", nil
}

func (t *Telemetry) endSpan(span trace.Span, word string, err error) {
	if span == nil {
		return
	}
	defer survive()
	if word != "" && span.IsRecording() {
		span.SetAttributes(keyErrorType.String(word))
		span.SetStatus(codes.Error, t.errorText(err))
	}
	span.End()
}
