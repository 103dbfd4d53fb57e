package engine

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Admission is a set of functions by which a feature decides which entries of one type this process claims and starts.
// All functions are set. They allow everything unless the feature has replaced them with Type.Admit.
//
// The functions are safe for concurrent use and do not block.
type Admission struct {
	// Room returns how many calls of the handler may begin now. Unlimited means that the feature does not limit them. While
	// Room returns less, one claim of the type runs at a time, and it leases at most Room entries. Entries recorded here
	// then wait behind those that are due.
	Room func() int

	// RoomAt returns the time from which Room may return more although the feature did not call Engine.Wake. The zero time
	// means that there is no such time.
	RoomAt func() time.Time

	// Paused reports whether the type is paused. No entry of a paused type is claimed, not even to count a lost lease.
	Paused func() bool

	// Accept is called for each entry that a claim could lease, while the entry's row is locked. It returns false for an entry
	// that must not run here now. lost is how many leases in a row the entry has lost.
	Accept func(row *processlog.Row, lost int) bool

	// Left is called when a suspect that Accept has accepted can no longer crash this process. It may be called several
	// times for one acceptance.
	Left func(row *processlog.Row, why Leaving)

	// Admit returns which of the claimed attempts may start. The engine gives back the leases and slots of the others.
	Admit func(attempts []*Attempt) (admitted, refused []*Attempt)

	// Joined is called before one call of the handler begins for several attempts.
	Joined func(batch []*Attempt)

	// Readmit reports whether an attempt may run alone. If a shared call returned no verdicts, Readmit is called for each of
	// its attempts.
	Readmit func(a *Attempt) bool

	// CallEnded is called when a shared call ends, before the attempts end. The call has a verdict for each attempt if whole
	// is true. cause is why the call's context ended, if it did.
	CallEnded func(batch []*Attempt, verdicts []error, whole bool, cause error)

	// Ended is called when an attempt ends, before its slot is free.
	Ended func(a *Attempt, r Result)

	// Stuck is called when a handler has not returned after its timeout. call is the number of the handler call that is
	// stuck. When Stuck is called, that call may have returned, and the attempt may have begun another one.
	Stuck func(a *Attempt, call uint32)

	// RunBegins is called when Run begins.
	RunBegins func()
}

// Leaving is the reason why an accepted suspect can no longer crash this process.
type Leaving int

const (
	NotClaimed Leaving = iota // the claim did not lease the entry
	NotRun                    // the entry was given back, its handler is stuck, or the database refuses its outcome
	Ended                     // the entry's outcome is stored or dropped
)

// Unlimited is the Room of a feature that does not limit a type.
const Unlimited = math.MaxInt

// allowAll is an Admission that allows everything.
var allowAll = Admission{
	Room:      func() int { return Unlimited },
	RoomAt:    func() time.Time { return time.Time{} },
	Paused:    func() bool { return false },
	Accept:    func(*processlog.Row, int) bool { return true },
	Left:      func(*processlog.Row, Leaving) {},
	Admit:     func(attempts []*Attempt) (admitted, refused []*Attempt) { return attempts, nil },
	Joined:    func([]*Attempt) {},
	Readmit:   func(*Attempt) bool { return true },
	CallEnded: func([]*Attempt, []error, bool, error) {},
	Ended:     func(*Attempt, Result) {},
	Stuck:     func(*Attempt, uint32) {},
	RunBegins: func() {},
}

// Admit attaches an admission to the type. The function set replaces those functions of a that the feature needs. Call
// Admit at registration.
func (t *Type) Admit(set func(a *Admission)) {
	a := allowAll
	set(&a)
	t.admissions = append(t.admissions, &a)
}

// Room returns how many calls of the handler the admissions allow to begin now.
func (t *Type) Room() int {
	room := Unlimited
	for _, a := range t.admissions {
		room = min(room, a.Room())
	}
	return room
}

// limited reports whether an admission limits the type now.
func (t *Type) limited() bool { return t.Room() < Unlimited }

// roomAt returns when to ask the admissions again whether they allow more calls. It returns the earliest time after now
// that an admission names, but at the latest the time until.
func (t *Type) roomAt(now, until time.Time) time.Time {
	for _, a := range t.admissions {
		if at := a.RoomAt(); now.Before(at) && at.Before(until) {
			until = at
		}
	}
	return until
}

