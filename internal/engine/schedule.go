package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/groupcommit"
	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/readahead"
	"github.com/compensator-go/compensator/processlog"
)

// peekInterval is the longest time that the scanner sleeps. It is also the longest time between two questions to a source:
// see LookInterval. So a lost wake-up delays an entry by at most peekInterval.
const peekInterval = 5 * time.Second

// claimSchedule records when a claim of each type is next worthwhile. Other code notifies it of due entries and free
// slots. The scanner reads it and starts the claims.
type claimSchedule struct {
	types *types
	wake  chan struct{} // wakes the scanner; holds one signal, so that a notification during its work is not lost

	mu     sync.Mutex // guards the fields below; lock it before the mutex of a type's slots
	names  []string   // sorted names of the types when Run began
	byType map[string]*typeSchedule
}

func newClaimSchedule(t *types) *claimSchedule {
	return &claimSchedule{types: t, wake: make(chan struct{}, 1), byType: make(map[string]*typeSchedule)}
}

// prepare resets the schedule when Run begins. The first claim of each type begins at once.
func (c *claimSchedule) prepare() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = c.types.TypeNames()
	for _, name := range c.names {
		c.byType[name] = &typeSchedule{typ: c.types.TypeNamed(name), claimAt: time.Now(), pace: groupcommit.Pace{Most: claimPace}, readAhead: readahead.New()}
	}
}

// start starts every claim that is worthwhile now, or the look that comes before the claim: see typeSchedule.look. Each claim
// and each look runs in a goroutine of its own, which the WaitGroup counts. start returns how long the scanner may sleep.
func (c *claimSchedule) start(goroutines *sync.WaitGroup, e *Engine) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	next := now.Add(peekInterval)
	for _, name := range c.names {
		s := c.byType[name]
		t := s.typ
		for s.shouldClaim(now) && !e.OutcomesRefused(t) {
			// Take the slots before the claim. The lease of a claimed entry without a slot would end unused, and that
			// counts as lost (G16, repetitions are counted).
			calls := t.slots.Take(t.CallsFor(processlog.MaxRows))
			if calls == 0 {
				break
			}
			look := s.look(now)
			fullClaims := s.claimBegins(now)
			if look != nil {
				t.slots.Release(calls)
				goroutines.Go(func() { c.lookEnded(t.Name, look()) })
				continue
			}
			goroutines.Go(func() { c.claimEnded(t, e.claimDue(t, calls), fullClaims) })
		}
		next = t.moreCallsAt(now, next)
		if s.runningClaims < claimsInFlight && now.Before(s.claimAt) && s.claimAt.Before(next) {
			next = s.claimAt // a type that is due already waits for a claim to end or for a slot; either wakes the scanner
		}
	}
	return max(0, time.Until(next))
}

