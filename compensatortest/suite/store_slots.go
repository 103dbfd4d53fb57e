package suite

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// slotPromises are about marks. A mark holds the last slot of a periodic type.
var slotPromises = []storePromise{
	{"MarkBeginsAtTheDatabasesNowAndStays", false, (*storeTest).markBeginsAtTheDatabasesNowAndStays},
	{"MarksOfPeriodicTypesAreRead", false, (*storeTest).marksOfPeriodicTypesAreRead},
	{"MarkMovesWithItsTransactionOnly", false, (*storeTest).markMovesWithItsTransactionOnly},
	{"MarkThatHasMovedIsNotMovedAgain", false, (*storeTest).markThatHasMovedIsNotMovedAgain},
	{"MarkThatAnotherHoldsIsNotWaitedFor", true, (*storeTest).markThatAnotherHoldsIsNotWaitedFor},
	{"MarkIsMovedByOneOfMany", false, (*storeTest).markIsMovedByOneOfMany},
	{"MarkIsMovedWithoutATransaction", false, (*storeTest).markIsMovedWithoutATransaction},
	{"MarkOutlivesTheEntriesOfItsType", false, (*storeTest).markOutlivesTheEntriesOfItsType},
}

// marks creates marks that do not exist yet.
func (t *storeTest) marks(businessTypes ...string) (now time.Time, list []time.Time) {
	t.Helper()
	now, marks, err := t.Store.Marks(t.ctx, businessTypes)
	require.NoError(t, err)
	for _, businessType := range businessTypes {
		if _, found := marks[businessType]; !found {
			_, err := t.Store.BeginMark(t.ctx, businessType)
			require.NoError(t, err)
		}
	}
	if len(marks) < len(businessTypes) {
		now, marks, err = t.Store.Marks(t.ctx, businessTypes)
		require.NoError(t, err)
	}
	require.Len(t, marks, len(businessTypes))
	for _, businessType := range businessTypes {
		list = append(list, marks[businessType])
	}
	return now, list
}

// moveMark leaves the transaction open.
func (t *storeTest) moveMark(businessType string, from, to time.Time) (processlog.Transaction, bool) {
	t.Helper()
	tx, err := t.Store.Begin(t.ctx)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	moved, err := t.Store.MoveMark(t.ctx, tx, businessType, from, to)
	require.NoError(t, err)
	return tx, moved
}

func (t *storeTest) marksOfPeriodicTypesAreRead() {
	ops, is := t.Store.(processlog.Operations)
	if !is {
		t.Skip("the store does not implement processlog.Operations")
	}
	now, want := t.marks("nightly", "hourly", " maintenance")
	read, marks, err := ops.PeriodicMarks(t.ctx)
	require.NoError(t, err)
	assert.WithinDuration(t, now, read, time.Minute)
	assert.Equal(t, map[string]time.Time{"nightly": want[0], "hourly": want[1]}, marks)
}

func (t *storeTest) markBeginsAtTheDatabasesNowAndStays() {
	before, none, err := t.Store.Marks(t.ctx, []string{"nightly"})
	require.NoError(t, err)
	assert.Empty(t, none, "there is no mark, and reading does not begin one")
	begun, err := t.Store.BeginMark(t.ctx, "nightly")
	require.NoError(t, err)
	assert.True(t, begun)
	begun, err = t.Store.BeginMark(t.ctx, "nightly")
	require.NoError(t, err)
	assert.False(t, begun, "the type has a mark already")
	first, one := t.marks("nightly")
	assert.WithinRange(t, one[0], before, first)
	assert.WithinRange(t, first, one[0], one[0].Add(time.Minute), "the mark begins at the store's now, which is read afterwards")
	second, both := t.marks("nightly", "Nightly ünï")
	assert.Equal(t, one[0], both[0], "it stays")
	assert.WithinRange(t, both[1], one[0], second, "a new type gets its own mark")
	assert.Equal(t, time.UTC, second.Location())
}

func (t *storeTest) markMovesWithItsTransactionOnly() {
	_, marks := t.marks("nightly")
	to := marks[0].Add(time.Hour + time.Millisecond)
	tx, moved := t.moveMark("nightly", marks[0], to)
	require.True(t, moved)
	require.NoError(t, tx.Rollback())
	_, same := t.marks("nightly")
	assert.Equal(t, marks[0], same[0], "rolled back")

	tx, moved = t.moveMark("nightly", marks[0], to)
	require.True(t, moved)
	d := t.draft("nightly")
	_, err := t.Store.Insert(t.ctx, tx, []processlog.Draft{d}, false)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	_, there := t.marks("nightly")
	assert.Equal(t, to, there[0])
	ids, err := t.Store.IDs(t.ctx, nil, []processlog.IdempotencyKey{d.IdempotencyKey})
	require.NoError(t, err)
	assert.Len(t, ids, 1, "the entry that the transaction recorded exists")
}