// Paused reports whether an admission has paused the type.
func (t *Type) Paused() bool {
	return slices.ContainsFunc(t.admissions, func(a *Admission) bool { return a.Paused() })
}

// accepts reports whether all admissions accept an entry.
func (t *Type) accepts(row *processlog.Row, lost int) bool {
	return !slices.ContainsFunc(t.admissions, func(a *Admission) bool { return !a.Accept(row, lost) })
}

// left tells the admissions that a suspect can no longer crash this process. It does nothing for other entries.
func (t *Type) left(row *processlog.Row, lost int, why Leaving) {
	if lost < SuspectAfter {
		return
	}
	for _, a := range t.admissions {
		a.Left(row, why)
	}
}

// Admitted returns the attempts that all admissions allow to start.
func (t *Type) Admitted(attempts []*Attempt) (admitted, refused []*Attempt) {
	for _, a := range t.admissions {
		var no []*Attempt
		attempts, no = a.Admit(attempts)
		refused = append(refused, no...)
	}
	return attempts, refused
}

// Joined tells the admissions that one call begins for several attempts.
func (t *Type) Joined(batch []*Attempt) {
	for _, a := range t.admissions {
		a.Joined(batch)
	}
}

// Readmit reports whether all admissions allow an attempt to run alone.
func (t *Type) Readmit(attempt *Attempt) bool {
	return !slices.ContainsFunc(t.admissions, func(a *Admission) bool { return !a.Readmit(attempt) })
}

// CallEnded tells the admissions that a shared call has ended.
func (t *Type) CallEnded(batch []*Attempt, verdicts []error, whole bool, cause error) {
	for _, a := range t.admissions {
		a.CallEnded(batch, verdicts, whole, cause)
	}
}

// ended tells the admissions that an attempt has ended.
func (t *Type) ended(attempt *Attempt, r Result) {
	for _, a := range t.admissions {
		a.Ended(attempt, r)
	}
}

// Order is a set of functions by which a feature blocks entries of a type until other entries of the type have ended.
type Order struct {
	// Blocked returns those of ids that may not run yet, because they wait for other entries. It may ask the database.
	Blocked func(ctx context.Context, ids []processlog.ID) ([]processlog.ID, error)

	// Find reads entries from the database that are due and not blocked. The engine calls it instead of Store.Due. more
	// reports whether there may be further ones. Each call continues where the last one stopped.
	Find func(ctx context.Context) (due []processlog.ID, more bool, err error)

	// FindAgain lets the search of Find go on. If Find has read all entries, its next call starts again with the first
	// entry.
	FindAgain func()

	// Reason returns an error that says why an entry is blocked, or nil. It may ask the database.
	Reason func(ctx context.Context, row *processlog.Row) error

	// Separate splits claimed attempts into those that may start and those that turn out to be blocked. It may ask the
	// database. An attempt in neither list has ended: Separate has passed it to Engine.Fail.
	//
	// The engine frees the slots of all attempts that are not in first. Then it calls giveUp, which gives up the leases of
	// the blocked attempts. If giveUp returns an error, these entries are still due.
	Separate func(attempts []*Attempt) (first, blocked []*Attempt, giveUp func() error)
}

// Order attaches an order to the type. Call it at registration. All functions of the order must be set.
func (t *Type) Order(o Order) { t.order = &o }

// Blocks reports whether entries of the type may be blocked by others.
func (t *Type) Blocks() bool { return t.order != nil }

// Blocked returns those of ids that may not run yet. It may ask the database.
func (t *Type) Blocked(ctx context.Context, ids []processlog.ID) ([]processlog.ID, error) {
	if t.order == nil || len(ids) == 0 {
		return nil, nil
	}
	return t.order.Blocked(ctx, ids)
}

// searching returns how many slots a claim for the given number of calls holds until it knows which entries may run.
//
// A claim of a serial type holds only one slot, because most entries that it finds may be blocked. The other slots stay
// free for the next entry of a key whose entry ends meanwhile. The claim keeps the one slot, so that such entries cannot
// take every slot from the entry that has been due for longest.
func (t *Type) searching(calls int) int {
	if t.Blocks() {
		return min(calls, 1)
	}
	return calls
}

