package groupcommit

import "time"

// Pace spaces out what comes one by one, and would be a statement and a synced write each, for which producers would
// wait: a beginning comes twice as long after the last one as that takes, so that nobody is busy for more than half of the
// time. What comes after a rest never waits, and nothing does where work takes no time. Its owner's mutex guards it.
type Pace struct {
	Most  time.Duration // between two beginnings; 0: none waits
	began time.Time     // the last one
	took  time.Duration // by what has ended last
}

func (p *Pace) Begin(now time.Time) { p.began = now }

func (p *Pace) End(took time.Duration) { p.took = took }

// Next is when the next beginning is not too soon.
func (p *Pace) Next() time.Time { return p.began.Add(min(2*p.took, p.Most)) }
