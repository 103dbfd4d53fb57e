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
		hasReturned := false
		// The function also runs if the handler panics. The panic then continues.
		defer func() { t.endAttempt(a, hasReturned, err) }()
		err = next(a.ctx, e)
		hasReturned = true
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
		hasReturned := false
		defer func() { t.endAttempt(a, hasReturned, errs...) }()
		errs = next(a.ctx, entries)
		hasReturned = true
		return errs
	}
}

type running struct {
	ctx       context.Context // context of the handler
	kind      spanKind
	span      trace.Span // nil if no span was created
	startedAt time.Time
}

type spanKind struct {
	operation, businessType string
	root                    bool
}

type spanStart struct {
	name string
	opts []trace.SpanStartOption
}

func (t *Telemetry) begin(ctx context.Context, e *compensator.Entry) (a running) {
	a = running{ctx: ctx, kind: spanKind{operation: operationProcess, businessType: e.BusinessType}, startedAt: time.Now()}
	if e.State == compensator.Compensating {
		a.kind.operation = operationCompensate
	}
	if t.silent {
		return a
	}
	defer survive()
	recordedIn, isKnown := origin(ctx)
	a.kind.root = !isKnown || !t.opts.Child
	if isKnown && a.kind.root {
		t.startSpan(&a, trace.Link{SpanContext: recordedIn})
	} else {
		t.startSpan(&a)
	}
	if a.span.IsRecording() {
		a.span.SetAttributes(ofEntry(e)...)
		observe.SetTrace(ctx, func() string { return a.span.SpanContext().TraceID().String() })
	}
	return a
}

// origin returns the span in ctx. isKnown reports whether the Propagator has put this span into ctx, so that the span
// is remote. A span that is not remote comes from the context that the caller passed to compensator.New.
func origin(ctx context.Context) (sc trace.SpanContext, isKnown bool) {
	sc = trace.SpanContextFromContext(ctx)
	return sc, sc.IsValid() && sc.IsRemote()
}

const maxLinks = 128

func (t *Telemetry) beginBatch(ctx context.Context, entries []*compensator.Entry) (a running) {
	a = running{ctx: ctx, kind: spanKind{operationProcess, entries[0].BusinessType, true}, startedAt: time.Now()}
	if t.silent {
		return a
	}
	defer survive()
	var links []trace.Link
	for _, e := range entries {
		recordedIn, isKnown := origin(e.Context(ctx))
		isSame := func(l trace.Link) bool { return l.SpanContext.Equal(recordedIn) } // Entries that were recorded in the same span need one link only.
		if !isKnown || slices.ContainsFunc(links, isSame) {
			continue
		}
		if links = append(links, trace.Link{SpanContext: recordedIn}); len(links) == maxLinks {
			break
		}
	}
	t.startSpan(&a, links...)
	if a.span.IsRecording() {
		a.span.SetAttributes(keyMessageCount.Int(len(entries)))
	}
	return a
}

// startSpan changes a.ctx only after the span exists.
func (t *Telemetry) startSpan(a *running, links ...trace.Link) {
	begin := t.spans.valueFor(a.kind, t.spanStart)
	opts := begin.opts
	if len(links) > 0 {
		opts = append(slices.Clip(opts), trace.WithLinks(links...))
	}
	ctx, span := t.tracer.Start(a.ctx, begin.name, opts...)
	a.ctx, a.span = ctx, span
}

// spanStart has all attributes that a sampler needs.
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

func ofEntry(e *compensator.Entry) []attribute.KeyValue {
	attributes := []attribute.KeyValue{keyMessageID.String(e.ID.String()), keyAttempt.Int(e.Attempt()), keyEpoch.Int64(int64(e.Epoch))}
	if e.BatchID != "" {
		attributes = append(attributes, keyBatchID.String(e.BatchID))
	}
	return attributes
}

// endAttempt gets false for hasReturned if the handler has panicked.
func (t *Telemetry) endAttempt(a running, hasReturned bool, errs ...error) {
	errorType, err := typePanic, error(nil)
	if hasReturned {
		errorType, err = t.firstFailure(a.ctx, errs)
	}
	t.endSpan(a.span, errorType, err)
	defer survive()
	businessType, _ := t.runTypes.canonical(a.kind.businessType)
	t.metrics.duration.Record(a.ctx, time.Since(a.startedAt).Seconds(),
		t.options(labels{operation: a.kind.operation, businessType: businessType, errorType: errorType}).record...)
}

func (t *Telemetry) firstFailure(ctx context.Context, errs []error) (errorType string, err error) {
	for _, err := range errs {
		if errorType := t.errorType(ctx, err); errorType != "" {
			return errorType, err
		}
	}
	return "", nil
}

func (t *Telemetry) endSpan(span trace.Span, errorType string, err error) {
	if span == nil {
		return
	}
	defer survive()
	if errorType != "" && span.IsRecording() {
		span.SetAttributes(keyErrorType.String(errorType))
		span.SetStatus(codes.Error, t.errorText(err))
	}
	span.End()
}
