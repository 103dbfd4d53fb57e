package timingwheel

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkExpiry compares the timing wheel with a heap of the standard library. A figure is the time to insert one
// entry and to remove the entry when it is due.
func BenchmarkExpiry(b *testing.B) {
	const span = 600_000 // in ms
	for _, n := range []int{10_000, 1_000_000} {
		entries := make([]wheelEntry, n)
		random := rand.New(rand.NewPCG(1, 2))
		for i := range entries {
			entries[i].at = 1 + random.Int64N(span)
		}
		b.Run(fmt.Sprintf("wheel/%d", n), func(b *testing.B) {
			for b.Loop() {
				slots := newWheelSlots(minWheelSlots)
				for i := range entries {
					slots.insert(&entries[i])
				}
				expired := 0
				for now := range int64(span + 1) {
					expired += len(slots.expire(now))
				}
				if expired != n {
					b.Fatalf("got %d expired, want %d", expired, n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/entry")
		})
		b.Run(fmt.Sprintf("heap/%d", n), func(b *testing.B) {
			for b.Loop() {
				var h dueHeap
				for i := range entries {
					heap.Push(&h, &entries[i])
				}
				for now := range int64(span + 1) {
					for len(h) > 0 && h[0].at <= now {
						heap.Pop(&h)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/entry")
		})
	}
}

type dueHeap []*wheelEntry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(e any)        { *h = append(*h, e.(*wheelEntry)) }
func (h *dueHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
