package oteltest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	globalotel "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/otel"
	"github.com/compensator-go/compensator/processlog"
)

type broken struct{ trace.TracerProvider }

func (broken) Tracer(string, ...trace.TracerOption) trace.Tracer { return brokenTracer{} }

type brokenTracer struct{ trace.Tracer }

func (brokenTracer) Start(context.Context, string, ...trace.SpanStartOption) (context.Context, trace.Span) {
	panic("tracing is broken")
}

// exporter is a span processor that exports synchronously.
type exporter struct {
	sdktrace.SpanProcessor
	export func()
}

func (exporter) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (e exporter) OnEnd(sdktrace.ReadOnlySpan)                   { e.export() }

type brokenMeters struct{ metricnoop.MeterProvider }

func (brokenMeters) Meter(string, ...metric.MeterOption) metric.Meter { return brokenMeter{} }

type brokenMeter struct{ metricnoop.Meter }

func (brokenMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return brokenHistogram{}, nil
}
func (brokenMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return brokenCounter{}, nil
}

type brokenHistogram struct{ metricnoop.Float64Histogram }

func (brokenHistogram) Record(context.Context, float64, ...metric.RecordOption) {
	panic("counting is broken")
}

type brokenCounter struct{ metricnoop.Int64Counter }

func (brokenCounter) Add(context.Context, int64, ...metric.AddOption) { panic("counting is broken") }

func noMore(context.Context, *compensator.ScopedTx, *compensator.Entry) error { return nil }

// Failure: F128
func TestPanickingProviderHarmsNoEntry(t *testing.T) {
	t.Cleanup(func() { globalotel.SetErrorHandler(globalotel.ErrorHandlerFunc(func(error) {})) })
	for fault, opts := range map[string]otel.Options{
		"tracing is broken":   {TracerProvider: broken{}},
		"exporting is broken": {TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(exporter{export: func() { panic("exporting is broken") }}))},
		"counting is broken":  {MeterProvider: brokenMeters{}},
	} {
		t.Run(fault, func(t *testing.T) {
			told := make(chan error, 1000)
			globalotel.SetErrorHandler(globalotel.ErrorHandlerFunc(func(err error) {
				told <- err
				panic("the error handler, too")
			}))
			w := newWorld(t, opts)
			ship := w.handle("ship", func(context.Context, *compensator.Entry, string) error { return errors.New("503") },
				compensator.HandlerConfig[string]{MaxAttempts: 2, Compensate: func(context.Context, *compensator.Entry, string) error { return nil }})
			mails, err := compensator.HandleBatch(t.Context(), w.c, "mail", func(context.Context, []compensator.Item[string]) []error { return nil }, nil)
			require.NoError(t, err)
			orders := harness.HandleTransactional(t, w.c, compensator.HandlerConfig[harness.Order]{}, noMore)
			undone := w.record(t.Context(), ship, compensator.Options{})
			sent := w.record(t.Context(), mails, compensator.Options{})
			w.record(t.Context(), mails, compensator.Options{})
			closed := w.Record(orders, 1, compensator.Options{})
			w.run()
			w.reaches(undone, compensator.Compensated)
			w.reaches(sent, compensator.Succeeded)
			w.reaches(closed, compensator.Succeeded)
			assert.Contains(t, harness.Receive(t, told).Error(), fault)
		})
	}
}

// The first export takes longer than the type's timeout.
// Failure: F128
func TestSlowExporterIsASlowHandler(t *testing.T) {
	t.Parallel()
	var exports atomic.Int64
	slow := exporter{export: func() {
		if exports.Add(1) == 1 {
			harness.Elapse(800 * time.Millisecond)
		}
	}}
	w := newWorld(t, otel.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(slow))})
	orders := harness.HandleTransactional(t, w.c, compensator.HandlerConfig[harness.Order]{Timeout: 500 * time.Millisecond, Retry: compensator.Fixed(0)}, noMore)
	id := w.Record(orders, 1, compensator.Options{})
	w.run()
	w.reaches(id, compensator.Succeeded)
	assert.Greater(t, exports.Load(), int64(1), "the first one was rolled back")
	var effects int
	require.NoError(t, w.DB.QueryRow("SELECT COUNT(*) FROM effects").Scan(&effects))
	assert.Equal(t, 1, effects)
}

