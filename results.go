package compensator

import (
	"context"
	"errors"
	"fmt"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/processlog"
)

// ErrNoResult says that an entry succeeded without a result. There are these possible causes:
//
//   - Your program completed the entry with Complete, or with the method Once of a Type.
//   - A handler that returns no result ran the entry.
//   - A middleware returned nil and did not call the handler.
//   - A person erased the entry.
var ErrNoResult = errors.New("compensator: the entry succeeded without a result")

// ResultType is a Type whose handler returns a result of type R. A ResultType has all methods of Type, and the methods
// Result and Wait. All these methods are safe for concurrent use. If a function wants a *Type, pass the embedded field
// Type of the ResultType.
type ResultType[T, R any] struct {
	*Type[T]
}

// HandleResult registers a handler that returns a result. The result is stored in the transaction that stores the
// success, so an entry has both or neither. The type's codec encodes and seals the result. A result may have up to
// Config.MaxContent bytes. It is purged and erased with its entry.
//
// If the result cannot be encoded, or is too long, the attempt fails with a *FieldError. HandleResult returns the
// errors of Handle.
func HandleResult[T, R any](ctx context.Context, c *Compensator, businessType string, handler func(ctx context.Context, e *Entry, v T) (R, error), cfg *HandlerConfig[T]) (*ResultType[T, R], error) {
	if handler == nil {
		return nil, &FieldError{Field: "handler", Reason: "is nil"}
	}
	return withResult[T, R](register[T](ctx, c, businessType, cfg.settings(), func(t *engine.Type, f *features.TypeSettings, s *settings) {
		codec := s.Codec
		f.PublishEnds = true
		t.Run = engine.HandlerOf(c.singleHandler(typed(func(ctx context.Context, e *Entry, v T) error {
			result, err := handler(ctx, e, v)
			if err != nil {
				return err
			}
			return verdict.OutcomeUnknown(c.setResult(e, codec, result)) // The effect of the handler has happened, and its result is lost.
		}), s))
	}))
}

// HandleCall registers a handler that consists of two functions. First callFunc works outside the database, for example
// at a partner, and no transaction is open meanwhile. If callFunc returns no error, the library begins a transaction,
// and calls txFunc in it with the result of callFunc. This transaction also stores the result and the success. txFunc
// has the limits of a handler of HandleTx. Middleware wraps both functions at once. The result is encoded after txFunc
// has returned.
//
// If the handler ends the entry as succeeded, the writes of txFunc happen exactly once. callFunc runs at least once, so
// pass Entry.CallKey to the partner. If txFunc fails, its writes are rolled back, and the attempt has failed with its
// error. The next attempt runs callFunc again with the same CallKey, because the earlier result is not stored. So
// txFunc must not fail for a reason that a retry cannot mend, unless a compensation undoes the work of callFunc.
//
// HandlerConfig.Timeout limits both functions together. HandlerConfig.Concurrency is not lowered for the pool: more
// handlers than connections may run, and their transactions wait for each other.
//
// Limits and errors of the result are those of HandleResult. HandleCall itself returns the errors of Handle, and a
// *FieldError if callFunc or txFunc is nil.
func HandleCall[T, R any](ctx context.Context, c *Compensator, businessType string, callFunc func(ctx context.Context, e *Entry, v T) (R, error), txFunc func(ctx context.Context, tx *ScopedTx, e *Entry, v T, result R) error, cfg *HandlerConfig[T]) (*ResultType[T, R], error) {
	if callFunc == nil || txFunc == nil {
		return nil, &FieldError{Field: "handler", Reason: "callFunc or txFunc is nil"}
	}
	return withResult[T, R](register[T](ctx, c, businessType, cfg.settings(), func(_ *engine.Type, f *features.TypeSettings, s *settings) {
		codec := s.Codec
		f.PublishEnds = true
		f.RunCall = c.callHandler(typed(func(ctx context.Context, e *Entry, v T) error {
			result, err := callFunc(ctx, e, v)
			if err != nil {
				return err
			}
			if e.beginTx == nil {
				return verdict.OutcomeUnknown(errReplaced)
			}
			tx, err := e.beginTx()
			if err != nil {
				return err
			}
			return tx.callHandler(func() error {
				if err := txFunc(c.markInTransaction(ctx), tx, e, v, result); err != nil {
					return err
				}
				return c.setResult(e, codec, result)
			})
		}), s)
	}))
}

// DeclareResult does the same as Declare for a type whose handler runs in another process and returns a result of type R.
// It returns the errors of Declare.
func DeclareResult[T, R any](ctx context.Context, c *Compensator, businessType string, cfg *TypeConfig) (*ResultType[T, R], error) {
	return withResult[T, R](Declare[T](ctx, c, businessType, cfg))
}

func withResult[T, R any](t *Type[T], err error) (*ResultType[T, R], error) {
	if err != nil {
		return nil, err
	}
	return &ResultType[T, R]{t}, nil
}

