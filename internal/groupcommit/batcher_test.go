package groupcommit

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type flushes struct {
	mu      sync.Mutex
	batches [][]int
	now     int
	most    int
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
		b := &Batcher[int]{Max: 3, Workers: 1, Flush: f.flush}
		began := time.Now()
		b.Add(1)
		synctest.Wait()
		require.Equal(t, [][]int{{1}}, f.batches, "a single item is flushed at once")
		b.Add(2, 3)
		b.Add(4)
		b.Add(5)
		<-b.Done()
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
			b := &Batcher[int]{Max: 500, Workers: 1, Flush: f.flush}
			for i := range adders {
				go b.Add(i)
			}
			<-b.Done()
			synctest.Wait()
			<-b.Done()
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
		b := &Batcher[int]{Max: 3, Workers: 1, Pace: Pace{Most: most}, Flush: func(batch []int) {
			all = append(all, flushed{len(batch), time.Since(began)})
			time.Sleep(slow)
		}}
		add := func(items ...int) {
			b.Add(items...)
			synctest.Wait()
		}
		add(1)
		require.Equal(t, []flushed{{1, 0}}, all, "after a pause nothing waits")
		add(2)
		time.Sleep(takes)
		add(3)
		<-b.Done()
		require.Equal(t, flushed{2, 2 * takes}, all[1], "items that arrive soon afterwards wait")
		slow = time.Second
		add(4, 5, 6, 7)
		<-b.Done()
		require.Equal(t, []flushed{{3, 3 * takes}, {1, 3*takes + slow}}, all[2:], "a full batch does not wait, and neither do items after a long pause")
		slow = 0
		add(8)
		add(9)
		<-b.Done()
		require.Equal(t, []flushed{{1, 3*takes + 2*time.Second}, {1, 3*takes + 2*time.Second}}, all[4:], "where work takes no time nothing waits")
	})
}

func TestBatchThatBecomesFullWaitsForItsPaceNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		b := &Batcher[int]{Max: 3, Workers: 1, Pace: Pace{Most: 10 * time.Second}, Flush: func([]int) {
			at = append(at, time.Since(began))
			time.Sleep(6 * time.Second)
		}}
		b.Add(1)
		time.Sleep(6 * time.Second)
		b.Add(2)
		time.Sleep(time.Second)
		b.Add(3, 4)
		<-b.Done()
		require.Equal(t, []time.Duration{0, 7 * time.Second}, at, "alone it would wait until the tenth second")
	})
}

func TestBatcherRunsNoMoreFlushesThanWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flushes
		b := &Batcher[int]{Max: 1, Workers: 2, Flush: f.flush}
		for i := range 6 {
			b.Add(i)
		}
		<-b.Done()
		require.Equal(t, 2, f.most)
		require.Len(t, f.batches, 6)
	})
}

func TestBatcherWithABoundTakesAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flushes
		b := &Batcher[int]{Max: 10, Workers: 1, Bound: 3, Flush: f.flush}
		require.True(t, b.Add(0))
		synctest.Wait()
		require.True(t, b.Add(1, 2))
		require.False(t, b.Add(3, 4), "4 would wait")
		require.Equal(t, 2, b.Size(), "no refused item was added")
		require.True(t, b.Add(5))
		<-b.Done()
		require.Equal(t, [][]int{{0}, {1, 2, 5}}, f.batches)
	})
}

func TestBatcherIsDoneWhenNothingWaitsOrRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flushes
		b := &Batcher[int]{Max: 1, Workers: 1, Flush: f.flush}
		<-b.Done()
		require.True(t, b.Quiet())
		b.Add(1, 2)
		first, second := b.Done(), b.Done()
		synctest.Wait()
		require.False(t, b.Quiet())
		select {
		case <-first:
			t.Fatal("done while an item is being flushed")
		default:
		}
		<-first
		<-second
		require.True(t, b.Quiet())
		require.Len(t, f.batches, 2)
		b.Add()
		require.True(t, b.Quiet())
	})
}

func TestBatcherFeedingItselfIsNotDoneInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *Batcher[int]
		var seen []int
		b = &Batcher[int]{Max: 10, Workers: 1, Flush: func(batch []int) {
			seen = append(seen, batch...)
			if batch[0] < 5 {
				b.Add(batch[0] + 1)
			}
		}}
		b.Add(1)
		<-b.Done()
		require.Equal(t, []int{1, 2, 3, 4, 5}, seen)
	})
}

func TestIdleBatcherKeepsNothingThatPassedThroughIt(t *testing.T) {
	b := &Batcher[*int]{Max: 10, Workers: 1, Flush: func([]*int) {}}
	b.Add(make([]*int, 25)...)
	<-b.Done()
	require.Zero(t, cap(b.queued))
}

func TestBatcherBeginsNoMoreOftenThanItsLeastPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		b := &Batcher[int]{Max: 3, Workers: 1, Pace: Pace{Least: 20 * time.Millisecond}, Flush: func([]int) {
			at = append(at, time.Since(began))
		}}
		b.Add(1)
		synctest.Wait()
		b.Add(2)
		<-b.Done()
		b.Add(3, 4, 5)
		<-b.Done()
		require.Equal(t, []time.Duration{0, 20 * time.Millisecond, 20 * time.Millisecond}, at, "Least also delays work that takes no time, except for a full batch")
	})
}
