package otel

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/compensator-go/compensator"
)

// Options say where telemetry goes. The zero value works.
type Options struct {
	// TracerProvider makes the spans. nil: the global one at the time of New, which may be given its delegate later. The
	// no-op one of package go.opentelemetry.io/otel/trace/noop makes none, and costs nothing.
	TracerProvider trace.TracerProvider

	// MeterProvider makes the instruments. nil: the global one, in the same way.
	MeterProvider metric.MeterProvider

	// Log tells this log from others in the same process, by attribute compensator.log of each series and span: two on one
	// MeterProvider would be one otherwise, and of a gauge one value would stand for both. "": it is left out.
	Log string

	// Child makes an attempt's span a child of the context that recorded its entry. By default it begins a trace of its own
	// that is linked to it: attempts come half an hour later, and ten times over. A batch's span is never a child.
	Child bool

	// ErrorText is given the text of a failed attempt's error, and returns what its span may say of it: a scrubber. nil:
	// nothing. It is called concurrently; of one that panics nothing is said.
	ErrorText func(text string) string

	// ErrorType names a kind of error that would be "failed" otherwise, in a word; "" leaves it at that. The first 32 words
	// are told, each of at most 64 bytes, and any other as "_OTHER". It is called concurrently; one that panics has said "".
	ErrorType func(err error) string
}

// Telemetry is what New makes of Options, for one Compensator. Its methods may be called concurrently.
type Telemetry struct {
	opts    Options
	tracer  trace.Tracer
	silent  bool // no span is made
	meter   metric.Meter
	metrics instruments

	recorded, ran, stored  *names // types: in Record, in handlers, in the log. None takes places from another
	errorTypes, currencies *names
	labels                 kept[labels, options]
	spans                  kept[spanKind, spanStart]
}

// Bounds of what an attribute may be: a metric's series stay as long as its process.
const (
	maxTypes      = 200
	maxErrorTypes = 32
	maxCurrencies = 32
)

// New makes the instruments.
func New(opts Options) (*Telemetry, error) {
	if opts.TracerProvider == nil {
		opts.TracerProvider = otel.GetTracerProvider()
	}
	if opts.MeterProvider == nil {
		opts.MeterProvider = otel.GetMeterProvider()
	}
	_, silent := opts.TracerProvider.(noop.TracerProvider)
	t := &Telemetry{
		opts: opts, silent: silent,
		tracer:   opts.TracerProvider.Tracer(scope, trace.WithSchemaURL(schemaURL)),
		meter:    opts.MeterProvider.Meter(scope, metric.WithSchemaURL(schemaURL)),
		recorded: newNames(maxTypes), ran: newNames(maxTypes), stored: newNames(maxTypes), errorTypes: newNames(maxErrorTypes),
		currencies: newNames(maxCurrencies),
	}
	if err := t.metrics.open(t.meter); err != nil {
		return nil, fmt.Errorf("compensator/otel: %w", err)
	}
	return t, nil
}

// Attach puts the middleware around the handlers registered on c from here on, and has the gauges read c.Health and c.Count
// when they are collected, at most every 15 seconds and for at most 5; where Config.Operations is set, every other time the open
// cases too. detach, before c.Close, ends the latter.
func (t *Telemetry) Attach(c *compensator.Compensator) (detach func() error, err error) {
	if c == nil {
		return nil, &compensator.FieldError{Field: "c", Reason: "is nil"}
	}
	gauges, err := newGauges(t, c)
	if err != nil {
		return nil, fmt.Errorf("compensator/otel: %w", err)
	}
	c.Use(t.Middleware)
	c.UseBatch(t.BatchMiddleware)
	return gauges.Unregister, nil
}

// survive keeps what a provider, or a function of Options, panics with from the handler. OpenTelemetry's error handler is told.
func survive() {
	if p := recover(); p != nil {
		complain(p)
	}
}

func complain(p any) {
	defer func() { _ = recover() }() // it is the user's, too
	otel.Handle(errors.New("compensator/otel: panic of a provider or an option: " + fmt.Sprint(p)))
}