// Reason returns why an entry is blocked, or nil. It may ask the database.
func (t *Type) Reason(ctx context.Context, row *processlog.Row) error {
	if t.order == nil {
		return nil
	}
	return t.order.Reason(ctx, row)
}

// separate returns which claimed attempts may start, and which are blocked.
func (t *Type) separate(attempts []*Attempt) (first, blocked []*Attempt, giveUp func() error) {
	if t.order == nil {
		return attempts, nil, nil
	}
	return t.order.Separate(attempts)
}

// Claimer claims entries of one type in place of Store.Claim, and has the same contract. It asks the database. Entries
// that are due and free, but that it does not lease, go to Claimed.Limited.
type Claimer func(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error)

// ClaimBy attaches a claimer to the type. Call it at registration.
func (t *Type) ClaimBy(c Claimer) { t.claimer = c }

// Slots count the handler calls of one type in this process, so that no more than Concurrency of them run at once.
// Without an implementation the number of calls is unlimited.
//
// Each slot that is taken has one owner at any time, and is released exactly once. So when Drain has returned nil, every
// slot is free. The owner changes in this order:
//
//   - A claim takes a slot for each call that it may start, before it leases rows. The callers of Take are the
//     scanner, the reconciler, and ClaimKnown. A lease without a slot would end unused and count as lost.
//   - The claim adjusts its slots. A claim of a serial type keeps one slot while it searches (Type.searching). When it
//     knows how many calls it needs, it takes more slots or releases some (Engine.adjustSlots). After its
//     statement it releases the slots of calls for which it has leased no row.
//   - The calls of the leased rows own the slots from then on. Type.calls counts these calls. The engine frees the slot
//     of a call that does not start, in deadLetter, giveBack and giveUpBlocked.
//   - The call of one entry frees its slot in Engine.Finish. Attempts of one call share a slot. ShareSlot says how many
//     of them must end before Finish frees it. After a shared call without a verdict, its entries run alone under the slot
//     of that call, all at the same time.
//
// Two kinds of slots are taken in another way:
//
//   - An open transaction owns the slots that it has reserved. After its commit, Reservation.Use passes slots on to the
//     calls of its entries. After a rollback, or when the reservation lapses, they are free.
//   - Overdraw takes slots although none is free. These slots then belong to calls, like all others.
type Slots interface {
	// Take occupies up to n slots for entries found due, and returns how many.
	Take(n int) int

	// TakeRecorded occupies a slot for an entry that this process has just recorded.
	TakeRecorded() bool

	// Free returns how many slots Take would give.
	Free() int

	// Overdraw occupies n slots even if none is free. It is for entries that cannot wait for a slot: entries whose stuck
	// handlers hold all slots, and an entry that is run by its id.
	Overdraw(n int)

	// Release frees n slots.
	Release(n int)

	// Reserve sets up to n slots aside for entries that an open transaction records, or returns nil.
	Reserve(n int) Reservation

	// Recorded is called when entries are recorded that should run at once but have no reserved slot.
	Recorded()
}

// A Reservation is slots that an open transaction has reserved.
type Reservation interface {
	// Use occupies keep of the reserved slots and frees the rest. It returns false, and changes nothing, if the reservation
	// has lapsed or was used before.
	Use(keep int) bool
}

// Slots returns the slots of the type.
func (t *Type) Slots() Slots { return t.slots }

// CountSlots makes s count the calls of the type. Call it at registration.
func (t *Type) CountSlots(s Slots) { t.slots = s }

// unlimited implements Slots for a type that has no limit.
type unlimited struct{}

func (unlimited) Take(n int) int          { return n }
func (unlimited) TakeRecorded() bool      { return true }
func (unlimited) Free() int               { return processlog.MaxRows }
func (unlimited) Overdraw(int)            {}
func (unlimited) Release(int)             {}
func (unlimited) Reserve(int) Reservation { return nil }
func (unlimited) Recorded()               {}

