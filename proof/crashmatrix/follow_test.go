//go:build failpoints

package crashmatrix

import (
	"fmt"

	"github.com/compensator-go/compensator"
)

// crashBudget is how many leases in a row an entry may lose. The next claim starts no handler, because another process
// may still store a success while the lease of this claim runs. Then the entry is dead-lettered.
const crashBudget = 3

type follower struct {
	log     *entryLog
	now     step
	lost    int
	claims  map[uint64]int // by the version that the claim wrote
	claimed bool
}

// follow returns which rule the write breaks, or "".
func (f *follower) follow(s step) string {
	was := f.now
	f.now = s
	if s.was == int64(s.version) && s.version == was.version {
		return f.renewal(was, s)
	}
	if s.was != int64(was.version) || s.version != was.version+1 {
		return fmt.Sprintf("written on version %d, after version %d", s.was, was.version)
	}
	what := f.step(was, s)
	if what == "" && s.delivered != f.lost {
		what = fmt.Sprintf("the delivery count is %d after %d claims without an outcome", s.delivered, f.lost)
	}
	return what
}

// Only a renewal of a lease keeps the version, and it changes nothing except the lease.
func (f *follower) renewal(was, s step) string {
	same := s
	same.was, same.wasDue, same.wasLeased, same.leased = was.was, was.wasDue, was.wasLeased, was.leased
	same.began, same.at = was.began, was.at
	if same != was || !f.claimed || s.leased < was.leased {
		return "a write that keeps the version and is no renewal of a claim"
	}
	return ""
}

func (f *follower) step(was, s step) string {
	held := f.claimed
	f.claimed = false
	moved := s.state != was.state || s.failed != was.failed || s.undoFailed != was.undoFailed
	switch {
	case was.state.Terminal() && s.epoch == was.epoch && !serviceEnds(was, s):
		return "left a terminal state without a person"
	case s.epoch == was.epoch+1:
		f.lost = 0
		return f.manual(was, s)
	case s.epoch != was.epoch:
		return fmt.Sprintf("epoch %d after %d", s.epoch, was.epoch)
	case !moved && s.delivered == was.delivered+1:
		return f.claim(s)
	case !moved && s.delivered == was.delivered && s.version == 1 && was.delivered == 1 && s.leased > was.leased:
		// A process claims the entry that it has inserted with a lease. The INSERT has counted this delivery already,
		// and the method claim adds it to f.lost again.
		f.lost--
		return f.claim(s)
	case !moved && s.delivered == was.delivered-1 && held:
		f.lost--
		return ""
	case s.delivered != 0 && moved:
		return "changed its state and kept its delivery count"
	case s.endedBy == compensator.EndedByCancel, s.endedBy == compensator.EndedByComplete:
		f.lost = 0
		return f.ended(was, s)
	case !moved && s.delivered == was.delivered && s.leased == was.leased:
		return ""
	}
	return f.outcome(was, s, held)
}

func (f *follower) manual(was, s step) string {
	fresh := s.failed == 0 && s.undoFailed == 0
	switch {
	case s.state == compensator.Pending && fresh, s.state == compensator.SettledManually:
	case s.state == compensator.Compensating && fresh && f.log.kind == recall && was.state == compensator.Compensated:
	case s.state == was.state && was.state.Terminal() && s.failed == was.failed && s.undoFailed == was.undoFailed:
	default:
		return fmt.Sprintf("a new epoch without a requeue, a manual settle or an erase; the state is %s", s.state)
	}
	return ""
}

// claim uses the time at which the statement began, because the statement compares the row with that time.
func (f *follower) claim(s step) string {
	f.lost++
	f.claims[s.version] = f.lost
	f.claimed = true
	switch {
	case s.leased <= s.began:
		return "claimed without a lease"
	case s.began < s.wasDue:
		return fmt.Sprintf("claimed %d ms early", s.wasDue-s.began)
	case s.began < s.wasLeased && s.was > 0:
		return fmt.Sprintf("claimed while leased for %d ms", s.wasLeased-s.began)
	}
	return ""
}

func serviceEnds(was, s step) bool {
	ended := s.state == compensator.Cancelled && s.endedBy == compensator.EndedByCancel ||
		s.state == compensator.Succeeded && s.endedBy == compensator.EndedByComplete
	return ended && was.state == compensator.Dead && was.undoFailed == 0
}

func (f *follower) ended(was, s step) string {
	if was.state != compensator.Pending && was.state != compensator.Retrying && !serviceEnds(was, s) || s.failed != was.failed || s.undoFailed != was.undoFailed {
		return fmt.Sprintf("from %s to %s", was.state, s.state)
	}
	return ""
}

func (f *follower) outcome(was, s step, held bool) string {
	lost := f.lost - 1
	f.lost = 0
	if s.endedBy == compensator.EndedByCrash {
		undone := s.undoFailed - was.undoFailed
		if lost <= crashBudget || !held || s.state != compensator.Dead || s.failed != was.failed || (undone == 1) != (was.state == compensator.Compensating) {
			return fmt.Sprintf("dead-lettered by crashes after %d lost leases", lost)
		}
		return ""
	}
	undo := was.state == compensator.Compensating
	same := s.failed == was.failed && s.undoFailed == was.undoFailed
	success := same && (s.state == compensator.Succeeded && s.endedBy == compensator.EndedByHandler && !undo || s.state == compensator.Compensated && undo)
	switch {
	case success && f.log.absorbed(undo):
		return f.explained(was, s, ok, undo)
	case lost >= crashBudget:
		return fmt.Sprintf("run after %d lost leases", lost)
	case !held:
		return "an outcome without a claim"
	case s.failed == was.failed+1 && s.undoFailed == was.undoFailed && !undo:
		return f.failure(was, s)
	case s.undoFailed == was.undoFailed+1 && s.failed == was.failed && undo:
		return f.explained(was, s, wrong, true)
	case success:
		return f.explained(was, s, ok, undo)
	case s.state == was.state && same:
		return "" // The attempt was interrupted and has no verdict.
	}
	return fmt.Sprintf("from %s to %s", was.state, s.state)
}

func (f *follower) failure(was, s step) string {
	switch s.state {
	case compensator.Retrying:
		return f.explained(was, s, wrong, false)
	case compensator.Compensating:
		switch {
		case f.log.kind == refund && s.failed == refundFailures:
			return f.explained(was, s, wrong, false)
		case f.log.kind == recall:
			return f.explained(was, s, never, false)
		}
		return fmt.Sprintf("compensated after %d failures", s.failed)
	case compensator.Dead:
		return f.explained(was, s, never, false)
	}
	return fmt.Sprintf("a failure led to the state %s", s.state)
}

// absorbed reports whether the library accepts a late success, which comes from an attempt that has lost its lease. The
// library refuses a late success if the handler's effect and the outcome share one transaction.
func (l *entryLog) absorbed(undo bool) bool {
	if undo {
		return l.kind == recall
	}
	return l.kind != pay && l.kind != wire && l.kind != sum
}

// explained returns "" if a run of the handler explains the outcome that the parameter s stores. The run must belong to
// the claim that this outcome ends. There is one exception: if the library accepts a late success (see the method
// absorbed), a success may also come from a run of another claim.
func (f *follower) explained(was, s step, verdict string, undo bool) string {
	for version, runs := range f.log.runs {
		for _, r := range runs {
			here := version == was.version || verdict == ok && f.log.absorbed(undo)
			if here && r.epoch == s.epoch && r.undo == undo && r.verdict == verdict {
				return ""
			}
		}
	}
	return fmt.Sprintf("%s, and no handler returned %q", s.state, verdict)
}
