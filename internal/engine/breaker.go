package engine

import (
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Breaker is the root's, with its defaults filled in; the zero value: none.
type Breaker struct {
	Of    int
	Share float64
	Pause time.Duration
}

// mostPause is how long a breaker whose probes fail pauses in the end, unless its first pause is longer.
const mostPause = time.Minute

// breaker keeps a type from being claimed in this process while what its handler needs is down. While it is shut its slots
// count as taken, so that all who look for one go by as they do in any backlog; after a pause they may claim one entry, the
// probe, whose call decides. nil: the type has none. It lives in memory, and each Run begins with it closed.
type breaker struct {
	Breaker
	businessType string
	opened       func(observe.OpenBreaker) // told outside of the mutex, as the next one
	closed       func(observe.OpenBreaker)

	mu         sync.Mutex       // guards the fields below; taken after the mutex of the type's slots, never before it
	latest     []breakerVerdict // Of at most, the oldest first
	generation int              // how often it has opened and closed: what a call tells that began before is old news
	open       *observe.OpenBreaker
	probing    bool // an entry was let in to try
}

// breakerVerdict is what an entry's last call was; of a batch, it is its first entry's.
type breakerVerdict struct {
	of     processlog.ID
	failed bool
}

// call is one of a handler, for one entry or for a batch, as a breaker counts it; guarded by its mutex.
type call struct {
	generation int
	probe      bool
	told       bool
}

// breakerReport is what a call tells of what its handler needs.
type breakerReport int

const (
	nothing breakerReport = iota // it was overtaken, or the fault is this library's or its database's
	fine                         // it is there: an entry's own failure says so, too
	down
	uncalled // there was no call to make: the batch before it has not ended, or nobody here can read its content
)

// of is what a call of these entries tells. Where the MaxWait of one is over, down is told as fine: the call counts against that
// entry, which is to come to its end soon, and not by one try for each of the breaker's pauses.
func (t breakerReport) of(attempts ...*attempt) breakerReport {
	if t == down && slices.ContainsFunc(attempts, func(a *attempt) bool { return a.t.hadItsTime(&a.row) }) {
		return fine
	}
	return t
}

// newBreaker returns nil for a type that has none.
func newBreaker(b *Base, a *claimSchedule, t *Type) *breaker {
	if t.Breaker == (Breaker{}) {
		return nil
	}
	return &breaker{
		Breaker: t.Breaker, businessType: t.Name,
		// The scanner sleeps until something is due, and not until a pause ends that has just begun.
		opened: func(open observe.OpenBreaker) {
			b.Problems.Complain("the breaker of "+open.BusinessType+" has opened: its entries wait here", open.Err, "probe_at", open.ProbeAt)
			Tell(b, b.Observer.BreakerOpened, open)
			a.poke()
		},
		closed: func(open observe.OpenBreaker) {
			b.Log.Info("compensator: a breaker has closed: its entries run again", "type", open.BusinessType, "after", time.Since(open.Since).Round(time.Millisecond))
			Tell(b, b.Observer.BreakerClosed, open)
			a.poke()
		},
	}
}

// reset closes it without a word.
func (b *breaker) reset() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.positionLocked(nil)
}

func (b *breaker) positionLocked(open *observe.OpenBreaker) {
	b.generation++
	b.open, b.probing = open, false
	b.latest = nil
}

