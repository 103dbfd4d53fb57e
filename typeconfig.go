package compensator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/features"
	"github.com/compensator-go/compensator/processlog"
)

// TypeConfig holds the settings of a type that must be equal in every process that records or runs entries of the type.
// A process that runs entries puts the TypeConfig into its HandlerConfig or BatchConfig. A process that only records
// entries passes the same TypeConfig to Declare. The zero value works.
type TypeConfig struct {
	Codec Codec         // encodes and decodes the content of a typed handler. Default JSON
	Keep  time.Duration // overrides Config.Keep. A negative value keeps entries forever

	// Serial returns the ordering key of an entry, for example an account id. An empty key means that the entry has no
	// order. Entries of this type with the same key run one at a time, in the order in which they were recorded. Of two
	// entries from different Record calls, the entry with the smaller id runs first. Entries of one call run in the
	// order of the arguments.
	//
	// An entry blocks the later entries of its key until it has ended. So an entry also blocks later entries while it
	// is not due yet, waits for another attempt or is being compensated. A dead entry also blocks later entries, unless
	// PassDead is true.
	//
	// Serial gets the fields that Record stores, except headers. Record and each attempt call Serial, and these calls
	// may run at the same time. Record refuses an entry for which Serial panics. Serial must return the same key each
	// time, and must not block: Run and Close wait for a call that does not return. The key must hold no personal data.
	// A process that records entries of the type but does not run them must call Declare with the same Serial, because
	// Record stores the key. G30 in docs/reference/guarantees.md is the exact promise.
	Serial func(e *Entry) string

	PassDead bool // PassDead lets later entries of an ordering key run although an earlier entry is dead. PassDead needs Serial

	// Limit limits how many entries of this type start in all processes together. Default: no limit.
	Limit Limit

	// RefuseOtherContent makes Record return ErrOtherContent if you record an idempotency key again with other content.
	// The transaction then cannot commit. If RefuseOtherContent is false, the receipt reports the difference, and the
	// library logs it once for each type. A new field in your struct changes the content, even if the event is the
	// same. Do not set RefuseOtherContent with a codec that may encode the same value differently, for example maps in
	// any order.
	RefuseOtherContent bool
}

// HandlerConfig says how this process runs the entries of a type with Handle or HandleTx. T is the Go type of the
// decoded content. The zero value works, and so does a nil *HandlerConfig.
type HandlerConfig[T any] struct {
	TypeConfig

	MaxAttempts int           // number of failed attempts that exhaust an entry. Options.MaxAttempts overrides it. Default 10
	Timeout     time.Duration // maximum duration of one attempt, after which the context of the attempt ends with ErrTimeout. Default 30 s
	// Lease overrides Config.Lease. A running attempt renews its lease until its Timeout. If this process may be unable
	// to renew leases (see docs/how-to/size.md), the library makes the lease longer than Timeout.
	Lease time.Duration
	Retry Retry // wait before the next attempt. Default Exponential(1 s, 10 min): ten attempts then take about four minutes, and 8½ minutes at most
	// MaxWait is an age of the entry. Up to this age, Unavailable, Snooze, undecodable content and an open Breaker cost
	// the entry no attempt. The age of an entry includes Options.Delay. MaxWait also applies to compensations. Default
	// 0: no limit.
	MaxWait time.Duration
	Breaker Breaker // Breaker stops claims of this type in this process while a service that the handler calls is down. Default: no breaker

	// Concurrency is the maximum number of handler calls of this type that run at once in this process. Calls of the
	// compensation count as calls of handlers. Default 50. A type with a transactional handler runs at most
	// MaxOpenConns − 2 calls at once. Make the pool large enough for all types together and for your requests.
	Concurrency int

	// Compensate undoes an entry whose attempts are used up, or whose handler returned Permanent. Compensate runs at
	// least once. Its attempts are counted separately from the attempts of the handler. In the first attempt of
	// Compensate, Entry.LastError is the handler's error. A compensation never runs after a success, unless a person
	// sets RequeueOptions.Compensate. If the content does not decode as T, Compensate cannot run, and the entry waits
	// in the state compensating. This wait costs no attempt until the entry is older than MaxWait.
	Compensate func(ctx context.Context, e *Entry, v T) error

	// CompensateTx undoes an entry in a transaction, exactly once. Every kind of handler can have a CompensateTx. If
	// the compensation must also call a partner, let CompensateTx record another entry for this call. Do not set both
	// Compensate and CompensateTx.
	CompensateTx func(ctx context.Context, tx *ScopedTx, e *Entry, v T) error

	// MaxCompensateAttempts is the number of failed compensations after which the entry is dead and waits for a person.
	// Unavailable and Snooze count as failures only when the entry is older than MaxWait. Default 10.
	MaxCompensateAttempts int

	// CompensateCrashed also compensates an entry whose process died in three consecutive attempts. An attempt whose
	// handler never returns counts like a crash. Without CompensateCrashed, an entry is dead after three crashes and waits
	// for a person, because the handler may have had its effect.
	//
	// If a handler of the entry has not returned in a process, this process cannot run the entry's compensation. Another
	// process must run the compensation.
	CompensateCrashed bool

	// AfterBatch returns the id of the batch that an entry of this type must follow, or "" for none. The batch is all
	// entries that any process has recorded with this id as Options.BatchID. The library calls the handler when all
	// entries of the batch have ended. A dead entry counts as ended, and so does a batch without entries. Until the
	// batch has ended, the library looks again after a pause of an eighth of the entry's age. The pause is at least 500
	// ms and at most a minute. A look costs no attempt.
	//
	// Record the AfterBatch entry in the transaction that records the last entry of the batch. Give the AfterBatch
	// entry an idempotency key, and do not give it the BatchID of the batch. If people must repair dead entries of the
	// batch first, let your handler return Snooze as long as Batch.Progress counts Dead entries. AfterBatch is called
	// concurrently.
	AfterBatch func(e *Entry) (batchID string)

	Middleware []Middleware // Middleware wraps the handler and the compensation of this type
}

