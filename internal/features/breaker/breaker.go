// Package breaker keeps a type from being claimed while what its handler needs is down: TypeConfig.Breaker.
package breaker

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Settings are those of TypeConfig.Breaker. The breaker opens when at least Share of the latest Of entries report the handler's
// dependency down.
type Settings struct {
	Of    int
	Share float64
	Pause time.Duration
}

// mostPause is the longest pause of a breaker whose probes fail, unless its first pause is longer.
const mostPause = time.Minute

// Breaker keeps one type from being claimed in this process while what its handler needs is down. While it is open the type
// has no room. After a pause one entry may be claimed, the probe. Its call decides whether the breaker closes or pauses again.
// The state lives in memory, and each Run begins with a closed breaker.
type Breaker struct {
	Settings
	businessType string
	opened       func(observe.OpenBreaker) // called without the mutex
	closed       func(observe.OpenBreaker) // called without the mutex

	mu         sync.Mutex // guards the fields below; taken while the slots of the type are locked, so nothing here takes slots
	latest     []verdict  // Of at most, the oldest first
	generation int        // number of times it has opened and closed; a call that began in another generation tells nothing
	open       *observe.OpenBreaker
	probing    bool // a probe runs
	calls      map[*engine.Attempt]*call
}

// verdict is what the last call of an entry has told. The verdict of a batch is its first entry's.
type verdict struct {
	id     processlog.ID
	failed bool
}

// call is one call of a handler, for one attempt or for a batch.
type call struct {
	number     uint32 // of the attempt's calls; see engine.Admission.Stuck
	generation int
	probe      bool
	told       bool
}

// report is what a call tells about the handler's dependency.
type report int

const (
	nothing  report = iota // it was interrupted, or the library or its database is at fault
	up                     // the dependency answers, perhaps with a failure of the entry's own
	down                   // the dependency does not answer
	uncalled               // the handler was not called, or could not decode the content
)

// Attach gives a type a breaker.
func Attach(e *engine.Engine, t *engine.Type, s Settings) *Breaker {
	b := &Breaker{
		Settings: s, businessType: t.Name, calls: make(map[*engine.Attempt]*call),
		// The scanner sleeps until something is due. It does not know of a pause that has just begun.
		opened: func(open observe.OpenBreaker) {
			e.Problems.Complain("the breaker of "+open.BusinessType+" has opened: its entries wait here", open.Err, "probe_at", open.ProbeAt)
			engine.Tell(e.Base, e.Observer.BreakerOpened, open)
			e.Wake()
		},
		closed: func(open observe.OpenBreaker) {
			e.Log.Info("compensator: a breaker has closed: its entries run again", "type", open.BusinessType, "after", time.Since(open.Since).Round(time.Millisecond))
			engine.Tell(e.Base, e.Observer.BreakerClosed, open)
			e.Wake()
		},
	}
	t.Admit(engine.Admission{
		Room: b.room, RoomAt: b.probeAt, Admit: b.admit, Joined: b.joined, Readmit: b.readmit,
		CallEnded: b.callEnded, Ended: b.ended, Stuck: b.stuck, RunBegins: b.reset,
	})
	return b
}

// reset closes the breaker, and logs nothing.
func (b *Breaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setLocked(nil)
}

func (b *Breaker) setLocked(open *observe.OpenBreaker) {
	b.generation++
	b.open, b.probing = open, false
	b.latest = nil
}

// room returns how many calls may begin.
func (b *Breaker) room() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roomLocked()
}

func (b *Breaker) roomLocked() int {
	switch {
	case b.open == nil:
		return engine.Unlimited
	case b.probing || time.Now().Before(b.open.ProbeAt):
		return 0
	}
	return 1
}

// probeAt returns when the pause ends; zero: the breaker is closed.
func (b *Breaker) probeAt() time.Time {
	if open := b.Current(); open != nil {
		return open.ProbeAt
	}
	return time.Time{}
}

// Current returns the state that Health shows, or nil while the breaker is closed.
func (b *Breaker) Current() *observe.OpenBreaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// admit lets as many claimed attempts start as there is room for. A claim may have been under way when the breaker opened, and
// two claims at once may each have brought a probe.
func (b *Breaker) admit(attempts []*engine.Attempt) (admitted, refused []*engine.Attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(attempts), b.roomLocked())
	b.probing = b.probing || b.open != nil && n > 0
	for _, a := range attempts[:n] {
		b.calls[a] = &call{number: 1, generation: b.generation, probe: b.open != nil}
	}
	return attempts[:n:n], attempts[n:]
}

// readmit lets an attempt of a broken batch run alone unless the breaker is open. The attempt is never the probe, because its
// batch was called a moment ago.
func (b *Breaker) readmit(a *engine.Attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open != nil {
		return false
	}
	b.calls[a] = &call{number: 2, generation: b.generation}
	return true
}

// joined makes the calls of a batch's attempts one call.
func (b *Breaker) joined(batch []*engine.Attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range batch[1:] {
		b.calls[a] = b.calls[batch[0]]
	}
}

