package delay

import (
	"math/rand/v2"
	"time"
)

// plan is what is asked of every mechanism alike.
type plan struct {
	Deadlines int
	Span      time.Duration // the longest delay; the shortest is 1 s
	Timeout   time.Duration // after the last deadline, what has not fired counts as not fired
}

const (
	seed      = 20250321
	producers = 16 // goroutines that record, as in package bench
	shortest  = time.Second
)

// delays are the same for every mechanism: uniform, in whole milliseconds, so that a mechanism that knows no
// finer ones need not round.
func (p plan) delays() []time.Duration {
	random := rand.New(rand.NewPCG(seed, 1))
	all := make([]time.Duration, p.Deadlines)
	for i := range all {
		all[i] = shortest + time.Duration(random.Int64N(int64((p.Span-shortest)/time.Millisecond)+1))*time.Millisecond
	}
	return all
}

// killAfter is how long after the last record the service is killed.
func (p plan) killAfter() time.Duration { return p.Span / 2 }

// What is due within lead before the kill, or within tail after the restart, is counted apart. The lead is there
// because what is due just before the kill may be in hand, or wait for a poll, when it comes: how late it is then
// is the kill's doing. 5 s is the longest interval a mechanism here polls at.
func (p plan) lead() time.Duration { return p.Span / 6 }
func (p plan) tail() time.Duration { return p.Span / 3 }