func (t *storeTest) markThatHasMovedIsNotMovedAgain() {
	_, marks := t.marks("nightly", "other")
	tx, moved := t.moveMark("nightly", marks[0], marks[0].Add(time.Second))
	require.True(t, moved)
	require.NoError(t, tx.Commit())
	tx, moved = t.moveMark("nightly", marks[0], marks[0].Add(2*time.Second))
	assert.False(t, moved, "the mark is no longer at from")
	require.NoError(t, tx.Commit())
	tx, moved = t.moveMark("unknown", marks[0], marks[0].Add(time.Second))
	assert.False(t, moved, "the type has no mark")
	require.NoError(t, tx.Commit())
	_, there := t.marks("nightly", "other")
	assert.Equal(t, []time.Time{marks[0].Add(time.Second), marks[1]}, there)
}

func (t *storeTest) markIsMovedWithoutATransaction() {
	_, marks := t.marks(" nightly", "other")
	move := func(businessType string, from time.Time, by time.Duration) bool {
		moved, err := t.Store.MoveMark(t.ctx, nil, businessType, from, marks[0].Add(by))
		require.NoError(t, err)
		return moved
	}
	assert.True(t, move(" nightly", marks[0], time.Second))
	assert.False(t, move(" nightly", marks[0], 2*time.Second), "the mark is no longer at from")
	assert.False(t, move("unknown", marks[0], time.Second), "the type has no mark")
	_, there := t.marks(" nightly", "other")
	assert.Equal(t, []time.Time{marks[0].Add(time.Second), marks[1]}, there)
	var winners atomic.Int64
	var movers sync.WaitGroup
	for i := range 8 {
		movers.Go(func() {
			if moved, err := t.Store.MoveMark(t.ctx, nil, " nightly", there[0], there[0].Add(time.Duration(1+i)*time.Second)); assert.NoError(t, err) && moved {
				winners.Add(1)
			}
		})
	}
	movers.Wait()
	assert.Equal(t, int64(1), winners.Load())
}

// Failure: F102
func (t *storeTest) markThatAnotherHoldsIsNotWaitedFor() {
	_, marks := t.marks("nightly", "other")
	holder, moved := t.moveMark("nightly", marks[0], marks[0].Add(time.Second))
	require.True(t, moved)
	ctx := t.ctx
	var cancel context.CancelFunc
	t.ctx, cancel = context.WithTimeout(ctx, eventually) // shorter than the lock timeout of any server
	defer cancel()
	second, moved := t.moveMark("nightly", marks[0], marks[0].Add(time.Minute))
	assert.False(t, moved, "held")
	third, moved := t.moveMark("other", marks[1], marks[1].Add(time.Second))
	assert.True(t, moved, "the mark of another type is free")
	_, seen := t.marks("nightly", "other")
	assert.Equal(t, marks, seen, "reading does not wait for the transaction")
	t.ctx = ctx
	for _, tx := range []processlog.Transaction{second, third, holder} {
		require.NoError(t, tx.Rollback())
	}
}

func (t *storeTest) markIsMovedByOneOfMany() {
	_, marks := t.marks("nightly")
	var winners atomic.Int64
	var movers sync.WaitGroup
	for i := range 8 {
		movers.Go(func() {
			tx, err := t.Store.Begin(t.ctx)
			if !assert.NoError(t, err) {
				return
			}
			moved, err := t.Store.MoveMark(t.ctx, tx, "nightly", marks[0], marks[0].Add(time.Duration(1+i)*time.Second))
			if assert.NoError(t, err) && moved && assert.NoError(t, tx.Commit()) {
				winners.Add(1)
				return
			}
			_ = tx.Rollback()
		})
	}
	movers.Wait()
	assert.Equal(t, int64(1), winners.Load())
}

// Failure: F104
func (t *storeTest) markOutlivesTheEntriesOfItsType() {
	row := t.inState(processlog.Cancelled)
	_, marks := t.marks(row.BusinessType)
	tx, moved := t.moveMark(row.BusinessType, marks[0], marks[0].Add(time.Hour))
	require.True(t, moved)
	require.NoError(t, tx.Commit())
	t.waitUntil(func() bool {
		n, err := t.Store.Purge(t.ctx, "", processlog.Cancelled, time.Millisecond, 10)
		return err == nil && n == 1
	}, "the entry is purged")
	_, there := t.marks(row.BusinessType)
	assert.Equal(t, marks[0].Add(time.Hour), there[0])
}
