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

const rowWait = txwatch.RowWait

// A session of the user's pool waits 50 s for a row lock by default. MySQL has no hint that changes this for one
// statement. The library locks its own rows with SKIP LOCKED, so only a trigger can make a statement of the library
// wait for a lock.
//
// After such a wait, the library sends shortWaitsMySQL before each of its transactions. When the transaction ends,
// usersWaits restores the wait of the session.
const (
	shortWaitsMySQL = "SET @compensator_wait=@@innodb_lock_wait_timeout, SESSION " + txwatch.ShortRowWait
	usersWaits      = "SET SESSION innodb_lock_wait_timeout=@compensator_wait"

	// boundedFor is how long the library shortens its waits after a statement that waited in vain. The server may let
	// that statement wait for a minute after the library has given it up. So boundedFor must be longer than a minute.
	boundedFor = 5 * time.Minute
)

func (s *Store) boundWaits() {
	if s.ownPool == nil && s.d.shortWaits != "" {
		until := time.Now().Add(boundedFor)
		s.waitsBounded.Store(&until)
	}
}

func (s *Store) boundsWaits() bool {
	until := s.waitsBounded.Load()
	return until != nil && time.Now().Before(*until)
}

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
		// The server has refused the statement itself, so it does not know innodb_lock_wait_timeout. Then begin without
		// a shorter wait.
		return s.beginUsers(ctx)
	}
	return nil, err
}

type boundedTx struct {
	*sql.Tx
	conn *sql.Conn
}

func (t *boundedTx) Commit() error { return t.end(t.Tx.Commit()) }

func (t *boundedTx) Rollback() error { return t.end(t.Tx.Rollback()) }

// end returns err. First it restores the lock timeout of the session, and gives the connection back to the pool. If the
// timeout cannot be restored, end closes the connection instead.
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
