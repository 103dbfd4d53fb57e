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

// peekInterval is the longest time that the scanner sleeps and that a source is not asked. A lost wake-up delays an
// entry by no more than this. See LookInterval.
const peekInterval = 5 * time.Second

// claimSchedule records when a claim of each type is next worthwhile. Other code notifies it of due entries and free
// slots. The scanner reads it and starts the claims.
type claimSchedule struct {
	types *types
	wake  chan struct{} // wakes the scanner; holds one signal, so that a notification during its work is not lost

	mu            sync.Mutex // guards the fields below; lock it before the mutex of a type's slots
	names         []string   // sorted names of the types when Run began
	byType        map[string]*typeSchedule
	firstScanDone chan struct{} // closed once the scanner of this Run has looked at every type
}

func newClaimSchedule(t *types) *claimSchedule {
	return &claimSchedule{types: t, wake: make(chan struct{}, 1), byType: make(map[string]*typeSchedule)}
}

// prepare resets the schedule when Run begins. A type may be claimed at once, unless its entries wait for others. Then the
// scanner first looks how many entries are due.
func (c *claimSchedule) prepare() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = c.types.TypeNames()
	c.firstScanDone = make(chan struct{})
	for _, name := range c.names {
		t := c.types.TypeNamed(name)
		// If a due entry waits for others to share its call, set due to the end of such a wait, as if an entry had just
		// come due. With an immediate claim, each start of a process would cut the wait short. The scanner then looks
		// how long the first entry has waited.
		c.byType[name] = &typeSchedule{claimAt: time.Now().Add(t.Linger()), pace: groupcommit.Pace{Most: claimPace}, readAhead: readahead.New(), linger: t.Linger(), grouping: t.grouping}
	}
}

// start starts every claim and look that is worthwhile now, in goroutines of running. It returns how long the scanner
// may sleep until the next one. claimable reports whether a type may be claimed. The function claim makes one claim, for a number
// of calls whose slots it takes over.
func (c *claimSchedule) start(running *sync.WaitGroup, claimable func(t *Type) bool, claim func(t *Type, calls int) ClaimResult) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	next := now.Add(peekInterval)
	for _, name := range c.names {
		t, s := c.types.TypeNamed(name), c.byType[name]
		for s.shouldClaim(t, now) && claimable(t) {
			// Take the slots before the claim. The lease of a claimed entry without a slot would end unused, and that counts
			// as lost (G16).
			calls := t.slots.Take(t.CallsFor(processlog.MaxRows))
			if calls == 0 {
				break
			}
			before := s.claimBegins(now)
			running.Go(func() { c.claimEnded(t, claim(t, calls), before) })
		}
		if at := c.lookLocked(t, s, now, running); now.Before(at) && at.Before(next) {
			next = at
		}
		next = t.moreCallsAt(now, next)
		if s.runningClaims < claimsInFlight && now.Before(s.claimAt) && s.claimAt.Before(next) {
			next = s.claimAt // a type that is due already waits for a claim to end or for a slot; either wakes the scanner
		}
	}
	return max(0, time.Until(next))
}

// lookLocked starts a look of the type's grouping at the entries that wait for others. It returns when the scanner must
// wake for the next look. The zero time means that entries of this type never wait. The caller holds claimSchedule.mu.
func (c *claimSchedule) lookLocked(t *Type, s *typeSchedule, now time.Time, looks *sync.WaitGroup) time.Time {
	switch {
	case s.linger == 0:
		return time.Time{}
	case s.lookRunning || s.runningClaims > 0 || t.slots.Available() == 0:
		return s.claimAt // the end of the look or claim, or a free slot, wakes the scanner
	case !s.isLingering(now):
		return s.claimAt.Add(-s.linger)
	}
	look, next := t.grouping.Look(now)
	if look == nil {
		return next
	}
	s.lookRunning = true
	looks.Go(func() { c.lookEnded(t, look()) })
	return s.claimAt
}

