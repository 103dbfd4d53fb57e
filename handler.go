package compensator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features"
	"github.com/compensator-go/compensator/internal/sqlstore"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/processlog"
)

// HandlerFunc does the work of one entry. It returns nil for success, and otherwise an error: see Permanent,
// RetryAfter, Snooze and Unavailable. It may run more than once for the same entry, so pass Entry.CallKey to every
// service that it calls. Two runs overlap only if a process paused for longer than its lease. It is called concurrently
// for different entries.
//
// Sometimes a handler does not know whether its effect has happened, for example because a call got no answer. To
// report an unknown outcome, return an error with a method OutcomeUnknown() bool that returns true. You may also wrap
// this error in another error. If the entry then dies, its case says that the outcome is unknown. Package httpcall
// returns errors with this method.
type HandlerFunc func(ctx context.Context, e *Entry) error

type txHandlerFunc func(ctx context.Context, tx *ScopedTx, e *Entry) error

// BatchFunc does the work of several entries of one type. It returns nil if all succeeded. Otherwise it returns one
// error (or nil) for each entry, in the order of the entries. If all failed with the same error, return
// slices.Repeat([]error{err}, len(entries)). It is called concurrently for different batches.
type BatchFunc func(ctx context.Context, entries []*Entry) []error

// Middleware wraps a handler, as in net/http. The middleware of a type runs inside Config.Middleware. A Middleware is
// called once when a type is registered. The HandlerFunc that it returns is called concurrently.
//
// If a handler of HandleTx or HandleCall has failed, its transaction is rolled back and the attempt fails. A middleware
// cannot change that by returning nil, or by calling the handler again.
type Middleware func(next HandlerFunc) HandlerFunc

// BatchMiddleware wraps a batch handler as Middleware wraps other handlers. Entry.Context gives the context of one
// entry.
type BatchMiddleware func(next BatchFunc) BatchFunc

// Handle registers the handler of a type and returns a Type to record with. Call it before Run. cfg may be nil. If the
// type has Keep, Serial or Limit, Handle reads from the database and waits at most 10 s for each answer. An invalid
// field, a nil handler, or a type that is registered already is a *FieldError. Handle reports all invalid fields at
// once. While Run runs, Handle returns ErrRunning.
func Handle[T any](ctx context.Context, c *Compensator, businessType string, handler func(ctx context.Context, e *Entry, v T) error, cfg *HandlerConfig[T]) (*Type[T], error) {
	if handler == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	return register[T](ctx, c, businessType, cfg.settings(), func(t *engine.Type, _ *features.TypeSettings, s *settings) {
		t.Run = engine.HandlerOf(c.singleHandler(typed(handler), s))
	})
}

// HandleTx registers a transactional handler. The library commits tx together with the success of the entry. So
// everything that the handler writes through tx happens exactly once, and these writes need no idempotency. In all
// other respects HandleTx works as Handle does.
//
// A handler must not complete, cancel or reschedule its own entry through tx, because its return value decides the
// outcome. Such a call returns a *FieldError and changes nothing.
//
// A handler must not complete its own entry in another transaction either. A call of Complete or CompleteTx that gets
// the handler's context returns a *FieldError.
func HandleTx[T any](ctx context.Context, c *Compensator, businessType string, handler func(ctx context.Context, tx *ScopedTx, e *Entry, v T) error, cfg *HandlerConfig[T]) (*Type[T], error) {
	if handler == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	return register[T](ctx, c, businessType, cfg.settings(), func(_ *engine.Type, f *features.TypeSettings, s *settings) {
		f.RunTx = c.txHandler(typedTx(handler), s)
	})
}

// Item is one entry of a batch, with its decoded value.
type Item[T any] struct {
	Entry *Entry // a copy of the entry, which the handler may change
	Value T      // content of the entry, decoded

	batch context.Context
}

