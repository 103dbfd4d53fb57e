package verdict

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The checker looks up each change of a row in the list of moves, and takes the move that fits. So no change may fit
// two moves.
func TestNoTwoMovesFitOneChange(t *testing.T) {
	const at = 1_700_000_000_000
	states := []int8{pending, retrying, dead, compensating, succeeded, compensated, cancelled, manual}
	later := image{version: 5, token: 1, nextAt: at - 1000, epoch: 2, processCount: 1, compensateCount: 1, deliveryCount: 2}
	whole := later
	whole.compensateCount = 0
	inserted := image{token: 1, nextAt: at - 1000, deliveryCount: 1}
	fitted := make(map[string]int)
	for _, from := range states {
		for _, to := range states {
			var leading []*move
			for i := range moves {
				if moves[i].leads(from, to) {
					leading = append(leading, &moves[i])
				}
			}
			for n := range 3 << 10 {
				bit := func(i int) int32 { return int32(n >> i & 1) }
				o := []image{later, inserted, whole}[n>>10]
				o.state, o.leaseUntil = from, int64(bit(0))*(at+500)
				w := o
				w.state = to
				w.version += uint64(bit(1))
				w.epoch += uint32(bit(2))
				w.token += uint64(bit(3))
				w.processCount = [...]int32{o.processCount, o.processCount + 1, 0}[min(2, bit(4)+2*bit(5))]
				w.compensateCount = [...]int32{o.compensateCount, o.compensateCount + 1, 0}[min(2, bit(6)+2*bit(5))]
				w.deliveryCount = [...]int32{o.deliveryCount, o.deliveryCount + 1, o.deliveryCount - 1, 0}[bit(7)+2*bit(8)]
				w.nextAt = [...]int64{o.nextAt, at}[bit(9)]
				for _, lease := range []int64{o.leaseUntil, 0, at + 2000} {
					for _, by := range []string{"", "handler", "complete", "cancel", "permanent", "exhausted", "crash", "person"} {
						w.leaseUntil, w.endedBy = lease, by
						s := step{old: o, new: w, now: at * 1000}
						var fit []string
						for _, m := range leading {
							if m.fits(&s) {
								fit = append(fit, m.name)
								fitted[m.name]++
							}
						}
						// A renewal within the same millisecond changes no column, so it fits moveTouch too.
						if len(fit) > 1 && !slices.Equal(fit, []string{moveTouch, moveRenew}) {
							t.Fatalf("%v fit %s; want exactly one move", fit, describe(&s))
						}
					}
				}
			}
		}
	}
	for _, m := range moves {
		require.Positive(t, fitted[m.name], "no change fits %q", m.name)
	}
}
