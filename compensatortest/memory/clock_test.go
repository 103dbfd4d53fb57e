package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/processlog"
)

func TestMemoryStoreGoesByItsOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		row := insertOne(t, store, "first")
		claimed := claim(t, store, row.ID, processlog.Token{1})
		store.ShiftClock(50 * time.Minute)
		assert.Equal(t, 10*time.Minute, load(t, store, row.ID).LeaseLeft)
		assert.Equal(t, -50*time.Minute, load(t, store, row.ID).DueIn)
		store.ShiftClock(-20 * time.Minute)
		assert.Equal(t, 30*time.Minute, load(t, store, row.ID).LeaseLeft)
		again := insertOne(t, store, "again")
		assert.Equal(t, 30*time.Minute, again.CreatedAt.Sub(row.CreatedAt))
		assert.Equal(t, time.Duration(0), again.DueIn)
		store.ShiftClock(30*time.Minute - time.Millisecond)
		due, err := store.Due(t.Context(), draft("").BusinessType, 9)
		assert.NoError(t, err)
		assert.Equal(t, []processlog.ID{again.ID}, due, "the lease lasts one more millisecond")
		store.ShiftClock(time.Millisecond)
		assert.Equal(t, claimed.Version+1, claim(t, store, row.ID, processlog.Token{2}).Version)
	})
}

func insertOne(t *testing.T, store *memory.Store, key string) processlog.Row {
	t.Helper()
	tx := begin(t, store)
	id := insert(t, store, tx, key)
	require.NoError(t, tx.Commit())
	return load(t, store, id)
}

func load(t *testing.T, store *memory.Store, id processlog.ID) processlog.Row {
	t.Helper()
	rows, err := store.Load(t.Context(), []processlog.ID{id})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	return rows[0]
}

func claim(t *testing.T, store *memory.Store, id processlog.ID, by processlog.Token) processlog.Row {
	t.Helper()
	found, err := store.Claim(t.Context(), []processlog.Wanted{{ID: id}}, by, time.Hour, func(*processlog.Row) bool { return true })
	require.NoError(t, err)
	require.Len(t, found.Mine, 1)
	return found.Mine[0]
}
