package sim

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// Two requests arrive at the same nanosecond with the same operation and arguments.
func TestStepsAreOrderedByWhereTheyComeFromNotByWhoWasFirst(t *testing.T) {
	ask := func(gate *scheduler) { gate.pass(&request{from: &instance{w: new(world)}, op: "claim", args: "4"}) }
	fromQueue := func(gate *scheduler) { ask(gate) }
	fromStore := func(gate *scheduler) { ask(gate) }

	order := func(first, second func(*scheduler)) (origins [][originDepth]uintptr) {
		synctest.Test(t, func(*testing.T) {
			gate := newScheduler()
			for _, ask := range []func(*scheduler){first, second} {
				go ask(gate)
				synctest.Wait()
			}
			for _, r := range gate.take() {
				origins = append(origins, r.origin)
				r.refuse(0)
			}
		})
		return origins
	}
	there, back := order(fromQueue, fromStore), order(fromStore, fromQueue)
	require.NotEqual(t, there[0], there[1])
	require.Equal(t, there, back)
}
