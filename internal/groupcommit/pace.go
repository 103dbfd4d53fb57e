package groupcommit

import "time"

// Pace adds pauses between operations that each cost a statement and a synced write, which producers would wait for.
// Between two starts there is at least twice the duration of the first of the two operations. So operations take at
// most half of the time. After a longer pause an operation starts at once. Operations that take no time are delayed
// only by Least. The owner's mutex guards a Pace.
type Pace struct {
	Most      time.Duration // longest time between two starts that Pace demands; 0: only Least applies
	Least     time.Duration // shortest time between two starts; 0 means none
	startedAt time.Time     // start of the last operation
	took      time.Duration // duration of the operation that ended last
}

func (p *Pace) Begin(now time.Time) { p.startedAt = now }

func (p *Pace) End(took time.Duration) { p.took = took }

// Next returns the earliest time for the next start.
func (p *Pace) Next() time.Time { return p.startedAt.Add(max(p.Least, min(2*p.took, p.Most))) }