// Context returns the context of the batch with the values that Config.Propagator carried with this entry: see
// Entry.Context.
func (i Item[T]) Context() context.Context {
	if i.batch == nil { // only a test builds an Item without batch
		return i.Entry.Context(context.Background())
	}
	return i.Entry.Context(i.batch)
}

// HandleBatch registers a handler for several entries at once: see BatchFunc. The context of the handler belongs to the
// batch. This context ends with ErrTimeout or ErrStopping. If the batch has several entries, the context does not end
// when one of them is cancelled or loses its lease.
//
// Config.Propagator carries values, for example a trace, from Record to the handler. Each entry of a batch has its own
// values, so the context of the batch has none of them. Item.Context returns the context of the batch with the values
// of one entry.
//
// A call with several entries spends no attempt if the handler panics, returns an error after its timeout, or returns a
// wrong number of errors. Each entry of this call then runs again alone. Only the run alone counts.
//
// HandleBatch returns the same errors as Handle.
func HandleBatch[T any](ctx context.Context, c *Compensator, businessType string, handler func(ctx context.Context, items []Item[T]) []error, cfg *BatchConfig[T]) (*Type[T], error) {
	if handler == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	return register[T](ctx, c, businessType, cfg.settings(), func(_ *engine.Type, f *features.TypeSettings, s *settings) {
		f.Batch = features.Batch{Call: c.batchHandler(typedBatch(handler), s), Size: s.batchSize, Wait: s.batchWait}
	})
}

// Must returns v and panics if err is not nil. Use it when a program starts:
//
//	var closeOrder = compensator.Must(compensator.Handle(ctx, c, "close_order", shop.close, nil))
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Declare returns a Type to record entries whose handler runs in another process, or that need no handler: see
// Type.Once. The parameter cfg may be nil.
//
// A declared type has only its own TypeConfig.Keep, and not the default of the whole Compensator (Config.Keep). If
// cfg.Keep is set, call Declare before Run. A later call may return ErrRunning. If a type is declared several times,
// the library uses the shortest TypeConfig.Keep. If cfg.Keep or cfg.Serial is set, Declare reads from the database and
// waits at most 10 s for each answer.
//
// Invalid fields are *FieldErrors, and Declare reports all of them at once.
func Declare[T any](ctx context.Context, c *Compensator, businessType string, cfg *TypeConfig) (*Type[T], error) {
	if cfg == nil {
		cfg = new(TypeConfig)
	}
	if err := errors.Join(append(cfg.problems(), validateType(businessType))...); err != nil {
		return nil, err
	}
	if err := c.startPurging(ctx, cfg.Keep); err != nil {
		return nil, err
	}
	full := cfg.withDefaults(c.cfg)
	if err := c.registerOrdering(ctx, businessType, full); err != nil {
		return nil, err
	}
	c.addRetention(businessType, cfg.Keep)
	return newType[T](c, businessType, full), nil
}

func typed[T any](handler func(ctx context.Context, e *Entry, v T) error) HandlerFunc {
	return func(ctx context.Context, e *Entry) error {
		v, err := decode[T](e)
		if err != nil {
			return err
		}
		return handler(ctx, e, v)
	}
}

func typedTx[T any](handler func(ctx context.Context, tx *ScopedTx, e *Entry, v T) error) txHandlerFunc {
	return func(ctx context.Context, tx *ScopedTx, e *Entry) error {
		v, err := decode[T](e)
		if err != nil {
			return err
		}
		return handler(ctx, tx, e, v)
	}
}

// typedBatch leaves out entries that cannot be decoded.
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
			// The handler has returned a wrong number of errors, so nobody knows which error belongs to which entry.
			// Package batches ignores a list of verdicts with a wrong length, and runs each entry alone. So return one
			// verdict too many.
			return make([]error, len(entries)+1)
		}
		for n, i := range places {
			verdicts[i] = answers[n]
		}
		return verdicts
	}
}

