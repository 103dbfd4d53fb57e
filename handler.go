package compensator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

// HandlerFunc does the work of one entry. nil is success; else see Permanent, RetryAfter, Snooze, Unavailable. It may
// run more than once, at the same time only after a pause longer than the lease: give Entry.Key to what it calls.
type HandlerFunc func(ctx context.Context, e *Entry) error

// TxHandlerFunc does the work of one entry inside tx, which the library commits with the outcome: exactly once, in this
// database.
type TxHandlerFunc func(ctx context.Context, tx *ScopedTx, e *Entry) error

// BatchFunc does the work of several entries of one type. It returns nil when all succeeded, or one error (or nil) for
// each, in their order; slices.Repeat([]error{err}, len(entries)) when all failed alike.
type BatchFunc func(ctx context.Context, entries []*Entry) []error

// Middleware wraps a handler, as in net/http. Those of a type run inside Use's.
type Middleware func(next HandlerFunc) HandlerFunc

// BatchMiddleware is Middleware for batch handlers; see Entry.Context.
type BatchMiddleware func(next BatchFunc) BatchFunc

// TypeConfig says how entries of one type are run. The zero value works.
type TypeConfig struct {
	MaxProcessCount int           // how many failed attempts exhaust an entry, the first included; Options may say otherwise. Default 10
	Timeout         time.Duration // of one attempt, whose context ends with ErrTimeout. Default 30 s
	Lease           time.Duration // instead of Config.Lease. A running attempt renews it, until its Timeout
	Retry           Retry         // the schedule of attempts. Default Exponential(1 s, 10 min)
	MaxWait         time.Duration // how long after it was recorded, its Delay included, Unavailable and Snooze cost an entry no attempt, and a Breaker holds it up. Default 0: for ever
	Keep            time.Duration // instead of Config.Keep; less than 0: for ever
	Codec           Codec         // reads and writes the content of a typed handler. Default JSON

	// Concurrency is how many calls of the handler run at once in this process: of HandleBatch so many batches, and up to
	// BatchSize times as many entries are held. Entries that run alone, compensations too, are a call each; those of a batch
	// that came to no verdict run side by side in its one. Default 50, of HandleBatch 4; for transactional handlers at most
	// the pool's MaxOpenConns − 2.
	Concurrency int

	// Of HandleBatch alone. BatchSize is how many entries a call is given at most: default 100, at most 500. BatchWait is how
	// long an entry that is due may wait for others to share its batch: none is claimed meanwhile, so a crash costs nothing,
	// a stop waits for none, and any process may take them. As many as BatchSize wait for no more than a look into the
	// database, an eighth of BatchWait apart, 250 ms at most. A start of Run ends no wait. Default 0: for none. At most the
	// type's Lease.
	BatchSize int
	BatchWait time.Duration

	// Compensate undoes an entry whose attempts are used up or whose handler returned Permanent; it reads in
	// Entry.LastError why. It runs at least once, with a budget of its own, and never after a success. Use Typed for
	// the decoded value, of the type's own T, which no compiler checks here. CompensateTx instead undoes in a transaction,
	// exactly once, whatever kind the handler is of: what has to be called as well it records as an entry of its own. Who
	// asks a service what it has done asks by an id of his own, and not by Entry.Key.
	Compensate         HandlerFunc
	CompensateTx       TxHandlerFunc
	MaxCompensateCount int // how many failures it may have before a person is needed. Default 10

	// CompensateCrashed also compensates an entry whose process died in three attempts in a row, instead of leaving it to
	// a person. Whether its effect happened is unknown. It is undone where no handler is stuck on it.
	CompensateCrashed bool

	// AfterBatch names the batch that an entry of this type comes after: its handler is called when all entries recorded
	// with that BatchID have ended, however and by which process; like any it may run again after a crash, and with HandleTx
	// has its effect exactly once. Until then the entry is snoozed, which costs no attempt: for an eighth of its age, at least
	// 500 ms and at most a minute. Dead entries have ended, and so has a batch of none: a handler that wants to wait for
	// people returns Snooze while BatchProgress counts a Dead.
	// Record it in the transaction that records the last of the batch, under an idempotent id, and not as one of the batch.
	// "": it comes after none. It is called concurrently. Not of HandleBatch.
	AfterBatch func(e *Entry) (batchID string)

	// Serial has entries of this type of one key run one at a time, in the order of their ids, beside those of other keys: the
	// key of an account, say, of any length. Each type has lines of its own: what is to stand in one line is one type. "" is
	// no key. It reads what the entry was recorded with, but headers; it runs in Record and before each attempt, concurrently,
	// must answer the same each time, and a panic of it refuses the Record. What is first in its line holds the turn until it
	// has ended: retrying, snoozed, compensating or not due yet it keeps the others waiting, and so it does dead, unless
	// PassDead is true. Declare it wherever the type is recorded, and see docs/guarantees.md, G30.
	Serial   func(e *Entry) string
	PassDead bool

	// Breaker stops claiming entries of this type in this process while what its handler needs is down. Default: none
	Breaker Breaker

	// RefuseOtherContent makes Record return ErrOtherContent when an idempotent id comes again with other content, and the
	// transaction unable to commit. Otherwise the receipt tells, and the log once for each type: a new field of a struct is
	// other content of the same event, too. A codec that writes a value in several ways, as maps in any order, never matches.
	RefuseOtherContent bool

	Middleware      []Middleware      // wraps the handler and Compensate of this type
	BatchMiddleware []BatchMiddleware // wraps a batch handler
}

