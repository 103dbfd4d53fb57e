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

// peekInterval is the longest time that the scanner sleeps. So a lost wake-up delays an entry by at most peekInterval.
const peekInterval = 5 * time.Second

// claimSchedule records when a claim of each type is next worthwhile. The scanner reads the schedule and starts the
// claims.
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

func (c *claimSchedule) prepare() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = c.types.TypeNames()
	for _, name := range c.names {
		c.byType[name] = &typeSchedule{typ: c.types.TypeNamed(name), claimAt: time.Now(), pace: groupcommit.Pace{Most: claimPace}, readAhead: readahead.New()}
	}
}

// start begins each claim and each look that is worthwhile now, and returns how long the scanner may sleep. A look
// comes in place of a claim, and asks whether due entries still wait for other entries to share their handler call: see
// Grouping.Look. Each claim and each look runs in its own goroutine. start adds these goroutines to the WaitGroup.
func (c *claimSchedule) start(goroutines *sync.WaitGroup, e *Engine) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	next := now.Add(peekInterval)
	for _, name := range c.names {
		s := c.byType[name]
		t := s.typ
		for s.shouldClaim(now) && !e.OutcomesRefused(t) {
			// Take the slots before the claim. A lease without a slot would end unused, and the lease would count as
			// lost. See promise G16.
			calls := t.slots.Take(t.CallsFor(processlog.MaxRows))
			if calls == 0 {
				break
			}
			look := s.look(now)
			found, backlog := s.claimBegins(now), s.backlog
			if look != nil {
				t.slots.Release(calls)
				goroutines.Go(func() { c.lookEnded(t.Name, look()) })
				continue
			}
			goroutines.Go(func() { c.claimEnded(t, e.claimDue(t, calls, backlog), found) })
		}
		next = t.moreCallsAt(now, next)
		if s.runningClaims < claimsInFlight && now.Before(s.claimAt) && s.claimAt.Before(next) {
			// The type is claimed next at the time claimAt, so the scanner must not sleep longer. If claimAt has
			// passed, the type waits for the end of a claim or for a free slot. Each of these events wakes the scanner
			// by itself.
			next = s.claimAt
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

// The method with passes the schedule of a type to the function fn. If the type does not run in this process, fn is not
// called. claimSchedule.mu is locked while fn runs.
func (c *claimSchedule) with(businessType string, fn func(s *typeSchedule)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byType[businessType]; s != nil {
		fn(s)
	}
}

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

func (c *claimSchedule) slotFreed(businessType string) {
	// Wake the scanner only if a claim may begin, because each wake-up makes the scanner check every type.
	c.update(businessType, func(s *typeSchedule) bool { return s.shouldClaim(time.Now()) })
}

// CanClaim reports whether a claim of a type could begin now in this process. If no claim could begin, the caller
// should notify another process of a due entry.
func (c *claimSchedule) CanClaim(t *Type) (can bool) {
	c.with(t.Name, func(s *typeSchedule) {
		can = s.runningClaims < claimsInFlight && !time.Now().Before(s.pausedUntil) && t.slots.Available() > 0
	})
	return can
}

// Notifications returns the sorted names of the types that run here. The slice notified holds one number for each type.
// This number counts the events that may have made the next claim of the type earlier. Call Notifications before you
// ask a queue when entries are due. Then pass the type's number to Postpone. If the number has changed in the meantime,
// Postpone ignores the answer of the queue.
func (c *claimSchedule) Notifications() (names []string, notified []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	notified = make([]int, len(c.names))
	for i, name := range c.names {
		notified[i] = c.byType[name].notifications
	}
	return c.names, notified
}

// Postpone delays the next claim of a type after a queue has answered that no entry of the type is due now. The
// duration wait is the time until the next entry is due. The number notified comes from Notifications, which the caller
// has called before it asked the queue.
//
// Postpone does nothing in these cases:
//
//   - A claim of the type runs, or no claim has begun yet.
//   - The database has due entries, or has refused a claim.
//   - The number of notifications has changed since Notifications was called, so the queue's answer is outdated.
func (c *claimSchedule) Postpone(businessType string, notified int, wait time.Duration) {
	c.with(businessType, func(s *typeSchedule) {
		due := time.Now().Add(min(wait, 2*peekInterval))
		if s.hasBegun && s.runningClaims == 0 && s.notifications == notified && s.refusedClaims == 0 && !s.backlog && due.After(s.claimAt) {
			s.claimAt = due
		}
	})
}

func (c *claimSchedule) lookEnded(businessType string, wait time.Duration) {
	c.update(businessType, func(s *typeSchedule) bool {
		s.lookEnded(wait)
		return true
	})
}

func (c *claimSchedule) claimEnded(t *Type, result ClaimResult, before findings) {
	c.update(t.Name, func(s *typeSchedule) bool {
		s.claimEnded(result, before)
		// Wake the scanner. The end of this claim makes room for another claim, which can take the slots that this
		// claim did not use.
		return true
	})
}

const (
	// claimsInFlight is the maximum number of claims of one type that run at once. With only one claim, an entry that
	// becomes due during this claim would wait for its end.
	claimsInFlight = 2

	// A claim loses a race if other processes have claimed all entries that this claim read. The pause after a lost
	// race is random, and at most lostRacePause. This maximum doubles with each further lost race in a row, up to
	// maxLostRaces times.
	lostRacePause = 50 * time.Millisecond
	maxLostRaces  = 5

	// maxLaterDueTimes is the maximum number of future due times that the schedule of a type remembers. The schedule
	// remembers them because the queue may lose an entry.
	maxLaterDueTimes = 16

	// claimPace is the longest pause from the beginning of one claim's transaction to the beginning of the next. Each
	// claim ends with a synced write, which delays commits that the application makes at the same time. The pause
	// limits how often this happens. There is no pause if more entries are due than one claim takes.
	claimPace = 2 * time.Millisecond
)

// typeSchedule is the state that the scanner keeps for one type. claimSchedule.mu guards the fields. The comments above
// the fields give the rules that connect them.
//
// For a type whose entries share handler calls, a look may come in place of a claim. A look asks whether due entries
// still wait for other entries to share their call: see Grouping.Look.
type typeSchedule struct {
	typ *Type

	// These fields say when the next claim begins:
	//
	//   - The scanner starts a claim at the time claimAt.
	//   - If the database refuses a claim, pausedUntil is set and refusedClaims is incremented. A claim without an
	//     error resets both fields. claimAt is never before pausedUntil.
	//   - pace.Next is the earliest time at which the transaction of the next claim may begin after that of the last
	//     claim. No event moves claimAt to a time before pace.Next.
	//   - The schedule remembers in laterDueTimes when further entries come due, because a claim from the database does not
	//     report this. After such a claim, scheduleNext reads the next due time there. claimBegins removes the due times
	//     that have passed.
	claimAt       time.Time        // when the next claim is worthwhile; at most 2*peekInterval away
	laterDueTimes []time.Time      // known future due times, sorted, at most maxLaterDueTimes
	pausedUntil   time.Time        // no claim before this time, because the database refused one; zero if refusedClaims is 0
	refusedClaims int              // consecutive claims that the database refused
	pace          groupcommit.Pace // spaces the claims' transactions

	// If notifications has changed since the queue was asked, the queue's answer is outdated.
	notifications int  // number of events that may have moved claimAt to an earlier time
	hasBegun      bool // whether the scanner has begun a claim or a look (Grouping.Look) in this Run
	runningClaims int  // number of claims and looks (Grouping.Look) that are running; at most claimsInFlight
	lostRaces     int  // consecutive claims that got nothing because other processes were faster

	// If moreDue is set, the next claim begins at once, because more entries are due than one claim takes. A claim is
	// full if it got as many entries as it asked for. These rules hold:
	//
	//   - A full claim sets moreDue.
	//   - A claim that is not full clears moreDue. There is one exception: if a full claim has ended since this claim
	//     began, moreDue stays set.
	//   - A claim that the database has refused clears moreDue.
	//   - A look (Grouping.Look) clears moreDue.
	moreDue bool

	// If backlog is set, the database holds due entries that the source does not report. These rules hold:
	//
	//   - The method ExpectBacklog sets backlog.
	//   - A claim that has read all due entries of the database clears backlog. If typeSchedule.found has changed since
	//     that claim began, backlog stays set.
	backlog bool

	found findings

	readAhead *readahead.List
}

// findings counts the events which showed that more entries are due. If a count has changed during a claim, another
// such event came after the claim had begun.
type findings struct {
	fullClaims int
	backlogs   int // calls of ExpectBacklog
}

// shouldClaim reports whether a claim of the type may begin now. If no claim runs, a claim may begin if an entry is due
// or moreDue is set. While one claim runs, a second claim may begin in these cases:
//
//   - moreDue is set, and enough slots are free.
//   - moreDue is not set, and entries have become due since the first claim began.
func (s *typeSchedule) shouldClaim(now time.Time) bool {
	due := !now.Before(s.claimAt)
	switch {
	case s.runningClaims == 0:
		return due || s.moreDue
	// No further claim may begin in two cases:
	//
	//   - The maximum number of claims runs already.
	//   - A feature limits the number of calls. Two claims could each lease as many entries as this limit.
	case s.runningClaims == claimsInFlight, s.typ.CallsAllowed() < Checked:
		return false
	// Linger is set, so each claim begins with a call of Grouping.Look, which counts the due entries. While another claim
	// runs, Look would also count the entries that this claim is about to lease. So wait for the end of that claim.
	case s.typ.Linger() > 0:
		return false
	case s.moreDue:
		// A second claim is worth its transaction only if enough slots are free.
		return s.typ.slots.Available() >= min(s.typ.Concurrency/4, s.typ.CallsFor(processlog.MaxRows/2))
	}
	return due
}

// look returns nil if a claim may begin at once. Otherwise look returns a function, which may query the database. The
// scanner must call this function in place of the claim: see Grouping.Look.
func (s *typeSchedule) look(now time.Time) (ask func() time.Duration) {
	// The claim may begin at once in two cases:
	//
	//   - Linger is 0, so entries of the type never wait for others.
	//   - This claim repeats a claim that the database has refused. Before the refused claim, the scanner has called look,
	//     which found that the entries need not wait any longer.
	if s.typ.Linger() == 0 || s.refusedClaims > 0 {
		return nil
	}
	return s.typ.grouping.Look(now, s.moreDue)
}

// notify records that an entry is due at the time in the parameter due. The result says whether the next claim begins
// earlier because of this entry.
func (s *typeSchedule) notify(due time.Time) bool {
	s.notifications++
	s.rememberDueTime(due)
	return s.moveForward(due)
}

// moveForward lets the next claim begin earlier, at the time wanted. If pace or pausedUntil forbids this time,
// moveForward takes the first time that both allow. If the next claim already begins by then, moveForward changes
// nothing. The result says whether claimAt, the time of the next claim, has changed.
func (s *typeSchedule) moveForward(wanted time.Time) bool {
	if paced := s.pace.Next(); wanted.Before(paced) {
		wanted = paced
	}
	// Do not claim during the pause after a claim that the database has refused.
	if wanted.Before(s.pausedUntil) {
		wanted = s.pausedUntil
	}
	if !wanted.Before(s.claimAt) {
		return false
	}
	s.claimAt = wanted
	return true
}

func (s *typeSchedule) rememberDueTime(due time.Time) {
	index, _ := slices.BinarySearchFunc(s.laterDueTimes, due, time.Time.Compare)
	if index < maxLaterDueTimes {
		s.laterDueTimes = slices.Insert(s.laterDueTimes[:min(len(s.laterDueTimes), maxLaterDueTimes-1)], index, due)
	}
}

// claimBegins records that a claim or a look begins. It returns the present value of typeSchedule.found, which the
// caller passes to claimEnded. This claim takes the entries that are known to be due, so no other claim is needed for
// them. That is why claimBegins sets claimAt to the latest time that the rules allow. A notification, or the end of
// this claim, moves claimAt to an earlier time.
func (s *typeSchedule) claimBegins(now time.Time) findings {
	s.hasBegun = true
	s.runningClaims++
	s.claimAt = now.Add(2 * peekInterval)
	s.laterDueTimes = slices.DeleteFunc(s.laterDueTimes, func(due time.Time) bool { return !now.Before(due) })
	return s.found
}

// claimEnded records the end of a claim. The parameter before is the value that claimBegins returned.
func (s *typeSchedule) claimEnded(result ClaimResult, before findings) {
	s.runningClaims--
	// The queue may be answering a question at this moment, without knowing of this claim. Postpone ignores the answer if
	// notifications has changed since the question. So increment it.
	s.notifications++
	switch {
	case result.Full:
		s.moreDue = true
		s.found.fullClaims++
	case s.found.fullClaims == before.fullClaims:
		s.moreDue = false
	}
	s.backlog = s.backlog && !(result.StoreDrained && s.found == before)
	s.scheduleNext(result)
}

func (s *typeSchedule) lookEnded(wait time.Duration) {
	s.runningClaims--
	// If the queue is being asked at this moment, its answer may lack the entries that this look has just found. So
	// increment notifications: Postpone ignores an answer if this number has changed since the question.
	s.notifications++
	s.moreDue = false
	s.moveForward(time.Now().Add(wait))
}

func (s *typeSchedule) scheduleNext(result ClaimResult) {
	s.pausedUntil = time.Time{}
	if result.Err != nil {
		s.moreDue = false
		s.refusedClaims++
		s.pausedUntil = time.Now().Add(clampDelay(claimBackoff(s.refusedClaims)))
		s.claimAt = s.pausedUntil // The pause replaces the time that was set before.
		return
	}
	s.refusedClaims = 0
	// The sum below must not overflow for processlog.Never.
	wait := min(max(result.NextDueIn, 0), 2*peekInterval)
	if result.LostRace {
		wait = min(wait, jitter.N(lostRacePause<<min(s.lostRaces, maxLostRaces)))
		s.lostRaces++
	} else {
		s.lostRaces = 0
	}
	due := time.Now().Add(wait)
	// The answer of the database does not say when the next entry is due. So use the earliest due time that this
	// process knows.
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
	FromDatabase bool          // the claim read the due entries from the database. Such a read does not say when the next entry is due
	NextDueIn    time.Duration // time until another entry of the source is due. processlog.Never means that the source was not asked, or that the schedule knows this time already
	Err          error         // error of the database
}
