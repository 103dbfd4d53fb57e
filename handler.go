package compensator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/sqlstore"
	"github.com/compensator-go/compensator/processlog"
)

// HandlerFunc does the work of one entry. nil is success; else see Permanent, RetryAfter, Snooze, Unavailable. It may
// run more than once, at the same time only after a pause longer than the lease: give Entry.Key to what it calls.
type HandlerFunc func(ctx context.Context, e *Entry) error

// TxHandlerFunc does the work of one entry inside tx, which the library commits with the outcome: what it writes through
// tx happens exactly once, with no idempotency of its own. To complete, cancel or reschedule its own entry in tx is a
// *FieldError, and changes nothing: what becomes of that is what it returns.
type TxHandlerFunc func(ctx context.Context, tx *ScopedTx, e *Entry) error

// BatchFunc does the work of several entries of one type. It returns nil when all succeeded, or one error (or nil) for
// each, in their order; slices.Repeat([]error{err}, len(entries)) when all failed alike.
type BatchFunc func(ctx context.Context, entries []*Entry) []error

// Middleware wraps a handler, as in net/http. Those of a type run inside Use's.
type Middleware func(next HandlerFunc) HandlerFunc

// BatchMiddleware is Middleware for batch handlers; see Entry.Context.
type BatchMiddleware func(next BatchFunc) BatchFunc

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

// HandleBatch is Handle for several entries at once; see BatchFunc. Their context is the batch's: it carries nothing that
// travelled with one entry, which Item.Context has, and ends with ErrTimeout or ErrStopping, but not when one of several
// is cancelled or its lease lost. A batch of several that panics, returns an error too late, or another number of errors,
// spends no attempt: each entry is run again alone, and that counts.
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
			// No verdict, whatever it fits by chance: those that could not be decoded were not asked about.
			return make([]error, len(entries)+1)
		}
		for n, i := range places {
			verdicts[i] = answers[n]
		}
		return verdicts
	}
}

// decode returns the value of an entry's content. A newer version of the code may run beside this one and read what this one
// cannot, so a failure costs no attempt until MaxWait is over.
func decode[T any](e *Entry) (T, error) {
	var v T
	if err := e.Decode(&v); err != nil {
		return v, engine.Undecodable(fmt.Errorf("decode content of %s entry: %w", e.BusinessType, err))
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
	c.fitPool(businessType, &cfg, t.RunTx != nil, t.UndoTx != nil)
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
		scoped.handles = row
		run := wrap(func(ctx context.Context, e *Entry) error { return handler(ctx, scoped, e) }, outer, inner)
		return run(c.holding(ctx), c.handed(row, codec))
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

// fitPool keeps a type from waiting for connections of a small pool. Transactional handlers and compensations hold one each, and a
// statement that renews a lease waits for them.
func (c *Compensator) fitPool(businessType string, cfg *TypeConfig, runsTx, undoesTx bool) {
	if c.cfg.DB == nil {
		return
	}
	size, usesTx := c.cfg.DB.Stats().MaxOpenConnections, runsTx || undoesTx
	if size != 0 && usesTx {
		c.fitTransactions(businessType, cfg, runsTx, size)
	}
	c.fitLease(businessType, cfg, usesTx, size)
}

// fitTransactions lowers a type's Concurrency to what the pool has, and warns once where several types together may hold all of it.
func (c *Compensator) fitTransactions(businessType string, cfg *TypeConfig, runsTx bool, size int) {
	if most := max(1, size-2); cfg.Concurrency > most {
		c.log.Warn("compensator: transactional handlers are bounded by the pool", "type", businessType, "concurrency", most, "max_open_conns", size)
		cfg.Concurrency = most
	}
	if size <= 3 {
		return // a pool of so few is meant to be waited for
	}
	shares, first := c.inPool.add(poolShare{businessType, cfg.Concurrency, runsTx}, size-2)
	if first {
		calls, types, compensations := sumShares(shares)
		c.log.Warn("compensator: transactional handlers of several types may hold the whole pool: what else wants a connection waits for them",
			"calls", calls, "max_open_conns", size, "types", types, "compensations_beside_them", compensations,
			"set", fmt.Sprintf("TypeConfig.Concurrency of these types to %d in all, or SetMaxOpenConns to %d and more", size-2, calls+2))
	}
}

// poolShare is how many connections of Config.DB the transactions of a type may hold at once.
type poolShare struct {
	businessType string
	calls        int
	runs         bool // in its handler; otherwise only in its compensation, and then rarely as many
}

// poolShares is the shares of the types that are registered.
type poolShares struct {
	mu   sync.Mutex // guards the field below
	list []poolShare
}

// add adds a share, and reports whether it is the first with which handlers may hold more than most connections.
func (p *poolShares) add(share poolShare, most int) (all []poolShare, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, _, _ := sumShares(p.list)
	p.list = append(p.list, share)
	after, _, _ := sumShares(p.list)
	return slices.Clone(p.list), before <= most && after > most
}

// sumShares returns how many connections handlers may hold, the types' shares of them, and the shares of compensations of types whose
// handlers hold none.
func sumShares(shares []poolShare) (calls int, types, compensations string) {
	var handlers, undoing []string
	for _, share := range shares {
		text := fmt.Sprintf("%s %d", share.businessType, share.calls)
		if share.runs {
			calls += share.calls
			handlers = append(handlers, text)
		} else {
			undoing = append(undoing, text)
		}
	}
	return calls, strings.Join(handlers, ", "), strings.Join(undoing, ", ")
}

// fitLease makes a lease outlast the attempt where it may not be renewable meanwhile. An attempt whose lease ends spends nothing, so that a
// handler which takes longer each time would run again for ever.
func (c *Compensator) fitLease(businessType string, cfg *TypeConfig, usesTx bool, size int) {
	s, ok := c.store.(*sqlstore.Store)
	oneWriter := ok && s.OneWriter() // a transaction of the handler's keeps out what renews, whatever the pool
	enough := cfg.Timeout + c.cfg.Grace
	switch {
	case oneWriter && usesTx && cfg.Lease < enough:
		if cfg.Lease < cfg.Timeout {
			c.log.Warn("compensator: on SQLite no lease is renewed while a transactional handler writes; lease raised above the timeout", "type", businessType, "lease", enough)
		}
		cfg.Lease = enough
	case size != 0 && size <= 3 && (c.connector == nil || oneWriter) && cfg.Lease < cfg.Timeout: // no connections of our own
		cfg.Lease = enough
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
	c.types.reads(name, cfg.Codec)
	c.types.sealsBy(name, cfg.Codec)
	return &Type[T]{c: c, name: name, codec: cfg.Codec}
}