// BatchConfig says how this process runs the entries of a type with HandleBatch. The zero value works, and so does a nil
// *BatchConfig.
type BatchConfig[T any] struct {
	TypeConfig

	// BatchSize is the maximum number of entries in one call of the handler. Default 100, at most 500.
	BatchSize int

	// BatchWait is the maximum time for which a due entry waits, unclaimed, for more entries that share its call. While
	// entries wait, the library counts the due entries in the database at intervals. An interval is an eighth of
	// BatchWait, but at least 10 ms and at most 250 ms. The library starts a call when it counts BatchSize entries. The
	// wait of an entry begins when the entry is due, even if no process runs at that time. BatchWait must not exceed
	// the Lease of the type. Default 0 (no wait).
	BatchWait time.Duration

	// Concurrency is the number of calls that run at once in this process. Each call takes up to BatchSize entries.
	// Calls of the compensation count as calls of handlers. Default 4.
	Concurrency int

	// HandlerConfig describes each of the following fields in full.

	MaxAttempts           int                                                          // number of failed attempts that exhaust an entry. Default 10
	Timeout               time.Duration                                                // maximum duration of one call. Default 30 s
	Lease                 time.Duration                                                // overrides Config.Lease
	Retry                 Retry                                                        // wait before the next attempt. Default Exponential(1 s, 10 min)
	MaxWait               time.Duration                                                // age of an entry up to which Unavailable and Snooze do not count as failed attempts. Default 0: no limit
	Breaker               Breaker                                                      // Breaker stops claims of this type in this process while a service that the handler calls is down. Default: no breaker
	Compensate            func(ctx context.Context, e *Entry, v T) error               // Compensate undoes one entry. It may be called again for the same entry
	CompensateTx          func(ctx context.Context, tx *ScopedTx, e *Entry, v T) error // CompensateTx undoes one entry exactly once, in a transaction. Do not set Compensate as well
	MaxCompensateAttempts int                                                          // number of failed compensations after which a person is needed. Default 10
	CompensateCrashed     bool                                                         // CompensateCrashed also compensates an entry whose process died in three consecutive attempts

	Middleware      []Middleware      // Middleware wraps the compensation of this type
	BatchMiddleware []BatchMiddleware // BatchMiddleware wraps the batch handler of this type
}

type settings struct {
	TypeConfig
	batch          bool
	maxAttempts    int
	timeout, lease time.Duration
	retry          Retry
	maxWait        time.Duration
	concurrency    int
	breaker        Breaker

	compensate            HandlerFunc
	compensateTx          txHandlerFunc
	maxCompensateAttempts int
	compensateCrashed     bool

	afterBatch func(e *Entry) string
	batchSize  int
	batchWait  time.Duration

	middleware      []Middleware
	batchMiddleware []BatchMiddleware
}