// Wake wakes the scanner if it sleeps.
func (c *claimSchedule) Wake() {
	select {
	case c.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// Expect schedules a claim of a type that has an entry which becomes due in the given time. If due entries of the type
// wait for a batch, the claim comes later by the length of that wait.
func (c *claimSchedule) Expect(businessType string, in time.Duration) {
	now := time.Now()
	c.mu.Lock()
	s := c.byType[businessType]
	earlier := false
	if s != nil {
		filled := in <= 0 && s.linger > 0 && s.grouping.EntryDue()
		in = min(in, processlog.Never-s.linger) // Never is the longest duration, so the sum would overflow
		earlier = s.notify(now.Add(max(0, in+s.linger))) || filled
	}
	c.mu.Unlock()
	if earlier {
		c.Wake()
	}
}

// notify records that another process has reported a due entry of this type.
//
// The result tells the caller to ask the source for the due time. This happens when entries of the type wait for others
// and none was known to wait.
func (c *claimSchedule) notify(businessType string) (ask bool) {
	var in time.Duration
	c.mu.Lock()
	// Only one process gets the entry, so the claims of the others find nothing. The more often that happens to this
	// process, the longer it holds back.
	s := c.byType[businessType]
	if s != nil {
		in = s.raceDelay()
	}
	waits := s != nil && s.linger > 0
	if waits {
		s.notifications++ // earlier answers of the queue do not include this entry
	}
	ask = waits && !s.isLingering(time.Now())
	c.mu.Unlock()
	if waits {
		c.Wake()
		return ask
	}
	c.Expect(businessType, in)
	return false
}

// FreeSlots frees n slots of a type, and wakes the scanner if due entries of the type may wait for a slot.
func (c *claimSchedule) FreeSlots(t *Type, n int) {
	t.slots.Release(n)
	c.slotFreed(t)
}

// cancelReservation releases the slots that a reservation holds.
func (c *claimSchedule) cancelReservation(businessType string, reservation Reservation) {
	t := c.types.TypeNamed(businessType)
	// Use counts nothing twice, so it is safe after the reservation has lapsed and its slots were released.
	reservation.Use(0)
	c.slotFreed(t)
}

// lookEnded records the result of a look at entries that wait for others, and wakes the scanner. ripeIn is how much longer they may
// wait, or Never if none is due.
func (c *claimSchedule) lookEnded(t *Type, ripeIn time.Duration) {
	c.mu.Lock()
	s := c.byType[t.Name]
	s.lookRunning = false
	if ripeIn < processlog.Never {
		s.notifications++ // an earlier answer of the queue may not include these entries
		s.moveForward(time.Now().Add(ripeIn))
	}
	c.mu.Unlock()
	c.Wake()
}

// slotFreed wakes the scanner after a slot of a type became free, if more entries of the type may be due.
func (c *claimSchedule) slotFreed(t *Type) {
	c.mu.Lock()
	s := c.byType[t.Name]
	// Do not wake the scanner for a returned handler when nothing more is due, because it would look at every type.
	worthwhile := s != nil && (s.shouldClaim(t, time.Now()) || s.isLingering(time.Now()))
	c.mu.Unlock()
	if worthwhile {
		c.Wake()
	}
}

// ExpectBacklog schedules a claim of a type from the database, which holds due entries that the source does not report.
func (c *claimSchedule) ExpectBacklog(businessType string) {
	c.mu.Lock()
	earlier := false
	if s := c.byType[businessType]; s != nil {
		// Set backlog before the scanner wakes, so that the next claim of the scanner also asks the database.
		s.backlog = true
		s.backlogReports++
		earlier = s.notify(time.Now()) // entries of a backlog have already waited, so do not let them wait for others
	}
	c.mu.Unlock()
	if earlier {
		c.Wake()
	}
}

// CanClaim reports whether a claim of a type could begin now. If not, the notification of a due entry should go to
// another process. Here the entry would wait for a running claim, for a slot, or for the pause after a refusal.
func (c *claimSchedule) CanClaim(t *Type) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byType[t.Name]
	return s != nil && s.runningClaims < claimsInFlight && !time.Now().Before(s.pausedUntil) && t.slots.Available() > 0
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

// Postpone delays the next claim of a type by wait, because a source has answered that no entry is due sooner. notified is
// the number that Notifications returned before the source was asked. If this number has changed since then, Postpone does
// nothing: the answer may not include an entry that was enqueued meanwhile.
//
// Postpone also does nothing in these cases, where the source's answer is not enough:
//
//   - A claim is running. Its result will say when the next claim is worthwhile.
//   - The database holds a backlog that the source does not know.
//   - The database has refused a claim, and the next claim is due at the end of the pause.
//
// It never postpones beyond twice peekInterval plus the wait for others, because the source answers again before that.
func (c *claimSchedule) Postpone(businessType string, notified int, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byType[businessType]
	// The queue says that an entry is due, but not since when. Each such answer would postpone the claim by another
	// typeSchedule.linger, without end.
	if s.linger > 0 && wait <= 0 {
		return
	}
	due := time.Now().Add(min(wait, 2*peekInterval) + s.linger)
	if s.runningClaims == 0 && s.notifications == notified && !s.backlog && s.refusedClaims == 0 && due.After(s.claimAt) {
		s.claimAt = due
	}
}

// withSchedule calls the function do with the schedule of a type. It holds the mutex while do runs.
func (c *claimSchedule) withSchedule(t *Type, do func(s *typeSchedule)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(c.byType[t.Name])
}

// claimEnded records the result of a claim and wakes the scanner.
func (c *claimSchedule) claimEnded(t *Type, result ClaimResult, before claimCounters) {
	c.mu.Lock()
	c.byType[t.Name].claimEnded(result, before)
	c.mu.Unlock()
	c.Wake() // another claim may begin now, and this one may have left slots unused
}

// HasMore reports whether the last claims left due entries of the type, in the source or in the database.
func (c *claimSchedule) HasMore(t *Type) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byType[t.Name]
	return s != nil && (s.moreDue || s.backlog)
}

// HasBacklog reports whether the database holds due entries of the type that the source does not report.
func (c *claimSchedule) HasBacklog(t *Type) (backlog bool) {
	c.withSchedule(t, func(s *typeSchedule) { backlog = s.backlog })
	return backlog
}

// firstScanEnded notes that the scanner has looked at every type.
func (c *claimSchedule) firstScanEnded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.firstScanDone)
}