// decode decodes the content of an entry. During a deployment, a process with newer code may have written this content.
// The present process may then be unable to decode the content, but a process with the newer code can decode it. So a
// failure costs the entry no attempt until the entry is older than MaxWait.
func decode[T any](e *Entry) (T, error) {
	var v T
	if err := e.Decode(&v); err != nil {
		return v, verdict.Undecodable(fmt.Errorf("decode content of %s entry: %w", e.BusinessType, err))
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

// register validates the settings of a type, and registers the type with the engine. The function set stores the type's
// handler in t or f.
func register[T any](ctx context.Context, c *Compensator, businessType string, s settings, set func(t *engine.Type, f *features.TypeSettings, s *settings)) (*Type[T], error) {
	s = s.withDefaults(c.cfg)
	if err := errors.Join(validateType(businessType), s.validate()); err != nil {
		return nil, err
	}
	t, f := engine.Type{Name: businessType}, features.TypeSettings{Breaker: features.Breaker(s.breaker), Limit: s.Limit.settings(c, businessType, s.Codec)}
	set(&t, &f, &s)
	if s.compensate != nil {
		t.Undo = engine.HandlerOf(c.singleHandler(s.compensate, &s))
	}
	if s.compensateTx != nil {
		f.UndoTx = c.txHandler(s.compensateTx, &s)
	}
	if s.afterBatch != nil {
		f.Ready = c.afterBatch(s.afterBatch, s.Codec)
		c.types.addAfterBatch(businessType, s.afterBatch)
	}
	share := poolShare{businessType: businessType, wanted: s.Limit.bound(s.concurrency), heldByHandler: f.RunTx != nil, usesHandleCall: f.RunCall != nil}
	c.fitPool(businessType, &s, share.heldByHandler, f.UndoTx != nil, f.RunCall != nil)
	t.MaxAttempts, t.MaxCompensateAttempts, t.CompensateCrashed = s.maxAttempts, s.maxCompensateAttempts, s.compensateCrashed
	t.Timeout, t.Lease, t.Concurrency, t.Retry, t.MaxWait = s.timeout, s.lease, s.concurrency, s.retry, s.maxWait
	if err := c.startPurging(ctx, s.Keep); err != nil {
		return nil, err
	}
	if err := c.registerOrdering(ctx, businessType, s.TypeConfig); err != nil {
		return nil, err
	}
	if err := c.checkLimits(ctx, &s.Limit); err != nil {
		return nil, err
	}
	if err := c.features.Register(t, f); err != nil {
		return nil, err
	}
	if share.calls = s.Limit.bound(s.concurrency); share.heldByHandler || share.usesHandleCall || f.UndoTx != nil {
		c.poolShares.add(share)
	}
	c.addRetention(businessType, s.Keep)
	c.types.addHandlerCodec(businessType, s.Codec)
	return newType[T](c, businessType, s.TypeConfig), nil
}

func (c *Compensator) singleHandler(handler HandlerFunc, s *settings) func(context.Context, *processlog.Row) error {
	handler, codec := wrap(handler, c.cfg.Middleware, s.middleware), s.Codec
	return func(ctx context.Context, row *processlog.Row) error { return handler(ctx, c.handlerEntry(row, codec)) }
}

func (c *Compensator) txHandler(handler txHandlerFunc, s *settings) features.TxHandler {
	outer, inner, codec := c.cfg.Middleware, s.middleware, s.Codec
	return func(ctx context.Context, tx features.Transaction, row *processlog.Row) error {
		scoped := tx.(handlerTx).ScopedTx
		scoped.handledRow = row
		run := wrap(func(ctx context.Context, e *Entry) error {
			return scoped.callHandler(func() error { return handler(ctx, scoped, e) })
		}, outer, inner)
		e := c.handlerEntry(row, codec)
		return run(withHandlerEntry(c.markInTransaction(ctx), e), e)
	}
}

func (c *Compensator) callHandler(handler HandlerFunc, s *settings) features.CallHandler {
	handler, codec := wrap(handler, c.cfg.Middleware, s.middleware), s.Codec
	return func(ctx context.Context, begin func() (features.Transaction, error), row *processlog.Row) error {
		e := c.handlerEntry(row, codec)
		e.beginTx = func() (*ScopedTx, error) {
			tx, err := begin()
			if err != nil {
				return nil, err
			}
			scoped := tx.(handlerTx).ScopedTx
			scoped.handledRow = row
			return scoped, nil
		}
		return handler(withHandlerEntry(ctx, e), e)
	}
}

func (c *Compensator) batchHandler(handler BatchFunc, s *settings) func(context.Context, []*processlog.Row) []error {
	handler, codec := wrap(handler, c.cfg.BatchMiddleware, s.batchMiddleware), s.Codec
	return func(ctx context.Context, rows []*processlog.Row) []error {
		entries := make([]*Entry, len(rows))
		for i, row := range rows {
			entries[i] = c.handlerEntry(row, codec)
		}
		return handler(ctx, entries)
	}
}

// fitPool lowers Concurrency, because each transactional handler or compensation holds a connection, and the renewal of
// leases needs one more. If handlers can block the renewal, fitPool raises the Lease.
func (c *Compensator) fitPool(businessType string, s *settings, runsTx, undoesTx, callsTx bool) {
	if c.cfg.DB == nil {
		return
	}
	size, usesTx := c.cfg.DB.Stats().MaxOpenConnections, runsTx || undoesTx
	if most := max(1, size-2); size != 0 && usesTx && s.concurrency > most {
		c.log.Warn("compensator: transactional handlers are bounded by the pool", "type", businessType, "concurrency", most, "max_open_conns", size,
			"set", fmt.Sprintf("SetMaxOpenConns to %d and more for Concurrency %d", s.concurrency+2, s.concurrency))
		s.concurrency = most
	}
	c.fitLease(businessType, s, usesTx || callsTx, size)
}

type poolShare struct {
	businessType string
	calls        int // how many entries of the type may run at once: Concurrency, or less if Limit.Concurrent is less. fitPool may have lowered Concurrency
	wanted       int // how many entries of the type could run at once if the pool were large enough, so that fitPool lowered nothing
	// heldByHandler is true if each running handler of the type holds a connection of the pool from its beginning to
	// its end. If it is false, handlers hold no connection all the time. Then only the compensations of the type hold
	// connections, or the second functions of HandleCall.
	heldByHandler  bool
	usesHandleCall bool // whether HandleCall registered the type
}

// bound returns how many entries of a type may run at once in this process. Limit.Concurrent is ignored if the limit
// has a Key, because each key then has the whole limit.
func (l *Limit) bound(n int) int {
	if l.Concurrent == 0 || l.Key != nil {
		return n
	}
	return min(n, l.Concurrent)
}

type poolShares struct {
	mu     sync.Mutex // guards the fields below
	list   []poolShare
	warned string // what warnOfPool has logged last
}

func (p *poolShares) add(share poolShare) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, share)
}

