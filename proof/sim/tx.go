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

// gatedTx is a transaction of one instance. Besides entries, the transaction holds effects, which stand for the writes
// that a transactional handler makes in the database.
type gatedTx struct {
	*memory.Tx
	from    *instance
	first   string
	broken  atomic.Bool
	effects []effect // used by one goroutine, like the fields below it
	inserts []*operation

	consumed []compensator.IdempotencyKey
	lost     fault
}

var _ processlog.Transaction = (*gatedTx)(nil)

type effect struct {
	id         compensator.EntryID
	epoch      uint32
	compensate bool
}

const effectSQL = "INSERT INTO effects"

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
		open := w.store.Probe(context.Background(), tx.Tx) == nil // Check this first, because a server accepts the COMMIT of a transaction that it has rolled back.
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

var errRefused = &mysql.MySQLError{Number: 1213, Message: "deadlock at commit"}

// Rollback is not a step: if the connection breaks, the server rolls back, too.
func (tx *gatedTx) Rollback() error {
	defer tx.from.disown(tx)
	return tx.Tx.Rollback()
}

func (tx *gatedTx) abort() error {
	tx.Abort()
	return fmt.Errorf("%w: deadlock", compensator.ErrTxAborted)
}

type whichTx struct{}

func gatedOf(tx compensator.Tx) (found *gatedTx) {
	if tx, ok := tx.(*gatedTx); ok {
		return tx
	}
	_, _ = tx.ExecContext(context.WithValue(context.Background(), whichTx{}, &found), "")
	return found
}
