package otel

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/compensator-go/compensator"
)

// Middleware makes a span around each attempt of a handler or a compensation, and measures how long it takes; of a transactional
// one without its COMMIT. Attach uses it for all types.
func (t *Telemetry) Middleware(next compensator.HandlerFunc) compensator.HandlerFunc {
	return func(ctx context.Context, e *compensator.Entry) (err error) {
		a := t.begin(ctx, e)
		returned := false
		defer func() { t.end(a, returned, err) }() // also of a panic, which goes on
		err = next(a.ctx, e)
		returned = true
		return err
	}
}

// BatchMiddleware makes one span around a batch, with a link to each context in which one of its entries was recorded, up to 128.
// An entry of a broken batch that is run again alone comes as a batch of one. Attach uses it for all types.
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

// running is an attempt, or a batch of them, under way.
type running struct {
	ctx   context.Context // the handler's
	kind  spanKind
	span  trace.Span // nil: none
	since time.Time
}

// spanKind is what spans that begin alike have in common.
type spanKind struct {
	operation, businessType string
	root                    bool
}

// spanStart is how they begin.
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
	}
	return a
}

// origin is the span in which an entry was recorded. One that is not remote is that of whoever called New.
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
		same := func(l trace.Link) bool { return l.SpanContext.Equal(recordedIn) } // recorded together
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

// start begins the span; a.ctx changes only once there is one.
func (t *Telemetry) start(a *running, links ...trace.Link) {
	begin := t.spans.of(a.kind, t.spanStart)
	opts := begin.opts
	if len(links) > 0 {
		opts = append(slices.Clip(opts), trace.WithLinks(links...))
	}
	ctx, span := t.tracer.Start(a.ctx, begin.name, opts...)
	a.ctx, a.span = ctx, span
}

// spanStart has all that a sampler needs to know.
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

// ofEntry is what is told of an entry, and all of it.
func ofEntry(e *compensator.Entry) []attribute.KeyValue {
	told := []attribute.KeyValue{keyMessageID.String(e.ID.String()), keyAttempt.Int(e.Attempt()), keyEpoch.Int64(int64(e.Epoch))}
	if e.BatchID != "" {
		told = append(told, keyBatchID.String(e.BatchID))
	}
	return told
}

// end ends the span and counts how long it took. A handler that has not returned has panicked.
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

// firstFailure is what is said of a batch's verdicts, or of a handler's only one.
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