func (cfg *HandlerConfig[T]) settings() settings {
	if cfg == nil {
		cfg = new(HandlerConfig[T])
	}
	s := settings{TypeConfig: cfg.TypeConfig,
		maxAttempts: cfg.MaxAttempts, timeout: cfg.Timeout, lease: cfg.Lease, retry: cfg.Retry, maxWait: cfg.MaxWait,
		concurrency: cfg.Concurrency, breaker: cfg.Breaker, maxCompensateAttempts: cfg.MaxCompensateAttempts, compensateCrashed: cfg.CompensateCrashed,
		afterBatch: cfg.AfterBatch, middleware: cfg.Middleware}
	setDefault(&s.concurrency, 50)
	s.compensate, s.compensateTx = typedCompensations(cfg.Compensate, cfg.CompensateTx)
	return s
}

func (cfg *BatchConfig[T]) settings() settings {
	if cfg == nil {
		cfg = new(BatchConfig[T])
	}
	s := settings{TypeConfig: cfg.TypeConfig, batch: true,
		maxAttempts: cfg.MaxAttempts, timeout: cfg.Timeout, lease: cfg.Lease, retry: cfg.Retry, maxWait: cfg.MaxWait,
		concurrency: cfg.Concurrency, breaker: cfg.Breaker, maxCompensateAttempts: cfg.MaxCompensateAttempts, compensateCrashed: cfg.CompensateCrashed,
		batchSize: cfg.BatchSize, batchWait: cfg.BatchWait, middleware: cfg.Middleware, batchMiddleware: cfg.BatchMiddleware}
	setDefault(&s.concurrency, batchConcurrency)
	setDefault(&s.batchSize, 100)
	s.compensate, s.compensateTx = typedCompensations(cfg.Compensate, cfg.CompensateTx)
	return s
}

func typedCompensations[T any](plain func(context.Context, *Entry, T) error, inTx func(context.Context, *ScopedTx, *Entry, T) error) (undo HandlerFunc, undoTx txHandlerFunc) {
	if plain != nil {
		undo = typed(plain)
	}
	if inTx != nil {
		undoTx = typedTx(inTx)
	}
	return undo, undoTx
}

// batchConcurrency is the default Concurrency of HandleBatch. The default is low, because every entry of every running
// batch loses a lease if the process dies.
const batchConcurrency = 4

// Breaker stops the claims of a type in this process while a service that the handler calls is down. The breaker opens
// when too many of the latest entries ended with Unavailable or took longer than HandlerConfig.Timeout. Calls of
// handlers and of compensations count. Of several calls for one entry, only the latest counts. While the breaker is
// open, waiting entries spend no attempt. Other types continue.
//
// After a pause the library runs only the entry that has been due longest. If this entry ends with Unavailable or a
// timeout, the pause begins again. Otherwise the breaker closes. A call with a batch counts as failed in two cases:
// every entry of the batch got Unavailable, or the call returned an error after its timeout. Each Run starts with a
// closed breaker. The zero value means no breaker. If you set any field of a Breaker, the other fields get their
// defaults.
//
// For an entry that is older than MaxWait, Unavailable and a timeout cost an attempt. The breaker does not count these
// calls as failures. There is one exception: if the handler has not returned one second after its timeout, the breaker
// counts a failure.
type Breaker struct {
	// Of is the number of latest entries that the breaker considers. The breaker cannot open before this number of
	// entries has ended. Default 20, at most 1000.
	Of int
	// Share is a fraction of the entries that the breaker considers. The breaker opens when at least this fraction of
	// the entries has failed. Above 0 and at most 1, default 0.5.
	Share float64
	// Pause is the length of the first pause. If the entry that runs after a pause fails, the next pause is twice as
	// long, up to a minute. The library adds a random time of up to half of the pause. Default 5 s, at least 1 ms.
	Pause time.Duration
}

func (b *Breaker) setDefaults() {
	if *b == (Breaker{}) {
		return
	}
	setDefault(&b.Of, 20)
	setDefault(&b.Share, 0.5)
	setDefault(&b.Pause, 5*time.Second)
}