// Grouping makes one call of a type's handler take several entries. A feature attaches it with Type.Group at registration.
// Without a Grouping each entry has its own call.
//
// The claim schedule calls Wait, Due, Look and More while it holds its mutex. All methods return at once.
type Grouping interface {
	// Seats returns how many entries one call takes at most.
	Seats() int

	// Company returns the class of entries with which an entry may share a call, or Alone if the entry must have its
	// own call. Only entries of the same class share a call. lost is how many consecutive leases the entry has lost.
	//
	// Company must return Alone for a compensation, and for an entry that has lost MostSharedLosses leases or more. A
	// crash counts as a lost lease of every entry in the call. Assume that an entry does not crash the process but
	// shares calls with one that does. Without this rule, it would use up its crash budget and would be dead-lettered.
	Company(state processlog.State, lost int) Company

	// Start begins one call for several attempts in a new goroutine. The goroutine passes each attempt to Engine.Finish or
	// Engine.RunAlone, after it has called ShareSlot.
	Start(batch []*Attempt)

	// Wait returns how long a due entry may stay unclaimed while it waits for others to share its call. It returns the same
	// value each time. If it returns 0, Due, Look and More are not called.
	Wait() time.Duration

	// Due is called for each entry that is reported as due now. It returns true if the scanner must look at the type now.
	Due() bool

	// Look is called while entries of the type wait for others and a claim could begin. It returns a function, or the time
	// at which to call Look again. The function asks the database how much longer the entries may wait, and
	// returns Never if no entry is due. The engine runs the function in a goroutine. It calls Look again only after the
	// function has returned.
	Look(now time.Time) (look func() time.Duration, next time.Time)

	// More is called when a claim got as many entries as it asked for. The next Look then returns a function.
	More()
}

// Company is a class of entries that may share a handler call.
type Company int

const (
	Alone        Company = iota // shares its call with no entry
	WithOthers                  // shares with entries that have lost no lease
	WithSuspects                // shares with entries that have lost leases
	companies
)

// MostSharedLosses is the number of lost leases from which on an entry must run alone. Other entries of a shared call can
// cost an entry at most this many leases. crashBudget then allows at least one more. That lease is for a run alone, and a
// crash of that run is caused by the entry itself.
const MostSharedLosses = crashBudget - 1

// Group attaches a grouping to the type. Call it at registration.
func (t *Type) Group(g Grouping) { t.grouping = g }

// Grouped reports whether one call of the handler may take several entries.
func (t *Type) Grouped() bool { return t.grouping != nil }

// Seats returns how many entries one call of the handler takes at most.
func (t *Type) Seats() int {
	if t.grouping == nil {
		return 1
	}
	return t.grouping.Seats()
}

// company returns the Company of an entry that has lost the given number of leases.
func (t *Type) company(state processlog.State, lost int) Company {
	if t.grouping == nil {
		return Alone
	}
	return t.grouping.Company(state, lost)
}

// Wait returns how long a due entry may stay unclaimed while it waits for others to share its call.
func (t *Type) Wait() time.Duration {
	if t.grouping == nil {
		return 0
	}
	return t.grouping.Wait()
}

// callsFor returns how many calls n entries need if they share calls.
func (t *Type) callsFor(n int) int { return (n + t.Seats() - 1) / t.Seats() }

// fits returns how many entries one claim statement may lease for a number of calls. While an admission limits the
// type, each entry counts as a whole call.
func (t *Type) fits(calls int) int {
	calls = min(calls, processlog.MaxRows)
	if t.limited() {
		return calls
	}
	return min(calls*t.Seats(), processlog.MaxRows)
}

// calls returns how many calls the claimed rows need.
func (t *Type) calls(rows []processlog.Row) int {
	return t.callsOf(len(rows), func(i int) *processlog.Row { return &rows[i] })
}

// callsOf returns how many calls n rows need. row returns the i-th one.
func (t *Type) callsOf(n int, row func(i int) *processlog.Row) int {
	var entries [companies]int
	for i := range n {
		entries[t.company(row(i).State, LostLeases(row(i)))]++
	}
	return entries[Alone] + t.callsFor(entries[WithOthers]) + t.callsFor(entries[WithSuspects])
}

// sharedSlot is the slot of a call that several attempts share.
type sharedSlot struct{ left atomic.Int32 } // number of attempts that must end before the slot is free

// ShareSlot makes the attempts of one call share its slot. The slot is freed when n of them have ended.
func ShareSlot(batch []*Attempt, n int) {
	slot := new(sharedSlot)
	slot.left.Store(int32(n))
	for _, a := range batch {
		a.slot = slot
	}
}
