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

// gatedTx is a transaction whose statements and whose end are steps. Beside the entries it carries effects,
// what a transactional handler does in this database.
type gatedTx struct {
	*memory.Tx
	from    *instance
	first   string      // its first statement, which tells it from others
	broken  atomic.Bool // its connection is gone
	effects []effect    // of one goroutine, as what follows
	inserts []*operation

	consumed []compensator.IdempotencyKey // messages that it does
	lost     fault                        // of its COMMIT
}

var _ processlog.Transaction = (*gatedTx)(nil)

// effect is one thing a transactional handler did.
type effect struct {
	id         compensator.EntryID
	epoch      uint32
	compensate bool
}

const effectSQL = "INSERT INTO effects"

// ExecContext does an effect. Everything else is the store asking which transaction this is.
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

// Commit is a step whose answer may be lost. The effects count if it happened.
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
		open := w.store.Probe(context.Background(), tx.Tx) == nil // a server says yes to a COMMIT of nothing
		err := tx.Tx.Commit()
		if applied = err == nil && open; applied {
			w.oracle.effects(tx.effects)
			w.oracle.consumed(tx.consumed)
		}
		return err
	})
	if err == errBroken {
		w.oracle.note(func(o *oracle) {
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
		_ = tx.Tx.Rollback() // what the server does once it sees the connection go
	}
	return err
}

// errRefused is a COMMIT that the server answered with a rollback.
var errRefused = &mysql.MySQLError{Number: 1213, Message: "deadlock at commit"}

// Rollback is no step: it goes unanswered when the connection is gone, and the server does it anyway.
func (tx *gatedTx) Rollback() error {
	defer tx.from.disown(tx)
	return tx.Tx.Rollback()
}

func (tx *gatedTx) abort() error {
	tx.Abort()
	return fmt.Errorf("%w: deadlock", compensator.ErrTxAborted)
}

// whichTx is the context key by which gatedOf asks.
type whichTx struct{}

// gatedOf finds the transaction beneath a handle.
func gatedOf(tx compensator.Tx) (found *gatedTx) {
	if tx, ok := tx.(*gatedTx); ok {
		return tx
	}
	_, _ = tx.ExecContext(context.WithValue(context.Background(), whichTx{}, &found), "")
	return found
}