// room is how many entries may be claimed, as far as the breaker goes.
func (b *breaker) room() int {
	if b == nil {
		return math.MaxInt
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roomLocked()
}

func (b *breaker) roomLocked() int {
	switch {
	case b.open == nil:
		return math.MaxInt
	case b.probing || time.Now().Before(b.open.ProbeAt):
		return 0
	}
	return 1
}

// shut reports whether nothing new may be inserted with a lease, or claimed on its way: what has waited longest is the probe.
func (b *breaker) shut() bool { return b.room() < math.MaxInt }

// wakes is when the pause ends, for the scanner to wake, if that is before until.
func (b *breaker) wakes(now, until time.Time) time.Time {
	if open := b.current(); open != nil && now.Before(open.ProbeAt) && open.ProbeAt.Before(until) {
		return open.ProbeAt
	}
	return until
}

// current is what Health tells; nil: it is closed.
func (b *breaker) current() *observe.OpenBreaker {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// admit lets in as many claimed attempts as may start. Slots bound what is claimed, and this what runs: a claim may have been
// under way when the breaker opened, and two be at once after it.
func (b *breaker) admit(attempts []*attempt) (admitted, refused []*attempt) {
	if b == nil {
		return attempts, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(attempts), b.roomLocked())
	b.probing = b.probing || b.open != nil && n > 0
	for _, a := range attempts[:n] {
		a.call.Store(&call{generation: b.generation, probe: b.open != nil})
	}
	return attempts[:n:n], attempts[n:]
}

// readmit is admit for an entry of a broken batch, and returns the call that it may make alone. It is never the probe: its own
// call has just been.
func (b *breaker) readmit() (own *call, admitted bool) {
	if b == nil {
		return nil, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return &call{generation: b.generation}, b.open == nil
}

// join makes a batch's attempts one call.
func (b *breaker) join(batch []*attempt) {
	if b == nil {
		return
	}
	for _, a := range batch[1:] {
		a.call.Store(batch[0].call.Load())
	}
}

// ended takes the end of an attempt, or of a claim that came to none; cause is why its context ended, if it did.
func (b *breaker) ended(a *attempt, end attemptResult, cause error) {
	switch {
	case b == nil:
	case end.unstarted:
		b.hear(a, a.call.Load(), nothing, nil)
	default:
		b.hear(a, a.call.Load(), tells(end.err, cause).of(a), end.err)
	}
}

// batchEnded is the same of a batch, before its attempts end.
func (b *breaker) batchEnded(batch []*attempt, verdicts []error, whole bool, cause error) {
	if b != nil {
		of, why := batchTells(verdicts, whole, cause)
		b.hear(batch[0], batch[0].call.Load(), of.of(batch...), why)
	}
}

// stuck takes the news that a call of a handler did not return after its timeout. Meanwhile it may have, and another begun.
func (b *breaker) stuck(a *attempt, in *call) {
	if b != nil {
		b.hear(a, in, down, processlog.ErrTimeout)
	}
}

// hear takes what a call for an attempt tells: the first word about it counts.
func (b *breaker) hear(a *attempt, c *call, tells breakerReport, why error) {
	b.mu.Lock()
	if c.told || c.generation != b.generation {
		b.mu.Unlock()
		return
	}
	c.told = true
	before := b.open
	switch {
	case tells == uncalled: // the next is the probe: a pause for each of those that wait would hold up all that could run
		b.probing = b.probing && !c.probe
	case c.probe && tells == fine:
		b.positionLocked(nil)
	case c.probe:
		b.reopenLocked(tells, why)
	case tells != nothing && b.countLocked(a.row.ID, tells == down):
		b.openLocked(observe.OpenBreaker{BusinessType: b.businessType, Since: time.Now(), Err: why}, b.Pause)
	}
	after := b.open
	b.mu.Unlock()
	switch {
	case after != before && after != nil:
		b.opened(*after)
	case after != before:
		b.closed(*before)
	}
}

// reopenLocked pauses anew after a probe: longer if it has failed, as long as before if it has told nothing.
func (b *breaker) reopenLocked(tells breakerReport, why error) {
	next := *b.open
	if tells == down {
		next.Probes++
		next.Err = why
	}
	pause := b.Pause
	for range next.Probes {
		pause = min(2*pause, max(mostPause, b.Pause))
	}
	b.openLocked(next, pause)
}

// openLocked adds up to a half to a pause, so that processes which were hit together do not probe together.
func (b *breaker) openLocked(open observe.OpenBreaker, pause time.Duration) {
	open.ProbeAt = time.Now().Add(pause + jitter.N(pause/2+1))
	b.positionLocked(&open)
}

// countLocked takes the latest word of an entry, and reports whether too many of the latest Of entries say down. An entry
// has one word: by itself, tried again and again, it would have the others wait.
func (b *breaker) countLocked(id processlog.ID, failed bool) bool {
	b.latest = slices.DeleteFunc(b.latest, func(w breakerVerdict) bool { return w.of == id })
	if len(b.latest) == b.Of {
		b.latest = slices.Delete(b.latest, 0, 1)
	}
	b.latest = append(b.latest, breakerVerdict{id, failed})
	failures := 0
	for _, w := range b.latest {
		if w.failed {
			failures++
		}
	}
	// A tenth of 30 are 3, not a hair more.
	return failed && len(b.latest) == b.Of && float64(failures) >= b.Share*float64(b.Of)-1e-9
}

// tells is what an attempt's end says of what its handler needs; cause is why its context ended, if it did.
func tells(err, cause error) (of breakerReport) {
	v := judged(err)
	switch {
	case err == nil:
		return fine
	case v.free, v.undecodable:
		return uncalled
	case v.ours, v.kind == serverFault, v.kind == serverDown, errors.Is(err, processlog.ErrHistoryLost), errors.Is(err, processlog.ErrLeaseLost):
		return nothing
	case errors.Is(cause, processlog.ErrTimeout):
		return down
	case cause != nil:
		return nothing // Run stops, the lease is lost, or somebody has cancelled: told to stop, a handler may blame anything
	case v.kind == unavailable:
		return down
	}
	return fine
}

// batchTells is the same of a batch, which is one call: one entry's good word is enough for what all need. One that came to no
// verdict says nothing, unless it ran out of time.
func batchTells(verdicts []error, whole bool, cause error) (of breakerReport, why error) {
	switch {
	case !whole && errors.Is(cause, processlog.ErrTimeout):
		return down, processlog.ErrTimeout
	case !whole:
		return nothing, nil
	case len(verdicts) == 0:
		return fine, nil
	}
	for _, err := range verdicts {
		switch tells(err, cause) {
		case fine:
			return fine, nil
		case down:
			of, why = down, err
		}
	}
	return of, why
}