func (b Breaker) validate() (problems []error) {
	if b == (Breaker{}) {
		return nil
	}
	if b.Of < 1 || b.Of > 1000 {
		problems = append(problems, &FieldError{Field: "Breaker.Of", Reason: fmt.Sprintf("%d is not between 1 and 1000", b.Of)})
	}
	if !(b.Share > 0 && b.Share <= 1) { // This condition is also true if Share is NaN.
		problems = append(problems, &FieldError{Field: "Breaker.Share", Reason: fmt.Sprintf("%v is not more than 0 and at most 1", b.Share)})
	}
	if reason := spanProblem(b.Pause, time.Millisecond); reason != "" {
		problems = append(problems, &FieldError{Field: "Breaker.Pause", Reason: reason})
	}
	return problems
}

// Limit limits how many entries of a type start in a period of time, and how many run at once, in all processes
// together. Set Rate, Concurrent, or both. The zero value means no limit.
//
// An entry needs a permit to start. The transaction that claims entries takes a permit for each of them, by the
// database's clock. An entry without a permit gets no lease, stays in the log until a later claim, and spends no
// attempt. A permit ends when the entry's lease ends. G41 in docs/reference/guarantees.md is the exact promise.
//
// Every attempt of a handler counts as a start, and so does every attempt of a compensation. Types with the same
// Limit.Of must have the same Limit in all processes. Limits need the table of limits, which Migrate creates. Limits do
// not work with HandleBatch. The functions that register a type return a *FieldError for wrong values. All functions
// that register a type, except Declare and DeclareResult, also return a *FieldError if the table of limits is missing.
type Limit struct {
	// Rate is the number of starts in a period of time, for example PerSecond(20). The zero Rate does not limit starts.
	Rate Rate

	// Burst is the number of entries that may start at the same moment after a time with no starts. Default 1. With a
	// Burst of 1, fewer entries start than Rate allows, because claims come a little late. To reach the whole Rate, set
	// Burst to at least 2. At most 1,000,000. Burst needs a Rate.
	Burst int

	// Concurrent is the maximum number of entries that run at once, from the claim to the stored outcome. 0 means any
	// number. At most 1000.
	Concurrent int

	// Key returns the limit key of an entry, for example a tenant or a partner. The limit applies to each key
	// separately. An entry with the key "" is not limited. If Key is nil, one limit applies to all entries together.
	// Key gets the fields that Record stores, except headers. Key is called concurrently. Key must return the same
	// value for an entry in each call. Key must not block, because Run and Close wait for a call that does not return.
	// The key must hold no personal data.
	Key func(e *Entry) string

	// Of is the name of the limit. Types with the same name in this field share one limit. By default, the limit has
	// the name of the type.
	Of string
}

// Rate is a number of starts in a period of time. In a Limit, the zero Rate means no rate.
type Rate struct {
	Starts int           // number of starts, at least 1
	Per    time.Duration // period, 1 ms to a year
}

// PerSecond returns a rate of n starts a second. n must be at least 1. The function that registers the type returns a
// *FieldError for any other n.
func PerSecond(n int) Rate { return Rate{Starts: n, Per: time.Second} }

func (r Rate) interval() time.Duration {
	if r.Starts <= 0 {
		return 0
	}
	return (r.Per + time.Duration(r.Starts) - 1) / time.Duration(r.Starts)
}

func (l *Limit) values() processlog.LimitValues {
	return processlog.LimitValues{Interval: l.Rate.interval(), Burst: l.Burst, Concurrent: l.Concurrent}
}

func (l *Limit) isSet() bool {
	return l.Rate != (Rate{}) || l.Burst != 0 || l.Concurrent != 0 || l.Key != nil || l.Of != ""
}

func (l *Limit) problems() (problems []error) {
	refuse := func(bad bool, field, format string, args ...any) {
		if bad {
			problems = append(problems, &FieldError{Field: "Limit" + field, Reason: fmt.Sprintf(format, args...)})
		}
	}
	if !l.isSet() {
		return nil
	}
	rated := l.Rate != (Rate{})
	refuse(!rated && l.Concurrent == 0, "", "has neither Rate nor Concurrent")
	refuse(rated && l.Rate.Starts < 1, ".Rate", "%d starts: want at least 1", l.Rate.Starts)
	refuse(rated && (l.Rate.Per < time.Millisecond || l.Rate.Per > processlog.MaxBurstTime), ".Rate", "is for %v: want 1ms to a year", l.Rate.Per)
	refuse(!rated && l.Burst != 0, ".Burst", "is for limits with a Rate")
	for _, p := range l.values().Problems() {
		refuse(true, "."+p.Field, "%s", p.Reason)
	}
	if l.Of != "" && validateType(l.Of) != nil {
		refuse(true, ".Of", "%q is not the name of a limit: want 1 to %d characters, as in a business type", l.Of, processlog.MaxName)
	}
	return problems
}