type counted struct {
	*compensatortest.MemoryStore
	looks  atomic.Int64
	cases  atomic.Int64
	silent atomic.Bool
	slow   atomic.Bool // makes queries for cases block until their context ends
}

func (s *counted) CaseGroups(ctx context.Context, types []string, failure processlog.Fingerprint) ([]processlog.CaseGroup, error) {
	s.cases.Add(1)
	if s.slow.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.MemoryStore.CaseGroups(ctx, types, failure)
}

func (s *counted) Heads(ctx context.Context) ([]processlog.Head, error) {
	s.looks.Add(1)
	if s.silent.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.MemoryStore.Heads(ctx)
}

type deaf struct {
	processlog.Queue
	down atomic.Bool
}

func (q *deaf) Peek(ctx context.Context, types []string) (waits []time.Duration, lost []string, err error) {
	if q.down.Load() {
		return nil, nil, errors.New("refused")
	}
	return q.Queue.Peek(ctx, types)
}

// Failure: F128
func TestScrapesQueryTheLogRarelyAndWaitForNoDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, reader := &counted{MemoryStore: compensatortest.NewMemoryStore()}, sdkmetric.NewManualReader()
		queue := &deaf{Queue: compensatortest.NewMemoryQueue().Client()}
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Queue: queue, Operations: &compensator.Operations{}})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		telemetry, err := otel.New(otel.Options{TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
		require.NoError(t, err)
		detach, err := telemetry.Attach(c)
		require.NoError(t, err)
		for second := range 29 {
			series := collect(t, reader)
			assert.EqualValues(t, 1, series["compensator.ready{}"])
			assert.EqualValues(t, 1-second/15, series["compensator.queue.up{}"])
			queue.down.Store(true)
			time.Sleep(time.Second)
		}
		assert.EqualValues(t, 2, store.looks.Load())
		assert.EqualValues(t, 1, store.cases.Load())

		store.silent.Store(true)
		time.Sleep(15 * time.Second)
		before := time.Now()
		series := collect(t, reader)
		assert.Equal(t, 5*time.Second, time.Since(before))
		assert.Zero(t, series["compensator.ready{}"], "%v", series)
		require.NoError(t, detach())
		assert.NotContains(t, collect(t, reader), "compensator.ready{}")
	})
}

// Failure: F128
func TestSlowCasesHideNoOtherGauge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, reader := &counted{MemoryStore: compensatortest.NewMemoryStore()}, sdkmetric.NewManualReader()
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Queue: compensatortest.NewMemoryQueue().Client(), Operations: &compensator.Operations{}})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		mails, err := compensator.Handle(t.Context(), c, "mail", func(context.Context, *compensator.Entry, string) error { return nil }, nil)
		require.NoError(t, err)
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := mails.Record(ctx, tx, "hello", compensator.Options{})
			return err
		}))
		telemetry, err := otel.New(otel.Options{TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
		require.NoError(t, err)
		_, err = telemetry.Attach(c)
		require.NoError(t, err)
		const waiting, pastDue = "compensator.entry.waiting{compensator.state=pending,messaging.destination.name=mail}", "compensator.case.past_due{}"
		store.slow.Store(true)
		series := collect(t, reader)
		assert.EqualValues(t, 1, series[waiting], "%v", series)
		assert.NotContains(t, series, pastDue)
		store.slow.Store(false)
		time.Sleep(15 * time.Second)
		assert.Contains(t, collect(t, reader), pastDue)
		store.slow.Store(true)
		time.Sleep(30 * time.Second)
		assert.NotContains(t, collect(t, reader), pastDue, "an old value would hide the failure")
	})
}

