package engine

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Admission is a feature's say in which entries of one type this process claims and starts. The feature attaches it to the
// type at registration. Admit gives a function that is nil the answer of a feature that has no say.
//
// Many goroutines call the functions at once. A function returns at once, unless its comment says that it may ask the
// database.
type Admission struct {
	// Room returns how many calls of the handler may begin now. Unlimited means that the feature does not limit them. While
	// Room returns less, one claim at a time brings one entry, and entries recorded here wait behind those that are due.
	Room func() int

	// RoomAt returns when Room may return more without a call of Engine.Wake. The zero time means never.
	RoomAt func() time.Time

	// Paused reports whether nothing of the type is claimed: not even an entry that only has a lost lease counted.
	Paused func() bool

	// Accept is called for each entry that a claim could lease, while the entry's row is locked. It returns false for an entry
	// that must not run here now. lost is how many leases in a row the entry has lost.
	Accept func(row *processlog.Row, lost int) bool

	// Left is called for an entry that has lost leases and that Accept has accepted, once the entry can kill this process no
	// more. It may be called several times for one acceptance.
	Left func(row *processlog.Row, why Leaving)

	// Admit returns which of the claimed attempts may start. The engine gives back the others.
	Admit func(attempts []*Attempt) (admitted, refused []*Attempt)

	// Joined is called before one call of the handler begins for several attempts.
	Joined func(batch []*Attempt)

	// Readmit reports whether an attempt may run alone after the call that it shared has come to no verdict.
	Readmit func(a *Attempt) bool

	// CallEnded is called when a shared call ends, before the attempts end. The call has a verdict for each attempt if whole
	// is true. cause is why the call's context ended, if it did.
	CallEnded func(batch []*Attempt, verdicts []error, whole bool, cause error)

	// Ended is called when an attempt ends, before its slot is free.
	Ended func(a *Attempt, r Result)

	// Stuck is called when a handler has not returned after its timeout. call is the number of the attempt's call: the handler
	// may have returned meanwhile, and the attempt have begun another call.
	Stuck func(a *Attempt, call uint32)

	// RunBegins is called when Run begins.
	RunBegins func()
}

// Leaving is why an accepted entry can kill this process no more.
type Leaving int

const (
	NotClaimed Leaving = iota // the claim has not leased it after all
	NotRun                    // it was given back, or its handler is stuck
	Ended                     // its outcome is stored, or dropped
)

// Unlimited is the Room of a feature that does not limit a type.
const Unlimited = math.MaxInt

