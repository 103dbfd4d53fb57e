package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/compensator-go/compensator/observe"
)

type instruments struct {
	duration, lateness               metric.Float64Histogram
	sent, consumed, settled, dropped metric.Int64Counter
	enqueued, polled                 metric.Int64Counter
	active                           metric.Int64UpDownCounter
}

func (m *instruments) createInstruments(meter metric.Meter) error {
	var problems []error
	histogram := func(name, description string, buckets []float64) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithDescription(description), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets...))
		problems = append(problems, err)
		return h
	}
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithDescription(description), metric.WithUnit(unit))
		problems = append(problems, err)
		return c
	}
	m.duration = histogram(processDuration, "Duration of a call of a handler or a compensation, without the COMMIT of its transaction. A batch is one call.", durationBuckets)
	m.lateness = histogram(entryLateness, "Time from an entry's due time to the start of its attempt, by the database's clock at the claim. Each attempt is one value.", latenessBuckets)
	m.sent = counter(sentMessages, "{message}", "Number of entries that Record wrote, including those whose transaction was rolled back. Duplicates do not count.")
	m.consumed = counter(consumedMessages, "{message}", "Number of attempts that started.")
	m.settled = counter(entrySettled, "{entry}", "Number of stored outcomes, by the new state of the entry. A failed attempt has the state retrying.")
	m.dropped = counter(attemptDropped, "{attempt}", "Number of outcomes that were dropped, because somebody else had changed the entry meanwhile.")
	m.enqueued = counter(reconcileEnqueued, "{entry}", "Number of entries that the reconciler enqueued. The queue may have had the entries already, so this metric does not show a loss.")
	m.polled = counter(reconcilePolled, "{entry}", "Number of entries that the reconciler claimed from the database. If this counter grows for long with a healthy queue, the queue loses entries.")
	var err error
	m.active, err = meter.Int64UpDownCounter(attemptActive, metric.WithDescription("Number of attempts that run now."), metric.WithUnit("{attempt}"))
	return errors.Join(append(problems, err)...)
}

// labels leaves out empty attributes.
type labels struct{ log, operation, businessType, errorType, state, endedBy, currency, instance, kind string }

// options are built once for a set of attributes, so that counting allocates nothing.
type options struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
}

func (t *Telemetry) options(set labels) options {
	set.log = t.opts.Log
	return t.labels.valueFor(set, newOptions)
}

func newOptions(l labels) options {
	var attributes []attribute.KeyValue
	if l.operation != "" {
		attributes = append(attributes, keySystem.String(system), keyOperation.String(l.operation))
	}
	for key, value := range map[attribute.Key]string{keyLog: l.log, keyType: l.businessType, keyErrorType: l.errorType, keyState: l.state, keyEndedBy: l.endedBy, keyCurrency: l.currency, keyInstance: l.instance, keyKind: l.kind} {
		if value != "" {
			attributes = append(attributes, key.String(value))
		}
	}
	option := metric.WithAttributeSet(attribute.NewSet(attributes...))
	return options{add: []metric.AddOption{option}, record: []metric.RecordOption{option}, observe: []metric.ObserveOption{option}}
}

// Observer returns an Observer that counts events. To combine it with your own, see observe.Observers.
func (t *Telemetry) Observer() observe.Observer {
	return observe.Observer{
		Recorded: t.countRecorded, AttemptStarted: t.countStarted, AttemptEnded: t.countEnded,
		Settled: t.countSettled, OutcomeDropped: t.countDropped, Reconciled: t.countReconciled,
	}
}

func (t *Telemetry) countRecorded(e observe.RecordedEvent) {
	businessType, _ := t.recordedTypes.canonical(e.BusinessType)
	t.metrics.sent.Add(e.Context, 1, t.options(labels{operation: operationRecord, businessType: businessType}).add...)
}

func (t *Telemetry) countStarted(e observe.AttemptEvent) {
	businessType, fresh := t.runTypes.canonical(e.BusinessType)
	ofType := t.options(labels{businessType: businessType})
	if fresh { // Start the series at 0, because a rate function ignores the first value of a new series.
		t.metrics.dropped.Add(e.Context, 0, ofType.add...)
	}
	operation := operationProcess
	if e.Compensation {
		operation = operationCompensate
	}
	t.metrics.active.Add(e.Context, 1, ofType.add...)
	t.metrics.consumed.Add(e.Context, 1, t.options(labels{operation: operation, businessType: businessType}).add...)
	t.metrics.lateness.Record(e.Context, max(0, e.Late.Seconds()), ofType.record...)
}

func (t *Telemetry) countEnded(e observe.AttemptEvent) {
	businessType, _ := t.runTypes.canonical(e.BusinessType)
	t.metrics.active.Add(e.Context, -1, t.options(labels{businessType: businessType}).add...)
}

func (t *Telemetry) countSettled(e observe.SettledEvent) {
	businessType, _ := t.runTypes.canonical(e.BusinessType)
	t.metrics.settled.Add(e.Context, 1,
		t.options(labels{businessType: businessType, state: e.State.String(), endedBy: string(e.EndedBy)}).add...)
}

func (t *Telemetry) countDropped(e observe.SettledEvent) {
	businessType, _ := t.runTypes.canonical(e.BusinessType)
	t.metrics.dropped.Add(e.Context, 1, t.options(labels{businessType: businessType, endedBy: string(e.EndedBy)}).add...)
}

func (t *Telemetry) countReconciled(e observe.ReconciledEvent) {
	ofLog := t.options(labels{}).add
	t.metrics.enqueued.Add(context.Background(), int64(e.Enqueued), ofLog...)
	t.metrics.polled.Add(context.Background(), int64(e.Polled), ofLog...)
}
