package chaos

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/internal/chaos/history"
)

// machineStalled is a fault that nobody makes: a machine with too much to do keeps processes and the database
// waiting as ours do. It is no kind that a run must show.
const machineStalled = "machine stalled"

const (
	canaryEvery = 100 * time.Millisecond
	canaryLimit = 300 * time.Millisecond // a few ms are usual; a lease is renewed in time within less than twice that
)

// watchForStalls commits a small change again and again, and writes down each time that this took far too long,
// so that the checker does not take a lease lost to the machine for one lost to the library.
func (st *stage) watchForStalls(ctx context.Context) {
	for last := time.Now(); ctx.Err() == nil; {
		wait(ctx, canaryEvery)
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		_, err := st.db.ExecContext(limited, "UPDATE /* nemesis */ canary SET n=n+1")
		cancel()
		now := time.Now()
		if now.Sub(last) > canaryEvery+canaryLimit || err != nil {
			n := st.faults.Add(1)
			st.write(
				&history.Fault{At: last.UnixMicro(), N: n, Fault: machineStalled, Target: "machine", Touches: []string{history.TouchesDatabase}},
				&history.FaultEnd{At: now.UnixMicro(), N: n},
			)
		}
		last = now
	}
}
