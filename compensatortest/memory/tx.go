package memory

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator/processlog"
)

var errNoSQL = errors.New("compensatortest/memory: a Tx runs no SQL")

// Tx is a transaction of a Store. It runs no SQL: it is what Record, CompleteTx, CancelTx and the like take
// in a unit test, directly or inside a wrapper that passes ExecContext's context on. Its methods may be called
// concurrently; it is meant for one goroutine, as *sql.Tx is.
type Tx struct {
	store *Store
	ctx   context.Context
	stop  func() bool   // stops watching ctx
	ended chan struct{} // closed at its end

	// guarded by store.mu
	end   *txEnd       // how it ended; nil while open
	told  bool         // Commit or Rollback has said so
	waits *storedRow   // the row another transaction keeps it waiting for
	held  []*storedRow // held or shared until its end
	steps []rowStep
	moves []markMove
	joins []processlog.Position
	marks []savepoint
}

var _ processlog.Transaction = (*Tx)(nil)

// savepoint is a name for the first steps of a transaction.
type savepoint struct {
	name  string
	steps int
	moves int
	joins int
}

// txEnd is a way for a transaction to end.
type txEnd struct {
	refusal error // what its statements return afterwards
	answer  error // what the first Commit or Rollback afterwards returns
}

var (
	endFinished = &txEnd{refusal: processlog.ErrNoTransaction, answer: sql.ErrTxDone}
	endCrashed  = &txEnd{refusal: fmt.Errorf("%w: %w", processlog.ErrNoTransaction, driver.ErrBadConn), answer: driver.ErrBadConn}
	// A driver cannot tell whether a connection that it gave up was needed for what comes now.
	endDropped = &txEnd{refusal: driver.ErrBadConn, answer: mysql.ErrInvalidConn}
	// A server that ended a transaction by itself has nothing against a COMMIT: there is just nothing left.
	endAborted = &txEnd{refusal: processlog.ErrTxAborted}
)

// Begin implements processlog.Store. It returns a *Tx.
func (s *Store) Begin(ctx context.Context) (processlog.Transaction, error) {
	tx, err := s.BeginTx(ctx)
	if err != nil {
		return nil, err
	}
	return tx, nil
}

// BeginTx starts a transaction. As with *sql.DB it is rolled back when ctx ends before it does.
func (s *Store) BeginTx(ctx context.Context) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tx := &Tx{store: s, ctx: ctx, ended: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, tx)
	tx.stop = context.AfterFunc(ctx, tx.expire)
	return tx, nil
}

// Probe implements processlog.Store.
func (s *Store) Probe(ctx context.Context, tx processlog.Tx) error {
	own, err := s.unwrap(ctx, tx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return own.refusalLocked()
}

type txKey struct{}

// unwrap finds the Tx that tx is, or wraps: through a wrapper it asks by the context of a statement.
func (s *Store) unwrap(ctx context.Context, tx processlog.Tx) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	own, ok := tx.(*Tx)
	if !ok && tx != nil {
		_, _ = tx.ExecContext(context.WithValue(ctx, txKey{}, &own), "SELECT 1") // the answer is own
	}
	if own == nil || own.store != s {
		return nil, processlog.ErrNoTransaction
	}
	return own, nil
}

// ExecContext returns an error: a Tx runs no SQL.
func (tx *Tx) ExecContext(ctx context.Context, _ string, _ ...any) (sql.Result, error) {
	if asked, ok := ctx.Value(txKey{}).(**Tx); ok {
		*asked = tx
	}
	return nil, errNoSQL
}

// QueryContext returns an error: a Tx runs no SQL.
func (tx *Tx) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errNoSQL
}

// Commit makes the transaction's writes visible, all at once. It returns sql.ErrTxDone when the transaction
// was finished before.
func (tx *Tx) Commit() error {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.end == nil && tx.ctx.Err() != nil {
		tx.undoLocked(0)
		tx.endLocked(&txEnd{refusal: processlog.ErrNoTransaction, answer: tx.ctx.Err()})
	}
	if tx.end != nil {
		return tx.answerLocked()
	}
	for _, step := range tx.steps {
		tx.store.publishLocked(step)
	}
	for _, move := range tx.moves {
		move.mark.at = move.to
	}
	tx.store.joinLocked(tx.joins)
	tx.endLocked(endFinished)
	tx.told = true
	return nil
}

