// Package breaker implements HandlerConfig.Breaker. It stops claiming entries of a type while a dependency of the
// type's handler is down.
package breaker

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/observe"
	"github.com/compensator-go/compensator/processlog"
)

// Settings are the settings of HandlerConfig.Breaker.
type Settings struct {
	Of    int           // number of latest entries whose results the breaker takes into account
	Share float64       // share of the latest entries, above 0 and at most 1. If this share reports that the dependency is down, the breaker opens
	Pause time.Duration // first pause before a probe
}

// maxPause limits the growing pause after failed probes.
const maxPause = time.Minute

// Breaker stops the claims of one type in this process while the handler's dependency is down.
//
// After a pause, one entry may be claimed as the probe. The result of the probe's call closes the breaker or starts the
// next pause.
//
// Each Run begins with a closed breaker.
type Breaker struct {
	Settings
	businessType string
	notifyOpened func(observe.OpenBreaker) // called without the mutex
	notifyClosed func(observe.OpenBreaker) // called without the mutex

	// A caller may hold the lock of the type's slots when it locks mu. So never lock the slots while you hold mu. mu
	// guards the fields below.
	mu         sync.Mutex
	latest     []lastCall // last calls of at most Settings.Of entries, the oldest first
	generation int        // number of times the breaker has opened and closed; reports of calls from an earlier generation are ignored
	openState  *observe.OpenBreaker
	probing    bool // a probe is running
	calls      map[*engine.Attempt]*call
}

// lastCall says whether the last call of an entry failed. The call of a batch counts for the first entry of the batch.
type lastCall struct {
	id     processlog.ID
	failed bool
}

// call is shared by the attempts of a batch.
type call struct {
	number     uint32 // number of the call within its attempt; see engine.Admission.Stuck
	generation int
	probe      bool
	reported   bool
}

type report int

const (
	reportNothing  report = iota // the call was interrupted, or the library or its database failed
	reportUp                     // the dependency answered, perhaps with an error about the entry itself
	reportDown                   // the dependency did not answer
	reportUncalled               // the handler was not called, or could not decode the content
)

// Attach gives a type a breaker.
func Attach(e *engine.Engine, t *engine.Type, s Settings) *Breaker {
	b := &Breaker{
		Settings: s, businessType: t.Name, calls: make(map[*engine.Attempt]*call),
		// Wake the scanner, which sleeps until the next entry is due and does not know about the new pause.
		notifyOpened: func(open observe.OpenBreaker) {
			e.Problems.LogLimited("the breaker of "+open.BusinessType+" has opened: its entries wait here", open.Err, "probe_at", open.ProbeAt)
			engine.NotifyObserver(e.Base, e.Observer.BreakerOpened, open)
			e.Wake()
		},
		notifyClosed: func(open observe.OpenBreaker) {
			e.Log.Info("compensator: a breaker has closed: its entries run again", "type", open.BusinessType, "after", time.Since(open.Since).Round(time.Millisecond))
			engine.NotifyObserver(e.Base, e.Observer.BreakerClosed, open)
			e.Wake()
		},
	}
	t.AttachAdmission(func(a *engine.Admission) {
		a.CallsAllowed, a.MoreCallsAt, a.Admit, a.SharedCallBegins, a.AdmitAlone = b.room, b.probeAt, b.admit, b.shareCall, b.readmit
		a.SharedCallEnded, a.AttemptEnded, a.Stuck, a.RunBegins = b.callEnded, b.attemptEnded, b.handlerStuck, b.reset
	})
	return b
}

func (b *Breaker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setLocked(nil)
}

func (b *Breaker) setLocked(open *observe.OpenBreaker) {
	b.generation++
	b.openState, b.probing = open, false
	b.latest = nil
}

func (b *Breaker) room() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roomLocked()
}

func (b *Breaker) roomLocked() int {
	switch {
	case b.openState == nil:
		return engine.Unlimited
	case b.probing || time.Now().Before(b.openState.ProbeAt):
		return 0
	}
	return 1
}

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
	return b.openState
}

// admit checks again how many calls may begin. Since the claim began, the breaker may have opened, or an entry of
// another claim may have become the probe.
func (b *Breaker) admit(attempts []*engine.Attempt) (admitted, skipped []*engine.Attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(attempts), b.roomLocked())
	b.probing = b.probing || b.openState != nil && n > 0
	for _, a := range attempts[:n] {
		b.calls[a] = &call{number: 1, generation: b.generation, probe: b.openState != nil}
	}
	return attempts[:n:n], attempts[n:]
}

// readmit reports whether an entry may run alone after its batch has come to no verdict. While the breaker is open, the
// entry could only run as the probe. readmit then returns false, because the call of the batch has just tried the
// dependency.
func (b *Breaker) readmit(a *engine.Attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.openState != nil {
		return false
	}
	b.calls[a] = &call{number: 2, generation: b.generation}
	return true
}

func (b *Breaker) shareCall(batch []*engine.Attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range batch[1:] {
		b.calls[a] = b.calls[batch[0]]
	}
}

