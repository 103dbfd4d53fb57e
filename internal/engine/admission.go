package engine

import (
	"context"
	"math"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

// Admission is a feature's say in which entries of one type this process claims and starts. The feature attaches it to the
// type at registration. A nil function has no say.
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

// Admit attaches an admission to the type. Call it at registration.
func (t *Type) Admit(a Admission) { t.admissions = append(t.admissions, a) }

// Room returns how many calls of the handler the admissions allow to begin now.
func (t *Type) Room() int {
	room := Unlimited
	for i := range t.admissions {
		if f := t.admissions[i].Room; f != nil {
			room = min(room, f())
		}
	}
	return room
}

// limited reports whether an admission limits the type now.
func (t *Type) limited() bool { return t.Room() < Unlimited }

// Paused reports whether an admission has paused the type.
func (t *Type) Paused() bool {
	for i := range t.admissions {
		if f := t.admissions[i].Paused; f != nil && f() {
			return true
		}
	}
	return false
}

// roomAt returns when an admission may allow more calls, if that is after now and before until.
func (t *Type) roomAt(now, until time.Time) time.Time {
	for i := range t.admissions {
		if f := t.admissions[i].RoomAt; f != nil {
			if at := f(); now.Before(at) && at.Before(until) {
				until = at
			}
		}
	}
	return until
}

// Accepts reports whether all admissions accept an entry.
func (t *Type) Accepts(row *processlog.Row, lost int) bool {
	for i := range t.admissions {
		if f := t.admissions[i].Accept; f != nil && !f(row, lost) {
			return false
		}
	}
	return true
}

// If the entry has lost leases, left tells the admissions that this entry can no longer kill the process.
func (t *Type) left(row *processlog.Row, lost int, why Leaving) {
	if lost < SuspectAfter {
		return
	}
	for i := range t.admissions {
		if f := t.admissions[i].Left; f != nil {
			f(row, why)
		}
	}
}

// Admitted returns the attempts that all admissions allow to start.
func (t *Type) Admitted(attempts []*Attempt) (admitted, refused []*Attempt) {
	admitted = attempts
	for i := range t.admissions {
		if f := t.admissions[i].Admit; f != nil {
			var no []*Attempt
			admitted, no = f(admitted)
			refused = append(refused, no...)
		}
	}
	return admitted, refused
}

// Blocked returns those of ids that may not run yet. It may ask the database.
func (t *Type) Blocked(ctx context.Context, ids []processlog.ID) ([]processlog.ID, error) {
	for i := range t.admissions {
		if f := t.admissions[i].Blocked; f != nil && len(ids) > 0 {
			return f(ctx, ids)
		}
	}
	return nil, nil
}

// finder returns the admission that finds due entries, or nil.
func (t *Type) finder() *Admission {
	for i := range t.admissions {
		if t.admissions[i].Find != nil {
			return &t.admissions[i]
		}
	}
	return nil
}

// Blocks reports whether entries of the type may be blocked by others.
func (t *Type) Blocks() bool { return t.finder() != nil }

// searching returns how many slots a claim of a number of calls holds until it knows which entries may run. A claim of a
// serial type holds one, because most entries that it finds may be blocked. The next entries of keys whose entries end
// meanwhile need the others. The one slot lets the entry run that has been due for longest, however fast other keys move on.
func (t *Type) searching(calls int) int {
	if t.Blocks() {
		return min(calls, 1)
	}
	return calls
}

// reason returns why an entry is blocked, or nil.
func (t *Type) reason(ctx context.Context, row *processlog.Row) error {
	for i := range t.admissions {
		if f := t.admissions[i].Reason; f != nil {
			return f(ctx, row)
		}
	}
	return nil
}

// separate returns which claimed attempts may start, and which are blocked.
func (t *Type) separate(attempts []*Attempt) (first, blocked []*Attempt, giveUp func() error) {
	for i := range t.admissions {
		if f := t.admissions[i].Separate; f != nil {
			return f(attempts)
		}
	}
	return attempts, nil, nil
}

// Readmit reports whether all admissions allow an attempt to run alone.
func (t *Type) Readmit(a *Attempt) bool {
	for i := range t.admissions {
		if f := t.admissions[i].Readmit; f != nil && !f(a) {
			return false
		}
	}
	return true
}

// Joined tells the admissions that one call begins for several attempts.
func (t *Type) Joined(batch []*Attempt) {
	for i := range t.admissions {
		if f := t.admissions[i].Joined; f != nil {
			f(batch)
		}
	}
}

// CallEnded tells the admissions that a shared call has ended.
func (t *Type) CallEnded(batch []*Attempt, verdicts []error, whole bool, cause error) {
	for i := range t.admissions {
		if f := t.admissions[i].CallEnded; f != nil {
			f(batch, verdicts, whole, cause)
		}
	}
}

func (t *Type) ended(a *Attempt, r Result) {
	for i := range t.admissions {
		if f := t.admissions[i].Ended; f != nil {
			f(a, r)
		}
	}
}

func (t *Type) stuck(a *Attempt, call uint32) {
	for i := range t.admissions {
		if f := t.admissions[i].Stuck; f != nil {
			f(a, call)
		}
	}
}

func (t *Type) runBegins() {
	for i := range t.admissions {
		if f := t.admissions[i].RunBegins; f != nil {
			f()
		}
	}
}

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
