package suite

import (
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var statisticPromises = []storePromise{
	{"CountsOfAMinuteAreReadBack", false, ofOperations((*storeTest).countsOfAMinuteAreReadBack)},
	{"CountsWrittenTwiceCountOnce", false, ofOperations((*storeTest).countsWrittenTwiceCountOnce)},
	{"FoldingKeepsEveryCount", false, ofOperations((*storeTest).foldingKeepsEveryCount)},
	{"FoldersAtTheSameTimeCountOnce", false, ofOperations((*storeTest).foldersAtTheSameTimeCountOnce)},
	{"OldStatisticsAreForgotten", false, ofOperations((*storeTest).oldStatisticsAreForgotten)},
}

// hourBefore returns the beginning of the current hour by the database's clock, moved back by the given duration.
func (t *storeTest) hourBefore(ago time.Duration) time.Time {
	t.Helper()
	now, err := t.ops().StatsClock(t.ctx)
	require.NoError(t, err)
	return now.Truncate(time.Hour).Add(-ago)
}

// stat returns a Stat in which each count has a different value.
func stat(at time.Time, businessType string, seed uint64) processlog.Stat {
	s := processlog.Stat{At: at, BusinessType: businessType}
	for i, value := range s.Values() {
		*value = seed*100 + uint64(i)
	}
	return s
}

func (t *storeTest) write(instance string, at time.Time, stats ...processlog.Stat) {
	t.Helper()
	require.NoError(t, t.ops().WriteStats(t.ctx, instance, at, stats))
}

func (t *storeTest) stats(from time.Time, period time.Duration) []processlog.Stat {
	t.Helper()
	found, err := t.ops().Stats(t.ctx, processlog.StatFilter{From: from, To: from.Add(1000 * time.Hour), Period: period})
	require.NoError(t, err)
	return found
}

func sum(stats ...processlog.Stat) (all processlog.StatCounts) {
	for _, s := range stats {
		all.Add(s.StatCounts)
	}
	return all
}

func (t *storeTest) countsOfAMinuteAreReadBack() {
	at := t.hourBefore(2 * time.Hour)
	later := at.Add(time.Minute)
	a, b, c := stat(at, "refund", 1), stat(at, "支付 '\\", 2), stat(later, "refund", 3)
	assert.Empty(t, t.stats(at, time.Minute))
	t.write("A", at, a, b)
	t.write("A", later, c)
	assert.Equal(t, []processlog.Stat{a, b, c}, t.stats(at, time.Minute))

	other := stat(at, "refund", 4)
	t.write("B", at, other)
	both := processlog.Stat{At: at, BusinessType: "refund", StatCounts: sum(a, other)}
	assert.Equal(t, []processlog.Stat{both, b, c}, t.stats(at, time.Minute))
	assert.Equal(t, []processlog.Stat{{At: at, BusinessType: "refund", StatCounts: sum(a, other, c)}, b}, t.stats(at, time.Hour))
	one, err := t.ops().Stats(t.ctx, processlog.StatFilter{From: at, To: later, Period: time.Minute, BusinessType: "refund"})
	require.NoError(t, err)
	assert.Equal(t, []processlog.Stat{both}, one)

	var many []processlog.Stat
	for i := range 1000 {
		many = append(many, stat(later, fmt.Sprintf("type %04d", i), uint64(i)))
	}
	t.write("C", later, many...)
	found := t.stats(later, time.Minute)
	require.Len(t, found, 1001)
	assert.Equal(t, sum(append(many, c)...), sum(found...))
}

func (t *storeTest) countsWrittenTwiceCountOnce() {
	at := t.hourBefore(5 * time.Hour)
	a, b := stat(at, "refund", 1), stat(at.Add(time.Minute), "refund", 2)
	t.write("A", at, a)
	t.write("A", at, a)
	assert.Equal(t, []processlog.Stat{a}, t.stats(at, time.Minute))
	t.write("A", b.At, b)
	for range 2 {
		n, err := t.ops().FoldStats(t.ctx, processlog.FoldInstances, 10*time.Minute, 100)
		require.NoError(t, err)
		t.write("A", at, a)
		t.write("A", b.At, b)
		assert.Equal(t, []processlog.Stat{a, b}, t.stats(at, time.Minute), "after %d rows were folded", n)
	}
	n, err := t.ops().FoldStats(t.ctx, processlog.FoldInstances, 10*time.Minute, 100)
	require.NoError(t, err)
	assert.Zero(t, n)
}

// foldingKeepsEveryCount checks that folding does not change the sums of the counts. FoldStats adds up the rows of all
// processes for one minute, and later the rows of an hour. In this test, one row is written after the other rows of its
// minute were added up.
func (t *storeTest) foldingKeepsEveryCount() {
	at := t.hourBefore(5 * time.Hour)
	var written []processlog.Stat
	for minute := range 4 {
		for p, instance := range []string{"A", "B", "C"} {
			s := stat(at.Add(time.Duration(minute)*time.Minute), "refund", uint64(minute*10+p))
			written = append(written, s)
			t.write(instance, s.At, s)
		}
	}
	fold := func(which processlog.StatFold, age time.Duration) (rows int) {
		for {
			n, err := t.ops().FoldStats(t.ctx, which, age, 5)
			require.NoError(t, err)
			if rows += n; n < 5 {
				return rows
			}
			require.Equal(t, sum(written...), sum(t.stats(at, time.Minute)...))
		}
	}
	assert.Zero(t, fold(processlog.FoldInstances, 1000*time.Hour), "rows that are younger stay")
	minutes := t.stats(at, time.Minute)
	assert.Equal(t, 12, fold(processlog.FoldInstances, 10*time.Minute))
	assert.Equal(t, minutes, t.stats(at, time.Minute))

	late := stat(at, "refund", 7)
	written = append(written, late)
	t.write("D", at, late)
	assert.Equal(t, 1, fold(processlog.FoldInstances, 10*time.Minute))
	assert.Equal(t, sum(written...), sum(t.stats(at, time.Minute)...))

	assert.Equal(t, 3, fold(processlog.FoldHours, time.Hour))
	assert.Equal(t, []processlog.Stat{{At: at, BusinessType: "refund", StatCounts: sum(written...)}}, t.stats(at, time.Minute))
	assert.Zero(t, fold(processlog.FoldHours, time.Hour))
}

func (t *storeTest) foldersAtTheSameTimeCountOnce() {
	at := t.hourBefore(5 * time.Hour)
	var written []processlog.Stat
	for minute := range 30 {
		s := stat(at.Add(time.Duration(minute)*time.Minute), "refund", uint64(minute))
		written = append(written, s)
		t.write("A", s.At, s)
	}
	for _, which := range []processlog.StatFold{processlog.FoldInstances, processlog.FoldHours} {
		var folders sync.WaitGroup
		for range 3 {
			folders.Go(func() {
				for range 10 { // Ignore an error, because another call of FoldStats may have locked the rows.
					_, _ = t.ops().FoldStats(t.ctx, which, 10*time.Minute, 7)
				}
			})
		}
		folders.Wait()
		assert.Equal(t, sum(written...), sum(t.stats(at, time.Minute)...))
	}
}

func (t *storeTest) oldStatisticsAreForgotten() {
	old, young := t.hourBefore(50*time.Hour), t.hourBefore(2*time.Hour)
	a, b, c := stat(old, "refund", 1), stat(young, "refund", 2), stat(old.Add(time.Minute), "refund", 3)
	t.write("A", a.At, a)
	t.write("A", b.At, b)
	_, err := t.ops().FoldStats(t.ctx, processlog.FoldInstances, 10*time.Minute, 100)
	require.NoError(t, err)
	t.write("B", c.At, c)
	require.NoError(t, t.ops().ForgetStats(t.ctx, 40*time.Hour))
	assert.Equal(t, []processlog.Stat{c, b}, t.stats(old, time.Minute), "rows that are not folded stay")
}