// FirstScanDone returns a channel that is closed once the scanner of this Run has looked at every type. A source waits for
// this before it calls Postpone. Otherwise the source could postpone a type that the scanner has not looked at yet.
func (c *claimSchedule) FirstScanDone() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.firstScanDone
}

const (
	// claimsInFlight is how many claims of one type may run at once. With only one, an entry that comes due during a
	// claim would wait for the end of that claim. This wait would be half of the time from the due moment to the handler.
	claimsInFlight = 2

	// wakeSpread keeps instances that wake for the same entry from claiming at the same moment. The next claim is delayed by
	// a random time of at most n × wakeSpread. n is the number of consecutive claims that found nothing, up to
	// maxLostRaces.
	wakeSpread   = time.Millisecond
	maxLostRaces = 5

	// lostRacePause is the maximum pause after a claim that got nothing because other processes had claimed all it read.
	// The pause is random. Its maximum doubles with each such claim in a row.
	lostRacePause = 50 * time.Millisecond

	// maxLaterDueTimes is how many future due times are remembered for a queue that may have lost them. An entry that is
	// enqueued several times has several due times.
	maxLaterDueTimes = 16

	// claimPace is the longest time that a claim waits after the transaction of another claim began. It does not wait
	// when more is due than one claim takes. Without it, claims of one or two entries would follow each other at once.
	// Each is a transaction with a synced write, and commits of the application would wait for it.
	claimPace = 2 * time.Millisecond
)

