package oteltest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/otel"
)

// live lets entries of all kinds live, until each metric has something to tell.
func (w *world) live() {
	ctx, t := w.T.Context(), w.T
	ok := func(context.Context, *compensator.Entry, string) error { return nil }
	fails := func(context.Context, *compensator.Entry, string) error { return errors.New("503") }
	orders, err := compensator.HandleTx(w.c, "close_order", func(context.Context, *compensator.ScopedTx, *compensator.Entry, string) error { return nil }, compensator.TypeConfig{})
	require.NoError(t, err)
	mails, err := compensator.HandleBatch(w.c, "mail", func(context.Context, []compensator.Item[string]) []error { return nil }, compensator.TypeConfig{})
	require.NoError(t, err)
	refunds := w.handle("refund", fails, compensator.TypeConfig{MaxProcessCount: 2})
	ships := w.handle("ship", fails, compensator.TypeConfig{MaxProcessCount: 1, Compensate: func(context.Context, *compensator.Entry) error { return nil }})
	down := w.handle("down", func(context.Context, *compensator.Entry, string) error {
		return compensator.Unavailable(errors.New("no route"))
	},
		compensator.TypeConfig{Breaker: compensator.Breaker{Of: 1}})
	later := w.handle("later", ok, compensator.TypeConfig{})
	elsewhere, err := compensator.Declare[string](w.c, "elsewhere", compensator.TypeConfig{})
	require.NoError(t, err)

	deaf, overtaken := harness.NewGate(), harness.NewGate()
	stuck := w.handle("stuck", func(_ context.Context, e *compensator.Entry, _ string) error { return deaf.PassDeaf(e) }, compensator.TypeConfig{Timeout: 10 * time.Millisecond})
	dropped := w.handle("dropped", func(_ context.Context, e *compensator.Entry, _ string) error { return overtaken.PassDeaf(e) }, compensator.TypeConfig{})

	w.record(ctx, elsewhere, compensator.Options{})
	w.record(ctx, later, compensator.Options{Delay: time.Hour})
	w.record(ctx, stuck, compensator.Options{})
	w.record(ctx, down, compensator.Options{})
	for range 3 {
		w.record(ctx, mails, compensator.Options{})
	}
	closed, refused, undone := w.record(ctx, orders, compensator.Options{}), w.record(ctx, refunds, compensator.Options{}), w.record(ctx, ships, compensator.Options{})
	w.record(ctx, orders, compensator.Options{IdempotentID: "close-42"})
	w.record(ctx, orders, compensator.Options{IdempotentID: "close-42"}) // a repetition is nothing recorded
	w.run()
	deaf.OpenAtEnd(t) // before Run is told to stop
	late := w.record(ctx, dropped, compensator.Options{})
	overtaken.Await(t)
	_, err = w.c.Cancel(ctx, late)
	require.NoError(t, err)
	overtaken.Open()
	w.reaches(closed, compensator.Succeeded)
	w.reaches(refused, compensator.Dead)
	w.reaches(undone, compensator.Compensated)
	w.Eventually(func() bool {
		health := w.c.Health(ctx)
		return len(health.Stuck) == 1 && len(health.UnknownTypes) == 1 && len(health.OpenBreakers) == 1
	}, "one is stuck, one of a type that nobody has, one breaker open")
}

func TestMetricsTellTheLivesOfEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, otel.Options{})
	w.live()
	_, err := w.DB.Exec("UPDATE common_process_log_case SET due_at=due_at-2*86400000") // the default is a day
	require.NoError(t, err)
	w.Eventually(func() bool { return w.series()["compensator.attempt.dropped{messaging.destination.name=dropped}"] == 1 }, "dropped")
	w.Eventually(func() bool {
		s := w.series()
		return s["compensator.attempt.active{messaging.destination.name=mail}"] == 0 &&
			s["compensator.entry.settled{compensator.ended_by=handler,compensator.state=succeeded,messaging.destination.name=mail}"] == 3
	}, "all mails sent")
	s := w.series()
	for name, want := range map[string]float64{
		"messaging.client.sent.messages{messaging.destination.name=close_order,messaging.operation.name=record,messaging.system=compensator}":           2,
		"messaging.client.sent.messages{messaging.destination.name=later,messaging.operation.name=record,messaging.system=compensator}":                 1,
		"messaging.client.consumed.messages{messaging.destination.name=refund,messaging.operation.name=process,messaging.system=compensator}":           2,
		"messaging.client.consumed.messages{messaging.destination.name=ship,messaging.operation.name=compensate,messaging.system=compensator}":          1,
		"messaging.process.duration{error.type=failed,messaging.destination.name=refund,messaging.operation.name=process,messaging.system=compensator}": 2,
		"messaging.process.duration{messaging.destination.name=ship,messaging.operation.name=compensate,messaging.system=compensator}":                  1,
		"messaging.process.duration{messaging.destination.name=close_order,messaging.operation.name=process,messaging.system=compensator}":              2,
		"compensator.entry.lateness{messaging.destination.name=mail}":                                                                                   3,
		"compensator.entry.settled{compensator.state=retrying,messaging.destination.name=refund}":                                                       1,
		"compensator.entry.settled{compensator.ended_by=exhausted,compensator.state=dead,messaging.destination.name=refund}":                            1,
		"compensator.entry.settled{compensator.state=compensating,messaging.destination.name=ship}":                                                     1,
		"compensator.entry.settled{compensator.ended_by=handler,compensator.state=compensated,messaging.destination.name=ship}":                         1,
		"compensator.entry.settled{compensator.ended_by=handler,compensator.state=succeeded,messaging.destination.name=close_order}":                    2,
		"compensator.entry.waiting{compensator.state=dead,messaging.destination.name=refund}":                                                           1,
		"compensator.entry.waiting{compensator.state=pending,messaging.destination.name=later}":                                                         1,
		"compensator.attempt.stuck{messaging.destination.name=stuck}":                                                                                   1,
		"compensator.breaker.open{messaging.destination.name=down}":                                                                                     1,
		"compensator.attempt.dropped{messaging.destination.name=mail}":                                                                                  0,
		"compensator.attempt.active{messaging.destination.name=refund}":                                                                                 0,
		"compensator.case.open{messaging.destination.name=refund}":                                                                                      1,
		"compensator.case.value_at_risk{compensator.currency=CNY}":                                                                                      12900,
		"compensator.queue.up{}": 1,
		"compensator.ready{}":    1,
	} {
		got, there := s[name]
		assert.Truef(t, there, "%s", name)
		assert.Equalf(t, want, got, "%s", name)
	}
	assert.Greater(t, s["compensator.case.past_due{}"], 86000.)
	assert.Positive(t, s["compensator.entry.oldest_overdue{messaging.destination.name=elsewhere}"])
	assert.Contains(t, s, "compensator.reconcile.polled{}")
	assert.Contains(t, s, "compensator.reconcile.announced{}")
	if t.Failed() {
		for name, value := range s {
			t.Log(name, value)
		}
	}
}

// unbounded is telemetry whose series nobody else bounds.
func unbounded(t *testing.T) (*otel.Telemetry, *sdkmetric.ManualReader) {
	reader := sdkmetric.NewManualReader()
	telemetry, err := otel.New(otel.Options{ErrorType: func(err error) string { return err.Error() },
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithCardinalityLimit(0))})
	require.NoError(t, err)
	return telemetry, reader
}

func TestOddValuesMakeABoundedNumberOfSeries(t *testing.T) {
	t.Parallel()
	telemetry, reader := unbounded(t)
	o, ctx := telemetry.Observer(), t.Context()
	for i := range 100_000 {
		odd := fmt.Sprintf("odd-%d", i)
		attempted := compensator.AttemptEvent{Context: ctx, BusinessType: odd, IdempotentID: compensator.IdempotentID(odd), BusinessID: odd, Attempt: i, Err: errors.New(odd)}
		settled := compensator.SettledEvent{Context: ctx, BusinessType: odd, IdempotentID: compensator.IdempotentID(odd), BusinessID: odd, Attempt: i}
		switch i % 5 { // so that those of each kind are more than there is room for
		case 0:
			o.Recorded(compensator.RecordedEvent{Context: ctx, BusinessType: odd, IdempotentID: compensator.IdempotentID(odd), BusinessID: odd})
		case 1:
			o.AttemptStarted(attempted)
			o.AttemptEnded(attempted)
		case 2:
			o.Settled(settled)
		case 3:
			o.OutcomeDropped(settled)
		case 4:
			handler := telemetry.Middleware(func(context.Context, *compensator.Entry) error { return attempted.Err })
			_ = handler(ctx, &compensator.Entry{BusinessType: fmt.Sprint("type-", i%2), IdempotentID: compensator.IdempotentID(odd), Content: []byte(odd)})
		}
	}
	byMetric := make(map[string]int)
	for name := range collect(t, reader) {
		metric, _, _ := strings.Cut(name, "{")
		byMetric[metric]++
	}
	assert.Equal(t, 201, byMetric["messaging.client.sent.messages"], "200, and _OTHER")
	for metric, n := range byMetric {
		assert.LessOrEqual(t, n, 201, metric)
	}
	assert.Greater(t, byMetric["messaging.process.duration"], 32)
	assert.LessOrEqual(t, byMetric["messaging.process.duration"], 3*33, "three types, and 32 errors and _OTHER")
	assert.Len(t, byMetric, 7)
}

// TestTypesThatOnlyAreRecordedTakeNoPlaceFromThoseThatRun: what is recorded here may come from anywhere.
func TestTypesThatOnlyAreRecordedTakeNoPlaceFromThoseThatRun(t *testing.T) {
	t.Parallel()
	telemetry, reader := unbounded(t)
	observer := telemetry.Observer()
	for i := range 300 {
		observer.Recorded(compensator.RecordedEvent{Context: t.Context(), BusinessType: fmt.Sprint(i)})
	}
	observer.AttemptStarted(compensator.AttemptEvent{Context: t.Context(), BusinessType: "refund"})
	assert.Contains(t, collect(t, reader), "compensator.attempt.active{messaging.destination.name=refund}")
}
