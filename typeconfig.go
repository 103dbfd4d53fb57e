package compensator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// TypeConfig says how the entries of one type are run. The zero value works.
type TypeConfig struct {
	MaxProcessCount int           // number of failed attempts that exhaust an entry. Options.MaxProcessCount overrides it. Default 10
	Timeout         time.Duration // maximum duration of one attempt. Its context then ends with ErrTimeout. Default 30 s
	Lease           time.Duration // overrides Config.Lease. A running attempt renews it until its Timeout. Where it cannot be renewed (see docs/how-to/size.md), it is raised above Timeout
	Retry           Retry         // wait before the next attempt. Default Exponential(1 s, 10 min): ten attempts take about four minutes, and 8½ at most
	MaxWait         time.Duration // age of an entry, its Delay included, up to which Unavailable, Snooze, undecodable content and an open Breaker cost it no attempt. This holds for compensations, too. Default 0: no limit
	Keep            time.Duration // overrides Config.Keep; negative: keep forever
	Codec           Codec         // encodes and decodes the content of a typed handler. Default JSON

	// Concurrency is the number of handler calls that run at once in this process. With HandleBatch each call takes up
	// to BatchSize entries. Compensations count, too. Default 50, with HandleBatch 4. For transactional handlers it is
	// at most MaxOpenConns − 2 of the pool. This bound is per type, so size the pool for all types together and for
	// your requests.
	Concurrency int

	// BatchSize and BatchWait are for HandleBatch only. BatchSize is the maximum number of entries of a call. Default
	// 100, at most 500. BatchWait is how long a due entry may wait, unclaimed, for others to fill its batch. Once
	// BatchSize entries wait, the batch starts with the next look into the database. These looks come every eighth of
	// BatchWait, and every 250 ms at least. Starting Run does not end a wait. Default 0 (no wait), at most the Lease of
	// the type.
	BatchSize int
	BatchWait time.Duration

	// Compensate undoes an entry whose attempts are used up, or whose handler returned Permanent. It runs at least once,
	// with its own number of attempts. Its first attempt finds the handler's error in Entry.LastError. It never runs
	// after a success, unless a person asks for it with RequeueOptions.Compensate.
	//
	// Use Typed to get the decoded value, with the same T as the handler. The compiler does not check this T. If the
	// content does not decode as T, the entry stays compensating, and spends no attempt until MaxWait has passed.
	//
	// CompensateTx undoes in a transaction instead, exactly once. It fits every kind of handler. If it must also call a
	// partner, it records an entry for that call.
	Compensate         HandlerFunc
	CompensateTx       TxHandlerFunc
	MaxCompensateCount int // number of failed compensations after which a person is needed. After MaxWait, Unavailable and Snooze count as failures. Default 10

	// CompensateCrashed also compensates an entry whose process died in three consecutive attempts. Without it such an
	// entry is left to a person. It is unknown whether the effect of such an entry happened. A process whose handler is
	// stuck on the entry leaves the compensation to other processes.
	CompensateCrashed bool

	// AfterBatch returns the id of the batch that an entry of this type must follow, or "" for none. The handler is
	// called when all entries recorded with that BatchID have ended, dead ones included, in any process. An empty batch
	// has ended. Until then the entry is snoozed at no cost, each time for an eighth of its age, between 500 ms and a
	// minute.
	//
	// Record the entry in the transaction that records the last entry of the batch. Give it an idempotency key, and do
	// not make it a member of the batch. A handler that must wait for people returns Snooze while BatchProgress counts
	// Dead entries. AfterBatch is called concurrently. It cannot be used with HandleBatch.
	AfterBatch func(e *Entry) (batchID string)

	// Serial returns the ordering key of an entry, for example an account id. "" means no key. Entries of this type with
	// the same key run one at a time, in the order in which they were recorded. Entries of one Record call run in the
	// given order. Entries of several calls run in the order of their ids.
	//
	// An entry blocks the later ones of its key until it has ended. It blocks them while it retries, is snoozed, is
	// being compensated, or is not due yet. It also blocks them while it is dead, unless PassDead is true.
	//
	// Serial gets the entry as it was recorded, without headers. Record calls it, and so does each attempt,
	// concurrently. Record refuses an entry for which Serial panics. Serial must return the same key each time. The key
	// must hold no personal data. Declare the type wherever it is recorded. See G30 in docs/reference/guarantees.md.
	Serial   func(e *Entry) string
	PassDead bool

	Breaker Breaker // stops claims of this type in this process while a service that its handler needs is down. Default: none

	// RefuseOtherContent makes Record return ErrOtherContent if an idempotency key comes again with other content. The
	// transaction then cannot commit. Without it the receipt reports the difference, and the log reports it once for
	// each type. A new field in a struct also changes the content of the same event. A codec that encodes a value in
	// several ways, for example with maps in any order, never matches.
	RefuseOtherContent bool

	Middleware      []Middleware      // wraps the handler (not a batch handler) and the compensation of this type
	BatchMiddleware []BatchMiddleware // wraps the batch handler of this type
}

