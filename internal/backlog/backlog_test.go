package backlog

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/processlog"
)

type watched struct {
	*memory.Store
	calls []int
}

func (w *watched) CountBacklog(ctx context.Context, ranges []processlog.BacklogRange, limit int) ([]processlog.BacklogSlice, error) {
	w.calls = append(w.calls, len(ranges)*limit)
	return w.Store.CountBacklog(ctx, ranges, limit)
}

var keys atomic.Int64

func insert(t *testing.T, store *memory.Store, businessType string, n int, delay time.Duration) {
	t.Helper()
	tx, err := store.BeginTx(t.Context())
	require.NoError(t, err)
	drafts := make([]processlog.Draft, n)
	for i := range drafts {
		drafts[i] = processlog.Draft{BusinessType: businessType, Content: []byte("{}"), Delay: delay, IdempotencyKey: processlog.IdempotencyKey(fmt.Sprint(keys.Add(1)))}
	}
	_, err = store.Insert(t.Context(), tx, drafts, false)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
}

// With the constant Slice, one statement cannot count all entries of the type "big". With both constants, there are more
// types than one statement can count. Each entry must still count once.
// Failure: F29
func TestBacklogCountsEachEntryOnceInBoundedStatements(t *testing.T) {
	for slice, statements := range map[int]int{Slice: 12, IdleSlice: 4} {
		t.Run(fmt.Sprint(slice), func(t *testing.T) { testBacklogWithSlice(t, slice, statements) })
	}
}

func testBacklogWithSlice(t *testing.T, slice, fewerThan int) {
	synctest.Test(t, func(t *testing.T) {
		store := &watched{Store: memory.NewStore()}
		insert(t, store.Store, "big", 2*Slice, 0)
		time.Sleep(processlog.OverdueAfter + time.Second)
		insert(t, store.Store, "big", 3, 0)
		insert(t, store.Store, "big", Slice-3, time.Hour)
		want := []processlog.Backlog{{BusinessType: "big", Pending: 3 * Slice, Due: 2*Slice + 3, Overdue: 2 * Slice}}
		for i := range 2 * processlog.MaxBacklogRanges {
			name := fmt.Sprintf("small %03d", i)
			insert(t, store.Store, name, 1+i%150, 0)
			want = append(want, processlog.Backlog{BusinessType: name, Pending: 1 + i%150, Due: 1 + i%150})
		}
		slot := time.Now().Truncate(time.Minute)
		require.NoError(t, Round(t.Context(), store, slot, slice))
		reading, err := store.ReadBacklog(t.Context())
		require.NoError(t, err)
		assert.True(t, reading.Known)
		require.Len(t, reading.Types, len(want))
		for i := range want {
			assert.Equal(t, want[i], reading.Types[i])
		}
		for _, n := range store.calls {
			assert.LessOrEqual(t, n, slice)
		}
		assert.Less(t, len(store.calls), fewerThan)
	})
}

func TestRoundThatIsInterruptedLeavesThePreviousBacklog(t *testing.T) {
	store := &watched{Store: memory.NewStore()}
	insert(t, store.Store, "big", 3, 0)
	slot := time.Now().Truncate(time.Minute)
	require.NoError(t, Round(t.Context(), store, slot, Slice))
	insert(t, store.Store, "big", 4, time.Hour)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Round(ended, store, slot.Add(time.Minute), Slice), context.Canceled)
	reading, err := store.ReadBacklog(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []processlog.Backlog{{BusinessType: "big", Pending: 3, Due: 3}}, reading.Types)
}