// warnOfPool warns if transactional handlers may hold all connections of the pool. It does not repeat the warning that
// it logged last. Run calls warnOfPool, because all types are known only when Run begins.
func (c *Compensator) warnOfPool() {
	if c.cfg.DB == nil {
		return
	}
	size := c.cfg.DB.Stats().MaxOpenConnections
	c.poolShares.mu.Lock()
	defer c.poolShares.mu.Unlock()
	var calls, wanted int
	var handlers, undoing, thens []string
	var shrunk bool // whether the pool was made smaller after a type was registered
	for _, share := range c.poolShares.list {
		text := fmt.Sprintf("%s %d", share.businessType, share.calls)
		switch {
		case share.heldByHandler:
			calls, wanted, handlers = calls+share.calls, wanted+share.wanted, append(handlers, text)
			shrunk = shrunk || share.calls > max(1, size-2)
		case share.usesHandleCall:
			thens = append(thens, text)
		default:
			undoing = append(undoing, text)
		}
	}
	switch {
	case size == 0, calls <= size-2:
		return
	case !shrunk && (len(handlers) < 2 || size <= 3):
		// No warning is needed, for one of two reasons:
		//
		//   - Only one type has such handlers. fitPool has lowered its Concurrency to what the pool allows.
		//   - The pool has at most 3 connections. In such a small pool, handlers are expected to wait for a connection.
		return
	}
	advice := fmt.Sprintf("SetMaxOpenConns to %d and more", wanted+2) // A larger pool also raises the Concurrency that fitPool has lowered.
	if len(handlers) <= size-2 {
		advice = fmt.Sprintf("Concurrency of these types to %d in all, or %s", size-2, advice)
	}
	if shrunk {
		advice += ", before the types are registered"
	}
	warning := fmt.Sprint(calls, size, handlers, undoing, thens, advice)
	if warning == c.poolShares.warned {
		return
	}
	c.poolShares.warned = warning
	c.log.Warn("compensator: transactional handlers may hold the whole pool: what else wants a connection waits for them",
		"calls", calls, "max_open_conns", size, "types", strings.Join(handlers, ", "), "compensations_beside_them", strings.Join(undoing, ", "),
		"calls_beside_them", strings.Join(thens, ", "), "set", advice)
}

