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

// Tx is a transaction of a Store. A unit test passes a Tx to Record, CompleteTx, CancelTx and similar functions. The
// test may also pass a wrapper of a Tx. The wrapper's ExecContext must call the Tx with the context that it was given,
// because the Store finds the Tx by a value in this context.
//
// The methods of a Tx may be called concurrently. A Tx runs no SQL.
type Tx struct {
	store   *Store
	ctx     context.Context
	stop    func() bool   // stops watching the context
	endedCh chan struct{} // closed when the transaction ends

	// store.mu guards ending and the fields below.
	ending      *txEnd       // nil while the transaction is open
	isReturned  bool         // whether Commit or Rollback has already returned the result of the end
	waitsForRow *storedRow   // row for which the transaction waits, because another transaction holds the row
	heldRows    []*storedRow // rows that the transaction holds or shares until it ends
	steps       []rowStep
	moves       []markMove
	joins       []processlog.Position
	marks       []savepoint
}

var _ processlog.Transaction = (*Tx)(nil)

// savepoint has the lengths that the lists Tx.steps, Tx.moves and Tx.joins had when Savepoint was called. RollbackTo
// shortens each list to this length.
type savepoint struct {
	name  string
	steps int
	moves int
	joins int
}

type txEnd struct {
	refusal error // error that each later statement of the transaction returns
	// repeatError is the result of the first Commit or Rollback if something else has ended the transaction before, for
	// example a crash of the server.
	repeatError error
}

var (
	endFinished = &txEnd{refusal: processlog.ErrNoTransaction, repeatError: sql.ErrTxDone}
	endCrashed  = &txEnd{refusal: fmt.Errorf("%w: %w", processlog.ErrNoTransaction, driver.ErrBadConn), repeatError: driver.ErrBadConn}
	// endDropped is for a context that ends while its statement waits for a lock. The driver closes the connection.
	endDropped = &txEnd{refusal: driver.ErrBadConn, repeatError: mysql.ErrInvalidConn}
	// endAborted is for a transaction that the server has rolled back. A later COMMIT succeeds and commits nothing.
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

// BeginTx starts a transaction. As with *sql.DB, the end of ctx rolls an open transaction back.
func (s *Store) BeginTx(ctx context.Context) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tx := &Tx{store: s, ctx: ctx, endedCh: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openTxs = append(s.openTxs, tx)
	tx.stop = context.AfterFunc(ctx, tx.expire)
	return tx, nil
}

// Probe implements processlog.Store.
func (s *Store) Probe(ctx context.Context, tx processlog.Tx) error {
	ownTx, err := s.unwrap(ctx, tx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return ownTx.refusalLocked()
}

type txKey struct{}

// unwrap finds a wrapped Tx by a value in the context of a statement.
func (s *Store) unwrap(ctx context.Context, tx processlog.Tx) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ownTx, ok := tx.(*Tx)
	if !ok && tx != nil {
		_, _ = tx.ExecContext(context.WithValue(ctx, txKey{}, &ownTx), "SELECT 1")
	}
	if ownTx == nil || ownTx.store != s {
		return nil, processlog.ErrNoTransaction
	}
	return ownTx, nil
}

// ExecContext always returns an error, because a Tx runs no SQL.
func (tx *Tx) ExecContext(ctx context.Context, _ string, _ ...any) (sql.Result, error) {
	if target, ok := ctx.Value(txKey{}).(**Tx); ok {
		*target = tx
	}
	return nil, errNoSQL
}

// QueryContext always returns an error, because a Tx runs no SQL.
func (tx *Tx) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errNoSQL
}

// Commit makes all writes of the transaction visible at once. It returns sql.ErrTxDone when the transaction has already
// ended.
func (tx *Tx) Commit() error {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.ending == nil && tx.ctx.Err() != nil {
		tx.undoLocked(0)
		tx.endLocked(&txEnd{refusal: processlog.ErrNoTransaction, repeatError: tx.ctx.Err()})
	}
	if tx.ending != nil {
		return tx.answerLocked()
	}
	for _, step := range tx.steps {
		tx.store.publishLocked(step)
	}
	for _, move := range tx.moves {
		move.typeMark.at = move.to
	}
	tx.store.joinLocked(tx.joins)
	tx.endLocked(endFinished)
	tx.isReturned = true
	return nil
}

