package engine

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Admission is a set of functions by which a feature decides which entries of one type this process claims and starts.
// All functions but Claim are set. They allow everything unless the feature replaces them.
//
// The functions are safe for concurrent use. They do not block, except Claim, which asks the database.
type Admission struct {
	// CallsAllowed returns how many handler calls may begin now:
	//
	//   - Unlimited: The feature does not limit the calls now. If every feature returns Unlimited, an entry that this
	//     process records may start without a claim, and so without a call of Accept.
	//   - Checked: The feature allows any number of calls, but must check each start. So each entry needs a claim.
	//   - A smaller number: A claim leases at most this number of entries, and only one claim of the type runs at a
	//     time.
	CallsAllowed func() int

	// MoreCallsAt returns the time at which CallsAllowed may return a higher number without a call of Engine.Wake. The
	// zero time means that this cannot happen.
	MoreCallsAt func() time.Time

	// Paused reports whether the type is paused. While the type is paused, this process does not claim the type.
	Paused func() bool

	// Claim is a function that the engine calls in place of Store.Claim. The function follows the contract of
	// Store.Claim. If this field is nil, the engine calls Store.Claim. The function may leave out entries that are due
	// and free. It lists these entries in the field Limited of its result. AttachAdmission panics if a second feature
	// sets this field for the same type.
	Claim func(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error)

	// Accept reports whether an entry may run in this process now. The engine calls Accept for each entry that a claim
	// could lease, while the claim holds the lock on the entry's row. The parameter lost is how many consecutive leases
	// of the entry have ended without an outcome.
	//
	// Another feature may skip an entry that Accept has accepted. The engine reports this through SuspectDone, but only
	// if the entry is a suspect: an entry that may have crashed a process. So Accept can count the suspects that it
	// accepts, and SuspectDone can reduce this count again. Accept must not count other entries, because no call would
	// reduce their count.
	Accept func(row *processlog.Row, lost int) bool

	// SuspectDone says that a suspect can no longer crash this process. A suspect is an entry that may have crashed a
	// process. The engine calls SuspectDone at least once for each suspect that Accept has accepted, and perhaps several
	// times.
	SuspectDone func(row *processlog.Row, why SuspectEnd)

	// Admit splits the claimed attempts into attempts that may start and attempts that are skipped. The engine gives
	// back the leases and slots of the skipped attempts.
	Admit func(attempts []*Attempt) (admitted, skipped []*Attempt)

	// SharedCallBegins is called before one call of the handler begins for several attempts.
	SharedCallBegins func(batch []*Attempt)

	// AdmitAlone reports whether an attempt may call the handler a second time, now for its entry alone. The engine
	// calls AdmitAlone for each attempt of a shared handler call that returned no verdicts.
	AdmitAlone func(a *Attempt) bool

	// SharedCallEnded is called when the shared handler call of a batch has ended, and before the attempts of the batch
	// end. If complete is true, verdicts has one element for each attempt. cause is why the context of the handler
	// ended, or nil.
	SharedCallEnded func(batch []*Attempt, verdicts []error, complete bool, cause error)

	// AttemptEnded is called for each attempt that Admit has admitted, when the attempt ends and before its slot is
	// free. r.Unstarted is set if no handler was called.
	AttemptEnded func(a *Attempt, r Result)

	// Stuck reports that a handler has not returned after its timeout. number says which handler call of the attempt is
	// stuck, counted from 1. The report may come late: the handler may have returned in the meantime, and the attempt
	// may be in its second call.
	Stuck func(a *Attempt, number uint32)

	// RunBegins is called when Run begins.
	RunBegins func()
}

// SuspectEnd says why a suspect, an entry that may have crashed a process, can no longer crash this process.
type SuspectEnd int

const (
	NotClaimed     SuspectEnd = iota // the claim did not lease the entry
	NotRun                           // the entry was given back, its handler is stuck, or the database refuses its outcome
	OutcomeDecided                   // the entry's outcome is stored or dropped
)

// Unlimited is a result of Admission.CallsAllowed. It means that the feature does not limit the calls of the type.
const Unlimited = math.MaxInt

// Checked is a result of Admission.CallsAllowed. It means that any number of calls may begin, but that the claim of
// each entry must check whether the entry may start.
const Checked = Unlimited - 1