// ended takes the end of an attempt.
func (b *Breaker) ended(a *engine.Attempt, r engine.Result) {
	c := b.take(a)
	if r.Unstarted {
		b.hear(a, c, nothing, nil)
		return
	}
	b.hear(a, c, reportOf(r.Err, r.Cause).about(a), r.Err)
}

// take returns the call of an attempt that has ended, and forgets it.
func (b *Breaker) take(a *engine.Attempt) *call {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.calls[a]
	delete(b.calls, a)
	return c
}

// callEnded takes the end of a batch's call, before its attempts end.
func (b *Breaker) callEnded(batch []*engine.Attempt, verdicts []error, whole bool, cause error) {
	report, why := batchReport(verdicts, whole, cause)
	b.hear(batch[0], b.callOf(batch[0], 1), report.about(batch...), why)
}

// stuck takes the news that a handler did not return after its timeout.
func (b *Breaker) stuck(a *engine.Attempt, number uint32) {
	b.hear(a, b.callOf(a, number), down, processlog.ErrTimeout)
}

// callOf returns the call of an attempt, or nil if that call is over.
func (b *Breaker) callOf(a *engine.Attempt, number uint32) *call {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.calls[a]; c != nil && c.number == number {
		return c
	}
	return nil
}

// hear takes the report of a call for an attempt. Only the first report of a call counts.
func (b *Breaker) hear(a *engine.Attempt, c *call, r report, why error) {
	b.mu.Lock()
	if c == nil || c.told || c.generation != b.generation {
		b.mu.Unlock()
		return
	}
	c.told = true
	before := b.open
	switch {
	case r == uncalled: // the next call is the probe: one more pause would hold up all entries that could run
		b.probing = b.probing && !c.probe
	case c.probe && r == up:
		b.setLocked(nil)
	case c.probe:
		b.reopenLocked(r, why)
	case r != nothing && b.countLocked(a.Row.ID, r == down):
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

// reopenLocked begins the next pause after a probe. The pause is longer if the probe has failed, and as long as before if it
// has told nothing.
func (b *Breaker) reopenLocked(r report, why error) {
	next := *b.open
	if r == down {
		next.Probes++
		next.Err = why
	}
	pause := b.Pause
	for range next.Probes {
		pause = min(2*pause, max(mostPause, b.Pause))
	}
	b.openLocked(next, pause)
}

// openLocked begins a pause. It adds up to a half to the pause, so that processes that were hit together do not probe together.
func (b *Breaker) openLocked(open observe.OpenBreaker, pause time.Duration) {
	open.ProbeAt = time.Now().Add(pause + jitter.N(pause/2+1))
	b.setLocked(&open)
}

// countLocked counts the latest verdict of an entry, and reports whether too many of the latest Of entries have failed. Each
// entry counts once: a single entry that fails again and again must not hold up the others.
func (b *Breaker) countLocked(id processlog.ID, failed bool) bool {
	b.latest = slices.DeleteFunc(b.latest, func(w verdict) bool { return w.id == id })
	if len(b.latest) == b.Of {
		b.latest = slices.Delete(b.latest, 0, 1)
	}
	b.latest = append(b.latest, verdict{id, failed})
	failures := 0
	for _, w := range b.latest {
		if w.failed {
			failures++
		}
	}
	// Allow for rounding: a share of 0.1 of 30 entries are 3 entries.
	return failed && len(b.latest) == b.Of && float64(failures) >= b.Share*float64(b.Of)-1e-9
}

// about is the report of a call for attempts. If the MaxWait of one of them is over, a call that finds the dependency down
// counts as a failure of that entry, and not as a report about the dependency: the entry is to reach its end soon.
func (r report) about(attempts ...*engine.Attempt) report {
	if r == down && slices.ContainsFunc(attempts, func(a *engine.Attempt) bool { return a.Type.HadItsTime(&a.Row) }) {
		return up
	}
	return r
}

// reportOf returns what the end of an attempt tells about the handler's dependency. cause is why the attempt's context ended,
// if it did.
func reportOf(err, cause error) report {
	j := engine.JudgementOf(err)
	switch {
	case err == nil:
		return up
	case j.Uncalled:
		return uncalled
	case j.Library, errors.Is(err, processlog.ErrHistoryLost), errors.Is(err, processlog.ErrLeaseLost):
		return nothing
	case errors.Is(cause, processlog.ErrTimeout):
		return down
	case cause != nil:
		return nothing // Run stops, the lease is lost, or somebody has cancelled the entry: the handler may blame anything
	case j.Verdict == observe.Unavailable:
		return down
	}
	return up
}

// batchReport returns what the call of a batch tells. If the dependency was up for one entry, it was up. A batch without a
// verdict for each entry tells nothing unless it ran out of time.
func batchReport(verdicts []error, whole bool, cause error) (r report, why error) {
	switch {
	case !whole && errors.Is(cause, processlog.ErrTimeout):
		return down, processlog.ErrTimeout
	case !whole:
		return nothing, nil
	case len(verdicts) == 0:
		return up, nil
	}
	for _, err := range verdicts {
		switch reportOf(err, cause) {
		case up:
			return up, nil
		case down:
			r, why = down, err
		}
	}
	return r, why
}
