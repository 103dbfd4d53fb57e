package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/compensator-go/compensator/processlog"
)

// caughtUp waits until this node shows everything that other nodes have committed, and then runs work in a transaction of
// the same session. database/sql replaces a broken idle connection only in BeginTx, so caughtUp does that itself.
func (s *Store) caughtUp(ctx context.Context, work func(tx processlog.Transaction) error) (err error) {
	for range s.database().Stats().OpenConnections + 1 {
		if err = s.caughtUpOn(ctx, work); !errors.Is(err, driver.ErrBadConn) {
			break
		}
	}
	return err
}

func (s *Store) caughtUpOn(ctx context.Context, work func(tx processlog.Transaction) error) error {
	conn, err := s.database().Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := queryIDs(ctx, conn, "SET STATEMENT wsrep_sync_wait=15 FOR SELECT 1"); err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return work(ownTx{ownStatements{tx, s}, tx})
}