// noSay is the Admission of a feature that has no say.
var noSay = Admission{
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

// Admit attaches an admission to the type. Call it at registration.
func (t *Type) Admit(a Admission) { t.admissions = append(t.admissions, complete(a, noSay)) }

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

// roomAt returns when an admission may allow more calls, if that is after now and before until.
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

// If the entry has lost leases, left tells the admissions that this entry can no longer kill the process.
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

// Order is a feature that has entries of a type wait for other entries of the type.
type Order struct {
	// Blocked returns those of ids that may not run yet, because they wait for other entries. It may ask the database.
	Blocked func(ctx context.Context, ids []processlog.ID) ([]processlog.ID, error)

	// Find reads entries from the database that are due and not blocked, in the place of the store's Due. more reports whether
	// there may be further ones. FindAgain allows Find to look again at entries that it has looked at before.
	Find      func(ctx context.Context) (due []processlog.ID, more bool, err error)
	FindAgain func()

	// Reason returns an error that says why an entry is blocked, or nil. It may ask the database.
	Reason func(ctx context.Context, row *processlog.Row) error

	// Separate returns which claimed attempts may start, and which are blocked after all. It may ask the database. The engine
	// frees the slots of the others, and then calls giveUp, which gives up the leases of the blocked ones. An error of giveUp means
	// that they are due still. Separate has ended attempts that it does not return, by Engine.Fail.
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

// searching returns how many slots a claim of a number of calls holds until it knows which entries may run. A claim of a
// serial type holds one, because most entries that it finds may be blocked. The next entries of keys whose entries end
// meanwhile need the others. The one slot lets the entry run that has been due for longest, however fast other keys move on.
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

// Claimer claims entries in the place of the store's Claim, and means the same. It asks the database. Entries that it does not lease
// although they are due and free are in Claimed.Limited.
type Claimer func(ctx context.Context, want []processlog.Wanted, token processlog.Token, lease time.Duration, accept func(*processlog.Row) bool) (processlog.Claimed, error)

// ClaimBy attaches a claimer to the type. Call it at registration.
func (t *Type) ClaimBy(c Claimer) { t.claimer = c }

// Slots count the calls of a type's handler in this process. A call holds its slot from before its entries are claimed until
// the handler has returned. A type whose slots nobody counts has as many as it asks for.
type Slots interface {
	// Take occupies up to n slots for entries found due, and returns how many.
	Take(n int) int

	// TakeRecorded occupies a slot for an entry that this process has just recorded.
	TakeRecorded() bool

	// Free returns how many slots Take would give.
	Free() int

	// Overdraw occupies n slots even where none is free, for entries that run nothing.
	Overdraw(n int)

	// Release frees n slots.
	Release(n int)

	// Reserve sets up to n slots aside for entries that an open transaction records, or returns nil.
	Reserve(n int) Reservation

	// Recorded is called when entries are recorded that are to run at once and for which no slot is reserved.
	Recorded()
}

// A Reservation is slots that an open transaction has reserved.
type Reservation interface {
	// Use turns keep of the reserved slots into occupied ones and frees the rest. It returns false if the reservation has
	// lapsed or was used before.
	Use(keep int) bool
}

// Slots returns what counts the calls of the type.
func (t *Type) Slots() Slots { return t.slots }

// CountSlots has the type's calls counted. Call it at registration.
func (t *Type) CountSlots(s Slots) { t.slots = s }

// unlimited are the slots of a type whose calls nobody counts.
type unlimited struct{}

func (unlimited) Take(n int) int          { return n }
func (unlimited) TakeRecorded() bool      { return true }
func (unlimited) Free() int               { return processlog.MaxRows }
func (unlimited) Overdraw(int)            {}
func (unlimited) Release(int)             {}
func (unlimited) Reserve(int) Reservation { return nil }
func (unlimited) Recorded()               {}

// Grouping has one call of a type's handler take several entries. A feature attaches it to the type at registration. Without
// it each entry has a call of its own.
//
// The claim schedule calls Wait, Due, Look and More while it holds its mutex. All methods return at once.
type Grouping interface {
	// Seats returns how many entries one call takes at most.
	Seats() int

	// Company returns with which entries an entry may share a call: with those of the same company. lost is how many leases in
	// a row the entry has lost.
	Company(state processlog.State, lost int) Company

	// Start begins one call for several attempts in a goroutine of its own. The goroutine ends each attempt with Engine.Finish
	// or Engine.RunAlone.
	Start(batch []*Attempt)

	// Wait returns how long a due entry may stay unclaimed to share its call with others. It always returns the same value. If
	// it returns 0, Due, Look and More are not called.
	Wait() time.Duration

	// Due is called for each entry that is reported as due now. It returns true if the scanner must look at the type now.
	Due() bool

	// Look is called while entries of the type wait and a claim could begin. It returns when to call it again, or a function
	// that finds out in the database how much longer the entries may wait: Never if none is due. The engine calls that function in a
	// goroutine, and calls Look again only after it has returned.
	Look(now time.Time) (look func() time.Duration, next time.Time)

	// More is called when a claim took as many entries as it asked for. It allows a look at once.
	More()
}

// Company says which other entries share an entry's handler call.
type Company int

const (
	Alone        Company = iota
	WithOthers           // entries that have lost no lease
	WithSuspects         // entries that have lost leases
	companies
)

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

func (t *Type) company(state processlog.State, lost int) Company {
	if t.grouping == nil {
		return Alone
	}
	return t.grouping.Company(state, lost)
}

// Wait returns how long a due entry may stay unclaimed to share its call with others.
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

func (t *Type) callsOf(n int, row func(i int) *processlog.Row) int {
	var entries [companies]int
	for i := range n {
		entries[t.company(row(i).State, LostLeases(row(i)))]++
	}
	return entries[Alone] + t.callsFor(entries[WithOthers]) + t.callsFor(entries[WithSuspects])
}

// sharedSlot is the slot of a call that several attempts share.
type sharedSlot struct{ left atomic.Int32 } // number of attempts that must end before the slot is free

// ShareSlot has the attempts of one call share its slot. The slot is free once n of them have ended.
func ShareSlot(batch []*Attempt, n int) {
	slot := new(sharedSlot)
	slot.left.Store(int32(n))
	for _, a := range batch {
		a.slot = slot
	}
}