var allowAll = Admission{
	CallsAllowed:     func() int { return Unlimited },
	MoreCallsAt:      func() time.Time { return time.Time{} },
	Paused:           func() bool { return false },
	Accept:           func(*processlog.Row, int) bool { return true },
	SuspectDone:      func(*processlog.Row, SuspectEnd) {},
	Admit:            func(attempts []*Attempt) (admitted, skipped []*Attempt) { return attempts, nil },
	SharedCallBegins: func([]*Attempt) {},
	AdmitAlone:       func(*Attempt) bool { return true },
	SharedCallEnded:  func([]*Attempt, []error, bool, error) {},
	AttemptEnded:     func(*Attempt, Result) {},
	Stuck:            func(*Attempt, uint32) {},
	RunBegins:        func() {},
}

// AttachAdmission adds an Admission to the type, for one feature. The new Admission allows everything. The function
// configure sets the fields by which the feature limits the type. Call AttachAdmission when the type is registered.
func (t *Type) AttachAdmission(configure func(a *Admission)) {
	a := allowAll
	configure(&a)
	if a.Claim != nil && slices.ContainsFunc(t.admissions, func(other *Admission) bool { return other.Claim != nil }) {
		panic("engine: two admissions of " + t.Name + " set Claim") // a mistake in the wiring of the features
	}
	t.admissions = append(t.admissions, &a)
}

// CallsAllowed returns how many calls of the handler the admissions allow to begin now.
func (t *Type) CallsAllowed() int {
	room := Unlimited
	for _, a := range t.admissions {
		room = min(room, a.CallsAllowed())
	}
	return room
}

// moreCallsAt returns the earliest result of MoreCallsAt between now and latest, or latest if there is none.
func (t *Type) moreCallsAt(now, latest time.Time) time.Time {
	for _, a := range t.admissions {
		if at := a.MoreCallsAt(); now.Before(at) && at.Before(latest) {
			latest = at
		}
	}
	return latest
}

// Paused reports whether an admission has paused the type.
func (t *Type) Paused() bool {
	return slices.ContainsFunc(t.admissions, func(a *Admission) bool { return a.Paused() })
}

func (t *Type) accepts(row *processlog.Row, lost int) bool {
	for i, a := range t.admissions {
		if !a.Accept(row, lost) {
			suspectDone(t.admissions[:i], row, lost, NotClaimed)
			return false
		}
	}
	return true
}

func suspectDone(admissions []*Admission, row *processlog.Row, lost int, why SuspectEnd) {
	if lost < SuspectAfter {
		return
	}
	for _, a := range admissions {
		a.SuspectDone(row, why)
	}
}

// Admitted asks the admissions of the type, one after the other, which attempts may start. An attempt starts only if
// all admissions admit it. If one admission skips an attempt, the attempt is in the result skipped. The admissions that
// were asked before have already admitted this attempt. So Admitted reports to them that the attempt has ended: see
// Admission.AttemptEnded.
func (t *Type) Admitted(attempts []*Attempt) (admitted, skipped []*Attempt) {
	for i, a := range t.admissions {
		var left []*Attempt
		attempts, left = a.Admit(attempts)
		for _, l := range left {
			attemptEnded(t.admissions[:i], l, Result{Unstarted: true})
		}
		skipped = append(skipped, left...)
	}
	return attempts, skipped
}

// Admissions returns the values that the features have added with AttachAdmission.
func (t *Type) Admissions() []*Admission { return t.admissions }

func attemptEnded(admissions []*Admission, attempt *Attempt, r Result) {
	for _, a := range admissions {
		a.AttemptEnded(attempt, r)
	}
}

