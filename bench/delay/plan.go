package delay

import (
	"math/rand/v2"
	"time"
)

type plan struct {
	Deadlines int
	Span      time.Duration // the longest delay; the shortest is 1 s
	Timeout   time.Duration // time after the last deadline until a missing firing counts as not fired
}

const (
	seed      = 20250321
	producers = 16 // goroutines that record, as in package bench
	shortest  = time.Second
)

// delays returns the same delays for every mechanism, uniformly distributed. They are whole milliseconds, so that no
// mechanism has to round.
func (p plan) delays() []time.Duration {
	random := rand.New(rand.NewPCG(seed, 1))
	all := make([]time.Duration, p.Deadlines)
	for i := range all {
		all[i] = shortest + time.Duration(random.Int64N(int64((p.Span-shortest)/time.Millisecond)+1))*time.Millisecond
	}
	return all
}

func (p plan) killAfter() time.Duration { return p.Span / 2 }

// The kill may delay deadlines that are due shortly before the kill or shortly after the restart. These deadlines are
// counted separately. The method lead returns how long the time before the kill is, and the method tail how long the
// time after the restart is. With the default span, both are at least 5 s, the longest poll interval of a mechanism.
func (p plan) lead() time.Duration { return p.Span / 6 }
func (p plan) tail() time.Duration { return p.Span / 3 }
