package memory_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/processlog"
)

func draft(key string) processlog.Draft {
	return processlog.Draft{BusinessType: "memory", IdempotencyKey: processlog.IdempotencyKey(key)}
}

func insert(t *testing.T, store *memory.Store, tx processlog.Tx, key string) processlog.ID {
	t.Helper()
	inserted, err := store.Insert(t.Context(), tx, []processlog.Draft{draft(key)}, false)
	require.NoError(t, err)
	return inserted[0].ID
}

func begin(t *testing.T, store *memory.Store) *memory.Tx {
	t.Helper()
	tx, err := store.BeginTx(t.Context())
	require.NoError(t, err)
	return tx
}

func cancelIn(t *testing.T, store *memory.Store, tx processlog.Tx, id processlog.ID) error {
	_, err := store.Change(t.Context(), tx, false, processlog.Change{Ref: id, Action: processlog.ActionCancel, Token: processlog.Token{1}})
	return err
}

func TestMemoryTxThatWouldWaitForItselfIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		first, second := begin(t, store), begin(t, store)
		a, b := insert(t, store, first, "a"), insert(t, store, second, "b")
		waiting := make(chan error, 1)
		go func() { waiting <- cancelIn(t, store, first, b) }()
		synctest.Wait()
		require.ErrorIs(t, cancelIn(t, store, second, a), processlog.ErrTxAborted)
		require.ErrorIs(t, <-waiting, processlog.ErrNotFound, "the victim's entry is gone")
		_, err := store.Insert(t.Context(), second, []processlog.Draft{draft("c")}, false)
		require.ErrorIs(t, err, processlog.ErrTxAborted)
		require.NoError(t, second.Commit(), "a server accepts the COMMIT and commits nothing")
		require.NoError(t, first.Commit())
		require.Len(t, store.Rows(), 1)
	})
}

func TestMemoryTxIsFoundInsideAWrapper(t *testing.T) {
	store := memory.NewStore()
	tx := begin(t, store)
	insert(t, store, struct{ processlog.Tx }{tx}, "wrapped")
	require.NoError(t, tx.Commit())
	require.Len(t, store.Rows(), 1)
}

func TestMemoryTxOfAnotherStoreIsNoTransaction(t *testing.T) {
	tx := begin(t, memory.NewStore())
	_, err := memory.NewStore().Insert(t.Context(), tx, []processlog.Draft{draft("lost")}, true)
	require.ErrorIs(t, err, processlog.ErrNoTransaction)
}

func TestMemoryTxRunsNoSQL(t *testing.T) {
	tx := begin(t, memory.NewStore())
	_, err := tx.ExecContext(t.Context(), "DELETE FROM users")
	require.ErrorContains(t, err, "no SQL")
	_, err = tx.QueryContext(t.Context(), "SELECT 1")
	require.ErrorContains(t, err, "no SQL")
}

func TestMemoryTxEndsWithItsContextAndLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := store.BeginTx(ctx)
		require.NoError(t, err)
		insert(t, store, tx, "key")
		cancel()
		synctest.Wait()
		require.Error(t, tx.Commit())
		other := begin(t, store)
		insert(t, store, other, "key")
		require.NoError(t, other.Commit())
	})
}

func TestMemoryTxSaysOnceHowItEnded(t *testing.T) {
	store := memory.NewStore()
	for _, c := range []struct {
		end   func(tx *memory.Tx)
		first error
	}{
		{func(tx *memory.Tx) { _ = tx.Rollback() }, sql.ErrTxDone},
		{func(tx *memory.Tx) { _ = tx.Commit() }, sql.ErrTxDone},
		{func(tx *memory.Tx) { tx.Abort() }, nil},
		{func(*memory.Tx) { store.Crash() }, driver.ErrBadConn},
	} {
		tx := begin(t, store)
		c.end(tx)
		require.ErrorIs(t, tx.Commit(), c.first)
		require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
		require.ErrorIs(t, tx.Savepoint("late"), processlog.ErrNoTransaction)
	}
}

func TestMemoryTxKnowsItsSavepoints(t *testing.T) {
	store := memory.NewStore()
	tx := begin(t, store)
	require.NoError(t, tx.Savepoint("outer"))
	insert(t, store, tx, "a")
	require.NoError(t, tx.Savepoint("inner"))
	insert(t, store, tx, "b")
	require.NoError(t, tx.RollbackTo("inner"))
	insert(t, store, tx, "b")
	require.NoError(t, tx.RollbackTo("outer"))
	require.Error(t, tx.RollbackTo("inner"), "RollbackTo the outer savepoint removes the inner one")
	insert(t, store, tx, "c")
	require.NoError(t, tx.Commit())
	require.Len(t, store.Rows(), 1)
	assert.EqualValues(t, "c", store.Rows()[0].IdempotencyKey)
}

