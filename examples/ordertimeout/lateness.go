package main

import (
	"fmt"
	"io"
	"math"
	"strings"
)

type lateness []bin

// A bin with a negative ms is for orders that were closed early.
type bin struct{ ms, n int }

func (l lateness) count() int {
	return l.within(math.MinInt, math.MaxInt)
}

func (l lateness) early() int { return l.within(math.MinInt, 0) }

func (l lateness) within(from, to int) (n int) {
	for _, b := range l {
		if b.ms >= from && b.ms < to {
			n += b.n
		}
	}
	return n
}

func (l lateness) percentile(p float64) int {
	rank := int(math.Ceil(float64(l.count()) * p / 100))
	for _, b := range l {
		if rank -= b.n; rank <= 0 {
			return b.ms
		}
	}
	return 0
}

// The first step is for orders that were closed early.
var steps = []int{math.MinInt, 0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, math.MaxInt}

const longestBar = 50

func (l lateness) print(w io.Writer) {
	if len(l) == 0 {
		return
	}
	fmt.Fprintf(w, "  p50 %d  p90 %d  p99 %d  p99.9 %d  max %d\n",
		l.percentile(50), l.percentile(90), l.percentile(99), l.percentile(99.9), l[len(l)-1].ms)
	counts, maximum := make([]int, len(steps)-1), 0
	for i := range counts {
		counts[i] = l.within(steps[i], steps[i+1])
		maximum = max(maximum, counts[i])
	}
	for i, n := range counts {
		if n == 0 {
			continue
		}
		from := fmt.Sprintf("from %5d ms", steps[i])
		if i == 0 {
			from = "early"
		}
		fmt.Fprintf(w, "  %-13s %7d  %s\n", from, n, strings.Repeat("#", (n*longestBar+maximum-1)/maximum))
	}
}
