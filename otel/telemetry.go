package otel

import (
	"errors"
	"fmt"
	"runtime/debug"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
)

// Options configures Telemetry. The zero value works.
type Options struct {
	// TracerProvider creates the spans. nil means the global provider at the time of New. If the program sets a global
	// provider only after New, OpenTelemetry passes the spans on to that provider from then on. The no-op provider of
	// go.opentelemetry.io/otel/trace/noop creates no spans and costs nothing.
	TracerProvider trace.TracerProvider

	// MeterProvider creates the instruments. nil means the global provider, as for TracerProvider.
	MeterProvider metric.MeterProvider

	// Log distinguishes this log from other logs in the same process. Log becomes the attribute compensator.log of each
	// series and span. If Log is empty, Configure takes compensator.Config.Name. If Config.Name is empty too, the
	// series and spans do not have the attribute. Without the attribute, two logs on one MeterProvider report the same
	// series, and a gauge shows one value for both.
	Log string

	// Child makes an attempt's span a child of the span that recorded its entry. By default an attempt starts a new
	// trace with a link to the span that recorded its entry. The reason is that an attempt may start half an hour after
	// Record, when the trace of Record is complete. The span of a batch is never a child.
	Child bool

	// ErrorText receives the text of a failed attempt's error and returns the text for the span, for example without
	// secrets. If ErrorText is nil or panics, the span has no error text. ErrorText is called concurrently.
	ErrorText func(text string) string

	// ErrorType returns a word for a kind of error that is otherwise reported as "failed". If the word is empty or
	// ErrorType panics, "failed" is reported. Only the first 32 different words are reported, each up to 64 bytes. All
	// other words are reported as "_OTHER". ErrorType is called concurrently.
	ErrorType func(err error) string
}

// Telemetry reports on one Compensator. New creates it. Its methods may be called concurrently.
type Telemetry struct {
	opts    Options
	tracer  trace.Tracer
	silent  bool // whether the TracerProvider creates no spans
	meter   metric.Meter
	metrics instruments

	// These are three sets of business types: of calls of Record, of handlers, and of entries in the log. Each set has
	// its own limit.
	recordedTypes, runTypes, storedTypes *names
	errorTypes, currencies               *names
	labels                               cache[labels, options]
	spans                                cache[spanKind, spanStart]
}

// A metric gets a series for each name, and keeps the series until the process ends. So the numbers of names are
// limited.
const (
	maxTypes      = 200
	maxErrorTypes = 32
	maxCurrencies = 32
)

// New creates a Telemetry with its instruments. If the MeterProvider refuses an instrument, the error wraps its error.
// Zero fields of opts mean their defaults.
func New(opts Options) (*Telemetry, error) {
	if opts.TracerProvider == nil {
		opts.TracerProvider = otel.GetTracerProvider()
	}
	if opts.MeterProvider == nil {
		opts.MeterProvider = otel.GetMeterProvider()
	}
	_, silent := opts.TracerProvider.(noop.TracerProvider)
	scopeVersion := version(debug.ReadBuildInfo())
	t := &Telemetry{
		opts: opts, silent: silent,
		tracer:        opts.TracerProvider.Tracer(scope, trace.WithSchemaURL(schemaURL), trace.WithInstrumentationVersion(scopeVersion)),
		meter:         opts.MeterProvider.Meter(scope, metric.WithSchemaURL(schemaURL), metric.WithInstrumentationVersion(scopeVersion)),
		recordedTypes: newNames(maxTypes), runTypes: newNames(maxTypes), storedTypes: newNames(maxTypes), errorTypes: newNames(maxErrorTypes),
		currencies: newNames(maxCurrencies),
	}
	if err := t.metrics.createInstruments(t.meter); err != nil {
		return nil, fmt.Errorf("compensator/otel: %w", err)
	}
	return t, nil
}

// Configure adds the Observer, the Propagator and the middleware of t to cfg. Call Configure before compensator.New,
// and not concurrently. Configure keeps an Observer and middleware that cfg already has, and makes the middleware of t
// the outermost. It replaces a Propagator that cfg already has. If Options.Log is empty, t takes the name of the log
// from cfg.Name.
func (t *Telemetry) Configure(cfg *compensator.Config) {
	if t.opts.Log == "" {
		t.opts.Log = cfg.Name
	}
	cfg.Observer = observe.Observers(t.Observer(), cfg.Observer)
	cfg.Propagator = t.Propagator()
	cfg.Middleware = append([]compensator.Middleware{t.Middleware}, cfg.Middleware...)
	cfg.BatchMiddleware = append([]compensator.BatchMiddleware{t.BatchMiddleware}, cfg.BatchMiddleware...)
}

// Attach registers the gauges of c.
//
// When the gauges are collected, they call c.Health, admin.Log.Count and admin.Log.Backlog. They make these calls at
// most every 15 seconds, and wait at most 5 seconds for the answers. If Config.Operations is set, they also read the
// open cases every other time. detach stops the gauges. Call it before c.Close. If c is nil, the error is a
// *compensator.FieldError. Any other error comes from the MeterProvider.
func (t *Telemetry) Attach(c *compensator.Compensator) (detach func() error, err error) {
	if c == nil {
		return nil, &compensator.FieldError{Field: "c", Reason: "is nil"}
	}
	gauges, err := newGauges(t, c)
	if err != nil {
		return nil, fmt.Errorf("compensator/otel: %w", err)
	}
	return gauges.Unregister, nil
}

// survive recovers from a panic of a provider or of a function in Options, and reports it to OpenTelemetry's error
// handler.
func survive() {
	if p := recover(); p != nil {
		complain(p)
	}
}

func complain(p any) {
	defer func() { _ = recover() }() // The error handler is the user's code and may panic too.
	otel.Handle(errors.New("compensator/otel: panic of a provider or an option: " + fmt.Sprint(p)))
}
