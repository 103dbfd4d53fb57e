package groupcommit

import "time"

// Pace spaces out what comes one by one, and would be a statement and a synced write each, for which producers would
// wait: a beginning comes twice as long after the last one as that takes, so that nobody is busy for more than half of the
// time. What comes after a rest never waits. Where work takes no time, only Least makes anything wait. Its owner's mutex guards it.
type Pace struct {
	Most  time.Duration // between two beginnings; 0: none waits
	Least time.Duration // between two beginnings, however short the work is; 0: none
	began time.Time     // the last one
	took  time.Duration // by what has ended last
}

func (p *Pace) Begin(now time.Time) { p.began = now }

func (p *Pace) End(took time.Duration) { p.took = took }

// Next is when the next beginning is not too soon.
func (p *Pace) Next() time.Time { return p.began.Add(max(p.Least, min(2*p.took, p.Most))) }
