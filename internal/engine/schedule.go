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
// entry by no more than this. See LookEvery.
const peekInterval = 5 * time.Second

// claimSchedule records when a claim of each type is next worthwhile. Other code notifies it of due entries and free
// slots. The scanner reads it and starts the claims.
type claimSchedule struct {
	types *types
	wake  chan struct{} // wakes the scanner; holds one signal, so that a notification during its work is not lost

	mu     sync.Mutex // guards the fields below; lock it before the mutex of a type's slots
	names  []string   // sorted names of the types when Run began
	byType map[string]*typeSchedule
	seen   chan struct{} // closed once the scanner of this Run has looked at every type
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
	c.seen = make(chan struct{})
	for _, name := range c.names {
		t := c.types.Named(name)
		// If a due entry waits for others to share its call, set due to the end of such a wait, as if an entry had just
		// come due. With an immediate claim, each start of a process would cut the wait short. The scanner then looks
		// how long the first entry has waited.
		c.byType[name] = &typeSchedule{due: time.Now().Add(t.Wait()), pace: groupcommit.Pace{Most: claimPace}, ahead: readahead.New(), wait: t.Wait(), grouping: t.grouping}
	}
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
	typeSchedule := c.byType[businessType]
	news := false
	if typeSchedule != nil {
		filled := in <= 0 && typeSchedule.wait > 0 && typeSchedule.grouping.Due()
		in = min(in, processlog.Never-typeSchedule.wait) // Never is the longest duration, so the sum would overflow
		news = typeSchedule.notify(now.Add(max(0, in+typeSchedule.wait))) || filled
	}
	c.mu.Unlock()
	if news {
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
	typeSchedule := c.byType[businessType]
	if typeSchedule != nil {
		in = typeSchedule.holdBack()
	}
	waits := typeSchedule != nil && typeSchedule.wait > 0
	if waits {
		typeSchedule.notified++ // earlier answers of the queue do not include this entry
	}
	ask = waits && !typeSchedule.lingers(time.Now())
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
	c.freed(t)
}

// cancel releases the slots that a reservation holds.
func (c *claimSchedule) cancel(businessType string, reservation Reservation) {
	t := c.types.Named(businessType)
	// Use counts nothing twice, so it is safe after the reservation has lapsed and its slots were released.
	reservation.Use(0)
	c.freed(t)
}

// looked records the result of a look at entries that wait for others, and wakes the scanner. ripeIn is how much longer they may
// wait, or Never if none is due.
func (c *claimSchedule) looked(t *Type, ripeIn time.Duration) {
	c.mu.Lock()
	typeSchedule := c.byType[t.Name]
	typeSchedule.looking = false
	if ripeIn < processlog.Never {
		typeSchedule.notified++ // an earlier answer of the queue may not include these entries
		typeSchedule.sooner(time.Now().Add(ripeIn))
	}
	c.mu.Unlock()
	c.Wake()
}

// freed wakes the scanner after a slot of a type became free, if more entries of the type may be due.
func (c *claimSchedule) freed(t *Type) {
	c.mu.Lock()
	typeSchedule := c.byType[t.Name]
	// Do not wake the scanner for a returned handler when nothing more is due, because it would look at every type.
	worthwhile := typeSchedule != nil && (typeSchedule.wants(t, time.Now()) || typeSchedule.lingers(time.Now()))
	c.mu.Unlock()
	if worthwhile {
		c.Wake()
	}
}

// Overflow schedules a claim of a type from the database, which holds due entries that the source does not report.
func (c *claimSchedule) Overflow(businessType string) {
	c.mu.Lock()
	earlier := false
	if typeSchedule := c.byType[businessType]; typeSchedule != nil {
		// Set backlog before the scanner wakes, so that its next claim also asks the database.
		typeSchedule.backlog = true
		typeSchedule.overflows++
		earlier = typeSchedule.notify(time.Now()) // entries of a backlog have already waited, so do not let them wait for others
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
	typeSchedule := c.byType[t.Name]
	return typeSchedule != nil && typeSchedule.claiming < claimsInFlight && !time.Now().Before(typeSchedule.closed) && t.slots.Free() > 0
}

// Notified returns the names of the types that run here, sorted. For each type it also returns the number of events that may
// have made an entry due. Call it before you ask a source, and pass the number to Postpone.
func (c *claimSchedule) Notified() (names []string, notified []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	notified = make([]int, len(c.names))
	for i, name := range c.names {
		notified[i] = c.byType[name].notified
	}
	return c.names, notified
}

// Postpone delays the next claim of a type by wait, because a source has answered that no entry is due sooner. notified is
// the number that Notified returned before the source was asked. If the type was notified since then, Postpone does
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
	typeSchedule := c.byType[businessType]
	// The queue says that an entry is due, but not since when. Each such answer would postpone the claim by another
	// typeSchedule.wait, without end.
	if typeSchedule.wait > 0 && wait <= 0 {
		return
	}
	due := time.Now().Add(min(wait, 2*peekInterval) + typeSchedule.wait)
	if typeSchedule.claiming == 0 && typeSchedule.notified == notified && !typeSchedule.backlog && typeSchedule.failures == 0 && due.After(typeSchedule.due) {
		typeSchedule.due = due
	}
}

// The method of calls do with the schedule of a type. It holds the mutex while do runs.
func (c *claimSchedule) of(t *Type, do func(s *typeSchedule)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(c.byType[t.Name])
}

// claimEnded records the result of a claim and wakes the scanner.
func (c *claimSchedule) claimEnded(t *Type, got claimResult, began claimBegan) {
	c.mu.Lock()
	c.byType[t.Name].ended(got, began)
	c.mu.Unlock()
	c.Wake() // another claim may begin now, and this one may have left slots unused
}

// HasMore reports whether the last claims left due entries of the type, in the source or in the database.
func (c *claimSchedule) HasMore(t *Type) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byType[t.Name]
	return s != nil && (s.full || s.backlog)
}

