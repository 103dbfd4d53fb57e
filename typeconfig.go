package compensator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// TypeConfig says how entries of one type are run. The zero value works.
type TypeConfig struct {
	MaxProcessCount int           // how many failed attempts exhaust an entry, the first included; Options may say otherwise. Default 10
	Timeout         time.Duration // of one attempt, whose context ends with ErrTimeout. Default 30 s
	Lease           time.Duration // instead of Config.Lease. A running attempt renews it, until its Timeout; where it cannot, docs/operations.md says, it is raised above that
	Retry           Retry         // the schedule of attempts. Default Exponential(1 s, 10 min): ten attempts take some four minutes, 8½ at most
	MaxWait         time.Duration // how long after it was recorded, its Delay included, Unavailable, Snooze and content that cannot be decoded cost an entry no attempt, compensating or not, and a Breaker holds it up. Default 0: for ever
	Keep            time.Duration // instead of Config.Keep; less than 0: for ever
	Codec           Codec         // reads and writes the content of a typed handler. Default JSON

	// Concurrency is how many calls of the handler run at once in this process, each of HandleBatch with up to BatchSize
	// entries; compensations count, too. Default 50, of HandleBatch 4; for transactional handlers at most the pool's
	// MaxOpenConns − 2, each type's own: bound the pool for all of them, and for requests.
	Concurrency int

	// Of HandleBatch alone. BatchSize is how many entries a call is given at most: default 100, at most 500. BatchWait is
	// how long an entry that is due may wait, unclaimed, for others to share its batch; as many as BatchSize wait no longer
	// than a look into the database, an eighth of BatchWait apart, 250 ms at most. A start of Run ends no wait. Default 0:
	// for none; at most the type's Lease.
	BatchSize int
	BatchWait time.Duration

	// Compensate undoes an entry whose attempts are used up or whose handler returned Permanent, at least once, with a
	// budget of its own; its first attempt reads in Entry.LastError why. It never runs after a success unless a person has it
	// do so: RequeueOptions.Compensate. Use Typed for the decoded value, of the type's own T, which no compiler checks here:
	// of another, what cannot be decoded stays compensating, at no attempt until MaxWait is over. CompensateTx instead
	// undoes in a transaction, exactly once, whatever kind the handler is of: what has to be called as well it records as an
	// entry of its own.
	Compensate         HandlerFunc
	CompensateTx       TxHandlerFunc
	MaxCompensateCount int // how many failures it may have before a person is needed; once MaxWait is over Unavailable and Snooze are among them. Default 10

	// CompensateCrashed also compensates an entry whose process died in three attempts in a row, instead of leaving it to
	// a person. Whether its effect happened is unknown. A process whose handler is stuck on it leaves that to others.
	CompensateCrashed bool

	// AfterBatch names the batch that an entry of this type comes after: its handler is called when all entries recorded
	// with that BatchID have ended, dead ones too, by whichever process; a batch of none has. Until then the entry is
	// snoozed, at no cost, for an eighth of its age, 500 ms to a minute each time. A handler that wants to wait for people
	// returns Snooze while BatchProgress counts a Dead. Record it in the transaction that records the last of the batch,
	// under an idempotent id, and not as one of the batch. "": it comes after none. It is called concurrently. Not of
	// HandleBatch.
	AfterBatch func(e *Entry) (batchID string)

	// Serial returns an entry's ordering key, an account id, say. Entries of this type with the same key run one at a time, in
	// the order in which they were recorded: those of one Record call as they were given, those of several calls by their ids.
	// "" is no key. An entry blocks those behind it until it has ended: while it retries, is snoozed, is compensated or is not due
	// yet, and unless PassDead is true also while it is dead. Serial is given what was recorded, without headers. Record calls
	// it, and refuses an entry for which it panics, and so does each attempt, concurrently. It must answer the same each time, with no
	// personal data, as in ids. Declare it wherever the type is recorded, and see docs/guarantees.md, G30.
	Serial   func(e *Entry) string
	PassDead bool

	Breaker Breaker // stops claiming entries of this type in this process while what its handler needs is down. Default: none

	// RefuseOtherContent makes Record return ErrOtherContent when an idempotent id comes again with other content, and the
	// transaction unable to commit. Otherwise the receipt tells, and the log once for each type: a new field of a struct is
	// other content of the same event, too. A codec that writes a value in several ways, as maps in any order, never matches.
	RefuseOtherContent bool

	Middleware      []Middleware      // wraps the handler, unless it is a batch's, and the compensation of this type
	BatchMiddleware []BatchMiddleware // wraps a batch handler
}

// What HandleBatch has in place of Handle's 50: a claim's worth of entries is 500, which are held in memory, with their
// contents, and lose a lease each when the process dies.
const batchConcurrency = 4

// Breaker opens when too many of a type's latest entries, each counted once, were last answered with Unavailable, or not
// within TypeConfig.Timeout, by handler or compensation. This process then claims none of the type, which costs them
// nothing; others go on. After a pause the one that is due longest is tried alone, and closes it unless that call fails
// likewise. A batch is one call, and fails if every entry's error is Unavailable, or an error came too late. A call of an
// entry whose MaxWait is over counts against that entry, and here as answered. Each Run begins with it closed. The zero
// value is none; one field that is set is enough, the others have defaults.
type Breaker struct {
	Of    int           // how many entries are looked at, the latest; it opens after as many at the earliest. Default 20; at most 1000
	Share float64       // of them whose last call failed so, from more than 0 to 1. Default 0.5
	Pause time.Duration // the first; each probe that fails doubles it, up to a minute. Up to a half is added at random. Default 5 s; at least 1 ms
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
	if !(b.Share > 0 && b.Share <= 1) { // nor NaN
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

// batchProblems is what is wrong with what only a batch handler has, and in any other would be ignored in silence.
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