// What HandleBatch has in place of Handle's 50: a claim's worth of entries is 500, which are held in memory, with their
// contents, and lose a lease each when the process dies.
const batchConcurrency = 4

// Breaker opens when too many of a type's latest entries, each counted once, were last answered with Unavailable, or not
// within TypeConfig.Timeout, by the handler or the compensation. All of the type then wait, due, at no cost: this process
// claims none, others go on. After a pause the one that is due longest is tried alone, and closes it, unless that call fails
// in the same way. A batch is one call, failed if it timed out or every entry's error is Unavailable. Calls of entries whose
// MaxWait is over open none, and close it: they count against those entries, which come to their end. It is in memory: each
// Run begins with it closed. The zero value is none; one field that is set is enough, the others have defaults.
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

// Handle registers a type's handler, before Run, and returns the handle to record with. Its errors name what is wrong:
// the type, the handler, a field.
func Handle[T any](c *Compensator, businessType string, handler func(ctx context.Context, e *Entry, v T) error, cfg TypeConfig) (*Type[T], error) {
	if handler == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	return register[T](c, businessType, cfg, false, func(t *engine.Type, cfg *TypeConfig) { t.Run = c.single(Typed(handler), cfg) })
}

// HandleTx is Handle for a transactional handler: what it writes through tx and the entry's success commit together,
// exactly once. Effects in this database need no idempotency.
func HandleTx[T any](c *Compensator, businessType string, handler func(ctx context.Context, tx *ScopedTx, e *Entry, v T) error, cfg TypeConfig) (*Type[T], error) {
	if handler == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	return register[T](c, businessType, cfg, false, func(t *engine.Type, cfg *TypeConfig) { t.RunTx = c.transactional(TypedTx(handler), cfg) })
}

// Item is one entry of a batch with its decoded value.
type Item[T any] struct {
	Entry *Entry
	Value T

	batch context.Context
}

// Context is the batch's context with the values of Entry.Context.
func (i Item[T]) Context() context.Context {
	if i.batch == nil { // made by hand, in a test
		return i.Entry.Context(context.Background())
	}
	return i.Entry.Context(i.batch)
}

// HandleBatch is Handle for several entries at once; see BatchFunc. Their context is the batch's: it carries nothing
// that travelled with one entry, which Item.Context has, and ends with ErrTimeout or ErrStopping, but not when one of
// several is cancelled or its lease lost. A batch of several that panics, times out or answers with another number of
// errors spends no attempt: each entry is run again alone, and that counts.
func HandleBatch[T any](c *Compensator, businessType string, handler func(ctx context.Context, items []Item[T]) []error, cfg TypeConfig) (*Type[T], error) {
	if handler == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	return register[T](c, businessType, cfg, true, func(t *engine.Type, cfg *TypeConfig) { t.RunBatch = c.batch(typedBatch(handler), cfg) })
}