// scanned notes that the scanner has looked at every type.
func (c *claimSchedule) scanned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.seen)
}

// Scanned returns a channel that is closed once the scanner of this Run has looked at every type. A source waits for
// this before it calls Postpone. Otherwise the source could postpone a type that the scanner has not looked at yet.
func (c *claimSchedule) Scanned() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

const (
	// claimsInFlight is how many claims of one type may run at once. With only one, an entry that comes due during a
	// claim would wait for the end of that claim. This wait would be half of the time from the due moment to the handler.
	claimsInFlight = 2

	// wakeSpread keeps instances that wake for the same entry from claiming at the same moment. The next claim is delayed by
	// a random time of at most n × wakeSpread. n is the number of consecutive claims that found nothing, up to
	// mostLostRaces.
	wakeSpread    = time.Millisecond
	mostLostRaces = 5

	// lostRacePause is the maximum pause after a claim that got nothing because other processes had claimed all it read.
	// The pause is random. Its maximum doubles with each such claim in a row.
	lostRacePause = 50 * time.Millisecond

	// laterKept is how many future due times are remembered for a queue that may have lost them. An entry that is
	// enqueued several times has several due times.
	laterKept = 16

	// claimPace is the longest time that a claim waits after the transaction of another claim began. It does not wait
	// when more is due than one claim takes. Without it, claims of one or two entries would follow each other at once.
	// Each is a transaction with a synced write, and commits of the application would wait for it.
	claimPace = 2 * time.Millisecond
)