// Wake wakes the scanner if it sleeps.
func (c *claimSchedule) Wake() {
	select {
	case c.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// with passes the schedule of a type to fn, if the type runs here. claimSchedule.mu is locked while fn runs.
func (c *claimSchedule) with(businessType string, fn func(s *typeSchedule)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byType[businessType]; s != nil {
		fn(s)
	}
}

// update passes the schedule of a type to fn, as the method with does. Then it wakes the scanner if fn has returned true.
func (c *claimSchedule) update(businessType string, fn func(s *typeSchedule) (wake bool)) {
	wake := false
	c.with(businessType, func(s *typeSchedule) { wake = fn(s) })
	if wake {
		c.Wake()
	}
}

// Expect schedules a claim of a type, because one of its entries is due after the given delay.
func (c *claimSchedule) Expect(businessType string, delay time.Duration) {
	now := time.Now()
	c.update(businessType, func(s *typeSchedule) bool {
		if delay <= 0 && s.typ.Linger() > 0 {
			delay = s.typ.grouping.EntryDue(now)
		}
		return s.notify(now.Add(max(0, delay)))
	})
}

// FreeSlots frees n slots of a type, and wakes the scanner if due entries of the type may wait for a slot.
func (c *claimSchedule) FreeSlots(t *Type, n int) {
	t.slots.Release(n)
	c.slotFreed(t.Name)
}

// slotFreed is called when a slot of a type has become free. It wakes the scanner if more entries of the type may be due.
func (c *claimSchedule) slotFreed(businessType string) {
	// Do not wake the scanner for each handler that returns. If nothing more is due, the scanner would check every type for
	// nothing.
	c.update(businessType, func(s *typeSchedule) bool { return s.shouldClaim(time.Now()) })
}

// CanClaim reports whether a claim of a type could begin now. If not, the caller should notify another process of a due
// entry. In this process the entry would wait for a running claim, for a slot, or for the end of the pause after a refused
// claim.
func (c *claimSchedule) CanClaim(t *Type) (can bool) {
	c.with(t.Name, func(s *typeSchedule) {
		can = s.runningClaims < claimsInFlight && !time.Now().Before(s.pausedUntil) && t.slots.Available() > 0
	})
	return can
}

// Notifications returns the names of the types that run here, sorted. For each type it also returns the number of events that may
// have made an entry due. Call it before you ask a source, and pass the number to Postpone.
func (c *claimSchedule) Notifications() (names []string, notified []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	notified = make([]int, len(c.names))
	for i, name := range c.names {
		notified[i] = c.byType[name].notifications
	}
	return c.names, notified
}

// Postpone delays the next claim of a type after a source has answered that no entry of the type is due now. wait is the
// time until the next entry is due. The claim is delayed by at most twice peekInterval. The source is asked at least once
// per peekInterval, so each answer may postpone the claim again.
//
// Postpone does nothing in these cases:
//
//   - Another entry may have been enqueued since the source was asked. The parameter notified is the number that
//     Notifications returned before the question, and Notifications now returns another number.
//   - No claim of the type has begun in this Run.
//   - A claim is running. Its result will say when the next claim is worthwhile.
//   - The database has refused a claim. The next claim begins when the pause after this refusal ends.
func (c *claimSchedule) Postpone(businessType string, notified int, wait time.Duration) {
	c.with(businessType, func(s *typeSchedule) {
		due := time.Now().Add(min(wait, 2*peekInterval))
		if s.hasBegun && s.runningClaims == 0 && s.notifications == notified && s.refusedClaims == 0 && due.After(s.claimAt) {
			s.claimAt = due
		}
	})
}

// lookEnded records that a look has ended, and wakes the scanner. wait is the time until the next look or claim.
func (c *claimSchedule) lookEnded(businessType string, wait time.Duration) {
	c.update(businessType, func(s *typeSchedule) bool {
		s.lookEnded(wait)
		return true
	})
}

// claimEnded records the result of a claim and wakes the scanner.
func (c *claimSchedule) claimEnded(t *Type, result ClaimResult, fullClaims int) {
	c.update(t.Name, func(s *typeSchedule) bool {
		s.claimEnded(result, fullClaims)
		return true // another claim may begin now, and this one may have left slots unused
	})
}

const (
	// claimsInFlight is how many claims of one type may run at once. With only one, an entry that comes due during a
	// claim would wait for the end of that claim. This wait would be half of the time from the due moment to the handler.
	claimsInFlight = 2

	// A claim loses a race if other processes have claimed all entries that it read. The pause after a lost race is random,
	// and at most lostRacePause. This maximum doubles with each further lost race in a row, up to maxLostRaces times.
	lostRacePause = 50 * time.Millisecond
	maxLostRaces  = 5

	// maxLaterDueTimes is how many future due times are remembered for a queue that may have lost them. An entry that is
	// enqueued several times has several due times.
	maxLaterDueTimes = 16

	// claimPace spaces claims. A claim waits for up to this time after the transaction of the last claim began. Without it, claims of
	// one or two entries would follow each other at once. Each claim is a transaction with a synced write, and commits of the
	// application would wait for that write. A claim does not wait if more entries are due than one claim takes.
	claimPace = 2 * time.Millisecond
)

// typeSchedule is the state that the scanner keeps for one type. claimSchedule.mu guards it. A comment above a group of
// fields gives the rules that connect them. checkSchedule in the tests checks these rules after random events.
type typeSchedule struct {
	typ *Type

	// These fields say when the next claim begins:
	//
	//   - The scanner starts a claim at claimAt.
	//   - A claim that the database refused sets pausedUntil and increments refusedClaims. A claim without an error resets
	//     both. claimAt is never before pausedUntil.
	//   - No event moves claimAt to a time before pace.Next. So two claims do not begin their transactions directly after
	//     each other.
	//   - After a claim from the database, scheduleNext uses the earliest of laterDueTimes. claimBegins drops the due times
	//     that have passed.
	claimAt       time.Time        // when the next claim is worthwhile; at most 2*peekInterval away
	laterDueTimes []time.Time      // known future due times, sorted, at most maxLaterDueTimes
	pausedUntil   time.Time        // no claim before this time, because the database refused one; zero if refusedClaims is 0
	refusedClaims int              // consecutive claims that the database refused
	pace          groupcommit.Pace // spaces the claims' transactions

	// notifications counts the events that may make claimAt earlier. If this number has changed since the queue was asked,
	// the queue's answer is outdated, and Postpone does nothing. Apart from claims and looks, only Postpone makes claimAt
	// later. While a claim or a look runs, Postpone does nothing.
	notifications int  // number of events that may have made claimAt earlier
	hasBegun      bool // whether a claim or a look of the type has begun in this Run
	runningClaims int  // number of claims and looks that are running; at most claimsInFlight
	lostRaces     int  // consecutive claims that got nothing because other processes were faster

	// If moreDue is set, the next claim begins at once, because more entries are due than one claim takes. A claim is full
	// if it got as many entries as it asked for. These rules hold:
	//
	//   - A full claim sets moreDue and increments fullClaims.
	//   - A claim that is not full clears moreDue, unless a full claim has ended since it began. The caller sees this from
	//     fullClaims.
	//   - A refused claim and a look clear moreDue.
	moreDue    bool // whether more entries are due: a claim was full, and no later claim got less
	fullClaims int  // number of full claims

	readAhead *readahead.List
}

// shouldClaim reports whether to start a claim now. While one claim runs, a second one may start if entries have become due
// since the first one asked the queue. It may also start for a backlog of due entries, if more than a few slots are free.
func (s *typeSchedule) shouldClaim(now time.Time) bool {
	due := !now.Before(s.claimAt)
	switch {
	case s.runningClaims == 0:
		return due || s.moreDue
	case s.runningClaims == claimsInFlight, s.typ.CallsAllowed() < Checked: // two claims would bring two entries where only one may run
		return false
	case s.typ.Linger() > 0: // a look would count the entries that the claim is about to lease
		return false
	case s.moreDue:
		// With few free slots, a second claim would cost a transaction and lease only a few entries.
		return s.typ.slots.Available() >= min(s.typ.Concurrency/4, s.typ.CallsFor(processlog.MaxRows/2))
	}
	return due
}

// look returns a function that asks the database whether due entries of the type wait for others to share their call. The
// scanner calls this function instead of a claim. Its result is the time until the next look or claim. look returns nil if
// the claim may begin at once.
func (s *typeSchedule) look(now time.Time) (ask func() time.Duration) {
	if s.typ.Linger() == 0 || s.refusedClaims > 0 { // Before the refused claim, a look has found that the entries wait no longer.
		return nil
	}
	return s.typ.grouping.Look(now, s.moreDue)
}

// notify records the time at which an entry is due. It reports whether this has made the next claim earlier.
func (s *typeSchedule) notify(due time.Time) bool {
	s.notifications++
	s.rememberDueTime(due)
	return s.moveForward(due)
}

// moveForward makes the next claim earlier if it can. It sets claimAt to the parameter wanted, or to the earliest later
// time that pace and pausedUntil allow. moveForward never makes claimAt later. It reports whether it has changed claimAt.
func (s *typeSchedule) moveForward(wanted time.Time) bool {
	if paced := s.pace.Next(); wanted.Before(paced) {
		wanted = paced
	}
	// After the database has refused a claim of this type, wait until pausedUntil. To claim again at once would be a busy
	// loop.
	if wanted.Before(s.pausedUntil) {
		wanted = s.pausedUntil
	}
	if !wanted.Before(s.claimAt) {
		return false
	}
	s.claimAt = wanted
	return true
}

// rememberDueTime adds the due time of an entry to laterDueTimes. scheduleNext uses these times, because the queue may lose
// the entry.
func (s *typeSchedule) rememberDueTime(due time.Time) {
	index, _ := slices.BinarySearchFunc(s.laterDueTimes, due, time.Time.Compare)
	if index < maxLaterDueTimes {
		s.laterDueTimes = slices.Insert(s.laterDueTimes[:min(len(s.laterDueTimes), maxLaterDueTimes-1)], index, due)
	}
}

// claimBegins records that a claim begins. This claim takes the entries that are known to be due. So claimBegins sets
// claimAt, the time of the next claim, as late as possible. A notification or the end of this claim makes claimAt earlier
// again. fullClaims is how many full claims have ended so far. The caller passes fullClaims to claimEnded.
func (s *typeSchedule) claimBegins(now time.Time) (fullClaims int) {
	s.hasBegun = true
	s.runningClaims++
	s.claimAt = now.Add(2 * peekInterval)
	s.laterDueTimes = slices.DeleteFunc(s.laterDueTimes, func(due time.Time) bool { return !now.Before(due) })
	return s.fullClaims
}

// claimEnded records that a claim has ended. fullClaims is the number that claimBegins returned for this claim. The comment
// above moreDue gives the rules that connect fullClaims and moreDue.
func (s *typeSchedule) claimEnded(result ClaimResult, fullClaims int) {
	s.runningClaims--
	// An answer of the queue to a question from before the end of this claim is outdated now.
	s.notifications++
	switch {
	case result.Full:
		s.moreDue = true
		s.fullClaims++
	case s.fullClaims == fullClaims:
		s.moreDue = false
	}
	s.scheduleNext(result)
}

// lookEnded records that a look has ended. wait is the time until the next look or claim.
func (s *typeSchedule) lookEnded(wait time.Duration) {
	s.runningClaims--
	s.notifications++ // an earlier answer of the queue may not include the entries that were found
	s.moreDue = false
	s.moveForward(time.Now().Add(wait))
}

// scheduleNext sets claimAt, the time of the type's next claim, from the result of a claim.
func (s *typeSchedule) scheduleNext(result ClaimResult) {
	s.pausedUntil = time.Time{}
	if result.Err != nil {
		// If moreDue stayed set, the next claim would begin now instead of after the pause.
		s.moreDue = false
		s.refusedClaims++
		s.pausedUntil = time.Now().Add(retryDelay(claimBackoff, s.refusedClaims))
		s.claimAt = s.pausedUntil // this replaces any earlier due time
		return
	}
	s.refusedClaims = 0
	// Limit the wait. NextDueIn may be processlog.Never, the longest duration, and a sum with it overflows. The type would
	// then always be due, in a busy loop. The next answer of the queue corrects a wait that was limited.
	wait := min(max(result.NextDueIn, 0), 2*peekInterval)
	if result.LostRace {
		wait = min(wait, jitter.N(lostRacePause<<min(s.lostRaces, maxLostRaces)))
		s.lostRaces++
	} else {
		s.lostRaces = 0
	}
	due := time.Now().Add(wait)
	// This claim asked the database, which lists only entries that are due now. No queue has said when the next entry is
	// due. So use the remembered due times (G17, a slow type holds up no other).
	if result.FromDatabase && len(s.laterDueTimes) > 0 && s.laterDueTimes[0].Before(due) {
		due = s.laterDueTimes[0]
	}
	s.moveForward(due)
}

var claimBackoff = jitter.Exponential(200*time.Millisecond, 5*time.Second)

// ClaimResult is the result of one claim.
type ClaimResult struct {
	LostRace     bool          // other processes had claimed every entry that this claim read, and the database may hold more
	Full         bool          // as many entries were due as the claim asked for
	StoreDrained bool          // the database was asked, and had fewer due entries than the claim asked for
	FromDatabase bool          // the database was asked, which does not say when the next entry is due
	NextDueIn    time.Duration // time until another entry of the source is due; Never if the source was not asked, or if the schedule knows this time already
	Err          error         // error of the database
}
