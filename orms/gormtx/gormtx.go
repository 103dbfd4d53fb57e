// Package gormtx lets GORM work inside a transaction of the library's: that of a handler registered with HandleTx, or of
// InTx. What is written through it commits with the entry's outcome, or not at all.
//
//	func (w *Wallet) book(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, p Payment) error {
//		db := gormtx.Use(ctx, w.db, tx)
//		return db.CreateInBatches(p.Lines, 100).Error
//	}
//
// A request's transaction is RetryTx, which runs it again where that is right. In one that GORM has begun, or in any of these, Tx
// is the handle that Record, CancelTx and CompleteTx take:
//
//	err := gormtx.RetryTx(ctx, c, db, "close-42", func(tx *gorm.DB) error {
//		receipt, err := closeOrder.Record(ctx, gormtx.Tx(tx), order, compensator.Options{IdempotencyKey: "close-42"})
//		if err != nil || receipt.Duplicate() {
//			return err
//		}
//		return tx.Create(&order).Error
//	})
package gormtx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/compensator-go/compensator"
)

// ErrCommit is what a Commit through GORM returns: the library commits, once the function has returned nil.
var ErrCommit = errors.New("gormtx: the transaction is the library's, which commits it: return nil instead")

// ErrPrepare is what a statement of a Session with PrepareStmt returns: what is prepared is kept for the whole pool, and this
// transaction ends. gorm.Config's PrepareStmt may be set: inside the transaction nothing is prepared then.
var ErrPrepare = errors.New("gormtx: no Session with PrepareStmt in a transaction of the library's")

// Use returns db on tx, with ctx. Callbacks, plugins, hooks and the default transaction of single statements are as db has
// them. It serves the function that tx was given to, and one goroutine at a time.
//
// Transaction sets a savepoint, and goes back to it on an error or a panic; so do CreateInBatches and what else begins one.
// Begin returns gorm.ErrInvalidTransaction and Commit ErrCommit. Rollback rolls all of it back: from then on every
// statement returns compensator.ErrNoTransaction, and a handler that returns nil all the same has failed.
//
// Tx of the result is a handle to record through, as tx is itself.
func Use(ctx context.Context, db *gorm.DB, tx *compensator.ScopedTx) *gorm.DB {
	scoped := db.WithContext(ctx)
	p := &pool{ctx: ctx, tx: tx}
	// Both: what GORM makes of a session may begin with either.
	scoped.Statement.ConnPool, scoped.Config.ConnPool = p, p
	return scoped
}

// Tx is the handle of the transaction that tx is in, whoever has begun it, for what the log does there: Record, Once, CancelTx and their like.
// Of a db outside a transaction it is the pool, which they refuse with compensator.ErrNoTransaction; of nil it is nil, which they refuse, too.
func Tx(tx *gorm.DB) compensator.Tx {
	if tx == nil || tx.Statement == nil {
		return nil
	}
	return tx.Statement.ConnPool
}

// RetryTx is c.RetryTx of an InTx through GORM: do runs with Use of db on a transaction of c's, at READ COMMITTED, that commits when it returns
// nil, is run again from its beginning where it lost against others, and is not where the answer to its COMMIT was lost and proof, the
// idempotency key of an entry that do records, tells that it happened. It needs no Connector. For another isolation level call
// c.RetryTx with a Transaction of GORM's. What do calls takes ctx, or tx.Statement.Context: either will do.
//
// A *compensator.FieldError names what is missing, and a db that is in a transaction: what is run again is the whole one.
func RetryTx(ctx context.Context, c *compensator.Compensator, db *gorm.DB, proof compensator.IdempotencyKey, do func(tx *gorm.DB) error) error {
	switch {
	case c == nil:
		return &compensator.FieldError{Field: "c", Reason: "is nil"}
	case db == nil || db.Statement == nil:
		return &compensator.FieldError{Field: "db", Reason: "is nil, or not what gorm.Open returns"}
	case do == nil:
		return &compensator.FieldError{Field: "do", Reason: "is nil"}
	}
	if _, within := db.Statement.ConnPool.(gorm.TxCommitter); within {
		return &compensator.FieldError{Field: "db", Reason: "is in a transaction, of which a part cannot be run again: want the db that it was begun on"}
	}
	return c.RetryTx(ctx, proof, func(ctx context.Context) error {
		return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error { return do(Use(ctx, db, tx)) })
	})
}

// pool is what GORM takes for a transaction of its own.
type pool struct {
	ctx  context.Context // Rollback is given none
	tx   *compensator.ScopedTx
	over error // it was rolled back through GORM
}

var _ gorm.Tx = (*pool)(nil)

// Scoped leads the library back to its transaction.
func (p *pool) Scoped() *compensator.ScopedTx { return p.tx }

func (p *pool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if p.over != nil {
		return nil, p.over
	}
	return p.tx.ExecContext(ctx, query, args...)
}

func (p *pool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if p.over != nil {
		return nil, p.over
	}
	return p.tx.QueryContext(ctx, query, args...)
}

// QueryRowContext returns its error with the row: once it is over, the connection refuses by itself.
func (p *pool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return p.tx.QueryRowContext(ctx, query, args...)
}

// PrepareContext is called by GORM's cache of statements alone.
func (p *pool) PrepareContext(context.Context, string) (*sql.Stmt, error) { return nil, ErrPrepare }

// StmtContext is called for what the cache has already. Of a pool without Connector the statement returns an error.
func (p *pool) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	return p.tx.StmtContext(ctx, stmt)
}

func (p *pool) Commit() error { return ErrCommit }

// Rollback ends the transaction on the server, and the library sees it.
func (p *pool) Rollback() error {
	if p.over != nil {
		return p.over
	}
	_, err := p.tx.ExecContext(p.ctx, "ROLLBACK")
	p.over = fmt.Errorf("gormtx: rolled back through GORM: %w", compensator.ErrNoTransaction)
	return err
}