// typeSchedule is the state that the scanner keeps for one type. claimSchedule.mu guards it. A comment above a group of
// fields gives the rules that connect them.
type typeSchedule struct {
	// claimAt is never before pausedUntil. A claim that the database refused sets pausedUntil, and a claim without an error
	// resets it. No event moves claimAt to a time before pace.Next, so two claims do not begin their transactions directly
	// after each other. After a claim from the database, scheduleNext uses the earliest of laterDueTimes. claimBegins drops
	// those of laterDueTimes that have passed.
	claimAt       time.Time        // when the next claim is worthwhile; at most 2*peekInterval + linger away
	laterDueTimes []time.Time      // known future due times, sorted, at most maxLaterDueTimes
	pausedUntil   time.Time        // no claim before this time, because the database refused one; zero if it did not
	pace          groupcommit.Pace // spaces the claims' transactions

	// Each event that may make claimAt earlier increments notifications. Only Postpone makes claimAt later without a claim.
	// Postpone does so only if notifications is unchanged since the queue was asked. While runningClaims is above 0,
	// Postpone does nothing and no look begins.
	notifications int // number of events that may have made claimAt earlier; the queue's answer is outdated if it has changed since the question
	runningClaims int // number of claims that are running; at most claimsInFlight
	lostRaces     int // consecutive claims that got nothing because others were faster

	// A claim that got all it asked for increments fullClaims. It also sets moreDue, but only if linger is 0: otherwise a look
	// at the entries that wait decides. A claim that got less clears moreDue, unless another claim has got all it asked for
	// meanwhile: then fullClaims has changed. A refused claim always clears moreDue.
	moreDue bool // whether more entries are due: a claim took all it asked for, and no later claim found less

	// ExpectBacklog sets backlog and increments backlogReports. A claim clears backlog if it asked the database and got less
	// than it asked for, unless backlogReports or fullClaims has changed since that claim began.
	backlog bool // whether the database holds due entries that the queue does not hold

	refusedClaims int // consecutive claims that the database refused; a claim without an error resets it

	readAhead *readahead.List
	claimCounters

	// If linger is 0, no code uses grouping, and lookRunning is false.
	linger      time.Duration // how long a due entry waits for others to share its call
	grouping    Grouping
	lookRunning bool // whether a look at the entries that wait is under way
}

// claimCounters holds counters from the start of a claim. At its end they show whether other events have made its result
// outdated.
type claimCounters struct {
	fullClaims     int // claims that took all they asked for
	backlogReports int // reports that the database holds more
}

// shouldClaim reports whether to start a claim now. While one claim runs, a second one may start if entries have become due
// since the first one asked the queue. It may also start for a backlog of due entries, if more than a few slots are free.
func (s *typeSchedule) shouldClaim(t *Type, now time.Time) bool {
	due := !now.Before(s.claimAt)
	switch {
	case s.runningClaims == 0:
		return due || s.moreDue
	case s.runningClaims == claimsInFlight, t.limited(): // two claims would bring two entries where only one may run
		return false
	case s.moreDue:
		// A small second claim costs a transaction and adds little to what the first one takes of the backlog.
		return t.slots.Available() >= min(t.Concurrency/4, t.CallsFor(processlog.MaxRows/2))
	}
	return due
}

// isLingering reports whether entries of the type are known to wait for others now.
func (s *typeSchedule) isLingering(now time.Time) bool {
	return s.linger > 0 && now.Before(s.claimAt) && !now.Before(s.claimAt.Add(-s.linger)) && !now.Before(s.pausedUntil)
}

// raceDelay returns a random delay before this process claims a type. It grows with the number of recent claims that
// found nothing. See wakeSpread.
func (s *typeSchedule) raceDelay() time.Duration {
	if s.lostRaces == 0 {
		return 0
	}
	// Draw a new value each time, so that processes that run in step separate.
	return jitter.N(time.Duration(min(s.lostRaces, maxLostRaces)) * wakeSpread)
}

// notify records a due time and reports whether it is the earliest so far.
func (s *typeSchedule) notify(due time.Time) bool {
	s.notifications++
	s.rememberDueTime(due)
	return s.moveForward(due)
}