func (b *Breaker) attemptEnded(a *engine.Attempt, r engine.Result) {
	c := b.takeCall(a)
	if r.Unstarted {
		b.applyReport(a, c, reportNothing, nil)
		return
	}
	b.applyReport(a, c, reportOf(r.Err, r.Cause).discountOverdue(a), r.Err)
}

func (b *Breaker) takeCall(a *engine.Attempt) *call {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.calls[a]
	delete(b.calls, a)
	return c
}

func (b *Breaker) callEnded(batch []*engine.Attempt, verdicts []error, complete bool, cause error) {
	report, reason := batchReport(verdicts, complete, cause)
	b.applyReport(batch[0], b.callOf(batch[0], 1), report.discountOverdue(batch...), reason)
}

func (b *Breaker) handlerStuck(a *engine.Attempt, number uint32) {
	b.applyReport(a, b.callOf(a, number), reportDown, processlog.ErrTimeout)
}

func (b *Breaker) callOf(a *engine.Attempt, number uint32) *call {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.calls[a]; c != nil && c.number == number {
		return c
	}
	return nil
}

func (b *Breaker) applyReport(a *engine.Attempt, c *call, r report, reason error) {
	b.mu.Lock()
	if c == nil || c.reported || c.generation != b.generation {
		b.mu.Unlock()
		return
	}
	c.reported = true
	oldState := b.openState
	switch {
	// The handler was not called, so the report says nothing about the dependency. If this call was the probe, the next
	// call becomes the probe at once. Another pause would delay all other entries.
	case r == reportUncalled:
		b.probing = b.probing && !c.probe
	case c.probe && r == reportUp:
		b.setLocked(nil)
	case c.probe:
		b.reopenLocked(r, reason)
	case r != reportNothing && b.countLocked(a.Row.ID, r == reportDown):
		b.openLocked(observe.OpenBreaker{BusinessType: b.businessType, Since: time.Now(), Err: reason}, b.Pause)
	}
	newState := b.openState
	b.mu.Unlock()
	switch {
	case newState != oldState && newState != nil:
		b.notifyOpened(*newState)
	case newState != oldState:
		b.notifyClosed(*oldState)
	}
}

func (b *Breaker) reopenLocked(r report, reason error) {
	next := *b.openState
	if r == reportDown {
		next.Probes++
		next.Err = reason
	}
	pause := b.Pause
	for range next.Probes {
		pause = min(2*pause, max(maxPause, b.Pause))
	}
	b.openLocked(next, pause)
}

// openLocked adds up to half of the pause at random, so that processes that failed together do not probe together.
func (b *Breaker) openLocked(open observe.OpenBreaker, pause time.Duration) {
	open.ProbeAt = time.Now().Add(pause + jitter.N(pause/2+1))
	b.setLocked(&open)
}

// countLocked keeps one verdict for each entry, so that one entry that keeps failing does not stop the others.
func (b *Breaker) countLocked(id processlog.ID, failed bool) bool {
	b.latest = slices.DeleteFunc(b.latest, func(w lastCall) bool { return w.id == id })
	if len(b.latest) == b.Of {
		b.latest = slices.Delete(b.latest, 0, 1)
	}
	b.latest = append(b.latest, lastCall{id, failed})
	failures := 0
	for _, w := range b.latest {
		if w.failed {
			failures++
		}
	}
	// Allow for rounding: a share of 0.1 of 30 entries is 3 entries.
	return failed && len(b.latest) == b.Of && float64(failures) >= b.Share*float64(b.Of)-1e-9
}

// discountOverdue changes the report reportDown to reportUp if an entry of the attempts is older than its MaxWait. Such
// an entry must fail soon. If its report opened the breaker, the pause of the breaker would delay the failure.
func (r report) discountOverdue(attempts ...*engine.Attempt) report {
	if r == reportDown && slices.ContainsFunc(attempts, func(a *engine.Attempt) bool { return a.Type.PastMaxWait(&a.Row) }) {
		return reportUp
	}
	return r
}

func reportOf(err, cause error) report {
	j := verdict.JudgementOf(err)
	switch {
	case err == nil:
		return reportUp
	case j.Uncalled:
		return reportUncalled
	case j.Library, errors.Is(err, processlog.ErrHistoryLost), errors.Is(err, processlog.ErrLeaseLost):
		return reportNothing
	case errors.Is(cause, processlog.ErrTimeout):
		return reportDown
	case cause != nil:
		return reportNothing // The handler's error says nothing about the dependency.
	case j.Verdict == observe.Unavailable:
		return reportDown
	}
	return reportUp
}

// batchReport returns the report of a handler call for several entries. It returns reportUp if the dependency answered
// for at least one of the entries.
func batchReport(verdicts []error, complete bool, cause error) (r report, reason error) {
	switch {
	case !complete && errors.Is(cause, processlog.ErrTimeout):
		return reportDown, processlog.ErrTimeout
	case !complete:
		return reportNothing, nil
	case len(verdicts) == 0:
		return reportUp, nil
	}
	for _, err := range verdicts {
		switch reportOf(err, cause) {
		case reportUp:
			return reportUp, nil
		case reportDown:
			r, reason = reportDown, err
		}
	}
	return r, reason
}
