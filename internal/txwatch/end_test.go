package txwatch

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCommitThatWasNeverSentRollsBack(t *testing.T) {
	db, plain := connectorDB(t)
	for name, finish := range map[string]func(*sql.Tx, context.CancelFunc, <-chan Outcome) error{
		"cancelled before Commit": func(tx *sql.Tx, cancel context.CancelFunc, _ <-chan Outcome) error {
			cancel()
			return tx.Commit()
		},
		"Commit after the cancelled transaction was rolled back": func(tx *sql.Tx, cancel context.CancelFunc, ended <-chan Outcome) error {
			cancel()
			if outcome := <-ended; outcome != RolledBack {
				return fmt.Errorf("ended as %v", outcome)
			}
			return tx.Commit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
			ended := make(chan Outcome, 2)
			all := make(chan Outcome, 2)
			w := probe(t, tx)
			w.OnEnd(func(o Outcome) { ended <- o })
			w.OnEnd(func(o Outcome) { all <- o })
			err = finish(tx, cancel, ended)
			assert.True(t, errors.Is(err, context.Canceled) || errors.Is(err, sql.ErrTxDone), "got %v", err)
			assert.Equal(t, RolledBack, <-all)
			assert.False(t, exists(t, plain, 100))
		})
	}
}

func TestSecondCommitChangesNoOutcome(t *testing.T) {
	db, plain := connectorDB(t)
	tx := begin(t, db)
	mustExec(t, tx, "INSERT INTO t VALUES (100, 0)")
	_, got := enlisted(t, tx)
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
	require.ErrorIs(t, tx.Rollback(), sql.ErrTxDone)
	assert.Equal(t, outcomes{Committed}, *got)
	assert.True(t, exists(t, plain, 100))
}

func TestAbandonedTransactionsReleaseTheirHooks(t *testing.T) {
	db, _ := connectorDB(t)
	db.SetMaxOpenConns(4)
	const n = 200
	ended := make(chan Outcome, 2*n)
	for range n {
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		probe(t, tx).OnEnd(func(o Outcome) { ended <- o })
		cancel()
	}
	for range n {
		assert.Equal(t, RolledBack, <-ended)
	}
	require.NoError(t, db.Ping())
	assert.Empty(t, ended, "a hook was called twice")
}

func TestAbandonedTransactionLeavesNothingToTheNext(t *testing.T) {
	db, plain := connectorDB(t)
	db.SetMaxOpenConns(1)
	ctx, cancel := context.WithCancel(t.Context())
	first, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, first, "INSERT INTO t VALUES (100, 0)")
	ended := make(chan Outcome, 2)
	w := probe(t, first)
	w.OnEnd(func(o Outcome) { ended <- o })
	w.Taint(errors.New("not written"))
	cancel()
	require.Equal(t, RolledBack, <-ended)

	second := begin(t, db)
	mustExec(t, second, "INSERT INTO t VALUES (101, 0)")
	_, got := enlisted(t, second)
	require.NoError(t, second.Commit())
	assert.Equal(t, outcomes{Committed}, *got)
	assert.Empty(t, ended)
	assert.False(t, exists(t, plain, 100))
	assert.True(t, exists(t, plain, 101))
}

func TestClosedConnectionRollsBack(t *testing.T) {
	db, plain := connectorDB(t)
	conn := connection(t, db)
	mustExec(t, conn, "BEGIN")
	mustExec(t, conn, "INSERT INTO t VALUES (100, 0)")
	_, got := enlisted(t, conn)
	require.ErrorIs(t, conn.Raw(func(any) error { return driver.ErrBadConn }), driver.ErrBadConn)
	assert.Equal(t, outcomes{RolledBack}, *got)
	assert.False(t, exists(t, plain, 100))
}

// The statement BEGIN begins the transaction, and database/sql does not know of it. So the connection returns to the
// pool with the open transaction, and the next user of the connection decides how the transaction ends.
func TestTransactionLeftInThePoolIsUnknownAndDoesNotLeak(t *testing.T) {
	db, _ := connectorDB(t)
	db.SetMaxOpenConns(1)
	conn := connection(t, db)
	mustExec(t, conn, "BEGIN")
	w, got := enlisted(t, conn)
	w.Taint(errors.New("not written"))
	require.NoError(t, conn.Close())

	tx := begin(t, db)
	assert.Equal(t, outcomes{Unknown}, *got)
	_, other := enlisted(t, tx)
	require.NoError(t, tx.Commit())
	assert.Equal(t, outcomes{Committed}, *other)
	assert.Equal(t, outcomes{Unknown}, *got)
}
