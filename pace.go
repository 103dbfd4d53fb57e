package compensator

import "time"

// pace spaces out what comes one by one, and would be a statement and a synced write each, for which producers would
// wait: a beginning comes twice as long after the last one as that takes, so that nobody is busy for more than half of the
// time. What comes after a rest never waits, and nothing does where work takes no time. Its owner's mutex guards it.
type pace struct {
	most  time.Duration // between two beginnings; 0: none waits
	began time.Time     // the last one
	took  time.Duration // by what has ended last
}

func (p *pace) begin(now time.Time) { p.began = now }

func (p *pace) end(took time.Duration) { p.took = took }

// next is when the next beginning is not too soon.
func (p *pace) next() time.Time { return p.began.Add(min(2*p.took, p.most)) }
