package groupcommit

import "time"

// Pace adds pauses between operations that each cost a statement and a synced write, which producers would wait for.
// Between two starts there is at least twice the duration of the first of the two operations. After a longer pause an
// operation starts at once. Operations that take no time are delayed only by Least. The owner's mutex guards a Pace.
type Pace struct {
	Most      time.Duration // 0: only Least applies
	Least     time.Duration // 0 means none
	startedAt time.Time
	took      time.Duration
}

func (p *Pace) Begin(now time.Time) { p.startedAt = now }

func (p *Pace) End(took time.Duration) { p.took = took }

// Next returns the earliest time for the next start.
func (p *Pace) Next() time.Time { return p.startedAt.Add(max(p.Least, min(2*p.took, p.Most))) }
