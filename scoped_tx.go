package compensator

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ScopedTx is a transaction the library begins and ends: InTx's closure and transactional handlers get one.
// It runs statements and cannot be committed or rolled back. Its four methods are those that GORM, bun,
// sqlc and squirrel ask of a connection. It is not for use after the function it was given to has returned.
//
// Once the server has rolled the transaction back, nothing more is sent: every statement, also through a *sql.Stmt
// prepared before, returns ErrTxAborted, whoever swallowed the first error. What a statement of your own has ended
// (COMMIT, DDL) answers ErrNoTransaction from then on.
type ScopedTx struct {
	c     *Compensator // that began it
	tx    Transaction
	watch *watchedTx // the connection's own view; nil on a Store that has none, for which the fields below stand in

	hooks   []func(commitOutcome)
	aborted error // the server has ended the transaction
	tainted error // an entry could not be written
}

var _ Tx = (*ScopedTx)(nil)

// ExecContext runs a statement in the transaction.
func (s *ScopedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if s.aborted != nil {
		return nil, s.aborted
	}
	res, err := s.tx.ExecContext(ctx, query, args...)
	return res, s.see(err)
}

// QueryContext runs a query in the transaction. Close its rows before the next statement.
func (s *ScopedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if s.aborted != nil {
		return nil, s.aborted
	}
	rows, err := s.tx.QueryContext(ctx, query, args...)
	return rows, s.see(err)
}

// QueryRowContext runs a query for one row in the transaction.
func (s *ScopedTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return s.tx.(interface {
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}).QueryRowContext(ctx, query, args...)
}

// PrepareContext prepares a statement in the transaction.
func (s *ScopedTx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return s.tx.(interface {
		PrepareContext(context.Context, string) (*sql.Stmt, error)
	}).PrepareContext(ctx, query)
}

// see remembers an error by which the server has ended the transaction, whatever the caller does about it.
func (s *ScopedTx) see(err error) error {
	if s.watch == nil && mysqlFault(err) == faultAborted {
		s.aborted = fmt.Errorf("%w: %w", ErrTxAborted, err)
	}
	return err
}

func (s *ScopedTx) err() error {
	if s.aborted != nil {
		return s.aborted
	}
	if s.watch != nil {
		return s.watch.err()
	}
	return nil
}

// joins is nil where a statement of c joins the transaction, which another Compensator may have begun. A doubt is
// settled first.
func (s *ScopedTx) joins(ctx context.Context, c *Compensator) error {
	if s.c.fingerprint != c.fingerprint {
		return &FieldError{Field: "tx", Reason: fmt.Sprintf("is one of another database, whose log has the fingerprint %s, and this one %s", s.c.fingerprint, c.fingerprint)}
	}
	if s.watch != nil {
		ctx, _ := withEnlistment(ctx)
		_ = c.store.Probe(ctx, s) // what it finds is asked for next
	}
	return s.err()
}

// lost is why the transaction is over already, or nil.
func (s *ScopedTx) lost() error {
	if s.watch != nil {
		return s.watch.over()
	}
	return s.aborted
}

// proven: without the connection's own view, an error while rows were read may have gone unseen.
func (s *ScopedTx) fullyWatched() bool { return s.watch != nil }

func (s *ScopedTx) onEnd(hook func(commitOutcome)) {
	if s.watch != nil {
		s.watch.onEnd(hook)
		return
	}
	s.hooks = append(s.hooks, hook)
}

func (s *ScopedTx) taint(err error) {
	if s.watch != nil {
		s.watch.taint(err)
		return
	}
	s.tainted = errors.Join(s.tainted, err)
}

// commit ends the transaction and tells the hooks how.
func (s *ScopedTx) commit() error {
	if s.watch != nil {
		return s.commitWatched()
	}
	if s.tainted != nil {
		s.rollback()
		return fmt.Errorf("%w: %w", ErrNotRecorded, s.tainted)
	}
	if err := s.err(); err != nil {
		s.rollback()
		return err
	}
	err := s.tx.Commit()
	outcome := classifyCommit(err)
	s.ended(outcome)
	if outcome == commitUnknown && !errors.Is(err, ErrCommitUnknown) {
		err = fmt.Errorf("%w: %w", ErrCommitUnknown, err)
	}
	return err
}

// commitWatched leaves it to the connection to see the end, and to refuse it.
func (s *ScopedTx) commitWatched() error {
	if refusal := s.watch.refusal(); refusal != nil {
		s.rollback()
		return refusal
	}
	err := s.tx.Commit()
	if err == nil && !s.watch.committed() { // a doubtful statement had ended it before
		err = ErrNoTransaction
	}
	return err
}