// Order is a set of functions by which a feature blocks entries of a type until other entries of the type have ended.
type Order struct {
	// Blocked returns the ids of the blocked entries among the given ids. A blocked entry may not run until another
	// entry has ended. Blocked may ask the database.
	Blocked func(ctx context.Context, ids []processlog.ID) ([]processlog.ID, error)

	// Find searches the database for entries that are due and not blocked. The engine calls Find instead of Store.Due.
	// Each call continues where the last call stopped. If the second result is true, the next call may find further
	// entries. The second result is false in two cases: Find has read all entries, or Find has read many entries that
	// were all blocked, and has given up.
	Find func(ctx context.Context) (due []processlog.ID, more bool, err error)

	// ContinueFind makes Find search again after a call whose second result was false. If Find had given up, the next
	// call of Find continues where the last call stopped. If Find had read all entries, the next call begins with the
	// first entry again.
	ContinueFind func()

	// BlockReason returns an error that says why an entry is blocked, or nil. It may ask the database.
	BlockReason func(ctx context.Context, row *processlog.Row) error

	// Separate splits claimed attempts into those that may start and those that turn out to be blocked. If an attempt
	// is in neither list, Separate has ended it with Engine.FailAttempt.
	//
	// The engine frees the slots of all attempts that are not in startable. Then it calls giveUp, which gives up the
	// leases of the blocked attempts and postpones their entries. If giveUp returns an error, the entries are not
	// postponed.
	Separate func(attempts []*Attempt) (startable, blocked []*Attempt, giveUp func() error)
}

// AttachOrder makes the engine use the order o for the entries of the type. All functions of o must be set. Call
// AttachOrder when the type is registered.
func (t *Type) AttachOrder(o Order) { t.order = &o }

// IsOrdered reports whether an entry of the type may be blocked until another entry has ended.
func (t *Type) IsOrdered() bool { return t.order != nil }

// Order returns the order of the type, or nil.
func (t *Type) Order() *Order { return t.order }

// SlotsToSearch returns how many slots a claim holds while it searches for entries that may run. A claim of an ordered
// type holds only one slot. During the search, running entries may end, and the next entries of their ordering keys
// then need free slots to start at once.
func (t *Type) SlotsToSearch(calls int) int {
	if t.IsOrdered() {
		return min(calls, 1)
	}
	return calls
}

func (t *Type) separate(attempts []*Attempt) (startable, blocked []*Attempt, giveUp func() error) {
	if t.order == nil {
		return attempts, nil, nil
	}
	return t.order.Separate(attempts)
}

// Slots counts the handler calls of one type in this process, so that no more than Concurrency of them run at once.
// Each taken slot has one owner at any time, and is released exactly once. A claim takes slots before it leases rows,
// because a lease without a slot would end unused and count as lost. Then the calls of the leased rows own the slots.
// Engine.Finish frees the slot of a call when the last of its attempts ends: see Attempt.SlotUsers. An open transaction
// owns the slots of its Reservation.
type Slots interface {
	// Take occupies up to n slots for entries that were found due. Take returns how many slots it has occupied.
	Take(n int) int

	// TakeRecorded occupies a slot for an entry that this process has just recorded. It returns false if no slot may be
	// taken.
	TakeRecorded() bool

	// Available returns how many slots Take would give.
	Available() int

	// Overdraw occupies n slots even if none is free.
	Overdraw(n int)

	// Release frees n slots.
	Release(n int)

	// Reserve reserves up to n slots for entries that an open transaction records. It returns nil if it reserves none.
	Reserve(n int) Reservation

	// Recorded is called when entries are recorded that should run at once but have no reserved slot.
	Recorded()
}

// A Reservation is the slots that an open transaction has reserved.
type Reservation interface {
	// Use occupies the given number of the reserved slots, and frees the rest. If the reservation has lapsed or was
	// used before, Use returns false and changes nothing.
	Use(keep int) bool
}

// Slots returns the slots of the type.
func (t *Type) Slots() Slots { return t.slots }

// AttachSlots makes s count the handler calls of the type. Call AttachSlots when the type is registered.
func (t *Type) AttachSlots(s Slots) { t.slots = s }

type unlimited struct{}

func (unlimited) Take(n int) int          { return n }
func (unlimited) TakeRecorded() bool      { return true }
func (unlimited) Available() int          { return processlog.MaxRows }
func (unlimited) Overdraw(int)            {}
func (unlimited) Release(int)             {}
func (unlimited) Reserve(int) Reservation { return nil }
func (unlimited) Recorded()               {}