func TestWatchSeesEveryCommittedTransitionOneVersionAfterTheOther(t *testing.T) {
	store := memory.NewStore()
	var seen []string
	store.Watch(func(before, after processlog.Row) {
		switch {
		case before.ID.IsZero():
			seen = append(seen, "inserted")
			assert.Zero(t, after.Version)
		case after.ID.IsZero():
			seen = append(seen, "purged")
		default:
			assert.Equal(t, before.Version+1, after.Version)
			seen = append(seen, after.State.String())
		}
	})
	undone := begin(t, store)
	insert(t, store, undone, "undone")
	require.NoError(t, undone.Rollback())
	tx := begin(t, store)
	id := insert(t, store, tx, "kept")
	require.NoError(t, cancelIn(t, store, tx, id))
	assert.Empty(t, seen, "nothing is committed")
	require.NoError(t, tx.Commit())
	deadline := time.Now().Add(time.Minute)
	for n := 0; n == 0 && time.Now().Before(deadline); {
		var err error
		n, err = store.Purge(t.Context(), "", processlog.Cancelled, 0, 1)
		require.NoError(t, err)
	}
	assert.Equal(t, "inserted cancelled purged", strings.Join(seen, " "))
}

func TestRowsAreCopies(t *testing.T) {
	store := memory.NewStore()
	content := []byte("original")
	d := draft("copy")
	d.Content = content
	tx := begin(t, store)
	_, err := store.Insert(t.Context(), tx, []processlog.Draft{d}, false)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	content[0] = 'X'
	store.Rows()[0].Content[1] = 'X'
	assert.Equal(t, "original", string(store.Rows()[0].Content))
}

func TestInsertWaitsForAKeyThatWasTakenWhileItWaitedForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		first, second, third := begin(t, store), begin(t, store), begin(t, store)
		insert(t, store, first, "b")
		waiting := make(chan []processlog.Inserted, 1)
		go func() {
			inserted, err := store.Insert(t.Context(), second, []processlog.Draft{draft("a"), draft("b")}, false)
			assert.NoError(t, err)
			waiting <- inserted
		}()
		synctest.Wait()
		a := insert(t, store, third, "a")
		require.NoError(t, first.Rollback())
		synctest.Wait()
		require.Empty(t, waiting, "the insert still waits for the third transaction")
		require.NoError(t, third.Commit())
		inserted := <-waiting
		assert.Equal(t, processlog.Inserted{ID: a, Duplicate: true, BusinessType: draft("a").BusinessType, ContentMatches: true}, inserted[0])
		assert.False(t, inserted[1].Duplicate)
		require.NoError(t, second.Commit())
	})
}

func TestMemoryStoreThatGoesBackGivesIdsOutAgain(t *testing.T) {
	s := memory.NewStore()
	insert := func(key string) (processlog.ID, *memory.Tx) {
		tx, err := s.BeginTx(t.Context())
		require.NoError(t, err)
		d := processlog.Draft{BusinessType: "order", IdempotencyKey: processlog.IdempotencyKey(key)}
		in, err := s.Insert(t.Context(), tx, []processlog.Draft{d}, true)
		require.NoError(t, err)
		return in[0].ID, tx
	}
	kept, tx := insert("kept")
	require.NoError(t, tx.Commit())
	require.NoError(t, s.Note(t.Context(), processlog.ActionPurge, processlog.AuditInfo{Actor: "ann", Reason: "kept"}))
	before := s.Snapshot()
	lost, tx := insert("lost")
	require.NoError(t, tx.Commit())
	_, open := insert("open")
	_, err := s.Change(t.Context(), nil, false, processlog.Change{Ref: kept, Action: processlog.ActionCancel, Token: processlog.Token{1}})
	require.NoError(t, err)
	require.NoError(t, s.Note(t.Context(), processlog.ActionAcceptLoss, processlog.AuditInfo{Actor: "ann", Reason: "lost"}))

	s.Restore(before)
	require.Error(t, open.Commit())
	require.Len(t, s.Rows(), 1)
	require.Equal(t, processlog.Pending, s.Rows()[0].State)
	notes, err := s.History(t.Context(), processlog.ID{})
	require.NoError(t, err)
	require.Len(t, notes, 1)
	heir, tx := insert("heir")
	require.NoError(t, tx.Commit())
	require.Equal(t, lost, heir)
}