// fitLease makes the lease of a type longer than an attempt, if an open transaction of the handler could block the renewal
// of the lease. Without this, a handler that always runs longer than its lease would lose each lease. A lost lease does
// not count as an attempt, so the entry would run again and again.
func (c *Compensator) fitLease(businessType string, s *settings, usesTx bool, size int) {
	store, ok := c.store.(*sqlstore.Store)
	oneWriter := ok && store.OneWriter() // a transaction of the handler blocks the statement that renews leases, whatever the pool size
	enough := s.timeout + c.cfg.Grace
	switch {
	case oneWriter && usesTx && s.lease < enough:
		if s.lease < s.timeout {
			c.log.Warn("compensator: on SQLite no lease is renewed while a transactional handler writes; lease raised above the timeout", "type", businessType, "lease", enough)
		}
		s.lease = enough
	// Handlers may use the whole pool, and then no connection is left for the renewal of leases.
	case size != 0 && size <= 3 && (c.connector == nil || oneWriter) && s.lease < s.timeout:
		s.lease = enough
		c.log.Warn("compensator: the pool is too small to renew leases in time; lease raised above the timeout", "type", businessType, "lease", s.lease)
	}
}

func (c *Compensator) registerOrdering(ctx context.Context, businessType string, cfg TypeConfig) error {
	if cfg.Serial == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	key := func(row *processlog.Row) string { return cfg.Serial(c.handlerEntry(row, cfg.Codec)) }
	return c.features.Serialize(ctx, businessType, features.Serial{Key: key, PassDead: cfg.PassDead})
}

// checkLimits returns an error if a type needs the table of limits and this table does not exist.
func (c *Compensator) checkLimits(ctx context.Context, l *Limit) error {
	if !l.isSet() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	if err := c.store.CheckLimits(ctx); err != nil {
		return err
	}
	return c.startPurgingLimit(ctx, l)
}

func newType[T any](c *Compensator, name string, cfg TypeConfig) *Type[T] {
	if cfg.RefuseOtherContent {
		c.types.refuseOtherContent(name)
	}
	c.types.addDeclaredCodec(name, cfg.Codec)
	c.types.addSealer(name, cfg.Codec)
	c.types.addFacts(name, typeFacts{serial: cfg.Serial != nil, passDead: cfg.PassDead, limit: cfg.Limit.settings(c, name, cfg.Codec), decode: func(e *Entry) error {
		var v T
		return e.Decode(&v)
	}})
	return &Type[T]{c: c, name: name, codec: cfg.Codec}
}