// TestWaitingEntriesAreReportedWithoutALimit checks that the gauges report the numbers of a stored backlog, which have
// no limit. If no backlog or only an old one is stored, the gauges count waiting entries themselves, and stop at 1,000.
// Failure: F29
func TestWaitingEntriesAreReportedWithoutALimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, reader := compensatortest.NewMemoryStore(), sdkmetric.NewManualReader()
		c, err := compensator.New(t.Context(), compensator.Config{Store: store, Queue: compensatortest.NewMemoryQueue().Client(), Operations: &compensator.Operations{Statistics: true}})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		mails, err := compensator.Handle(t.Context(), c, "mail", func(context.Context, *compensator.Entry, string) error { return nil }, nil)
		require.NoError(t, err)
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			var err error
			for i := 0; i < 1200 && err == nil; i++ {
				_, err = mails.Record(ctx, tx, "hello", compensator.Options{Delay: time.Hour})
			}
			return err
		}))
		telemetry, err := otel.New(otel.Options{TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
		require.NoError(t, err)
		_, err = telemetry.Attach(c)
		require.NoError(t, err)
		const waiting, due, overdue, age = "compensator.entry.waiting{compensator.state=pending,messaging.destination.name=mail}",
			"compensator.entry.due{messaging.destination.name=mail}", "compensator.entry.overdue{messaging.destination.name=mail}", "compensator.backlog.age{}"
		series := collect(t, reader)
		assert.EqualValues(t, 1000, series[waiting], "%v", series)
		assert.NotContains(t, series, due)
		assert.NotContains(t, series, age)

		slot := time.Now().Truncate(time.Minute)
		require.NoError(t, store.WriteBacklog(t.Context(), slot, []processlog.Backlog{{BusinessType: "mail", Pending: 1_234_567, Due: 2000, Overdue: 30}}))
		time.Sleep(15 * time.Second)
		series = collect(t, reader)
		assert.EqualValues(t, 1_234_567, series[waiting], "%v", series)
		assert.EqualValues(t, 2000, series[due])
		assert.EqualValues(t, 30, series[overdue])
		assert.InDelta(t, time.Since(slot).Seconds(), series[age], 1)

		time.Sleep(5 * time.Minute)
		series = collect(t, reader)
		assert.EqualValues(t, 1000, series[waiting], "%v", series)
		assert.NotContains(t, series, due, "the number is too old")
	})
}

func TestAttachRefusesNothingToAttachTo(t *testing.T) {
	t.Parallel()
	telemetry, err := otel.New(otel.Options{})
	require.NoError(t, err)
	_, err = telemetry.Attach(nil)
	var field *compensator.FieldError
	require.ErrorAs(t, err, &field)
}

const canary = "kanarienvogel"

// Failure: F128
func TestNoSecretOfAnEntryIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, otel.Options{})
	refunds := w.handle("refund", func(context.Context, *compensator.Entry, string) error { return errors.New(canary) }, compensator.HandlerConfig[string]{MaxAttempts: 2,
		Compensate: func(context.Context, *compensator.Entry, string) error {
			return compensator.Permanent(errors.New(canary))
		}})
	mails, err := compensator.HandleBatch(t.Context(), w.c, "mail", func(_ context.Context, items []compensator.Item[string]) []error {
		return []error{compensator.Permanent(errors.New(canary))}
	}, nil)
	require.NoError(t, err)
	secret := compensator.Options{IdempotencyKey: canary, BusinessID: canary, BusinessExtID: canary, UserID: canary, UserName: canary, Headers: map[string]string{canary: canary}}
	refund, _ := w.inRequest(refunds, secret)
	secret.IdempotencyKey += "2"
	mail, _ := w.inRequest(mails, secret)
	w.run()
	w.reaches(refund, compensator.Dead)
	w.reaches(mail, compensator.Dead)
	w.span("compensate refund", 1)
	for _, s := range w.ended.Ended() {
		assert.NotContains(t, s.Name(), canary)
		assert.NotContains(t, s.Status().Description, canary)
		assert.Empty(t, s.Events())
		for key, value := range attributes(s) {
			assert.NotContains(t, string(key)+value, canary)
		}
	}
	for name := range w.series() {
		assert.False(t, strings.Contains(name, canary), name)
	}
}