// Must is for start-up: it panics when what a function such as Handle returns is an error.
//
//	var closeOrder = compensator.Must(compensator.Handle(c, "close_order", shop.close, compensator.TypeConfig{}))
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Declare returns the handle to record entries of a type whose handler runs in another process, or that needs none: see
// Type.Once. Of cfg only Codec, RefuseOtherContent, Serial, PassDead and Keep are used; Config.Keep is not. With a Keep it is
// called before Run, or returns ErrRunning where nothing else is kept for a while; of several for one type the shortest counts.
func Declare[T any](c *Compensator, businessType string, cfg TypeConfig) (*Type[T], error) {
	if err := validateType(businessType); err != nil {
		return nil, err
	}
	if reason := badKeep(max(0, cfg.Keep)); reason != "" {
		return nil, &FieldError{Field: "Keep", Reason: reason}
	}
	keep := cfg.Keep
	if err := c.keepHouse(context.Background(), keep); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(c.cfg)
	if err := c.serialize(businessType, cfg); err != nil {
		return nil, err
	}
	c.shelve(businessType, keep)
	return newType[T](c, businessType, cfg), nil
}

// Typed makes a HandlerFunc, for Compensate too, that gets the decoded value.
func Typed[T any](handler func(ctx context.Context, e *Entry, v T) error) HandlerFunc {
	return func(ctx context.Context, e *Entry) error {
		v, err := decode[T](e)
		if err != nil {
			return err
		}
		return handler(ctx, e, v)
	}
}

// TypedTx is Typed for transactional handlers.
func TypedTx[T any](handler func(ctx context.Context, tx *ScopedTx, e *Entry, v T) error) TxHandlerFunc {
	return func(ctx context.Context, tx *ScopedTx, e *Entry) error {
		v, err := decode[T](e)
		if err != nil {
			return err
		}
		return handler(ctx, tx, e, v)
	}
}

// typedBatch decodes a batch; entries that cannot be decoded leave it.
func typedBatch[T any](handler func(ctx context.Context, items []Item[T]) []error) BatchFunc {
	return func(ctx context.Context, entries []*Entry) []error {
		verdicts := make([]error, len(entries))
		items := make([]Item[T], 0, len(entries))
		places := make([]int, 0, len(entries))
		for i, e := range entries {
			v, err := decode[T](e)
			if err != nil {
				verdicts[i] = err
				continue
			}
			items, places = append(items, Item[T]{Entry: e, Value: v, batch: ctx}), append(places, i)
		}
		if len(items) == 0 {
			return verdicts
		}
		answers := handler(ctx, items)
		if answers == nil {
			return verdicts
		}
		if len(answers) != len(items) {
			return answers // the engine sees that the length is wrong
		}
		for n, i := range places {
			verdicts[i] = answers[n]
		}
		return verdicts
	}
}

// decode turns an entry's content into its value. Content that this version of the code cannot read may be
// from a newer one that runs beside it, so that costs no attempt.
func decode[T any](e *Entry) (T, error) {
	var v T
	if err := e.Decode(&v); err != nil {
		return v, engine.Free(Unavailable(fmt.Errorf("decode content of %s entry: %w", e.BusinessType, err)))
	}
	return v, nil
}

func wrap[F any, M ~func(F) F](handler F, outer, inner []M) F {
	for _, list := range [][]M{inner, outer} {
		for i := len(list) - 1; i >= 0; i-- {
			handler = list[i](handler)
		}
	}
	return handler
}

