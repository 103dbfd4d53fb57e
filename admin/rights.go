package admin

import (
	"context"
	"slices"
	"unicode/utf8"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Right is a right that an Actor may have. Its text is also the name of the action in the audit log.
type Right string

// These rights let a person see information.
const (
	SeeOverview Right = "see overview" // counts and health
	SeeEntries  Right = "see entries"  // entries, cases and groups, without content
	SeeContent  Right = "see content"  // content, through Reveal
	SeeErrors   Right = "see errors"   // errors in full; without this right ids, numbers and quoted words are removed
	SeeAuditLog Right = "see trail"    // the audit log
	Export      Right = "export"       // take a listing out of the system
)

// These rights let a person act on entries. Each needs SeeEntries as well.
const (
	Requeue          Right = "requeue"           // run an entry again
	RequeueSucceeded Right = "requeue succeeded" // needed in addition to Requeue or Compensate to run finished work again
	Compensate       Right = "compensate"        // requeue an entry to run its compensation
	SettleManually   Right = "settle by hand"    // record that a person did the work
	Cancel           Right = "cancel"            // record that the work is no longer wanted
	Complete         Right = "complete"          // record that the work was done elsewhere
	Reschedule       Right = "reschedule"        // change when an entry is due
)

// These rights let a person act on cases, types and limits.
const (
	TakeCase    Right = "take case"    // take a case, and give back a case that the actor has taken
	AssignCase  Right = "assign case"  // give a case to any person, or to nobody
	NoteCase    Right = "note"         // add a note to an entry
	Pause       Right = "pause"        // pause and resume a type
	ChangeLimit Right = "change limit" // change a limit on starts; needed for each type that shares the limit
)

// Rights lists all rights.
var Rights = [...]Right{SeeOverview, SeeEntries, SeeContent, SeeErrors, SeeAuditLog, Export, Requeue, RequeueSucceeded, Compensate,
	SettleManually, Cancel, Complete, Reschedule, TakeCase, AssignCase, NoteCase, Pause, ChangeLimit}

// Actor is a person as the application knows them. Take it from a session that your application has authenticated.
type Actor struct {
	ID string // name in the records, 1 to 191 characters
}

func (a Actor) isInvalid() bool {
	return processlog.IsBlank(a.ID) || !utf8.ValidString(a.ID) || utf8.RuneCountInString(a.ID) > processlog.MaxIdempotencyKey
}

// Subject says on which type and entries an actor wants to use a right.
type Subject struct {
	Type   string             // business type; empty: the action concerns no type, or a purged entry
	Amount compensator.Amount // amount of the entry, if known
	Count  int                // number of entries that the action names; 0: the action names none
}

// Access decides what an Actor may do. The Admin calls May concurrently, and many times for one page. So May must be
// quick.
type Access interface {
	// May reports whether the actor has the right on the subject. If it panics, the actor does not have the right.
	May(ctx context.Context, a Actor, right Right, subject Subject) bool
}

// AccessFunc is a function that implements Access.
type AccessFunc func(ctx context.Context, a Actor, right Right, subject Subject) bool

// May calls f.
func (f AccessFunc) May(ctx context.Context, a Actor, right Right, subject Subject) bool {
	return f(ctx, a, right, subject)
}

func (r Right) isWrite() bool {
	switch r {
	case SeeOverview, SeeEntries, SeeErrors, SeeAuditLog:
		return false
	}
	return true
}

// typeRights answers for which types the actor has every right in typeRights.rights. It stores each answer, so it asks
// Access once for each type.
type typeRights struct {
	d          *Admin
	actor      Actor
	rights     []Right
	heldByType map[string]bool
}

func (d *Admin) rightsOf(a Actor, rights ...Right) *typeRights {
	return &typeRights{d, a, rights, make(map[string]bool)}
}

func (s *typeRights) holds(ctx context.Context, businessType string) bool {
	isHeld, isKnown := s.heldByType[businessType]
	if !isKnown {
		isHeld = !slices.ContainsFunc(s.rights, func(right Right) bool { return !s.d.mayDo(ctx, s.actor, right, Subject{Type: businessType}) })
		s.heldByType[businessType] = isHeld
	}
	return isHeld
}