// Result reads the result of an entry that has succeeded. It does not wait: see Wait. A requeue by a person removes the
// result, and the next success may set another one.
//
// Result returns one of these errors:
//   - a *StateError if the entry has not succeeded yet, or has ended without success;
//   - ErrNoResult if it succeeded without a result;
//   - ErrNotFound if there is no such entry;
//   - an *OtherTypeError if the entry has another type;
//   - an error of the codec if the result does not decode as R;
//   - an error of the database.
func (t *ResultType[T, R]) Result(ctx context.Context, ref Ref) (R, error) {
	var none R
	id, err := t.c.idOf(ctx, ref)
	if err != nil {
		return none, err
	}
	rows, err := t.c.store.Ends(ctx, []EntryID{id})
	if err != nil {
		return none, err
	}
	if len(rows) == 0 {
		return none, notFound(ref)
	}
	if err := t.succeeded(&rows[0], "read the result of"); err != nil {
		return none, err
	}
	return t.decode(&rows[0])
}

// Wait waits for the end of an entry and returns the entry with its result. See Type.Wait, which says how soon it
// returns. If the entry has succeeded without a result, Wait returns it with ErrNoResult. Wait may also return an error
// of the codec.
func (t *ResultType[T, R]) Wait(ctx context.Context, ref Ref) (*Entry, R, error) {
	var none R
	row, err := t.c.await(ctx, ref, t.name)
	if err != nil {
		return nil, none, err
	}
	e := t.c.entry(&row)
	if err := t.succeeded(&row, "wait for"); err != nil {
		return e, none, err
	}
	result, err := t.decode(&row)
	return e, result, err
}

// Wait waits for the end of an entry and returns the entry. Call it after the commit of the entry. Run need not run in
// this process. If many calls wait at the same time, they share their reads: one statement reads up to 500 entries.
//
// Wait returns as soon as the entry ends in these two cases:
//
//   - The entry ends in this process.
//   - The entry ends in another process, both processes use Redis, and the type has a result: see HandleResult.
//
// In all other cases Wait reads the entry every 50 ms. After 4 s it reads less often, and after 40 s every second.
//
// Wait returns one of these errors:
//
//   - a *StateError, together with the entry, if the entry ended without success: it is dead, cancelled, compensated or
//     settled manually. A dead entry may succeed later, if a person requeues it;
//   - ErrNotFound if there is no such entry, or its transaction has not committed yet;
//   - an *OtherTypeError if the entry has another type;
//   - context.Cause(ctx) if ctx ends;
//   - ErrClosed after Close;
//   - an error of the database. Call Wait again.
func (t *Type[T]) Wait(ctx context.Context, ref Ref) (*Entry, error) {
	row, err := t.c.await(ctx, ref, t.name)
	if err != nil {
		return nil, err
	}
	e := t.c.entry(&row)
	return e, t.succeeded(&row, "wait for")
}

func (c *Compensator) await(ctx context.Context, ref Ref, businessType string) (processlog.Row, error) {
	if c.closed() {
		return processlog.Row{}, ErrClosed
	}
	id, err := c.idOf(ctx, ref)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return processlog.Row{}, err
	}
	row, err := c.features.Await(ctx, id, businessType)
	if errors.Is(err, ErrNotFound) {
		err = notFound(ref)
	}
	return row, err
}

func (t *Type[T]) succeeded(row *processlog.Row, action processlog.Action) error {
	switch {
	case row.BusinessType != t.name:
		return &OtherTypeError{IdempotencyKey: row.IdempotencyKey, Recorded: row.BusinessType, Asked: t.name}
	case row.State != Succeeded:
		return &StateError{ID: row.ID, IdempotencyKey: row.IdempotencyKey, State: row.State, Action: action}
	}
	return nil
}

func (t *ResultType[T, R]) decode(row *processlog.Row) (result R, err error) {
	if row.Result == nil {
		return result, fmt.Errorf("entry %s: %w", row.ID, ErrNoResult)
	}
	defer refusePanic("result", &err)
	encoded := row.Result
	if sealing, ok := t.codec.(SealingCodec); ok {
		encoded, err = sealing.Open(encoded, row.BusinessType, string(row.IdempotencyKey))
	}
	if err == nil {
		err = t.codec.Unmarshal(encoded, &result)
	}
	if err != nil {
		return result, fmt.Errorf("decode the result of %s entry %s: %w", row.BusinessType, row.ID, usererr.Safe(err))
	}
	return result, nil
}

var errReplaced = &FieldError{Field: "result", Reason: "cannot be stored: a middleware has replaced the *Entry of the attempt"}

func (c *Compensator) setResult(e *Entry, codec Codec, v any) (err error) {
	if e.row == nil {
		return errReplaced
	}
	encoded, err := c.encodeResult(e.row, codec, v)
	if err != nil {
		return err
	}
	if encoded == nil {
		encoded = []byte{} // nil means that there is no result
	}
	e.row.Result = encoded
	return nil
}

func (c *Compensator) encodeResult(row *processlog.Row, codec Codec, v any) (encoded []byte, err error) {
	defer refusePanic("result", &err)
	if encoded, err = codec.Marshal(v); err != nil {
		return nil, &FieldError{Field: "result", Reason: fmt.Sprintf("encode %T: %v", v, usererr.Safe(err))}
	}
	if sealing, ok := codec.(SealingCodec); ok {
		if encoded, err = sealing.Seal(encoded, row.BusinessType, string(row.IdempotencyKey)); err != nil {
			return nil, &FieldError{Field: "result", Reason: fmt.Sprintf("seal: %v", usererr.Safe(err))}
		}
	}
	if len(encoded) > c.cfg.MaxContent {
		return nil, &FieldError{Field: "result", Reason: fmt.Sprintf("%d bytes, at most %d", len(encoded), c.cfg.MaxContent)}
	}
	return encoded, nil
}
