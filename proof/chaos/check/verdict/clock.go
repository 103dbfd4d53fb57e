package verdict

import (
	"slices"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

type clock struct{ samples []history.Clock }

// jump is the smallest difference of two times from which the checker concludes anything. A reading of the two clocks
// takes up to 100 ms, so a smaller difference may be an error of the reading.
const jump = 100_000 // in µs

func (c *clock) sort() {
	slices.SortStableFunc(c.samples, func(a, b history.Clock) int { return int(a.At - b.At) })
}

func offset(s history.Clock) int64 { return s.DBNow - s.At }

// samplesAround returns the indexes of the last sample before an audit row and of the first sample after it. At the
// beginning and at the end of the run, the two indexes are equal.
func (c *clock) samplesAround(seq uint64) (before, after int) {
	i, _ := slices.BinarySearchFunc(c.samples, seq, func(s history.Clock, seq uint64) int {
		if s.AuditSeq < seq {
			return -1
		}
		return 1
	})
	return max(0, i-1), min(i, len(c.samples)-1)
}

func (c *clock) wall(seq uint64, now int64) int64 {
	if len(c.samples) == 0 {
		return now
	}
	i, j := c.samplesAround(seq)
	before, after := c.samples[i], c.samples[j]
	byBefore, byAfter := now-offset(before), now-offset(after)
	if abs(byBefore-byAfter) < jump || inside(byBefore, before, after) {
		return byBefore
	}
	return byAfter
}

func inside(at int64, from, to history.Clock) bool { return at >= from.At-jump && at <= to.At+jump }

func (c *clock) moved(seq uint64) bool {
	if len(c.samples) == 0 {
		return false
	}
	i, j := c.samplesAround(seq)
	for k := max(0, i-2); k < min(j+2, len(c.samples)-1); k++ {
		if abs(offset(c.samples[k])-offset(c.samples[k+1])) >= jump {
			return true
		}
	}
	return false
}

// setBack returns an upper limit, in µs, for how far the database's clock was set back at about the time when an audit
// row was written.
func (c *clock) setBack(seq uint64) (by int64) {
	if len(c.samples) == 0 {
		return 0
	}
	i, j := c.samplesAround(seq)
	for k := max(0, i-2); k < min(j+2, len(c.samples)-1); k++ {
		by = max(by, offset(c.samples[k])-offset(c.samples[k+1]))
	}
	return by
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}
