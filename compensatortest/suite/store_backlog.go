package suite

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var backlogPromises = []storePromise{
	{"SlicesCountEachEntryOnce", false, ofOperations((*storeTest).slicesCountEachEntryOnce)},
	{"RangesOfABacklogAreCountedAtOnce", false, ofOperations((*storeTest).rangesOfABacklogAreCountedAtOnce)},
	{"LatestBacklogIsReadBack", false, ofOperations((*storeTest).latestBacklogIsReadBack)},
	{"BacklogIsNoStatistics", false, ofOperations((*storeTest).backlogIsNoStatistics)},
}

func (t *storeTest) slices(r processlog.BacklogRange, limit int) (found []processlog.BacklogSlice) {
	t.Helper()
	for {
		counted, err := t.ops().CountBacklog(t.ctx, []processlog.BacklogRange{r}, limit)
		require.NoError(t, err)
		require.Len(t, counted, 1)
		found = append(found, counted[0])
		if r.After = counted[0].Last; r.After.ID.IsZero() {
			return found
		}
		require.Less(t, len(found), 100, "each slice begins after the slice before it")
	}
}

// A slice is the part of a backlog that one call of CountBacklog counts. One statement has inserted several entries
// with the same due time, and a slice may end between two of them.
func (t *storeTest) slicesCountEachEntryOnce() {
	var drafts []processlog.Draft
	for i := range 23 {
		d := t.draft("slices")
		if i >= 12 {
			d.Delay = time.Duration(i/4) * time.Hour
		}
		drafts = append(drafts, d)
	}
	t.insert(drafts...)
	t.insertOne("other")
	for limit := 1; limit < 26; limit++ {
		sum, due := 0, 0
		found := t.slices(processlog.BacklogRange{BusinessType: "slices", State: processlog.Pending}, limit)
		for i, s := range found {
			assert.LessOrEqual(t, s.N, limit)
			if i < len(found)-1 {
				assert.Equal(t, limit, s.N, "only the last slice may be short")
			}
			sum, due = sum+s.N, due+s.Due
			assert.Zero(t, s.Overdue)
		}
		assert.Equal(t, 23, sum, "in slices of %d", limit)
		assert.Equal(t, 12, due, "in slices of %d", limit)
	}
	assert.Equal(t, []processlog.BacklogSlice{{}}, t.slices(processlog.BacklogRange{BusinessType: "slices", State: processlog.Dead}, 5))
}

func (t *storeTest) rangesOfABacklogAreCountedAtOnce() {
	t.settleTo(t.insertOne("支付 '\\"), processlog.Dead)
	t.insertOne("支付 '\\")
	var ranges []processlog.BacklogRange
	for i := range processlog.MaxBacklogRanges - 2 {
		name := fmt.Sprintf("type %02d", i)
		t.insert(t.draft(name), t.draft(name))
		ranges = append(ranges, processlog.BacklogRange{BusinessType: name, State: processlog.Pending})
	}
	ranges = append(ranges, processlog.BacklogRange{BusinessType: "支付 '\\", State: processlog.Dead}, processlog.BacklogRange{BusinessType: "支付 '\\", State: processlog.Pending})
	counted, err := t.ops().CountBacklog(t.ctx, ranges, 2)
	require.NoError(t, err)
	require.Len(t, counted, len(ranges))
	for i, s := range counted {
		want := 2
		if i >= len(ranges)-2 {
			want = 1
		}
		assert.Equal(t, want, s.N, "%+v", ranges[i])
		assert.Equal(t, want == 1, s.Last.ID.IsZero(), "%+v", ranges[i])
	}
}

func (t *storeTest) readBacklog() []processlog.Backlog {
	t.Helper()
	reading, err := t.ops().ReadBacklog(t.ctx)
	require.NoError(t, err)
	require.True(t, reading.Known)
	return reading.Types
}

func (t *storeTest) latestBacklogIsReadBack() {
	none, err := t.ops().ReadBacklog(t.ctx)
	require.NoError(t, err)
	require.Equal(t, processlog.BacklogReading{}, none)

	slot := t.hourBefore(2 * time.Hour)
	first := []processlog.Backlog{{BusinessType: "refund", Pending: 1_000_000, Retrying: 2, Compensating: 3, Dead: 4, Due: 5, Overdue: 6}, {BusinessType: "支付 '\\", Dead: 7}}
	require.NoError(t, t.ops().WriteBacklog(t.ctx, slot, first))
	assert.Equal(t, first, t.readBacklog())
	reading, err := t.ops().ReadBacklog(t.ctx)
	require.NoError(t, err)
	assert.InDelta(t, 2*time.Hour+30*time.Minute, reading.Age, float64(31*time.Minute), "the age begins with the slot")

	var many []processlog.Backlog // These are more types than one statement takes.
	for i := range 1000 {
		many = append(many, processlog.Backlog{BusinessType: fmt.Sprintf("type %04d", i), Pending: i + 1})
	}
	require.NoError(t, t.ops().WriteBacklog(t.ctx, slot.Add(time.Minute), many))
	assert.Equal(t, many, t.readBacklog(), "the types of the previous backlog are gone")

	require.NoError(t, t.ops().WriteBacklog(t.ctx, slot, first))
	require.NoError(t, t.ops().WriteBacklog(t.ctx, slot.Add(time.Minute), first))
	assert.Equal(t, many, t.readBacklog(), "a late process does not overwrite a newer backlog")

	require.NoError(t, t.ops().WriteBacklog(t.ctx, slot.Add(2*time.Minute), nil))
	assert.Empty(t, t.readBacklog())
}

func (t *storeTest) backlogIsNoStatistics() {
	slot := t.hourBefore(50 * time.Hour)
	backlog := []processlog.Backlog{{BusinessType: "refund", Pending: 8}}
	require.NoError(t, t.ops().WriteBacklog(t.ctx, slot, backlog))
	counted := stat(slot, "refund", 1)
	t.write("A", slot, counted)
	assert.Equal(t, []processlog.Stat{counted}, t.stats(slot, time.Minute))
	for _, fold := range []processlog.StatFold{processlog.FoldInstances, processlog.FoldHours} {
		_, err := t.ops().FoldStats(t.ctx, fold, 10*time.Minute, 100)
		require.NoError(t, err)
	}
	assert.Equal(t, []processlog.Stat{counted}, t.stats(slot, time.Minute))
	require.NoError(t, t.ops().ForgetStats(t.ctx, time.Hour))
	assert.Equal(t, backlog, t.readBacklog())
}