// moveForward moves the next claim forward to due, but not before the time that pace and pausedUntil allow. It reports whether
// the next claim is earlier now.
func (s *typeSchedule) moveForward(due time.Time) bool {
	if paced := s.pace.Next(); due.Before(paced) {
		due = paced
	}
	// The database has just refused a claim of this type. Claiming again at once would be a busy loop.
	if due.Before(s.pausedUntil) {
		due = s.pausedUntil
	}
	if !due.Before(s.claimAt) {
		return false
	}
	s.claimAt = due
	return true
}

// rememberDueTime adds a due time to laterDueTimes. scheduleNext uses these times if the queue has lost the entry.
func (s *typeSchedule) rememberDueTime(due time.Time) {
	index, _ := slices.BinarySearchFunc(s.laterDueTimes, due, time.Time.Compare)
	if index < maxLaterDueTimes {
		s.laterDueTimes = slices.Insert(s.laterDueTimes[:min(len(s.laterDueTimes), maxLaterDueTimes-1)], index, due)
	}
}

// claimBegins records that a claim begins. This claim takes everything that is known to be due. Only later notifications
// cause another claim.
func (s *typeSchedule) claimBegins(now time.Time) claimCounters {
	s.runningClaims++
	s.claimAt = now.Add(2*peekInterval + s.linger)
	s.laterDueTimes = slices.DeleteFunc(s.laterDueTimes, func(due time.Time) bool { return !now.Before(due) })
	return s.claimCounters
}

// claimEnded records that a claim has ended. A claim that found less than it asked for must not overwrite what another claim
// found after it began.
func (s *typeSchedule) claimEnded(result ClaimResult, before claimCounters) {
	s.runningClaims--
	// If the queue was asked before this claim ended, its answer is outdated.
	s.notifications++
	switch {
	case result.Full && s.linger > 0:
		// The entries that are left may be too few for a call. A look will find out, and also how long they have waited.
		s.fullClaims++
		s.grouping.ClaimFull()
		s.moveForward(time.Now().Add(s.linger))
	case result.Full:
		s.moreDue = true
		s.fullClaims++
	case s.fullClaims == before.fullClaims:
		s.moreDue = false
		// The queue does not know the entries of a backlog. So only a claim that asked the database can clear the flag backlog.
		s.backlog = s.backlog && (!result.StoreDrained || s.backlogReports != before.backlogReports)
	}
	s.scheduleNext(result)
}

// scheduleNext sets when the type is worth a claim again.
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
	// Limit the wait. nextDueIn may be processlog.Never, the longest duration, and adding to it overflows. The type would
	// then be due at once in a busy loop. The next look at the queue corrects the limited wait.
	wait := min(max(result.NextDueIn, 0), 2*peekInterval)
	switch {
	case result.SourceEmpty:
		s.lostRaces++
		wait += s.raceDelay()
	case result.LostRace:
		wait = min(wait, jitter.N(lostRacePause<<min(s.lostRaces, maxLostRaces)))
		s.lostRaces++
	default:
		s.lostRaces = 0
	}
	due := time.Now().Add(wait + s.linger)
	// A queue that answered will say again what comes next. This claim had no answer from the queue, and the database
	// lists only entries that are due now. Use the remembered due times instead (G17).
	if result.FromDatabase && len(s.laterDueTimes) > 0 && s.laterDueTimes[0].Before(due) {
		due = s.laterDueTimes[0]
	}
	s.moveForward(due)
}

var claimBackoff = jitter.Exponential(200*time.Millisecond, 5*time.Second)

// ClaimResult is the result of one claim.
type ClaimResult struct {
	SourceEmpty  bool          // the source had nothing due, because another instance was faster
	LostRace     bool          // other processes had claimed everything this claim read, and the database may hold more
	Full         bool          // as many were due as the claim asked for
	StoreDrained bool          // the database was asked and had less than the claim asked for
	FromDatabase bool          // the database was asked, which does not say when the next entry is due
	NextDueIn    time.Duration // time until the source has another entry due; Never if it was not asked or has already said so
	Err          error         // error of the database
}