// typeSchedule is the state that the scanner keeps for one type. claimSchedule.mu guards it. A comment above a group of
// fields gives the rules that connect them.
type typeSchedule struct {
	// due is never before closed. A claim that the database refused sets closed, and a claim without an error resets it.
	// No event moves due to a time before pace.Next, so claims do not begin transactions at once after each other. After a
	// claim from the database, the method next takes the earliest time of later. The method begin drops the times of later
	// that have passed.
	due    time.Time        // when the next claim is worthwhile; at most 2*peekInterval + wait away
	later  []time.Time      // known future due times that due does not show, sorted, at most laterKept
	closed time.Time        // no claim before this time, because the database refused one; zero if it did not
	pace   groupcommit.Pace // spaces the claims' transactions

	// Each event that may make due earlier increments notified. Only Postpone makes due later without a claim. Postpone
	// does so only if notified is unchanged since the queue was asked. While claiming is above 0, Postpone does nothing and
	// no look begins.
	notified  int // number of events that may have made due earlier; the queue's answer is outdated if it has changed since the question
	claiming  int // number of claims that are running; at most claimsInFlight
	lostRaces int // consecutive claims that got nothing because others were faster

	// A claim that got all it asked for sets full and increments fulls of claimBegan. A claim that got less clears full,
	// unless fulls has changed since that claim began. A refused claim clears full. If wait is above 0, full is never set.
	full bool // whether more entries are due: a claim took all it asked for, and no later claim found less

	// The method Overflow sets backlog and increments overflows of claimBegan. Only a claim that asked the database and got
	// less than it asked for clears backlog, unless overflows or fulls has changed since that claim began.
	backlog bool // whether the database holds due entries that the queue does not hold

	failures int // consecutive claims that the database refused; a claim without an error resets it

	// Only claims of a type with an Order or a Claimer set these two. runnable is at most offered.
	offered  int // number of entries that the source offered to the last claim
	runnable int // number of the offered entries that were neither blocked nor limited

	ahead *readahead.List
	claimBegan

	// If wait is 0, no code uses grouping, and looking is false.
	wait     time.Duration // how long a due entry waits for others to share its call
	grouping Grouping
	looking  bool // whether a look at the entries that wait is under way
}

// claimBegan holds counters from the start of a claim. At its end they show whether other events have made its result
// outdated.
type claimBegan struct {
	fulls     int // claims that took all they asked for
	overflows int // reports that the database holds more
}

// wants reports whether to start a claim now. While one claim runs, a second one may start if entries have become due
// since the first one asked the queue. It may also start for a backlog of due entries, if more than a few slots are free.
func (s *typeSchedule) wants(t *Type, now time.Time) bool {
	due := !now.Before(s.due)
	switch {
	case s.claiming == 0:
		return due || s.full
	case s.claiming == claimsInFlight, t.limited(): // two claims would bring two entries where only one may run
		return false
	case s.full:
		// A small second claim costs a transaction and adds little to what the first one takes of the backlog.
		return t.slots.Free() >= min(t.Concurrency/4, t.callsFor(processlog.MaxRows/2))
	}
	return due
}

// lingers reports whether entries of the type are known to wait for others now.
func (s *typeSchedule) lingers(now time.Time) bool {
	return s.wait > 0 && now.Before(s.due) && !now.Before(s.due.Add(-s.wait)) && !now.Before(s.closed)
}

// ask returns how many entries a claim asks the source for, so that about n of them are not blocked. It assumes the same
// share of blocked entries as in the last claim. If a claim asked for n only, it could get blocked entries alone, again and
// again.
func (s *typeSchedule) ask(n int) int {
	if s.offered == 0 {
		return n
	}
	return max(n, min(n*s.offered/max(1, s.runnable), processlog.MaxRows))
}

// holdBack returns a random delay before this process claims a type. It grows with the number of recent claims that
// found nothing. See wakeSpread.
func (s *typeSchedule) holdBack() time.Duration {
	if s.lostRaces == 0 {
		return 0
	}
	// Draw a new value each time, so that processes that run in step separate.
	return jitter.N(time.Duration(min(s.lostRaces, mostLostRaces)) * wakeSpread)
}

// notify records a due time and reports whether it is the earliest so far.
func (s *typeSchedule) notify(due time.Time) bool {
	s.notified++
	s.keep(due)
	return s.sooner(due)
}