// Rollback undoes the writes of the transaction. It returns sql.ErrTxDone when the transaction has already ended.
func (tx *Tx) Rollback() error {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.ending != nil {
		return tx.answerLocked()
	}
	tx.undoLocked(0)
	tx.endLocked(endFinished)
	tx.isReturned = true
	return nil
}

// Abort ends the transaction as a server ends a deadlock victim. Its writes are undone, and later statements return
// ErrTxAborted. Commit still returns nil.
func (tx *Tx) Abort() {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.ending == nil {
		tx.undoLocked(0)
		tx.endLocked(endAborted)
	}
}

// Savepoint sets a savepoint for RollbackTo. It replaces an earlier savepoint of the same name.
func (tx *Tx) Savepoint(name string) error {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.ending != nil {
		return tx.ending.refusal
	}
	tx.marks = slices.DeleteFunc(tx.marks, func(mark savepoint) bool { return mark.name == name })
	tx.marks = append(tx.marks, savepoint{name, len(tx.steps), len(tx.moves), len(tx.joins)})
	return nil
}

// RollbackTo undoes the writes since the savepoint. The savepoint stays. Rows changed since then stay held until the
// transaction ends. Rows inserted since then are removed.
func (tx *Tx) RollbackTo(name string) error {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.ending != nil {
		return tx.ending.refusal
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

func (tx *Tx) expire() {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if tx.ending == nil {
		tx.undoLocked(0)
		tx.endLocked(endFinished)
	}
}

// holdLocked keeps other transactions from writing or sharing the row until tx ends.
func (tx *Tx) holdLocked(row *storedRow) {
	if row.holder == tx {
		return
	}
	tx.keepLocked(row)
	row.holder, row.current = tx, row.committed
}

func (tx *Tx) shareLocked(row *storedRow) {
	if row.holder == tx || slices.Contains(row.sharers, tx) {
		return
	}
	tx.keepLocked(row)
	row.sharers = append(row.sharers, tx)
}

func (tx *Tx) keepLocked(row *storedRow) {
	if !slices.Contains(row.sharers, tx) {
		tx.heldRows = append(tx.heldRows, row)
	}
}

func (tx *Tx) undoLocked(keptSteps int) {
	for _, step := range slices.Backward(tx.steps[keptSteps:]) {
		step.row.current = step.before
		if step.before == nil {
			tx.store.removeLocked(step.row)
			tx.heldRows = slices.DeleteFunc(tx.heldRows, func(row *storedRow) bool { return row == step.row })
			step.row.release(tx)
		}
	}
	tx.steps = tx.steps[:keptSteps]
}

func (tx *Tx) endLocked(ending *txEnd) {
	for _, row := range tx.heldRows {
		row.release(tx)
	}
	for _, m := range tx.store.marks {
		if m.holder == tx {
			m.holder = nil
		}
	}
	tx.ending, tx.heldRows, tx.steps, tx.moves, tx.joins = ending, nil, nil, nil, nil
	tx.store.openTxs = slices.DeleteFunc(tx.store.openTxs, func(other *Tx) bool { return other == tx })
	tx.stop()
	close(tx.endedCh)
}

func (tx *Tx) answerLocked() error {
	if tx.isReturned {
		return sql.ErrTxDone
	}
	tx.isReturned = true
	return tx.ending.repeatError
}

// refusalLocked returns nil if tx is open or nil.
func (tx *Tx) refusalLocked() error {
	if tx == nil || tx.ending == nil {
		return nil
	}
	return tx.ending.refusal
}

// waitLocked returns a channel that closes when tx ends. For a nil tx it is nil, which never closes.
func (tx *Tx) waitLocked(row *storedRow) <-chan struct{} {
	if tx == nil {
		return nil
	}
	tx.waitsForRow = row
	return tx.endedCh
}