// Rollback undoes the transaction's writes. It returns sql.ErrTxDone when the transaction was finished before.
func (tx *Tx) Rollback() error {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.end != nil {
		return tx.answerLocked()
	}
	tx.undoLocked(0)
	tx.endLocked(endFinished)
	tx.told = true
	return nil
}

// Abort ends the transaction as a server does with the victim of a deadlock: its writes are undone, later
// statements report ErrTxAborted, and yet Commit returns nil.
func (tx *Tx) Abort() {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.end == nil {
		tx.undoLocked(0)
		tx.endLocked(endAborted)
	}
}

// Savepoint names this moment of the transaction for RollbackTo, in place of an earlier one of that name.
func (tx *Tx) Savepoint(name string) error {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.end != nil {
		return tx.end.refusal
	}
	tx.marks = slices.DeleteFunc(tx.marks, func(mark savepoint) bool { return mark.name == name })
	tx.marks = append(tx.marks, savepoint{name, len(tx.steps), len(tx.moves), len(tx.joins)})
	return nil
}

// RollbackTo undoes what was written since the savepoint, which stays. Rows changed since then stay held
// until the transaction ends; rows inserted since then are gone.
func (tx *Tx) RollbackTo(name string) error {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.end != nil {
		return tx.end.refusal
	}
	i := slices.IndexFunc(tx.marks, func(mark savepoint) bool { return mark.name == name })
	if i < 0 {
		return fmt.Errorf("compensatortest/memory: no savepoint %q", name)
	}
	tx.marks = tx.marks[:i+1]
	tx.undoLocked(tx.marks[i].steps)
	tx.moves, tx.joins = tx.moves[:tx.marks[i].moves], tx.joins[:tx.marks[i].joins]
	return nil
}

// expire rolls back a transaction whose context has ended.
func (tx *Tx) expire() {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.end == nil {
		tx.undoLocked(0)
		tx.endLocked(endFinished)
	}
}

// holdLocked makes row the transaction's own until it ends.
func (tx *Tx) holdLocked(row *storedRow) {
	if row.holder == tx {
		return
	}
	tx.keepLocked(row)
	row.holder, row.working = tx, row.committed
}

// shareLocked keeps everybody from writing row until the transaction ends.
func (tx *Tx) shareLocked(row *storedRow) {
	if row.holder == tx || slices.Contains(row.sharers, tx) {
		return
	}
	tx.keepLocked(row)
	row.sharers = append(row.sharers, tx)
}

// keepLocked notes a row to let go of.
func (tx *Tx) keepLocked(row *storedRow) {
	if !slices.Contains(row.sharers, tx) {
		tx.held = append(tx.held, row)
	}
}

// undoLocked takes back every step but the first keep.
func (tx *Tx) undoLocked(keep int) {
	for _, step := range slices.Backward(tx.steps[keep:]) {
		step.row.working = step.before
		if step.before == nil {
			tx.store.removeLocked(step.row)
			tx.held = slices.DeleteFunc(tx.held, func(row *storedRow) bool { return row == step.row })
			step.row.release(tx)
		}
	}
	tx.steps = tx.steps[:keep]
}

// endLocked lets go of every row.
func (tx *Tx) endLocked(how *txEnd) {
	for _, row := range tx.held {
		row.release(tx)
	}
	for _, m := range tx.store.marks {
		if m.holder == tx {
			m.holder = nil
		}
	}
	tx.end, tx.held, tx.steps, tx.moves, tx.joins = how, nil, nil, nil, nil
	tx.store.open = slices.DeleteFunc(tx.store.open, func(other *Tx) bool { return other == tx })
	tx.stop()
	close(tx.ended)
}

// answerLocked is what Commit and Rollback return after the end.
func (tx *Tx) answerLocked() error {
	if tx.told {
		return sql.ErrTxDone
	}
	tx.told = true
	return tx.end.answer
}

// refusalLocked is why tx runs no statement; nil while it is open, and for no transaction.
func (tx *Tx) refusalLocked() error {
	if tx == nil || tx.end == nil {
		return nil
	}
	return tx.end.refusal
}

// waitLocked notes which row tx waits for, and returns what tells its end; never, for no transaction.
func (tx *Tx) waitLocked(row *storedRow) <-chan struct{} {
	if tx == nil {
		return nil
	}
	tx.waits = row
	return tx.ended
}