// batchConcurrency is the default Concurrency of HandleBatch. A claim then takes up to 500 entries. Their contents are
// held in memory, and each entry loses a lease when the process dies.
const batchConcurrency = 4

// Breaker stops the claims of a type in this process while a service is down. It opens when too many of the latest
// entries were answered with Unavailable, or not within TypeConfig.Timeout. Handlers and compensations count, and each
// entry counts once. An open breaker costs the waiting entries nothing. Other types continue.
//
// After a pause the entry that has been due longest is tried alone. The breaker closes unless that call fails in the
// same way. A batch is one call. It fails if every entry got Unavailable, or if an error came too late. A call of an
// entry whose MaxWait has passed counts against that entry and for the breaker. Each Run starts with a closed breaker.
// The zero value means no breaker. If any field is set, the others get their defaults.
type Breaker struct {
	Of    int           // number of latest entries to look at. The breaker opens after that many at the earliest. Default 20, at most 1000
	Share float64       // share of them that must have failed in this way, above 0 and at most 1. Default 0.5
	Pause time.Duration // first pause. Each failed try doubles it, up to a minute. Up to a half is added at random. Default 5 s, at least 1 ms
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
	if !(b.Share > 0 && b.Share <= 1) { // also false for NaN
		problems = append(problems, &FieldError{Field: "Breaker.Share", Reason: fmt.Sprintf("%v is not more than 0 and at most 1", b.Share)})
	}
	if reason := badSpan(b.Pause, time.Millisecond); reason != "" {
		problems = append(problems, &FieldError{Field: "Breaker.Pause", Reason: reason})
	}
	return problems
}

func (cfg TypeConfig) withDefaults(of Config) TypeConfig {
	setDefault(&cfg.MaxProcessCount, 10)
	setDefault(&cfg.Timeout, 30*time.Second)
	setDefault(&cfg.Concurrency, 50)
	setDefault(&cfg.Lease, of.Lease)
	setDefault(&cfg.Keep, of.Keep)
	setDefault(&cfg.MaxCompensateCount, 10)
	cfg.Breaker.setDefaults()
	if cfg.Retry == nil {
		cfg.Retry = Exponential(time.Second, 10*time.Minute)
	}
	if cfg.Codec == nil {
		cfg.Codec = JSON
	}
	return cfg
}

func (cfg TypeConfig) validate(batch bool) error {
	var problems []error
	atLeastOne := func(field string, n int) {
		if n < 1 {
			problems = append(problems, &FieldError{Field: field, Reason: fmt.Sprintf("%d is less than 1", n)})
		}
	}
	atLeastOne("MaxProcessCount", cfg.MaxProcessCount)
	atLeastOne("Concurrency", cfg.Concurrency)
	atLeastOne("MaxCompensateCount", cfg.MaxCompensateCount)
	atLeast := func(field string, d, least time.Duration) {
		if reason := badSpan(d, least); reason != "" {
			problems = append(problems, &FieldError{Field: field, Reason: reason})
		}
	}
	atLeast("Timeout", cfg.Timeout, time.Millisecond)
	atLeast("Lease", cfg.Lease, time.Second)
	atLeast("MaxWait", cfg.MaxWait, 0)
	if reason := badKeep(max(0, cfg.Keep)); reason != "" {
		problems = append(problems, &FieldError{Field: "Keep", Reason: reason})
	}
	if cfg.Compensate != nil && cfg.CompensateTx != nil {
		problems = append(problems, &FieldError{Field: "CompensateTx", Reason: "and Compensate are both given: want one"})
	}
	if cfg.PassDead && cfg.Serial == nil {
		problems = append(problems, &FieldError{Field: "PassDead", Reason: "is for types that have Serial"})
	}
	return errors.Join(slices.Concat(problems, cfg.Breaker.validate(), cfg.batchProblems(batch))...)
}

// batchProblems refuses fields that only a batch handler uses. Any other handler would ignore them silently.
func (cfg TypeConfig) batchProblems(batch bool) (problems []error) {
	refuse := func(bad bool, field, format string, args ...any) {
		if bad {
			problems = append(problems, &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
		}
	}
	if !batch {
		refuse(cfg.BatchSize != 0, "BatchSize", "is HandleBatch's: this handler is given one entry")
		refuse(cfg.BatchWait != 0, "BatchWait", "is HandleBatch's: this handler is given one entry")
		return problems
	}
	refuse(cfg.BatchSize < 1 || cfg.BatchSize > processlog.MaxRows, "BatchSize", "%d: want 1 to %d, what one claim brings", cfg.BatchSize, processlog.MaxRows)
	refuse(cfg.BatchWait < 0, "BatchWait", "%v is less than 0", cfg.BatchWait)
	refuse(cfg.BatchWait > cfg.Lease, "BatchWait", "%v is more than the Lease, %v: no entry is to wait longer for others than after a crash", cfg.BatchWait, cfg.Lease)
	refuse(cfg.AfterBatch != nil, "AfterBatch", "is not HandleBatch's: its entries come after batches of their own")
	refuse(cfg.BatchWait > 0 && cfg.BatchSize == 1, "BatchWait", "is of no use with a BatchSize of 1")
	return problems
}
