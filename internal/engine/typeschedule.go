package engine

import (
	"slices"
	"time"

	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/processlog"
)

const (
	// claimsInFlight is how many claims of one type run at once. With one, what comes due during a claim would wait for its
	// end: half of its lateness.
	claimsInFlight = 2

	// wakeSpread keeps instances that wake for the same entry from coming in step: for each claim in a row that came
	// for nothing, up to mostVain of them, the next one comes up to this much later.
	wakeSpread = time.Millisecond
	mostVain   = 5

	// beatenPause is how long a claim waits, at random and at most, after one that found others faster with all that the
	// database had for it; twice as long each time that happens again.
	beatenPause = 50 * time.Millisecond

	// laterKept is how many moments are remembered for a queue that may have lost them. An entry that is enqueued again has
	// several.
	laterKept = 16

	// claimPace is how long a claim waits at most after the transaction of another has begun, unless there is more due than
	// one takes. Claims of an entry or two that follow each other at once are each a transaction with a synced write, which
	// the commits of the business wait for.
	claimPace = 2 * time.Millisecond
)

// typeSchedule is what the scanner knows of one type; claim schedule.mu guards it.
type typeSchedule struct {
	due      time.Time        // the next moment worth a claim; far away when nothing is known
	later    []time.Time      // what was heard of, ahead, in order, laterKept at most
	closed   time.Time        // no claim before, because the database refused one; zero: it did not
	pace     groupcommit.Pace // of the claims' transactions
	notified int              // how often due may have changed: an answer that was asked for before is out of date
	claiming int
	vain     int  // claims in a row that came for nothing: others were faster
	full     bool // a claim took all it asked for, and none that began after it found less: there is more
	backlog  bool // the database holds due entries the queue does not
	failures int  // claims in a row that the database refused
	ahead    *readAhead
	linger
	claimBegan
}

// claimBegan is what a claim has to know, once it is over, of others since: it says nothing of what these have found or heard.
type claimBegan struct {
	fulls     int // how many claims took all they asked for
	overflows int // how often the database was said to hold more
}

// wants reports whether a claim is worth starting. What has come due since the one under way asked the queue need not
// wait for its end; of a backlog, of which that one has taken its share, a second takes more than a few slots.
func (typeSchedule *typeSchedule) wants(t *Type, now time.Time) bool {
	due := !now.Before(typeSchedule.due)
	switch {
	case typeSchedule.claiming == 0:
		return due || typeSchedule.full
	case typeSchedule.claiming == claimsInFlight, t.limited(): // two claims would bring two entries where one may run
		return false
	case typeSchedule.full:
		// Small claims beside the first cost a transaction each, and bring little of a backlog that it takes whole.
		return t.slots.Free() >= min(t.Concurrency/4, t.callsFor(processlog.MaxRows/2))
	}
	return due
}

// holdBack is how much later than others this process looks at a type: see wakeSpread.
func (typeSchedule *typeSchedule) holdBack() time.Duration {
	if typeSchedule.vain == 0 {
		return 0
	}
	// Drawn anew each time, so that processes which have come in step get out of it.
	return jitter.N(time.Duration(min(typeSchedule.vain, mostVain)) * wakeSpread)
}

// notify takes note of a due moment, and reports whether it is the earliest so far.
func (typeSchedule *typeSchedule) notify(due time.Time) bool {
	typeSchedule.notified++
	typeSchedule.keep(due)
	return typeSchedule.sooner(due)
}

// sooner makes due the next moment worth a claim if it is earlier, and reports whether it was. No moment is worth one
// before a claim may begin.
func (typeSchedule *typeSchedule) sooner(due time.Time) bool {
	if paced := typeSchedule.pace.Next(); due.Before(paced) {
		due = paced
	}
	// Whatever is heard of a type that the database has just refused: asked at once it would be a hot loop.
	if due.Before(typeSchedule.closed) {
		due = typeSchedule.closed
	}
	if !due.Before(typeSchedule.due) {
		return false
	}
	typeSchedule.due = due
	return true
}

