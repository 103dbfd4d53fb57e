package groupcommit

import "time"

// Pace adds pauses between operations on the database. Each operation costs a statement and a synced write to disk, and
// without pauses the statements of producers would wait for these writes.
//
// The pause counts from the start of an operation. The pause is twice the duration of the operation, but not longer
// than Most and not shorter than Least. If the pause has passed already, the next operation starts at once. The owner's
// mutex guards a Pace.
type Pace struct {
	Most      time.Duration // longest pause; 0 means that every pause has the length in the field Least
	Least     time.Duration // shortest pause; 0 means that there is no shortest pause
	startedAt time.Time
	took      time.Duration
}

func (p *Pace) Begin(now time.Time) { p.startedAt = now }

func (p *Pace) End(took time.Duration) { p.took = took }

// Next returns the earliest time for the next start.
func (p *Pace) Next() time.Time { return p.startedAt.Add(max(p.Least, min(2*p.took, p.Most))) }
