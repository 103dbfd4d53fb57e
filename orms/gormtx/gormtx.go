// Package gormtx runs GORM inside a transaction of the library: the transaction of a handler registered with HandleTx,
// or of InTx. Writes through it commit together with the entry's outcome, or not at all.
//
//	func (w *Wallet) book(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, p Payment) error {
//		db := gormtx.Use(ctx, w.db, tx)
//		return db.CreateInBatches(p.Lines, 100).Error
//	}
//
// For a request, use WithRetry. It runs the transaction again where this is safe. Tx returns the handle that Record,
// CancelTx and CompleteTx need. It works in a transaction that GORM has begun and in all transactions of this package:
//
//	err := gormtx.WithRetry(ctx, c, db, "close-42", func(tx *gorm.DB) error {
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

// ErrCommit is the error of a Commit through GORM. Return nil from the function instead. Then the library commits.
var ErrCommit = errors.New("gormtx: the library commits this transaction: return nil instead of calling Commit")

// ErrPrepare is the error of a statement in a Session with PrepareStmt. GORM keeps prepared statements for the whole
// pool, but a transaction of the library ends sooner. You may set PrepareStmt in gorm.Config, because GORM then
// prepares nothing inside the transaction.
var ErrPrepare = errors.New("gormtx: a transaction of the library prepares no statements: use a Session without PrepareStmt")

// Use returns a copy of db that runs on tx with ctx. It keeps db's callbacks, plugins, hooks and default transactions
// of single statements. Use the result only within the function that received tx, and in one goroutine at a time.
//
// The methods of the result behave like this inside a transaction of the library:
//
//   - Transaction sets a savepoint and rolls back to it after an error or a panic. CreateInBatches and other calls that
//     begin a transaction do the same.
//   - Begin returns gorm.ErrInvalidTransaction, and Commit returns ErrCommit.
//   - Rollback rolls back the whole transaction. Every later statement returns compensator.ErrNoTransaction. A handler
//     fails after a Rollback even if it returns nil.
//
// For Record, pass either Tx of the result or tx itself.
func Use(ctx context.Context, db *gorm.DB, tx *compensator.ScopedTx) *gorm.DB {
	scoped := db.WithContext(ctx)
	p := &pool{ctx: ctx, tx: tx}
	// A session that GORM derives may start from either field.
	scoped.Statement.ConnPool, scoped.Config.ConnPool = p, p
	return scoped
}

// Tx returns the handle of the transaction that tx is in, for Record, Once, CancelTx and similar calls. It works
// whether GORM or the library has begun the transaction. Outside a transaction Tx returns the pool, and these calls
// return compensator.ErrNoTransaction for a pool. If tx is nil, Tx returns nil, for which these calls return an error
// too.
func Tx(tx *gorm.DB) compensator.Tx {
	if tx == nil || tx.Statement == nil {
		return nil
	}
	return tx.Statement.ConnPool
}

// WithRetry runs the function do in a transaction of c at READ COMMITTED. The argument of do is the result of Use for
// db and this transaction. The transaction commits when do returns nil. In do, use ctx or tx.Statement.Context.
// WithRetry needs no Connector. For another isolation level, call c.WithRetry with a Transaction of GORM.
//
// If the transaction lost to a concurrent transaction, WithRetry runs do again from the beginning. If the answer to
// COMMIT was lost, WithRetry looks for the entry whose idempotency key is the argument proof. The function do must
// record this entry. If the entry exists, the transaction was committed and do is not run again.
//
// A *compensator.FieldError names a missing argument. It also reports a db that is inside a transaction, because
// WithRetry can only repeat a whole transaction.
//
// All other errors come from Compensator.WithRetry.
func WithRetry(ctx context.Context, c *compensator.Compensator, db *gorm.DB, proof compensator.IdempotencyKey, do func(tx *gorm.DB) error) error {
	switch {
	case c == nil:
		return &compensator.FieldError{Field: "c", Reason: "is nil"}
	case db == nil || db.Statement == nil:
		return &compensator.FieldError{Field: "db", Reason: "is nil, or not what gorm.Open returns"}
	case do == nil:
		return &compensator.FieldError{Field: "do", Reason: "is nil"}
	}
	if _, isInTransaction := db.Statement.ConnPool.(gorm.TxCommitter); isInTransaction {
		return &compensator.FieldError{Field: "db", Reason: "is inside a transaction, and WithRetry can repeat only a whole one: pass the db on which it was begun"}
	}
	return c.WithRetry(ctx, proof, func(ctx context.Context) error {
		return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error { return do(Use(ctx, db, tx)) })
	})
}

type pool struct {
	ctx           context.Context // context for Rollback, whose signature has no context
	tx            *compensator.ScopedTx
	rolledBackErr error // error that statements return after a rollback through GORM
}

var _ gorm.Tx = (*pool)(nil)

// Scoped returns the library's transaction.
func (p *pool) Scoped() *compensator.ScopedTx { return p.tx }

func (p *pool) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if p.rolledBackErr != nil {
		return nil, p.rolledBackErr
	}
	return p.tx.ExecContext(ctx, query, args...)
}

func (p *pool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if p.rolledBackErr != nil {
		return nil, p.rolledBackErr
	}
	return p.tx.QueryContext(ctx, query, args...)
}

// QueryRowContext cannot put rolledBackErr into a *sql.Row. After a rollback, p.tx returns a *sql.Row with an error.
func (p *pool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return p.tx.QueryRowContext(ctx, query, args...)
}

// PrepareContext is called by GORM's statement cache only.
func (p *pool) PrepareContext(context.Context, string) (*sql.Stmt, error) { return nil, ErrPrepare }

// StmtContext returns a prepared statement from the cache of GORM for use in this transaction. On a pool without the
// Connector, the returned statement fails when GORM runs it.
func (p *pool) StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt {
	return p.tx.StmtContext(ctx, stmt)
}

func (p *pool) Commit() error { return ErrCommit }

// Rollback ends the transaction on the server.
func (p *pool) Rollback() error {
	if p.rolledBackErr != nil {
		return p.rolledBackErr
	}
	_, err := p.tx.ExecContext(p.ctx, "ROLLBACK")
	p.rolledBackErr = fmt.Errorf("gormtx: rolled back through GORM: %w", compensator.ErrNoTransaction)
	return err
}