// sooner moves the next claim forward to due, but not before the time that pace and closed allow. It reports whether
// the next claim is earlier now.
func (s *typeSchedule) sooner(due time.Time) bool {
	if paced := s.pace.Next(); due.Before(paced) {
		due = paced
	}
	// The database has just refused a claim of this type. Claiming again at once would be a busy loop.
	if due.Before(s.closed) {
		due = s.closed
	}
	if !due.Before(s.due) {
		return false
	}
	s.due = due
	return true
}

// keep remembers a due time in the field later. The method next uses it when the queue has lost the entry.
func (s *typeSchedule) keep(due time.Time) {
	place, _ := slices.BinarySearchFunc(s.later, due, time.Time.Compare)
	if place < laterKept {
		s.later = slices.Insert(s.later[:min(len(s.later), laterKept-1)], place, due)
	}
}

// begin records that a claim begins. This claim takes everything that is known to be due. Only later notifications
// cause another claim.
func (s *typeSchedule) begin(now time.Time) claimBegan {
	s.claiming++
	s.due = now.Add(2*peekInterval + s.wait)
	s.later = slices.DeleteFunc(s.later, func(due time.Time) bool { return !now.Before(due) })
	return s.claimBegan
}

// ended records that a claim has ended. A claim that found less than it asked for must not overwrite what another claim
// found after it began.
func (s *typeSchedule) ended(got claimResult, began claimBegan) {
	s.claiming--
	// If the queue was asked before this claim ended, its answer is outdated.
	s.notified++
	switch {
	case got.full && s.wait > 0:
		// The entries that are left may be too few for a call. A look will find out, and also how long they have waited.
		s.fulls++
		s.grouping.More()
		s.sooner(time.Now().Add(s.wait))
	case got.full:
		s.full = true
		s.fulls++
	case s.fulls == began.fulls:
		s.full = false
		// Only a claim that asked the database can clear backlog, because the queue does not know these entries.
		s.backlog = s.backlog && (!got.drained || s.overflows != began.overflows)
	}
	s.next(got)
}

// next sets when the type is worth a claim again.
func (s *typeSchedule) next(got claimResult) {
	s.closed = time.Time{}
	if got.err != nil {
		// If full stayed set, the next claim would begin now instead of after the pause.
		s.full = false
		s.failures++
		s.closed = time.Now().Add(delay(claimBackoff, s.failures))
		s.due = s.closed // this replaces any earlier due time
		return
	}
	s.failures = 0
	// Limit the wait, because Never is the longest duration and adding to it overflows. The type would then be due at
	// once in a busy loop. The next look at the queue corrects the limited wait.
	wait := min(max(got.next, 0), 2*peekInterval)
	switch {
	case got.nothing:
		s.lostRaces++
		wait += s.holdBack()
	case got.lostRace:
		wait = min(wait, jitter.N(lostRacePause<<min(s.lostRaces, mostLostRaces)))
		s.lostRaces++
	default:
		s.lostRaces = 0
	}
	due := time.Now().Add(wait + s.wait)
	// A queue that answered will say again what comes next. This claim had no answer from the queue, and the database
	// lists only entries that are due now. Use the remembered due times instead (G17).
	if got.fromDatabase && len(s.later) > 0 && s.later[0].Before(due) {
		due = s.later[0]
	}
	s.sooner(due)
}

var claimBackoff = jitter.Exponential(200*time.Millisecond, 5*time.Second)

// claimResult is the result of one claim.
type claimResult struct {
	nothing      bool          // the queue had nothing due, because another instance was faster
	lostRace     bool          // other processes had claimed everything this claim read, and the database may hold more
	full         bool          // as many were due as the claim asked for
	lost         bool          // the queue has lost entries of the type
	drained      bool          // the database was asked and had less than the claim asked for
	fromDatabase bool          // the database was asked, which does not say when the next entry is due
	next         time.Duration // time until the queue has another entry due; Never if it was not asked or has already said so
	err          error         // error of the database
}