// settings returns the zero value if no limit is set.
func (l *Limit) settings(c *Compensator, businessType string, codec Codec) features.Limit {
	if !l.isSet() {
		return features.Limit{}
	}
	s := features.Limit{Name: cmp.Or(l.Of, businessType), Interval: l.Rate.interval(), Concurrent: l.Concurrent}
	if s.Interval > 0 {
		s.Burst = max(1, l.Burst)
	}
	if key := l.Key; key != nil {
		s.Key = func(row *processlog.Row) string { return key(c.handlerEntry(row, codec)) }
	}
	return s
}

func (cfg TypeConfig) withDefaults(of Config) TypeConfig {
	setDefault(&cfg.Keep, of.Keep)
	if cfg.Codec == nil {
		cfg.Codec = JSON
	}
	return cfg
}

func (s settings) withDefaults(of Config) settings {
	s.TypeConfig = s.TypeConfig.withDefaults(of)
	setDefault(&s.maxAttempts, 10)
	setDefault(&s.timeout, 30*time.Second)
	setDefault(&s.lease, of.Lease)
	setDefault(&s.maxCompensateAttempts, 10)
	s.breaker.setDefaults()
	if s.retry == nil {
		s.retry = Exponential(time.Second, 10*time.Minute)
	}
	return s
}

func (cfg TypeConfig) problems() (problems []error) {
	if reason := keepProblem(max(0, cfg.Keep)); reason != "" {
		problems = append(problems, &FieldError{Field: "Keep", Reason: reason})
	}
	if cfg.PassDead && cfg.Serial == nil {
		problems = append(problems, &FieldError{Field: "PassDead", Reason: "is for types that have Serial"})
	}
	return append(problems, cfg.Limit.problems()...)
}

func (s settings) validate() error {
	problems := s.TypeConfig.problems()
	atLeastOne := func(field string, n int) {
		if n < 1 {
			problems = append(problems, &FieldError{Field: field, Reason: fmt.Sprintf("%d is less than 1", n)})
		}
	}
	atLeastOne("MaxAttempts", s.maxAttempts)
	atLeastOne("Concurrency", s.concurrency)
	atLeastOne("MaxCompensateAttempts", s.maxCompensateAttempts)
	atLeast := func(field string, d, least time.Duration) {
		if reason := spanProblem(d, least); reason != "" {
			problems = append(problems, &FieldError{Field: field, Reason: reason})
		}
	}
	atLeast("Timeout", s.timeout, time.Millisecond)
	atLeast("Lease", s.lease, time.Second)
	atLeast("MaxWait", s.maxWait, 0)
	if s.compensate != nil && s.compensateTx != nil {
		problems = append(problems, &FieldError{Field: "CompensateTx", Reason: "and Compensate are both given: want one"})
	}
	return errors.Join(slices.Concat(problems, s.breaker.validate(), s.batchProblems())...)
}

func (s settings) batchProblems() (problems []error) {
	refuse := func(bad bool, field, format string, args ...any) {
		if bad {
			problems = append(problems, &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
		}
	}
	if !s.batch {
		return nil
	}
	refuse(s.Limit.isSet(), "Limit", "is for handlers of single entries: one call with a batch would be many starts")
	refuse(s.batchSize < 1 || s.batchSize > processlog.MaxRows, "BatchSize", "%d: want 1 to %d, what one claim brings", s.batchSize, processlog.MaxRows)
	refuse(s.batchWait < 0, "BatchWait", "%v is less than 0", s.batchWait)
	refuse(s.batchWait > s.lease, "BatchWait", "%v is more than the Lease, %v: no entry is to wait longer for others than after a crash", s.batchWait, s.lease)
	refuse(s.batchWait > 0 && s.batchSize == 1, "BatchWait", "is of no use with a BatchSize of 1")
	return problems
}
