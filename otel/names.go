package otel

import "go.opentelemetry.io/otel/attribute"

// Names that start with messaging follow the OpenTelemetry conventions, which are still in development. Names that
// start with compensator are the library's own.
const (
	scope     = "github.com/compensator-go/compensator/otel"
	schemaURL = "https://opentelemetry.io/schemas/1.43.0"

	processDuration  = "messaging.process.duration"
	sentMessages     = "messaging.client.sent.messages"
	consumedMessages = "messaging.client.consumed.messages"

	entryLateness      = "compensator.entry.lateness"
	entrySettled       = "compensator.entry.settled"
	entryWaiting       = "compensator.entry.waiting"
	entryDue           = "compensator.entry.due"
	entryOverdue       = "compensator.entry.overdue"
	entryOldestOverdue = "compensator.entry.oldest_overdue"
	backlogAge         = "compensator.backlog.age"
	attemptActive      = "compensator.attempt.active"
	attemptDropped     = "compensator.attempt.dropped"
	attemptStuck       = "compensator.attempt.stuck"
	breakerOpen        = "compensator.breaker.open"
	limitWaiting       = "compensator.limit.waiting"
	limitNextStart     = "compensator.limit.next_start"
	typePaused         = "compensator.type.paused"
	queueUp            = "compensator.queue.up"
	instanceCount      = "compensator.instances"
	ready              = "compensator.ready"
	reconcileEnqueued  = "compensator.reconcile.announced"
	reconcilePolled    = "compensator.reconcile.polled"
	caseOpen           = "compensator.case.open"
	caseAtRisk         = "compensator.case.value_at_risk_major"
	casePastDue        = "compensator.case.past_due"

	system              = "compensator"
	operationRecord     = "record"
	operationProcess    = "process"
	operationCompensate = "compensate"
)

const (
	keySystem        = attribute.Key("messaging.system")
	keyOperation     = attribute.Key("messaging.operation.name")
	keyOperationType = attribute.Key("messaging.operation.type")
	keyType          = attribute.Key("messaging.destination.name")
	keyMessageID     = attribute.Key("messaging.message.id")
	keyMessageCount  = attribute.Key("messaging.batch.message_count")
	keyErrorType     = attribute.Key("error.type")

	keyState   = attribute.Key("compensator.state")
	keyEndedBy = attribute.Key("compensator.ended_by")
	keyAttempt = attribute.Key("compensator.attempt")
	keyEpoch   = attribute.Key("compensator.epoch")
	keyBatchID = attribute.Key("compensator.batch_id")
	keyLog     = attribute.Key("compensator.log")

	keyInstance = attribute.Key("compensator.instance.state")

	keyCurrency = attribute.Key("compensator.currency")
	keyKind     = attribute.Key("compensator.case.kind")
)

// The constant other is reported in place of a name that Telemetry does not report. OpenTelemetry's conventions define
// this text.
const other = "_OTHER"

// These are the bounds of histogram buckets in seconds. The duration buckets come from the OpenTelemetry conventions.
var (
	durationBuckets = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}
	latenessBuckets = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200, 21600, 86400}
)