// Grouping is a set of functions by which a feature makes one call of a type's handler take several entries. The zero
// value gives each entry its own call. If Linger is not 0, all fields are set.
//
// All functions must return at once. The claim schedule holds its mutex while it calls EntryDue and Look.
type Grouping struct {
	// Seats is how many entries one call takes at most.
	Seats int

	// Start begins one handler call for several attempts, in a new goroutine. After the call, this goroutine first sets
	// the field SlotUsers of each attempt, so that the last attempt to end frees the slot of the call. Then the
	// goroutine passes each attempt to Engine.Finish or Engine.RunAlone.
	Start func(batch []*Attempt)

	// Linger is how long a due entry may stay unclaimed while it waits for other entries to share its call.
	Linger time.Duration

	// EntryDue is called for each entry that is reported as due now. EntryDue returns the time until the scanner must
	// call Look. If the reported entries may already fill a call, EntryDue returns 0.
	EntryDue func(now time.Time) time.Duration

	// Look is called before each claim of the type. If the claim may begin, Look returns nil. If due entries may still
	// wait for other entries to share their handler call, Look returns the function ask. The engine then calls ask in a
	// goroutine in place of the claim. While ask runs, the engine neither calls Look nor claims the type.
	//
	// The result of ask is a duration. When it has passed, the engine must call Look again. A call of ask may take
	// long, because ask may query the database.
	//
	// The parameter full is true if the last claim got as many entries as it wanted. In this case ask must query the
	// database at once.
	Look func(now time.Time, full bool) (ask func() time.Duration)
}

// AttachGrouping makes the engine use the grouping g for the calls of the type's handler. Call AttachGrouping when the
// type is registered.
func (t *Type) AttachGrouping(g Grouping) { t.grouping = g }

// Grouped reports whether one call of the handler may take several entries.
func (t *Type) Grouped() bool { return t.grouping.Start != nil }

// Seats returns how many entries one call of the handler takes at most.
func (t *Type) Seats() int { return max(1, t.grouping.Seats) }

// Linger returns how long a due entry may stay unclaimed while it waits for other entries to share its call.
func (t *Type) Linger() time.Duration { return t.grouping.Linger }

type sharingClass int

const (
	notShared          sharingClass = iota // the entry has a call of its own
	sharedWithOthers                       // the entry has lost no lease, and shares its call with such entries
	sharedWithSuspects                     // the entry has lost leases, and shares its call with such entries
	sharingClasses                         // number of classes
)

// maxSharedLosses is the number of lost leases after which an entry must run alone. A crash during a shared call costs
// each entry of the call a lease, whichever entry caused the crash. So an entry that would reach crashBudget with one more
// lost lease must not share its call.
const maxSharedLosses = crashBudget - 1

func (t *Type) sharingClass(state processlog.State, lost int) sharingClass {
	switch {
	case !t.Grouped(), state == processlog.Compensating, lost >= maxSharedLosses:
		return notShared
	case lost >= SuspectAfter:
		return sharedWithSuspects
	}
	return sharedWithOthers
}

// CallsFor returns how many handler calls n entries need if all calls are full.
func (t *Type) CallsFor(n int) int { return (n + t.Seats() - 1) / t.Seats() }

// MaxEntries returns how many entries one claim statement may lease for a number of handler calls. While an admission
// limits the type, each entry counts as a call of its own.
func (t *Type) MaxEntries(calls int) int {
	calls = min(calls, processlog.MaxRows)
	if t.CallsAllowed() < Unlimited {
		return calls
	}
	return min(calls*t.Seats(), processlog.MaxRows)
}

func (t *Type) callsOfRows(rows []processlog.Row) int {
	s := seating{t: t}
	for i := range rows {
		s.take(t.sharingClass(rows[i].State, LostLeases(&rows[i])))
	}
	return s.calls
}

// seating counts the handler calls that entries need. The method take adds one entry. A seat is room for one entry in a
// shared call.
type seating struct {
	t         *Type
	calls     int                 // number of handler calls that the added entries need
	seatsLeft [sharingClasses]int // free seats in the last call of each class
}

func (s *seating) take(class sharingClass) {
	if s.seatsLeft[class] > 0 {
		s.seatsLeft[class]--
		return
	}
	s.calls++
	if class != notShared {
		s.seatsLeft[class] = s.t.Seats() - 1
	}
}