func (s *ScopedTx) rollback() {
	_ = s.tx.Rollback() // a connection that cannot even roll back is closed, which does
	s.ended(rolledBack)
}

func (s *ScopedTx) ended(outcome commitOutcome) {
	hooks := s.hooks
	s.hooks = nil
	for _, hook := range hooks {
		hook(outcome)
	}
}

// begin starts a transaction of ours in the user's pool.
func (c *Compensator) begin(ctx context.Context) (*ScopedTx, error) {
	tx, err := c.store.Begin(c.reporting(ctx))
	if err != nil {
		return nil, fmt.Errorf("compensator: begin: %w", err)
	}
	if seen, ok := tx.(watchedTransaction); ok {
		return &ScopedTx{c: c, tx: seen.Transaction, watch: seen.watch}, nil
	}
	return &ScopedTx{c: c, tx: tx}, nil
}

// InTx runs work in a transaction at READ COMMITTED and commits it when work returns nil; entries recorded
// through tx announce themselves. A panic rolls back. ErrCommitUnknown, ErrTxAborted and ErrNotRecorded tell
// what a failed commit means.
func (c *Compensator) InTx(ctx context.Context, work func(ctx context.Context, tx *ScopedTx) error) error {
	tx, err := c.begin(ctx)
	if err != nil {
		return err
	}
	finished := false
	defer func() {
		if !finished {
			tx.rollback()
		}
	}()
	if err := work(ctx, tx); err != nil {
		return err
	}
	finished = true
	return tx.commit()
}

// transactionEnd sees the end of a transaction.
type transactionEnd interface {
	err() error                // nil while the transaction is open
	fullyWatched() bool        // err knows all that the connection has seen
	onEnd(func(commitOutcome)) // runs once, when the transaction ends
	taint(err error)           // makes its commit fail
}

func (w *watchedTx) fullyWatched() bool { return true }

// enlist finds who sees the end of tx: the library itself, a Connector's connection, or nobody (nil). An error says
// that nothing of c's can join it.
func (c *Compensator) enlist(ctx context.Context, tx Tx) (transactionEnd, error) {
	switch tx := tx.(type) {
	case nil:
		return nil, &FieldError{Field: "tx", Reason: "is nil"}
	case *ScopedTx:
		return tx, tx.joins(ctx, c)
	}
	if !c.watchesDB {
		return nil, nil
	}
	watch, err := c.watchOf(ctx, tx)
	if watch == nil {
		return nil, err
	}
	return watch, cmp.Or(err, watch.err())
}

// watchOf asks the connection beneath tx for its view. A handle on some other connection answers as the
// server does. When ctx has ended package sql lets nothing through, and the connection is asked all the same: the
// transaction is not to be committed without what could not be written.
func (c *Compensator) watchOf(ctx context.Context, tx Tx) (*watchedTx, error) {
	ctx, enlistment := withEnlistment(ctx)
	err := c.store.Probe(ctx, tx)
	if enlistment.tx() == nil && ctx.Err() != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
		defer cancel()
		_ = c.store.Probe(late, tx) // what it finds is asked for next
	}
	if watch := enlistment.tx(); watch != nil {
		if watch.err() != nil {
			return watch, nil
		}
		return watch, c.sameLog(ctx, tx, enlistment.home)
	}
	return nil, err
}

// sameLog refuses a transaction of another database, whose log an entry would go to. Connections of the Connector that
// Config.DB was opened on are taken as they are; any other Connector is asked once.
func (c *Compensator) sameLog(ctx context.Context, tx Tx, home *connector) error {
	s, ok := c.store.(*sqlStore)
	d, watched := c.cfg.DB.Driver().(connectorDriver)
	if _, known := c.homes.Load(home); known || !ok || !watched || d.connector == home {
		return nil
	}
	fingerprint, err := s.fingerprintBy(ctx, tx)
	switch {
	case err != nil:
		return &FieldError{Field: "tx", Reason: fmt.Sprintf("is one of another Connector than Config.DB, and whether it has the same log could not be read: %v", err)}
	case fingerprint != c.fingerprint:
		return &FieldError{Field: "tx", Reason: fmt.Sprintf("is one of another database, whose log has the fingerprint %s, and this one %s", fingerprint, c.fingerprint)}
	}
	c.homes.Store(home, true)
	return nil
}
