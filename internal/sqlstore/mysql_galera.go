package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/compensator-go/compensator/processlog"
)

// caughtUp runs the function work in the library's own transaction on a Galera node. Before that, it waits until this
// node shows everything that other nodes have committed. The wait works only outside a transaction, so caughtUp takes
// one connection for the wait and for the transaction. If the connection broke when it was idle, caughtUp takes another
// one. database/sql replaces such a connection only in BeginTx.
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
	defer func() { _ = tx.Rollback() }() // The transaction has only read rows.
	return work(ownTx{ownStatements{tx, s}, tx})
}