// register validates and adds a type. set puts the handler in place.
func register[T any](c *Compensator, businessType string, cfg TypeConfig, batch bool, set func(t *engine.Type, cfg *TypeConfig)) (*Type[T], error) {
	if batch {
		setDefault(&cfg.Concurrency, batchConcurrency)
		setDefault(&cfg.BatchSize, 100)
	}
	cfg = cfg.withDefaults(c.cfg)
	if err := errors.Join(validateType(businessType), cfg.validate(batch)); err != nil {
		return nil, err
	}
	t := engine.Type{Name: businessType}
	set(&t, &cfg)
	if cfg.Compensate != nil {
		t.Undo = c.single(cfg.Compensate, &cfg)
	}
	if cfg.CompensateTx != nil {
		t.UndoTx = c.transactional(cfg.CompensateTx, &cfg)
	}
	if cfg.AfterBatch != nil {
		t.Ready = c.afterBatch(cfg.AfterBatch, cfg.Codec)
	}
	c.fitPool(businessType, &cfg, t.RunTx != nil || t.UndoTx != nil)
	t.MaxProcessCount, t.MaxCompensateCount, t.CompensateCrashed = cfg.MaxProcessCount, cfg.MaxCompensateCount, cfg.CompensateCrashed
	t.Timeout, t.Lease, t.Concurrency, t.Retry, t.MaxWait = cfg.Timeout, cfg.Lease, cfg.Concurrency, cfg.Retry, cfg.MaxWait
	t.BatchSize, t.BatchWait = cfg.BatchSize, cfg.BatchWait
	t.Breaker = engine.Breaker(cfg.Breaker)
	if err := c.keepHouse(context.Background(), cfg.Keep); err != nil {
		return nil, err
	}
	if err := c.serialize(businessType, cfg); err != nil {
		return nil, err
	}
	if err := c.engine.Register(t); err != nil {
		return nil, err
	}
	c.shelve(businessType, cfg.Keep)
	c.types.handles(businessType, cfg.Codec)
	return newType[T](c, businessType, cfg), nil
}

// single, transactional and batch make of a handler what the engine runs.
func (c *Compensator) single(handler HandlerFunc, cfg *TypeConfig) func(context.Context, *processlog.Row) error {
	handler, codec := wrap(handler, c.middleware, cfg.Middleware), cfg.Codec
	return func(ctx context.Context, row *processlog.Row) error { return handler(ctx, c.handed(row, codec)) }
}

func (c *Compensator) transactional(handler TxHandlerFunc, cfg *TypeConfig) func(context.Context, engine.Transaction, *processlog.Row) error {
	outer, inner, codec := c.middleware, cfg.Middleware, cfg.Codec
	return func(ctx context.Context, tx engine.Transaction, row *processlog.Row) error {
		scoped := tx.(handlerTx).ScopedTx
		run := wrap(func(ctx context.Context, e *Entry) error { return handler(ctx, scoped, e) }, outer, inner)
		return run(ctx, c.handed(row, codec))
	}
}

func (c *Compensator) batch(handler BatchFunc, cfg *TypeConfig) func(context.Context, []*processlog.Row) []error {
	handler, codec := wrap(handler, c.batchMiddleware, cfg.BatchMiddleware), cfg.Codec
	return func(ctx context.Context, rows []*processlog.Row) []error {
		entries := make([]*Entry, len(rows))
		for i, row := range rows {
			entries[i] = c.handed(row, codec)
		}
		return handler(ctx, entries)
	}
}

// fitPool keeps a type from waiting for connections of a small pool: transactional handlers hold one each,
// and without connections of our own a lease may not be renewable in time.
func (c *Compensator) fitPool(businessType string, cfg *TypeConfig, usesTx bool) {
	if c.cfg.DB == nil {
		return
	}
	size := c.cfg.DB.Stats().MaxOpenConnections
	if size == 0 {
		return
	}
	if most := max(1, size-2); usesTx && cfg.Concurrency > most {
		c.log.Warn("compensator: transactional handlers are bounded by the pool", "type", businessType, "concurrency", most, "max_open_conns", size)
		cfg.Concurrency = most
	}
	if size <= 3 && c.connector == nil && cfg.Lease < cfg.Timeout {
		cfg.Lease = cfg.Timeout + c.cfg.Grace
		c.log.Warn("compensator: the pool is too small to renew leases in time; lease raised above the timeout", "type", businessType, "lease", cfg.Lease)
	}
}

// serialize makes a type serial, if it is to be.
func (c *Compensator) serialize(businessType string, cfg TypeConfig) error {
	if cfg.Serial == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), slotTimeout)
	defer cancel()
	key := func(row *processlog.Row) string { return cfg.Serial(c.handed(row, cfg.Codec)) }
	return c.engine.Serialize(ctx, businessType, engine.Serial{Key: key, PassDead: cfg.PassDead})
}

func newType[T any](c *Compensator, name string, cfg TypeConfig) *Type[T] {
	if cfg.RefuseOtherContent {
		c.types.refuseOtherContent(name)
	}
	c.types.sealsBy(name, cfg.Codec)
	return &Type[T]{c: c, name: name, codec: cfg.Codec}
}
