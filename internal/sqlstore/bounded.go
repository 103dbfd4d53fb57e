package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/internal/txwatch"
	"github.com/compensator-go/compensator/processlog"
)

// rowWait is how long a statement of ours waits for a row lock: in ownSettings, in calm on MariaDB, and in shortWaits.
const rowWait = 2 * time.Second

// In sessions of the user's pool MySQL has no hint that bounds a wait for a row lock, and waits for 50 s by default. Statements of
// ours wait there only for a lock that a trigger wants, since they lock their rows with SKIP LOCKED. So a transaction of ours
// bounds its session's waits, and undoes that, only after such a wait was seen. That costs two statements a transaction.
const (
	shortWaitsMySQL = "SET @compensator_wait=@@innodb_lock_wait_timeout, SESSION innodb_lock_wait_timeout=2"
	usersWaits      = "SET SESSION innodb_lock_wait_timeout=@compensator_wait"

	// boundedFor is for how long waits are bounded after one was in vain. A session that was given up may wait for a minute.
	boundedFor = 5 * time.Minute
)

// boundWaits bounds the waits of transactions that begin from now on.
func (s *Store) boundWaits() {
	if s.own == nil && s.d.shortWaits != "" {
		until := time.Now().Add(boundedFor)
		s.waitsBounded.Store(&until)
	}
}

// boundsWaits reports whether a transaction of ours is to bound its session's waits.
func (s *Store) boundsWaits() bool {
	until := s.waitsBounded.Load()
	return until != nil && time.Now().Before(*until)
}

// beginBounded is beginUsers in a session whose waits for row locks are short until the transaction ends.
func (s *Store) beginBounded(ctx context.Context) (tx processlog.Transaction, err error) {
	for range s.db.Stats().OpenConnections + 1 {
		if tx, err = s.beginBoundedOnce(ctx); !errors.Is(err, driver.ErrBadConn) {
			break
		}
	}
	return tx, err
}

func (s *Store) beginBoundedOnce(ctx context.Context) (processlog.Transaction, error) {
	conn, err := s.users.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = conn.ExecContext(ctx, s.d.shortWaits); err == nil {
		var tx *sql.Tx
		if tx, err = conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}); err == nil {
			return &boundedTx{tx, conn}, nil
		}
	}
	txwatch.ThrowAway(ctx, conn, err)
	if mysqlerr.Number(err) != 0 && !mysqlerr.IsServers(err) && !mysqlerr.IsInsideTransaction(err) {
		return s.beginUsers(ctx) // an engine that knows no such variable
	}
	return nil, err
}

// boundedTx gives its session back as it was when it ends.
type boundedTx struct {
	*sql.Tx
	conn *sql.Conn
}

// Commit implements Transaction.
func (t *boundedTx) Commit() error { return t.end(t.Tx.Commit()) }

// Rollback implements Transaction.
func (t *boundedTx) Rollback() error { return t.end(t.Tx.Rollback()) }

// end closes a session that cannot be given back as it was.
func (t *boundedTx) end(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), rowWait)
	defer cancel()
	if _, failed := t.conn.ExecContext(ctx, usersWaits); failed != nil {
		txwatch.ThrowAway(ctx, t.conn, failed)
	} else {
		_ = t.conn.Close()
	}
	return err
}
