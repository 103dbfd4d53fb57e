package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator/processlog"
)

// A service reschedules an entry while the entry runs in a batch. When the lease ends, the entry can be claimed,
// although the batch still runs. If the instance that runs the batch gets the entry from the queue, it must put the
// entry back. The oracle must not call this entry late.
func TestEntryThatItsOwnInstanceStillHoldsIsNotLate(t *testing.T) {
	for name, c := range map[string]struct {
		before   uint32
		endedAgo time.Duration
		late     bool
	}{
		"the attempt goes on":             {},
		"it ended after the lease":        {endedAgo: 200 * time.Millisecond},
		"it ended long before":            {endedAgo: time.Second, late: true},
		"it goes on, of an earlier epoch": {before: 1, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(*testing.T) {
				w := &world{plan: plan{calm: true, sharedQueue: true}}
				w.oracle = newOracle(w)
				rescheduled := &operation{kind: opChange, change: processlog.Change{Action: processlog.ActionReschedule}}
				l := &rowHistory{kind: batchType, steps: []transition{{op: rescheduled, at: time.Now().Add(-2 * time.Second)}}}
				l.attempts = []*attempt{{from: &instance{w: w}, epoch: 1 - c.before, ended: c.endedAgo > 0, endedAt: time.Now().Add(-c.endedAgo)}}

				w.oracle.checkPromptClaimLocked(l, processlog.Row{Epoch: 1, DueIn: -time.Second, LeaseLeft: -300 * time.Millisecond})

				assert.Equal(t, c.late, w.oracle.verdict != "", w.oracle.verdict)
			})
		})
	}
}