// keep remembers a moment, for as long as nobody else may: see next.
func (typeSchedule *typeSchedule) keep(due time.Time) {
	place, _ := slices.BinarySearchFunc(typeSchedule.later, due, time.Time.Compare)
	if place < laterKept {
		typeSchedule.later = slices.Insert(typeSchedule.later[:min(len(typeSchedule.later), laterKept-1)], place, due)
	}
}

// begin takes note of a claim that begins: what is known to be due is its own. Another one is for what is heard from here on.
func (typeSchedule *typeSchedule) begin(now time.Time) claimBegan {
	typeSchedule.claiming++
	typeSchedule.due = now.Add(2*peekInterval + typeSchedule.wait)
	typeSchedule.later = slices.DeleteFunc(typeSchedule.later, func(due time.Time) bool { return !now.Before(due) })
	return typeSchedule.claimBegan
}

// ended takes note of a claim's end. One that found less than it asked for says nothing of what another found since it
// began.
func (typeSchedule *typeSchedule) ended(got claimResult, began claimBegan) {
	typeSchedule.claiming--
	// A look at the queue that was asked before this claim ended knows nothing of it.
	typeSchedule.notified++
	switch {
	case got.full && typeSchedule.wait > 0:
		// What is behind a full batch may be less than one: a look says, and for how long it has waited.
		typeSchedule.fulls++
		typeSchedule.nextLook = time.Time{}
		typeSchedule.sooner(time.Now().Add(typeSchedule.wait))
	case got.full:
		typeSchedule.full = true
		typeSchedule.fulls++
	case typeSchedule.fulls == began.fulls:
		typeSchedule.full = false
		// Of what the queue does not know only the database can say that it is worked off.
		typeSchedule.backlog = typeSchedule.backlog && (!got.drained || typeSchedule.overflows != began.overflows)
	}
	typeSchedule.next(got)
}

// next sets when the type is worth a claim again.
func (typeSchedule *typeSchedule) next(got claimResult) {
	typeSchedule.closed = time.Time{}
	if got.err != nil {
		// Left full, the type would want the next claim now, and not after the pause.
		typeSchedule.full = false
		typeSchedule.failures++
		typeSchedule.closed = time.Now().Add(delay(claimBackoff, typeSchedule.failures))
		typeSchedule.due = typeSchedule.closed // whatever was heard meanwhile
		return
	}
	typeSchedule.failures = 0
	// Never is the longest duration there is: anything added to it is past, and the type due in a hot loop. The next
	// look says more anyway.
	wait := min(max(got.next, 0), 2*peekInterval)
	switch {
	case got.nothing:
		typeSchedule.vain++
		wait += typeSchedule.holdBack()
	case got.beaten:
		wait = min(wait, jitter.N(beatenPause<<min(typeSchedule.vain, mostVain)))
		typeSchedule.vain++
	default:
		typeSchedule.vain = 0
	}
	due := time.Now().Add(wait + typeSchedule.wait)
	// A queue that was asked says again what comes next. One that is away, or has lost it, does not, and the database
	// tells only what is due (G17).
	if got.blind && len(typeSchedule.later) > 0 && typeSchedule.later[0].Before(due) {
		due = typeSchedule.later[0]
	}
	typeSchedule.sooner(due)
}

var claimBackoff = jitter.Exponential(200*time.Millisecond, 5*time.Second)

// claimResult is how a claim went.
type claimResult struct {
	nothing bool          // the queue had nothing due: another instance was faster
	beaten  bool          // the database had more due than others have taken meanwhile
	full    bool          // as many were due as asked for
	lost    bool          // the queue has lost entries of the type
	drained bool          // the database was asked and had less than asked for
	blind   bool          // the database was asked, which does not say when the next one comes
	next    time.Duration // until the queue has another one due; Never: it was not asked, or has said so already
	err     error         // of the database
}
