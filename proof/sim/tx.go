package sim

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/processlog"
)

// gatedTx is a transaction whose statements and COMMIT are steps. Besides entries it holds effects, which stand for the
// writes that a transactional handler makes in this database.
type gatedTx struct {
	*memory.Tx
	from    *instance
	first   string      // first statement, which identifies the transaction
	broken  atomic.Bool // the connection is broken
	effects []effect    // effects of the transaction; used by one goroutine, like the fields below it
	inserts []*operation

	consumed []compensator.IdempotencyKey // idempotency keys of the messages whose work this transaction does
	lost     fault                        // fault of its COMMIT
}

var _ processlog.Transaction = (*gatedTx)(nil)

// effect is one effect of a transactional handler.
type effect struct {
	id         compensator.EntryID
	epoch      uint32
	compensate bool
}

const effectSQL = "INSERT INTO effects"

// ExecContext handles three cases:
//   - gatedOf asks which transaction is behind a handle. The answer is this transaction.
//   - The statement effectSQL adds an effect.
//   - All other statements come from the store, and go to the store's transaction.
func (tx *gatedTx) ExecContext(ctx context.Context, query string, values ...any) (sql.Result, error) {
	if found, asked := ctx.Value(whichTx{}).(**gatedTx); asked {
		*found = tx
		return nil, nil
	}
	if query != effectSQL {
		return tx.Tx.ExecContext(ctx, query, values...)
	}
	e := values[0].(effect)
	err := tx.from.stepIn(ctx, tx, "effect", make(args, 0, 16).id(e.id).num(uint64(e.epoch)), func() error {
		if err := tx.from.w.store.Probe(ctx, tx.Tx); err != nil {
			return err
		}
		tx.effects = append(tx.effects, e)
		return nil
	})
	return nil, err
}

// Commit is a step whose answer may be lost. If the transaction has committed, the oracle records its effects.
func (tx *gatedTx) Commit() error {
	if tx.broken.Load() {
		_ = tx.Rollback()
		return driver.ErrBadConn
	}
	defer tx.from.disown(tx)
	w, applied := tx.from.w, false
	_, err := tx.from.judged(context.Background(), &request{from: tx.from, class: classCommit, op: "commit", args: tx.first, lost: tx.lost}, func(v verdict) error {
		if v.fault == txAborted {
			tx.Abort()
			return errRefused
		}
		open := w.store.Probe(context.Background(), tx.Tx) == nil // Check this before the COMMIT, because a server accepts the COMMIT of a transaction that it has rolled back.
		err := tx.Tx.Commit()
		if applied = err == nil && open; applied {
			w.oracle.checkEffects(tx.effects)
			w.oracle.noteConsumed(tx.consumed)
		}
		return err
	})
	if err == errBroken {
		w.oracle.readCounts(func(o *oracle) {
			for _, op := range tx.inserts {
				op.unknown = true
			}
			if applied {
				o.sights[sawUnknownApplied]++
			} else {
				o.sights[sawUnknownNot]++
			}
		})
	}
	if err != nil {
		_ = tx.Tx.Rollback() // The server rolls back when the connection breaks.
	}
	return err
}

// errRefused is the error of a COMMIT that made the server roll back.
var errRefused = &mysql.MySQLError{Number: 1213, Message: "deadlock at commit"}

// Rollback is not a step, because a lost answer does not change the outcome: if the connection breaks, the server rolls
// back, too.
func (tx *gatedTx) Rollback() error {
	defer tx.from.disown(tx)
	return tx.Tx.Rollback()
}

func (tx *gatedTx) abort() error {
	tx.Abort()
	return fmt.Errorf("%w: deadlock", compensator.ErrTxAborted)
}

// whichTx is the context key with which gatedOf asks for the transaction.
type whichTx struct{}

// gatedOf returns the transaction that a handle wraps.
func gatedOf(tx compensator.Tx) (found *gatedTx) {
	if tx, ok := tx.(*gatedTx); ok {
		return tx
	}
	_, _ = tx.ExecContext(context.WithValue(context.Background(), whichTx{}, &found), "")
	return found
}
