package compensator

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// flushes collects what a batcher flushes, and holds each flush up for a second of the bubble's time.
type flushes struct {
	mu      sync.Mutex
	batches [][]int
	now     int
	most    int // flushes at the same time
}

func (f *flushes) flush(batch []int) {
	f.mu.Lock()
	f.batches = append(f.batches, append([]int(nil), batch...))
	f.now++
	f.most = max(f.most, f.now)
	f.mu.Unlock()
	<-time.After(time.Second)
	f.mu.Lock()
	f.now--
	f.mu.Unlock()
}

func TestBatcherFlushesALoneItemAtOnceAndTheRestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flushes
		b := &batcher[int]{max: 3, workers: 1, flush: f.flush}
		began := time.Now()
		b.add(1)
		synctest.Wait()
		require.Equal(t, [][]int{{1}}, f.batches, "a lone item waits for nobody")
		b.add(2, 3)
		b.add(4)
		b.add(5)
		<-b.done()
		require.Equal(t, [][]int{{1}, {2, 3, 4}, {5}}, f.batches)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.Equal(t, 1, f.most)
	})
}

func TestBatcherLetsTheReadyAddFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds, adders = 50, 100
	together := 0
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			var f flushes
			b := &batcher[int]{max: 500, workers: 1, flush: f.flush}
			for i := range adders {
				go b.add(i)
			}
			<-b.done()
			synctest.Wait()
			<-b.done()
			if len(f.batches[0]) > adders/2 {
				together++
			}
		})
	}
	require.Greater(t, together, rounds/2, "the first flush takes what a hundred goroutines were about to add")
}

func TestBatcherKeepsItsPaceButForTheLoneAndTheFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, most = 2 * time.Millisecond, 5 * time.Millisecond
		began := time.Now()
		type flushed struct {
			items int
			at    time.Duration
		}
		var all []flushed
		slow := takes
		b := &batcher[int]{max: 3, workers: 1, pace: pace{most: most}, flush: func(batch []int) {
			all = append(all, flushed{len(batch), time.Since(began)})
			time.Sleep(slow)
		}}
		add := func(items ...int) {
			b.add(items...)
			synctest.Wait()
		}
		add(1)
		require.Equal(t, []flushed{{1, 0}}, all, "after a rest nothing waits")
		add(2)
		time.Sleep(takes)
		add(3)
		<-b.done()
		require.Equal(t, flushed{2, 2 * takes}, all[1], "what comes soon after waits for company")
		slow = time.Second
		add(4, 5, 6, 7)
		<-b.done()
		require.Equal(t, []flushed{{3, 3 * takes}, {1, 3*takes + slow}}, all[2:], "a full one does not, nor what comes after a long one")
		slow = 0
		add(8)
		add(9)
		<-b.done()
		require.Equal(t, []flushed{{1, 3*takes + 2*time.Second}, {1, 3*takes + 2*time.Second}}, all[4:], "where work takes no time nothing waits")
	})
}

func TestBatcherRunsNoMoreFlushesThanWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flushes
		b := &batcher[int]{max: 1, workers: 2, flush: f.flush}
		for i := range 6 {
			b.add(i)
		}
		<-b.done()
		require.Equal(t, 2, f.most)
		require.Len(t, f.batches, 6)
	})
}

func TestBatcherWithABoundTakesAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flushes
		b := &batcher[int]{max: 10, workers: 1, bound: 3, flush: f.flush}
		require.True(t, b.add(0))
		synctest.Wait() // 0 is being flushed, nothing waits
		require.True(t, b.add(1, 2))
		require.False(t, b.add(3, 4), "4 would wait")
		require.Equal(t, 2, b.size(), "none of the refused was taken")
		require.True(t, b.add(5))
		<-b.done()
		require.Equal(t, [][]int{{0}, {1, 2, 5}}, f.batches)
	})
}

func TestBatcherIsDoneWhenNothingWaitsOrRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flushes
		b := &batcher[int]{max: 1, workers: 1, flush: f.flush}
		<-b.done() // nothing was ever added
		require.True(t, b.quiet())
		b.add(1, 2)
		first, second := b.done(), b.done()
		synctest.Wait()
		require.False(t, b.quiet())
		select {
		case <-first:
			t.Fatal("done while an item is being flushed")
		default:
		}
		<-first
		<-second
		require.True(t, b.quiet())
		require.Len(t, f.batches, 2)
		b.add() // nothing: no worker, no flush
		require.True(t, b.quiet())
	})
}

func TestBatcherFeedingItselfIsNotDoneInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *batcher[int]
		var seen []int
		b = &batcher[int]{max: 10, workers: 1, flush: func(batch []int) {
			seen = append(seen, batch...)
			if batch[0] < 5 {
				b.add(batch[0] + 1)
			}
		}}
		b.add(1)
		<-b.done()
		require.Equal(t, []int{1, 2, 3, 4, 5}, seen)
	})
}
